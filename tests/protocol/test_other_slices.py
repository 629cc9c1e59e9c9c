"""What a reader of a slice says to a writer of another one: as if everything were here."""

from __future__ import annotations

from dataclasses import replace

from spark_rtps.transport.protocol.counts import FORGET_NS
from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.policies import ReaderPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import NANOSECONDS, Guid, Locator
from spark_rtps.transport.wire.numbers import SEQUENCE_NUMBER_MAX
from spark_rtps.transport.wire.status_messages import StatusMessage
from spark_rtps.transport.wire.submessages import AckNack, Heartbeat, HeartbeatBatch, decode_submessage
from tests.support.virtual_network import MILLISECOND

KEEP_ALL = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
LASTING = replace(KEEP_ALL, durability=DurabilityKind.TRANSIENT_LOCAL)
IT = Guid(b"w" * 12, b"\0\0\1\3")
ANY = bytes(4)


def info(**known: object) -> WriterInfo:
    given = {"unicast": (Locator("10.0.0.1", 7411),), "multicast": (), "reliable": True}
    return WriterInfo(IT, **{**given, "transient_local": False, **known})


def reader_of(qos: Qos = KEEP_ALL, policy: ReaderPolicy | None = None, **known: object) -> StatefulReader:
    reader = StatefulReader(Guid(b"r" * 12, b"\0\0\2\4"), qos, policy=policy or ReaderPolicy())
    reader.match_other_slice(info(**known), now=0)
    return reader


def heartbeat(first: int, last: int, count: int, *, final: bool = False) -> Heartbeat:
    return Heartbeat(ANY, IT.entity, first, last, count, final=final)


def output(reader: StatefulReader) -> list[object]:
    found = []
    for each in reader.outgoing():
        assert each.destinations == (Locator("10.0.0.1", 7411),)
        assert each.dest_prefix == IT.prefix
        for raw in each.submessages:
            view = memoryview(bytes(raw))
            found.append(decode_submessage(view[0], view[1], view[4:]))
    return found  # type: ignore[return-value]


def acknowledged(reader: StatefulReader) -> list[int]:
    """The bases of what it acknowledges; it requests nothing."""
    found = [each for each in output(reader) if isinstance(each, AckNack)]
    assert all(each.missing.is_empty and each.final for each in found)
    return [each.missing.base for each in found]


def test_a_heartbeat_is_answered_as_if_everything_were_here() -> None:
    reader = reader_of()
    assert output(reader) == []
    assert reader.get_timer() is None
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 100, 1), now=0)
    assert reader.has_more_to_say
    assert acknowledged(reader) == [101]
    assert not reader.has_more_to_say
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 250, 2), now=1)
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 300, 3), now=2)
    assert acknowledged(reader) == [301]
    assert reader.writers == {}
    assert reader.counters.acknacks_sent == 2
    assert reader.counters.nacks_sent == reader.counters.lost_samples == reader.counters.heartbeats == 0


def test_history_is_never_requested() -> None:
    reader = reader_of(LASTING, transient_local=True)
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 5000, 1), now=0)
    assert acknowledged(reader) == [5001]


def test_a_final_heartbeat_is_not_answered_and_a_repeated_one_is_not_news() -> None:
    reader = reader_of()
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 5, 1, final=True), now=0)
    assert output(reader) == []
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 5, 2), now=0)
    assert acknowledged(reader) == [6]
    for _ in range(50):
        reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 5, 2), now=1)
        assert output(reader) == []
    assert reader.counters.stale_counts == 50


def test_a_true_heartbeat_corrects_a_forged_one() -> None:
    reader = reader_of()
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, SEQUENCE_NUMBER_MAX, 1), now=0)
    assert acknowledged(reader) == [SEQUENCE_NUMBER_MAX]
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 7, 2), now=1)
    assert acknowledged(reader) == [8]
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 3, 1), now=FORGET_NS + 2)  # its writer begins anew
    assert acknowledged(reader) == [4]


def test_heartbeats_of_batches_are_answered_by_sample_numbers() -> None:
    reader = reader_of()
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 40, 1), now=0)
    assert acknowledged(reader) == [41]
    batch = HeartbeatBatch(ANY, IT.entity, 1, 5, 1, 60, 1)
    reader.on_heartbeat_of_other_slice(IT, batch, now=0)
    assert acknowledged(reader) == [61]


def test_answers_are_as_late_as_the_policy_says() -> None:
    """Many receivers on one multicast group do not all answer at once."""
    delay = 3 * MILLISECOND
    policy = ReaderPolicy(min_heartbeat_response_delay=delay, max_heartbeat_response_delay=delay)
    reader = reader_of(policy=policy)
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 9, 1), now=0)
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 10, 2), now=MILLISECOND)
    assert output(reader) == []
    assert reader.get_timer() == delay
    reader.handle_timer(delay)
    assert acknowledged(reader) == [11]
    assert reader.get_timer() is None
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 11, 3), now=2 * delay)
    reader.unmatch_other_slice(IT)
    assert reader.get_timer() is None


def test_heartbeats_too_soon_after_one_that_was_answered_are_not_answered() -> None:
    reader = reader_of(policy=ReaderPolicy(heartbeat_suppression_duration=10))
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 9, 1), now=100)
    assert acknowledged(reader) == [10]
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 10, 2), now=105)
    assert acknowledged(reader) == []
    assert reader.counters.suppressed_heartbeats == 1
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 10, 3), now=110)
    assert acknowledged(reader) == [11]


def test_a_writer_without_positive_acks_gets_one_only_if_it_seems_unmatched() -> None:
    reader = reader_of(no_positive_acks=True)
    for count in range(1, 11):
        reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 9, count), now=count * NANOSECONDS // 20)
        assert output(reader) == []
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 9, 11), now=2 * NANOSECONDS)
    assert acknowledged(reader) == [10]


def test_a_reader_or_writer_that_is_not_reliable_says_nothing() -> None:
    for reader in (reader_of(reliable=False), reader_of(Qos()), reader_of()):
        if reader.qos.is_reliable:
            reader.unmatch_other_slice(IT)
        reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 9, 1), now=0)
        assert output(reader) == []


def test_a_writer_that_is_gone_gets_no_answer_and_one_that_moved_gets_it_where_it_is() -> None:
    reader = reader_of()
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 9, 1), now=0)
    reader.match_other_slice(info(unicast=(Locator("10.0.0.2", 7411),)), now=0)
    (answer,) = reader.outgoing()
    assert answer.destinations == (Locator("10.0.0.2", 7411),)
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 9, 2), now=0)
    reader.unmatch_other_slice(IT)
    assert reader.outgoing() == []


def test_acknowledgements_that_the_owner_holds_back_are_not_these() -> None:
    reader = reader_of()
    reader.hold_acknowledgments = True
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 9, 1), now=0)
    assert acknowledged(reader) == [10]


def test_a_writer_gets_end_of_stream_from_a_reader_of_another_slice() -> None:
    reader = reader_of(status_messages=True)
    (status,) = output(reader)
    assert isinstance(status, StatusMessage)
    assert status.end_of_stream
    assert status.consumption_sn == 0
    reader.on_heartbeat_of_other_slice(IT, heartbeat(1, 9, 1), now=0)
    acknack, again = output(reader)
    assert isinstance(acknack, AckNack)
    assert isinstance(again, StatusMessage)
    assert again.end_of_stream
    assert (again.consumption_sn, again.count > status.count) == (9, True)
    silent = reader_of(status_messages=True, no_positive_acks=True)
    assert output(silent)
    silent.on_heartbeat_of_other_slice(IT, heartbeat(1, 9, 1), now=0)
    assert [type(each) for each in output(silent)] == [StatusMessage]
