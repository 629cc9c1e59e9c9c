"""``spark-rtps play``: a recording back into the network, in the time in which it was recorded."""

from __future__ import annotations

import heapq
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from ..transport.errors import OptionError
from .network import Domain, Interface, Peers, joined, seconds
from .record import progress

if TYPE_CHECKING:
    import pyarrow as pa

    from ..api.participant import Participant
    from ..api.publication import Publication
    from ..columns.topic_plan import TopicPlan
    from ..recordings.recorded import Piece

_LOG_TIME: Final = "log_time"
#: Samples of a topic that were logged within so many µs are written together.
_TOGETHER_US: Final = 1_000
_PIECE_BYTES: Final = 1 << 40


class _Rows(NamedTuple):
    """Rows of one topic that are due at the same time, in µs since the epoch."""

    due: int
    topic: str
    rows: pa.RecordBatch


def play(
    recording: Annotated[
        str, typer.Argument(metavar="FILE", help="File, folder or pattern, as option recording.")
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", help="Play this topic, by its name in the recording. Repeatable. Default: all."
        ),
    ] = None,
    rate: Annotated[float, typer.Option(min=0.001, help="How many times as fast as it was recorded.")] = 1.0,
    type_file: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="IDL file with the types, if the recording lacks them."
        ),
    ] = None,
    wait: Annotated[
        str, typer.Option("--wait", "-w", help="How long to wait for a reader of each topic: 500ms, 10s.")
    ] = "0s",
    domain: Domain = 0,
    interface: Interface = None,
    peers: Peers = "",
) -> None:
    """Publish the samples of a recording as they came: at the same distances of time, divided by --rate.

    Topics of ROS 2 get their names in DDS: /imu is published as rt/imu.
    """
    from ..recordings.files import open_recording, recording_files

    paths = recording_files([recording])
    there = {name: None for path in paths for name in open_recording(path, domain=domain).topics()}
    wanted = list(dict.fromkeys(topics or sorted(there)))
    if not wanted:
        raise OptionError("recording", recording, "has no topic whose samples are CDR")
    plans = {topic: _plan(paths, recording, topic, type_file, domain) for topic in wanted}
    patience = seconds(wait, "--wait")
    with (
        tempfile.TemporaryDirectory() as folder,
        joined(domain, interface, peers, name="spark-rtps play") as participant,
    ):
        publications = {
            topic: _published(participant, topic, plan, Path(folder)) for topic, (plan, _) in plans.items()
        }
        for publication in publications.values():
            if patience:
                publication.wait_for_readers(patience)
        merged = heapq.merge(
            *(_due(topic, *each) for topic, each in plans.items()), key=lambda rows: rows.due
        )
        played = _play(merged, publications, rate)
        for publication in publications.values():
            publication.wait_for_acknowledgments()
    typer.echo(f"{played} samples of {len(wanted)} topics were played", err=True)


def _play(merged: Iterator[_Rows], publications: dict[str, Publication], rate: float) -> int:
    begin, first, played = time.monotonic(), None, 0
    with progress() as bar:
        task = bar.add_task("playing", total=None, rate="")
        for each in merged:
            first = each.due if first is None else first
            at = (each.due - first) / 1e6
            late = begin + at / rate - time.monotonic()
            if late > 0:
                time.sleep(late)
            publications[each.topic].write(each.rows, wait=False, timestamp=time.time_ns())
            played += each.rows.num_rows
            bar.update(task, rate=f"{played} samples, {at:.1f} s of the recording")
    return played


def _plan(
    paths: list[str], recording: str, topic: str, type_file: Path | None, domain: int
) -> tuple[TopicPlan, list[Piece]]:
    """How the topic's samples become rows, and where they are."""
    from ..columns.topic_plan import plan_reading, schema_to_read
    from ..columns.type_sources import given_type
    from ..options import AppliesTo, parse_options
    from ..recordings.recorded import ALL_TIMES
    from ..recordings.recorded_topic import pieces, recorded_type, topic_files

    options = {"recording": recording, "topic": topic, _LOG_TIME: "true", "domain": str(domain)}
    if type_file is not None:
        options["type.file"] = str(type_file)
    settings = parse_options(options, AppliesTo.READ)
    found = given_type(settings)
    files = topic_files(paths, settings, typed=found is None)
    found = found or recorded_type(files, settings)
    plan = plan_reading(settings, schema_to_read(settings, found), found)
    return plan, list(pieces(files, ALL_TIMES, nbytes=_PIECE_BYTES))


def _published(participant: Participant, topic: str, plan: TopicPlan, folder: Path) -> Publication:
    """A writer of the recorded type, which goes on where nobody reads."""
    from ..transport.types.idl.printer import print_idl

    assert plan.struct is not None
    path = folder / f"{len(list(folder.iterdir()))}.idl"
    path.write_text(print_idl(plan.struct), encoding="utf-8")
    is_of_ros = topic.startswith("/") and "::dds_::" in plan.struct.name
    return participant.publish(
        f"rt{topic}" if is_of_ros else topic,
        type=plan.struct.name,
        type_file=path,
        options={"on_no_reader": "drop", "type.extensibility": "final" if is_of_ros else None},
    )


def _due(topic: str, plan: TopicPlan, parts: list[Piece]) -> Iterator[_Rows]:
    """The topic's rows in the order of the recording, those together that are due together."""
    import numpy as np
    import pyarrow as pa

    from ..recordings.rows import decode_piece

    for part in parts:
        for batch in decode_piece(part, plan):
            times = batch.column(_LOG_TIME).cast(pa.int64()).to_numpy()
            rows = batch.drop_columns([_LOG_TIME])
            first = 0
            while first < len(times):
                beyond = np.flatnonzero(times[first:] > times[first] + _TOGETHER_US)
                last = first + int(beyond[0]) if len(beyond) else len(times)
                yield _Rows(int(times[first]), topic, rows.slice(first, last - first))
                first = last
