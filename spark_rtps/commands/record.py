"""``spark-rtps record``: topics into an MCAP file."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..transport.errors import UnknownTypeError
from .network import Domain, Interface, Peers, joined, ros_distribution, seconds

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..api.participant import Participant
    from ..api.subscription import Subscription
    from ..transport.types.model import Struct

#: How long one topic may delay the others.
_TURN_SECONDS: Final = 0.05
_BUFFER: Final = "256MiB"
#: Samples that are older than this are in the file, however the process ends.
_WRITTEN_SECONDS: Final = 5.0


def record(
    topics: Annotated[list[str], typer.Argument(help="Names of the topics, as spark-rtps ls shows them.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The MCAP file to write; it must not exist.")
    ],
    type_file: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="IDL file with the types, if writers do not tell them."
        ),
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--duration", "-t", help="End after this time: 5s, 2m. Default: at Ctrl-C.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="End after so many samples.")
    ] = None,
    wait: Annotated[str, typer.Option("--wait", "-w", help="How long to wait for a topic's type.")] = "10s",
    domain: Domain = 0,
    interface: Interface = None,
    peers: Peers = "",
) -> None:
    """Record topics into an MCAP file, which Foxglove opens and spark.read reads (option recording).

    Each reader requests what the topic's first writer offers. Topics of ROS 2 are recorded under ROS 2's names.
    """
    from ..recordings.mcap_writing import ROS_MSG, McapRecorder, schema_of

    until = None if duration is None else seconds(duration, "--duration")
    patience = seconds(wait, "--wait")
    with joined(domain, interface, peers, name="spark-rtps record") as participant:
        # each once: two readers of a topic would both record its samples
        each_topic = dict.fromkeys(topics)
        subscribed = [_subscribed(participant, topic, type_file, patience) for topic in each_topic]
        all_of_ros = all(schema_of(each.topic, struct)[1] == ROS_MSG for each, struct in subscribed)
        recorder = McapRecorder(
            str(output), lambda writer: _hash_of(participant, writer), is_of_ros=all_of_ros
        )
        try:
            with progress() as bar, _ended_by_signals() as ended:
                task = bar.add_task("recording", total=count, rate="")
                written = time.monotonic()
                deadline = None if until is None else written + until
                while not ended.is_set() and (deadline is None or time.monotonic() < deadline):
                    for subscription, struct in subscribed:
                        left = None if count is None else count - recorder.samples
                        rows = subscription.take(max_rows=left, timeout=_TURN_SECONDS)
                        recorder.add_rows(subscription.topic, struct, rows)
                        if count is not None and recorder.samples >= count:
                            return
                    if time.monotonic() - written >= _WRITTEN_SECONDS:
                        recorder.flush_chunks()
                        written = time.monotonic()
                    size = f"{recorder.samples} samples, {recorder.nbytes / 1e6:.1f} MB"
                    bar.update(task, completed=recorder.samples, rate=size)
        except KeyboardInterrupt:
            pass  # the second signal
        finally:
            recorder.close()
            typer.echo(f"{recorder.samples} samples, {recorder.nbytes} bytes in {output}", err=True)
            _tell_losses([subscription for subscription, _ in subscribed])


@contextmanager
def _ended_by_signals() -> Iterator[threading.Event]:
    """Set by Ctrl-C or TERM, so that the samples taken so far are still written: an exception in the middle of a
    message
    would leave an unreadable file. The second signal ends at once."""
    ended = threading.Event()
    before: dict[int, Any] = {}

    def end(number: int, _frame: FrameType | None) -> None:
        ended.set()
        signal.signal(number, before[number])

    if threading.current_thread() is threading.main_thread():
        before |= {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rate]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar


def _subscribed(
    participant: Participant, topic: str, type_file: Path | None, patience: float
) -> tuple[Subscription, Struct]:
    """A reader with all that the topic's first writer offers, and the topic's type."""
    from ..columns.type_sources import is_ros_name, known_by_name, type_of_file
    from ..transport.types.ros import ros_type

    try:
        collected = participant.discover_type(topic, timeout=patience)
        struct, endpoint = collected.struct, collected.endpoint
    except UnknownTypeError:
        writers = [each for each in participant.endpoints() if each.topic == topic and each.kind == "writer"]
        if not writers:
            raise
        struct, endpoint = None, writers[0]
        if type_file is None and not is_ros_name(endpoint.type_name):
            raise
    if type_file is not None:
        struct = type_of_file(str(type_file), endpoint.type_name).struct
    if struct is None:
        known = known_by_name(endpoint, ros_distribution())
        struct = (known and known.struct) or ros_type(endpoint.type_name, ros_distribution())
    qos = endpoint.qos
    subscription = participant.subscribe(
        topic,
        type=endpoint.type_name,
        payload="binary",
        reliability=qos.reliability.name.lower(),
        durability="transient_local" if qos.is_transient_local else "volatile",
        partition=qos.partition or None,
        options={"keyed": struct.is_keyed, "ownership": qos.ownership.name.lower()},
        buffer_size=_BUFFER,
    )
    return subscription, struct


def _hash_of(participant: Participant, writer: str) -> str | None:
    """The type hash that a writer announces; None: none, or it has left."""
    from ..transport.net.directory import type_hash

    found = (each for each in participant.endpoints() if str(each.guid) == writer)
    return next(map(type_hash, found), None)


def _tell_losses(subscriptions: list[Subscription]) -> None:
    """Report the samples that the file lacks because they were lost."""
    for subscription in subscriptions:
        counters = Counter(subscription.counters())
        if lost := counters["lost_samples"]:
            typer.echo(
                f"topic {subscription.topic!r}: {lost} samples were lost before they were recorded", err=True
            )
