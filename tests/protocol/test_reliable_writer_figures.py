"""The three figures of RTI's manual on heartbeats and retries, message by message, between our own endpoints."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.outgoing import Outgoing
from spark_rtps.transport.protocol.policies import READER_POLICY, ReaderPolicy, WriterPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.samples import Run, Samples
from spark_rtps.transport.wire.submessages import AckNack, Data, Heartbeat, decode_submessage
from tests.protocol.lossy_link import MS, LossyLink, Node

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
HALF_MS = MS // 2


@dataclass
class Figure:
    """A writer, a reader, half a millisecond between them, and what passes."""

    writer_policy: WriterPolicy
    reader_policy: ReaderPolicy = READER_POLICY
    #: Positions, among the messages of the writer that hold data, of those that are lost.
    lost: tuple[int, ...] = ()
    reader_class: type[StatefulReader] = StatefulReader
    output: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.link = LossyLink(delay=(HALF_MS, HALF_MS))
        a, b = self.link.node(), self.link.node()
        self.writer = StatefulWriter(Guid(a.prefix, b"\0\0\1\3"), RELIABLE, policy=self.writer_policy)
        self.reader = self.reader_class(Guid(b.prefix, b"\0\0\2\4"), RELIABLE, policy=self.reader_policy)
        a.writers.append(self.writer)
        b.readers.append(self.reader)
        self.link.match(self.writer, self.reader)
        self.link.run(50 * MS)
        self.start, self.data = self.link.now, 0
        self.link.filter = self.note

    def note(self, sender: Node, message: bytes) -> bool:
        words, holds_data = [], False
        view = memoryview(message)
        for kind, flags, start, stop in iter_submessages(view):
            submessage = decode_submessage(kind, flags, view[start:stop])
            if isinstance(submessage, Data):
                words.append(f"DATA {submessage.sn}")
                holds_data = True
            elif isinstance(submessage, Heartbeat):
                words.append(f"HB {submessage.first_sn}-{submessage.last_sn}")
            elif isinstance(submessage, AckNack):
                missing = "".join(f" lacks {sn}" for sn in submessage.missing.numbers())
                words.append(f"ACKNACK {submessage.missing.base}{missing}")
        arrives = not (holds_data and self.data in self.lost)
        self.data += holds_data
        at = (self.link.now - self.start) / MS
        self.output.append(f"{at:g}: {' + '.join(words)}{'' if arrives else ' (lost)'}")
        return arrives

    def write(self) -> None:
        samples = Samples.uniform(np.zeros(16, np.uint8), 1, 16)
        assert self.writer.write_samples(samples, timestamp=self.link.now, now=self.link.now) == 1
        self.link.flush()

    def run(self, milliseconds: float) -> None:
        self.link.run(round(milliseconds * MS))


def test_use_of_heartbeat_period() -> None:
    """The last sample of a burst is lost: only the periodic HEARTBEAT tells."""
    figure = Figure(
        WriterPolicy(heartbeat_period=100 * MS, heartbeats_per_max_samples=0),
        ReaderPolicy(nack_delay=0, reorder_delay=0),
        lost=(1,),
    )
    figure.write()
    figure.run(1)
    figure.write()
    figure.run(500)
    assert figure.output == [
        "0: DATA 1",
        "1: DATA 2 (lost)",
        "100: HB 1-2",
        "100.5: ACKNACK 2 lacks 2",
        "101: DATA 2 + HB 2-2",
        "101.5: ACKNACK 3",
    ]
    assert figure.reader.counters.received_samples == 2
    assert figure.writer.get_timer() is None


def test_use_of_heartbeats_per_max_samples() -> None:
    """A HEARTBEAT rides along with every third sample, and one ACKNACK frees all three."""
    policy = WriterPolicy(heartbeats_per_max_samples=4, min_send_window_size=12, max_send_window_size=12)
    figure = Figure(policy)
    in_queue = []
    for _ in range(6):
        figure.write()
        figure.run(2)
        in_queue.append(figure.writer.window.samples)
    assert figure.output == [
        "0: DATA 1",
        "2: DATA 2",
        "4: DATA 3 + HB 1-3",
        "4.5: ACKNACK 4",
        "6: DATA 4",
        "8: DATA 5",
        "10: DATA 6 + HB 4-6",
        "10.5: ACKNACK 7",
    ]
    assert in_queue == [1, 2, 0, 1, 2, 0]


class HastyReader(StatefulReader):
    """Answers every HEARTBEAT at once, with all that it lacks, however often it has asked for it."""

    had: set[int]
    answers: list[Outgoing]
    count = 0

    def match_writer(self, info: WriterInfo, *, now: int) -> None:
        super().match_writer(info, now=now)
        self.where, self.had, self.answers = info.unicast, set(), []

    def on_run(self, run: Run, *, now: int) -> None:
        self.had.update(range(run.first_sn, run.last_sn + 1))

    def on_heartbeat(self, writer: Guid, heartbeat: Heartbeat, *, now: int) -> None:
        lacks = set(range(1, heartbeat.last_sn + 1)) - self.had
        self.count += 1
        missing = SequenceNumberSet.from_numbers(min(lacks, default=heartbeat.last_sn + 1), sorted(lacks))
        acknack = AckNack(self.guid.entity, writer.entity, missing, self.count, True)
        self.answers.append(Outgoing(self.where, writer.prefix, None, [acknack.encode()]))

    def outgoing(self) -> list[Outgoing]:
        answers, self.answers = self.answers, []
        return answers

    def get_timer(self) -> int | None:
        return None


def resending(**options: int) -> Figure:
    """Samples follow each other faster than messages go round; a HEARTBEAT rides along with each."""
    policy = WriterPolicy(
        heartbeats_per_max_samples=20, min_send_window_size=20, max_send_window_size=20, **options
    )
    figure = Figure(policy, lost=(1,), reader_class=HastyReader)
    for _ in range(4):
        figure.write()
        figure.run(0.3)
    figure.run(50)
    assert figure.writer.unacknowledged() == {}
    return figure


def test_resending_missing_samples_due_to_duplicate_acknacks() -> None:
    """The reader asks again before the repair can be there, and gets it again."""
    figure = resending(max_nack_response_delay=0)
    assert figure.output == [
        "0: DATA 1 + HB 1-1",
        "0.3: DATA 2 + HB 1-2 (lost)",
        "0.5: ACKNACK 2",
        "0.6: DATA 3 + HB 1-3",
        "0.9: DATA 4 + HB 1-4",
        "1.1: ACKNACK 2 lacks 2",
        "1.4: ACKNACK 2 lacks 2",
        "1.6: DATA 2 + HB 2-4",
        "1.9: DATA 2 + HB 2-4",
        "2.1: ACKNACK 5",
        "2.4: ACKNACK 5",
    ]
    assert figure.writer.counters.repaired_samples == 2


def test_max_nack_response_delay_ignores_duplicate_acknacks() -> None:
    figure = resending(max_nack_response_delay=20 * MS)
    assert figure.output[5:] == [
        "1.1: ACKNACK 2 lacks 2",
        "1.4: ACKNACK 2 lacks 2",
        "1.6: DATA 2 + HB 2-4",
        "2.1: ACKNACK 5",
    ]
    assert figure.writer.counters.repaired_samples == 1
    assert figure.writer.counters.repairs_suppressed == 1


def test_min_nack_response_delay_merges_duplicate_acknacks() -> None:
    figure = resending(max_nack_response_delay=0, min_nack_response_delay=2 * MS)
    assert figure.output[5:] == [
        "1.1: ACKNACK 2 lacks 2",
        "1.4: ACKNACK 2 lacks 2",
        "3.6: DATA 2 + HB 2-4",
        "4.1: ACKNACK 5",
    ]


def test_our_own_reader_does_not_ask_twice() -> None:
    figure = Figure(WriterPolicy(max_nack_response_delay=0), ReaderPolicy(nack_delay=0), lost=(1,))
    for _ in range(4):
        figure.write()
        figure.writer.request_acknowledgment(figure.link.now)
        figure.run(0.3)
    figure.run(50)
    assert figure.writer.counters.repaired_samples == 1
    assert figure.writer.unacknowledged() == {}
