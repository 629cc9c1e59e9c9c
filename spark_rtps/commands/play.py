"""``spark-rtps play``: publishes a recording, at the pace at which it was recorded."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..transport.errors import OptionError
from ..transport.wire.samples import CDR2_BE, ENCAPSULATION_BYTES
from .network import Domain, Interface, Peers, joined, ros_distribution, seconds
from .record import progress

if TYPE_CHECKING:
    from ..api.participant import Participant
    from ..api.publication import Publication
    from ..recordings.log_order import Logged
    from ..recordings.recorded_topic import TopicFile
    from ..transport.types.cdr.codec import Codec
    from ..transport.types.cdr.cursors import Mask
    from ..transport.types.model import Struct
    from ..transport.wire.samples import U8, Samples

#: Samples of each instance for readers that join later; ROS 2's default depth.
_KEPT: Final = 10


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
    fail_on_data_loss: Annotated[
        bool, typer.Option(help="End at damage; else play what is whole, as option failOnDataLoss.")
    ] = True,
    wait: Annotated[
        str, typer.Option("--wait", "-w", help="How long to wait for a reader of each topic: 500ms, 10s.")
    ] = "0s",
    domain: Domain = 0,
    interface: Interface = None,
    peers: Peers = "",
) -> None:
    """Publish the samples of a recording with their original timing, divided by --rate.

    Topics of ROS 2 get their names in DDS: /imu is published as rt/imu.
    """
    from ..recordings.files import files_with_content, open_recording, recording_files
    from ..recordings.log_order import in_log_order
    from ..recordings.recorded_topic import TopicFile

    paths, given = recording_files([recording]), ros_distribution()
    files = [
        TopicFile(
            open_recording(path, is_lenient=not fail_on_data_loss, domain=domain, distribution=given),
            path,
            (),
            domain,
        )
        for path in files_with_content(paths, is_lenient=not fail_on_data_loss)
    ]
    there = {name: None for each in files for name in each.file.topics()}
    wanted = list(dict.fromkeys(topics or sorted(there)))
    if not wanted:
        raise OptionError("recording", recording, "has no topic whose samples are CDR")
    of_topics = {topic: _files_of(files, recording, topic, type_file, domain) for topic in wanted}
    patience = seconds(wait, "--wait")
    with (
        tempfile.TemporaryDirectory() as folder,
        joined(domain, interface, peers, name="spark-rtps play") as participant,
    ):
        published = {
            topic: _Published(participant, topic, struct, having, Path(folder))
            for topic, (struct, having) in of_topics.items()
        }
        for each in published.values():
            if patience:
                each.publication.wait_for_readers(patience)
        together = [
            TopicFile(each.file, each.path, tuple(channels), domain)
            for each in files
            if (
                channels := [
                    c for _, had in of_topics.values() for o in had if o.path == each.path for c in o.channels
                ]
            )
        ]
        played = _play(in_log_order(together), published, rate)
        for each in published.values():
            each.publication.wait_for_acknowledgments()
    typer.echo(f"{played} samples of {len(wanted)} topics were played", err=True)
    for topic, each in published.items():
        if each.unreadable:
            why = "they are cut short, or their keys cannot be read"
            typer.echo(f"topic {topic!r}: {each.unreadable} samples were not played: {why}", err=True)


class _Published:
    """A played topic: a writer of the recorded type, which continues when there is no reader."""

    def __init__(
        self, participant: Participant, topic: str, struct: Struct, files: list[TopicFile], folder: Path
    ) -> None:
        import pyarrow as pa

        from ..transport.types.arrow import arrow_schema
        from ..transport.types.cdr.codec import Codec
        from ..transport.types.idl.printer import print_idl

        path = folder / f"{len(list(folder.iterdir()))}.idl"
        path.write_text(print_idl(struct), encoding="utf-8")
        is_of_ros = topic.startswith("/") and "::dds_::" in struct.name
        #: Readers of both kinds match it: the ROS 2 topics with a history for late joiners request transient_local.
        self.publication: Publication = participant.publish(
            f"rt{topic}" if is_of_ros else topic,
            type=struct.name,
            type_file=path,
            durability="transient_local",
            history_depth=_KEPT,
            options={
                "on_no_reader": "drop",
                "type.extensibility": "final" if is_of_ros else None,
                "data_representation": _representation(files),
            },
        )
        self._codec: Codec | None = None
        if struct.is_keyed:
            full = arrow_schema(struct)
            keys = pa.schema([full.field(member.name) for member in struct.members if member.key])
            self._codec = Codec(struct, arrow_schema=keys)
        #: Samples that are too short, or whose instance is not known.
        self.unreadable = 0

    def write_payloads(self, payloads: list[bytes]) -> int:
        """Write serialized samples as they were recorded, and count them."""
        import pyarrow as pa

        from ..columns.encoding import samples_of
        from ..transport.wire.samples import Samples

        whole = [payload for payload in payloads if len(payload) >= ENCAPSULATION_BYTES]
        samples, hashes = samples_of(pa.array(whole, pa.binary())), None
        if self._codec is not None:
            known, hashes = _key_hashes(self._codec, samples)
            hashes = hashes[known]
            samples = Samples.ragged(samples.data, samples.all_offsets()[known], samples.all_lengths()[known])
        self.unreadable += len(payloads) - samples.count
        if samples.count:
            self.publication.write_serialized(samples, hashes, timestamp=time.time_ns())
        return samples.count


def _key_hashes(codec: Codec, samples: Samples) -> tuple[Mask, U8]:
    """The samples whose key decodes, (count,), and their key hashes, (count, 16)."""
    import numpy as np

    from ..transport.qos import DataRepresentation
    from ..transport.wire.samples import Samples

    known, hashes = np.zeros(samples.count, np.bool_), np.zeros((samples.count, 16), np.uint8)
    offsets, lengths = samples.all_offsets(), samples.all_lengths()
    is_xcdr2 = samples.data[offsets + 1] >= CDR2_BE
    for representation, which in (
        (DataRepresentation.XCDR1, ~is_xcdr2),
        (DataRepresentation.XCDR2, is_xcdr2),
    ):
        rows = np.flatnonzero(which)
        for decoded in codec.parts(Samples.ragged(samples.data, offsets[rows], lengths[rows])):
            mine, rows = rows[: decoded.count], rows[decoded.count :]
            if decoded.malformed is not None:
                mine = mine[~decoded.malformed]
            if len(mine):
                known[mine] = True
                hashes[mine] = codec.key_hashes(decoded.batch, representation=representation)
    return known, hashes


def _play(logged: Iterator[Logged], published: dict[str, _Published], rate: float) -> int:
    begin, first, played = time.monotonic(), None, 0
    with progress() as bar:
        task = bar.add_task("playing", total=None, rate="")
        for each in logged:
            first = each.time if first is None else first
            at = (each.time - first) / 1e9
            late = begin + at / rate - time.monotonic()
            if late > 0:
                time.sleep(late)
            played += published[each.topic].write_payloads(each.payloads)
            bar.update(task, rate=f"{played} samples, {at:.1f} s of the recording")
    return played


def _files_of(
    files: list[TopicFile], recording: str, topic: str, type_file: Path | None, domain: int
) -> tuple[Struct, list[TopicFile]]:
    """The topic's type, and the files that have it, with its channels."""
    from ..columns.type_sources import given_type
    from ..options import AppliesTo, parse_options
    from ..recordings.recorded_topic import TopicFile, recorded_type, topic_files

    options = {"recording": recording, "topic": topic, "domain": str(domain)}
    if type_file is not None:
        options["type.file"] = str(type_file)
    settings = parse_options(options, AppliesTo.READ)
    found = given_type(settings)
    having = [
        TopicFile(each.file, each.path, channels, domain)
        for each in files
        if (channels := each.file.channels(topic, typed=found is None))
    ]
    if not having:
        topic_files(
            [each.path for each in files], settings, typed=False
        )  # raises an error with the topics there
    found = found or recorded_type(having, settings)
    assert found.struct is not None
    return found.struct, having


def _representation(files: list[TopicFile]) -> str | None:
    """The data representation of a topic's first sample; None: there is no sample."""
    from ..recordings.recorded import ALL_TIMES, Piece

    for each in files:
        for section in each.file.sections(each.channels, ALL_TIMES):
            piece = Piece(each.path, each.file.form, each.channels, (section,), each.domain)
            for samples in each.file.read_piece(piece, ALL_TIMES):
                for i in range(samples.count):
                    if samples.lengths[i] >= ENCAPSULATION_BYTES:
                        return "xcdr2" if samples.data[samples.offsets[i] + 1] >= CDR2_BE else "xcdr1"
    return None
