"""An exception comes between any two lines of a writer: readers still get all batches, fragments, GSO buffers and sets.

As test_interrupted_writes.py, with readers that are real, on a link that loses every third datagram with samples. The
oracle: what was written by calls that returned is delivered once, in order and unchanged, what a call that raised was
to write at most once, and all that is written behind it; nothing counts as lost; a reader that comes late gets what
HISTORY keeps of that, and no more; and in the end nobody waits, and no timer is due for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.protocol.endpoint_info import ReaderInfo, WriterInfo
from spark_rtps.transport.protocol.outgoing import Outgoing
from spark_rtps.transport.protocol.policies import BatchPolicy, BatchWire, FlowControllerPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.asynchronous import AsynchronousPublishing
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import INFINITE, Guid
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, REMOVED, UNREGISTERED, Samples
from tests.log.publishing_scene import number_of, payload
from tests.protocol.lossy_link import LossyLink, Node
from tests.support.interruption import Interruption

MS = 1_000_000
S = 1_000 * MS
RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
LASTING = replace(
    RELIABLE, history=HistoryKind.KEEP_LAST, history_depth=1, durability=DurabilityKind.TRANSIENT_LOCAL
)
BATCHES = BatchPolicy(enable=True, max_samples=4, max_flush_delay=10 * MS)
BUCKET = FlowControllerPolicy(
    "bucket", max_tokens=2_000, tokens_added_per_period=1_500, period=MS, bytes_per_token=1
)


class Sending(Node):
    """The node of the writer; with ``publishing`` it sends asynchronously."""

    publishing: AsynchronousPublishing | None = None
    now: Callable[[], int]

    def outgoing(self) -> Iterator[Outgoing]:
        for writer in self.writers:
            assert isinstance(writer, StatefulWriter)
            if self.publishing is None:
                yield from writer.outgoing()
            else:
                yield from self.publishing.pass_on(writer, self.now())
                yield from self.publishing.release(self.now())

    def timers(self) -> list[int]:
        at = None if self.publishing is None else self.publishing.get_timer()
        return super().timers() + ([] if at is None else [at])


class Scene:
    """A writer of numbered samples, and its readers."""

    def __init__(
        self,
        qos: Qos = RELIABLE,
        *,
        batch: BatchPolicy | None = None,
        keyed: bool = False,
        logged: bool = False,
        asynchronous: bool = False,
        room: int = INFINITE,
    ) -> None:
        self.link, self.qos, self.keyed, self.room = LossyLink(), qos, keyed, room
        first = self.link.node()
        self.node = self.link.nodes[0] = Sending(first.prefix, first.locator)
        self.node.now = lambda: self.link.now
        self.writer = StatefulWriter(
            Guid(first.prefix, b"\0\0\1\2" if keyed else b"\0\0\1\3"),
            qos,
            batch=batch or BatchPolicy(),
            message_size=1_400,
            log=PublicationLog.create(1 << 16) if logged else None,
        )
        self.node.writers.append(self.writer)
        if asynchronous:
            self.node.publishing = AsynchronousPublishing()
            self.node.publishing.add_writer(self.writer, BUCKET, 0)
        self.readers: list[tuple[Node, StatefulReader]] = []
        #: What was written by calls that returned, and of each number its key and flags.
        self.returned: list[int] = []
        self.kinds: dict[int, tuple[int, int]] = {}
        self.join()
        self.run(50 * MS)
        if qos.is_reliable:
            self.link.filter = self._passes
        self._sent = 0

    def _passes(self, sender: Node, message: bytes) -> bool:
        self._sent += sender is self.node and len(message) > 90
        return sender is not self.node or len(message) <= 90 or self._sent % 3 != 1

    def join(self) -> None:
        node, writer, qos = self.link.node(), self.writer, self.qos
        if self.readers:  # a set of which some is replaced is not complete
            qos = replace(qos, coherent_access=False)
        reader = StatefulReader(Guid(node.prefix, b"\0\0\2\7" if self.keyed else b"\0\0\2\4"), qos)
        node.readers.append(reader)
        self.readers.append((node, reader))
        about = qos.is_reliable, qos.is_transient_local
        reports = self.room < INFINITE
        reader.match_writer(
            WriterInfo(writer.guid, (self.node.locator,), (), *about, status_messages=reports),
            now=self.link.now,
        )
        writer.match_reader(
            ReaderInfo(reader.guid, (node.locator,), (), *about, batches=True, status_messages=reports),
            now=self.link.now,
        )

    def write(self, *sizes: int, flags: int = 0, key: int | None = None) -> None:
        numbers = range(len(self.kinds) + 1, len(self.kinds) + len(sizes) + 1)
        keys = [number % 3 if key is None else key for number in numbers]
        self.kinds |= {number: (each, flags) for number, each in zip(numbers, keys, strict=True)}
        data = [payload(0, number, size) for number, size in zip(numbers, sizes, strict=True)]
        memory, lengths = np.frombuffer(b"".join(data), np.uint8).copy(), np.array(sizes, np.int64)
        samples = Samples.ragged(memory, np.cumsum(lengths) - lengths, lengths)
        if len(set(sizes)) == 1:
            samples = Samples.uniform(memory, len(sizes), sizes[0])
        hashes = np.repeat(np.array(keys, np.uint8)[:, None], 16, axis=1) if self.keyed else None
        now = self.link.now
        try:
            count = self.writer.write_samples(samples, timestamp=now, now=now, key_hashes=hashes, flags=flags)
            assert count == len(sizes)
            self.returned += numbers
        finally:
            memory[:] = 0xEE  # it is the caller's again

    def write_set(self, *sizes: int, key: int | None = None) -> None:
        """As a task does: what raises aborts the set, if it is open."""
        sets, now, before = self.writer.coherent_sets, self.link.now, len(self.returned)
        try:
            sets.begin(now=now)
            self.write(*sizes, key=key)
            sets.end(now=now)
        except BaseException:
            del self.returned[before:]
            if self.writer.state.set_begun:
                sets.abort(now=now)
            raise

    def flush(self) -> None:
        self.writer.flush_batch(now=self.link.now)

    def run(self, duration: int = 3 * MS) -> None:
        steps = 0

        def each() -> None:
            nonlocal steps
            steps += 1
            assert steps < 20_000, "a timer is due for ever"
            for _, reader in self.readers:
                reader.window = self.room

        self.link.run(duration, each=each)

    def delivered(self, i: int = 0) -> list[int]:
        node, reader = self.readers[i]
        found = []
        for run in node.taken.get(reader.guid, []):
            samples, flags = run.samples(), run.sample_flags().tolist()
            found += [
                number_of(bytes(samples.payload(k)))[1] for k in range(run.count) if not flags[k] & REMOVED
            ]
        return found

    def _settle(self) -> None:
        self.run(S)
        self.flush()
        self.writer.request_acknowledgment(self.link.now)
        self.run(S)
        assert not self.writer.unacknowledged()

    def check(self) -> None:
        self._settle()
        behind = range(len(self.kinds) + 1, len(self.kinds) + 3)
        for _ in behind:
            self.write(40, key=9)
            self.flush()
            self.run()
        self._settle()
        delivered, state, writer = self.delivered(), self.writer.state, self.writer
        assert delivered == sorted(set(delivered)), "once and in order"
        assert set(behind) <= set(delivered)
        if self.qos.is_reliable:
            assert set(self.returned) <= set(delivered)
            assert not self.readers[0][1].counters.lost_samples
        assert not writer._unsent.queue and not writer.intake.count
        assert writer.window.samples == writer.window.nbytes == state.last_sn - state.sent_sn == 0
        assert writer.positions.snd_pos == writer.positions.pub_pos
        if self.qos.is_transient_local:
            self.join()
            self.run(S)
            assert self.delivered(1) == self._kept(delivered)

    def _kept(self, delivered: list[int]) -> list[int]:
        """The newest of each instance that is registered."""
        newest: dict[int, list[int]] = {}
        for number in delivered:
            key, flags = self.kinds[number]
            newest[key] = [] if flags & UNREGISTERED else [*newest.get(key, []), number]
        return sorted(number for each in newest.values() for number in each[-self.qos.history_depth :])


Step = Callable[[Scene], object]


def write(count: int, size: int = 40, **options: int) -> Step:
    return lambda scene: scene.write(*[size] * count, **options)


def write_set(*sizes: int, key: int | None = None) -> Step:
    return lambda scene: scene.write_set(*sizes, key=key)


RUN, FLUSH = Scene.run, Scene.flush
WAIT: Step = lambda scene: scene.run(15 * MS)  # noqa: E731
IN_BATCHES = [write(1), write(3), write(1), write(2), FLUSH, RUN, write(3), WAIT, write(11), FLUSH, RUN]
OF_INSTANCES = [
    write(4),
    RUN,
    write(3),
    write(1, key=1, flags=DISPOSED | KEY_ONLY),
    RUN,
    write(1, key=2, flags=DISPOSED | UNREGISTERED | KEY_ONLY),
    write(2),
    RUN,
]
IN_SETS = [write(2), RUN, write_set(40, 40, key=1), RUN, write(1), write_set(40, key=2), RUN]
LARGE = [write(1, 3_000), RUN, write(3, 3_000), lambda scene: scene.write(40, 3_000, 60), RUN]
GSO_BUFFERS = [write(20, 400), RUN, write(9, 400), RUN, write(1), RUN]
BATCHING = ("/writing/batching/", "/intake/intake.py", "/writing/writer.py")
NOTING = ("/keep_last.py", "/writing/writer.py", "/coherent_sets.py")
ENDING = ("/coherent_sets.py", "/sender.py", "/unsent_changes.py")
FRAMING = ("/unsent_changes.py", "/gso_framer.py", "/log_frames.py")
FLOW = ("/token_bucket.py", "/writing/asynchronous.py")
ALL = ("/transport/protocol/writing/", "/transport/log/")

#: What is written how, in which files exceptions come, and at each how manieth line of them.
CASES: dict[str, tuple[Callable[[], Scene], list[Step], tuple[str, ...], int]] = {
    "batches": (lambda: Scene(batch=BATCHES), IN_BATCHES, BATCHING, 29),
    # what earlier calls have left waits in the batch that the second call sends
    "one batch": (lambda: Scene(batch=BATCHES), [write(1), write(3), RUN], BATCHING, 1),
    "batches of DATA": (
        lambda: Scene(batch=replace(BATCHES, wire=BatchWire.DATA)),
        IN_BATCHES,
        BATCHING,
        41,
    ),
    "batches in a log": (lambda: Scene(batch=BATCHES, logged=True), IN_BATCHES, ALL, 211),
    "instances": (lambda: Scene(LASTING, keyed=True), OF_INSTANCES, NOTING, 17),
    "instances, two": (
        lambda: Scene(replace(LASTING, history_depth=2), keyed=True),
        OF_INSTANCES,
        NOTING,
        17,
    ),
    "sets": (lambda: Scene(replace(RELIABLE, coherent_access=True)), IN_SETS, ENDING, 13),
    "sets of instances": (
        lambda: Scene(replace(LASTING, coherent_access=True), keyed=True),
        IN_SETS,
        NOTING,
        17,
    ),
    "fragments": (Scene, LARGE, ALL, 211),
    "GSO buffers": (Scene, GSO_BUFFERS, ALL, 211),
    "GSO buffers, in small windows": (lambda: Scene(room=3_000), GSO_BUFFERS, FRAMING, 3),
    "asynchronous": (lambda: Scene(asynchronous=True), GSO_BUFFERS, FLOW, 29),
    "best effort": (
        lambda: Scene(replace(RELIABLE, reliability=ReliabilityKind.BEST_EFFORT)),
        GSO_BUFFERS,
        ALL,
        211,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_exception_between_any_two_lines(case: str) -> None:
    make, steps, files, every = CASES[case]
    for line in range(1, 1 << 20, every):
        scene, interruption = make(), Interruption(line, files)
        for step in steps:
            interruption.run(partial(step, scene))
        if interruption.is_due:
            assert line > 5 * every, "it went through"
            return
        scene.check()
