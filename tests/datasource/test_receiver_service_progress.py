"""Queries of receiver services go on, or fail, whatever their receivers do: full logs, trimmed ones, slow answers."""

from __future__ import annotations

import json
import logging
import time
from typing import Any, Never

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from spark_rtps.datasource import receiver_service_stream as stream_module
from spark_rtps.datasource import receiver_services as module
from spark_rtps.datasource.offsets import ReceiverServiceOffset
from spark_rtps.datasource.receiver_service_batch_reader import ReceiverServiceBatchReader
from spark_rtps.datasource.receiver_service_stream_reader_4_0 import ReceiverServiceStreamReader40
from spark_rtps.datasource.schema import plan_source
from spark_rtps.monitoring.consumer_groups import parse_groups
from spark_rtps.serving.server.consumer_group_file import ConsumerGroupFile
from spark_rtps.transport.errors import LogLostError, RangeServerError, UsageError
from spark_rtps.transport.log.counters import COUNTERS_FILE, Counters
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.host_clocks import Clocks
from spark_rtps.transport.log.stream_log import StreamLog
from tests.datasource.receiver_service_scene import FakeReceiver, ReceiverServices, ids, settings_of, step
from tests.datasource.stream_reader_scene import ALL, COLUMNS
from tests.support.stream_logs import encoded, points, run_of


def receive(receiver: FakeReceiver, first: int, count: int, *, frame: int = 10_000) -> None:
    """Samples that were received now; with retention=bytes."""
    for number in range(first, first + count, frame):
        run = run_of(encoded(points(number, min(frame, first + count - number))), number + 1)
        while not receiver.stream.append(run, reception=time.time_ns()):
            receiver.stream.trim_oldest()
    receiver.base = receiver.stream.base


class Group:
    """The consumer groups of a receiver with retention=committed, which trims what all of them have consumed."""

    def __init__(self, receiver: FakeReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
        self.receiver = receiver
        directory = receiver.root / receiver.log
        self.consumer = Counters.create(directory / COUNTERS_FILE).counter("log.consumer")
        self.groups = ConsumerGroupFile(directory, 7 * 86400 * 10**9)
        monkeypatch.setattr(receiver, "commit_offset", self.commit_offset)
        monkeypatch.setattr(receiver, "groups", self.reported)

    def commit_offset(self, _log: str, group: str, cursor: Cursor) -> None:
        stream = self.receiver.stream
        self.groups.commit_offset(group, cursor, Clocks.read_now(), base=stream.base, holds_log=True)
        stream.trim(self.consumer.get())
        self.receiver.base = stream.base

    def reported(self, _log: str) -> dict[str, Cursor]:
        found = parse_groups(self.groups.encoded(Clocks.read_now()))
        return {group.name: Cursor(group.position, group.row) for group in found}


# --- groups ---------------------------------------------------------------------------------------


def test_a_log_that_waits_for_a_group_is_never_full_for_ever(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples of a fifth of the log, in the order in which Spark calls: it commits only when it has planned more."""
    receiver = services.a
    receiver.max_bytes = 4 << 20
    receiver.renew()
    Group(receiver, monkeypatch)
    reader = services.reader(startingOffsets="earliest")
    offset = reader.initialOffset()
    sent, got, per = 0, [], 42_000  # type: ignore[var-annotated]  # 840 kB
    for _ in range(16):
        # As a receiver offers its writer room: a sixteenth of the log is kept free.
        while receiver.stream.free_bytes - receiver.max_bytes // 16 > 20 * per and (got or not sent):
            assert receiver.stream.append(run_of(encoded(points(sent, per)), sent + 1), reception=1)
            sent += per
        end = reader.latestOffset(offset, ALL)
        if end != offset:
            reader.commit(offset)
            got += ids(reader, reader.partitions(offset, end))
            offset = end
    assert len(got) >= 8 * per, "it goes on"
    assert got == list(range(len(got)))


def test_the_first_batch_of_a_new_group_is_held_from_when_it_begins(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive(services.a, 0, 300_000)
    others = Group(services.a, monkeypatch)
    log, end_of_log = services.a.log, Cursor(services.a.stream.position)
    others.commit_offset(log, "old-query", Cursor(0))
    reader = services.reader(startingOffsets="earliest", **{"receiver.group": "new-query"})
    zero = reader.initialOffset()
    others.commit_offset(log, "old-query", end_of_log)
    end = reader.latestOffset(zero, ReadMaxRows(200_000))
    others.commit_offset(log, "old-query", end_of_log)
    for each in (reader, services.reader(startingOffsets="earliest", **{"receiver.group": "new-query"})):
        assert ids(each, each.partitions(zero, end)) == list(range(200_000))
    reader.latestOffset(end, ALL)
    assert services.a.stream.base > 0, "it was held for the group alone"


def test_a_group_commits_each_position_once(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = services.reader()
    offset = reader.initialOffset()
    for number in range(3):
        services.a.receive(number, 1)
        end = reader.latestOffset(offset, ALL)
        reader.commit(offset)
        ids(reader, reader.partitions(offset, end))
        offset = end
        for _ in range(3):
            assert reader.latestOffset(offset, ALL) == offset
    positions = [cursor.position for _, cursor in services.a.committed]
    assert positions == sorted(set(positions)) and len(positions) == 4
    assert len(services.b.committed) == 1


def test_nothing_is_trimmed_that_follows_an_empty_first_batch_which_is_repeated(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark runs the first micro-batch also if it has no samples: it ends where it begins."""
    receive(services.a, 0, 100_000)
    Group(services.a, monkeypatch)
    first = services.reader(**{"receiver.group": "g"})
    zero = first.initialOffset()
    end, got = step(first, zero)
    assert (end, got) == (zero, [])
    receive(services.a, 100_000, 300_000)
    again = services.reader(**{"receiver.group": "g"})  # the driver was killed in this micro-batch
    assert again.partitions(end, end) == []
    got = ids(again, again.partitions(again.initialOffset(), end))
    end, more = step(again, end)
    assert got + more == list(range(100_000, 400_000))


def test_an_empty_first_batch_that_is_repeated_makes_no_second_group(services: ReceiverServices) -> None:
    zero = services.reader().initialOffset()
    again = services.reader()
    again.partitions(zero, zero)
    assert again.initialOffset() == zero
    again.latestOffset(zero, ALL)
    assert len({group for group, _ in services.a.committed}) == 1


@pytest.mark.parametrize("deleted", [False, True])
def test_the_group_of_a_query_without_new_samples_lasts_and_holds_the_log(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    """It outlives the time after which a group that commits nothing is removed, and comes back if it was deleted."""
    groups = Group(services.a, monkeypatch)
    uptime = 0.0

    def clocks() -> Clocks:
        return Clocks(time.time_ns(), int(uptime * 1e9), "boot")

    monkeypatch.setattr(Clocks, "read_now", clocks)
    monkeypatch.setattr(stream_module.time, "monotonic", lambda: uptime)  # type: ignore[attr-defined]
    reader = services.reader(**{"receiver.group": "g"})
    offset = reader.initialOffset()
    for _ in range(0 if deleted else 9):  # days
        uptime += 86400
        assert reader.latestOffset(offset, ALL) == offset
    if deleted:
        groups.groups.delete("g", clocks(), holds_log=True)
        uptime += 3600
        reader.latestOffset(offset, ALL)
    receive(services.a, 0, 100_000)
    groups.commit_offset(services.a.log, "other", Cursor(services.a.stream.position))
    _, got = step(reader, offset)
    assert got == list(range(100_000))


def test_a_query_of_spark_4_0_holds_its_place_before_it_has_read(services: ReceiverServices) -> None:
    settings = settings_of(startingOffsets="earliest", **{"receiver.group": "g"})
    reader = ReceiverServiceStreamReader40(settings, plan_source(settings, COLUMNS), make=services.connect)
    services.a.receive(0, 2)
    reader.latestOffset()
    assert services.a.committed == [("g", Cursor(0))]


def test_a_log_that_replaces_a_lost_one_is_held_once_the_query_reads_it(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = services.reader(failOnDataLoss=False, **{"receiver.group": "g"})
    start = reader.initialOffset()
    services.a.renew()
    receive(services.a, 0, 200_000)
    others = Group(services.a, monkeypatch)
    end = reader.latestOffset(start, ALL)
    others.commit_offset(services.a.log, "other", Cursor(services.a.stream.position))
    _, got = step(reader, end)
    assert got == list(range(200_000))


def reader_4_0(services: ReceiverServices) -> ReceiverServiceStreamReader40:
    settings = settings_of(startingOffsets="earliest", **{"receiver.group": "g"})
    return ReceiverServiceStreamReader40(settings, plan_source(settings, COLUMNS), make=services.connect)


@pytest.mark.parametrize("more", [0, 100_000])
def test_available_now_of_spark_4_0_trims_nothing_of_a_batch_that_is_repeated(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """After a restart it asks for the end before it repeats the micro-batch in which the driver was killed."""
    receive(services.a, 0, 200_000)
    Group(services.a, monkeypatch)
    killed = reader_4_0(services)
    zero, one = killed.initialOffset(), killed.latestOffset()
    receive(services.a, 200_000, more)
    for _ in range(2):  # killed again
        again = reader_4_0(services)
        assert again.partitions(one, one) == []
        two = again.latestOffset()
        assert ids(again, again.partitions(zero, one)) == list(range(200_000))
        again.stop()
    if more:
        again.commit(one)
    assert ids(again, again.partitions(one, two)) == list(range(200_000, 200_000 + more))


@pytest.mark.parametrize("held", [True, False])
def test_available_now_of_spark_4_0_that_ends_before_repeating_a_batch_loses_no_row(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    """The query failed, or was stopped, between. Whether the receiver has lost the group meanwhile does not matter."""
    receive(services.a, 0, 200_000)
    group = Group(services.a, monkeypatch)
    killed = reader_4_0(services)
    zero, one = killed.initialOffset(), killed.latestOffset()
    if not held:
        group.groups.delete("g", Clocks.read_now(), holds_log=True)
    ended = reader_4_0(services)
    assert ended.partitions(one, one) == []
    assert ended.latestOffset() == one
    ended.stop()
    group.commit_offset(services.a.log, "other", Cursor(services.a.stream.position))
    again = reader_4_0(services)
    assert again.partitions(one, one) == []
    assert again.latestOffset() == one
    assert ids(again, again.partitions(zero, one)) == list(range(200_000))


def test_available_now_of_spark_4_0_keeps_its_group_over_runs_without_samples(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is held where it is, since only commit() tells that the last micro-batch is processed."""
    Group(services.a, monkeypatch)
    uptime = 0.0
    monkeypatch.setattr(Clocks, "read_now", lambda: Clocks(time.time_ns(), int(uptime * 1e9), "boot"))
    receive(services.a, 0, 10)
    one = reader_4_0(services).latestOffset()
    for _ in range(9):
        uptime += 86400
        again = reader_4_0(services)
        assert again.partitions(one, one) == []
        assert again.latestOffset() == one
        again.stop()
    assert services.a.groups(services.a.log) == {"g": Cursor(0)}


def test_available_now_of_spark_4_0_lets_go_of_a_full_log_with_its_next_batch(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A micro-batch takes half of the log, so that more is there, or has room."""
    receive(services.a, 0, 200_000)
    Group(services.a, monkeypatch)
    one = reader_4_0(services).latestOffset()
    receive(services.a, 200_000, 100_000)
    again = reader_4_0(services)
    assert again.partitions(one, one) == []
    two = again.latestOffset()
    again.commit(one)
    assert ids(again, again.partitions(one, two)) == list(range(200_000, 300_000))
    assert services.a.stream.base > 0


# --- what is trimmed while it is planned ----------------------------------------------------------


@pytest.mark.parametrize("asked", ["advance", "split", "place"])
def test_trimming_while_a_batch_is_planned_fails_no_query_that_goes_past_it(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    receive(services.a, 0, 300_000)
    receiver, trimmed = services.a, []  # type: ignore[var-annotated]
    options = {"startingOffsets": "earliest", "minPartitions": 3}
    reader = services.reader(failOnDataLoss="false", **options)
    zero = reader.initialOffset()
    real = getattr(receiver, asked)

    def busy(*args: Any, **more: Any) -> Any:
        if not trimmed:
            trimmed.append(receiver.stream.trim_oldest())
            receiver.base = receiver.stream.base
        return real(*args, **more)

    monkeypatch.setattr(receiver, asked, busy)
    reader._offsets._trusted.clear()  # as after a restart
    got, offset = [], zero
    for _ in range(8):
        offset, found = step(reader, offset, ReadMaxRows(100_000))
        got += found
    assert trimmed == [True]
    assert got == list(range(300_000 - len(got), 300_000)) and len(got) >= 200_000


def test_a_log_that_is_trimmed_each_time_it_is_asked_about_is_followed(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = services.a
    receive(receiver, 0, 100_000)
    reader = services.reader(startingOffsets="earliest", failOnDataLoss="false")
    offset = reader.initialOffset()
    advance, sent = receiver.advance, 100_000

    def busy(*args: Any, **more: Any) -> Any:
        nonlocal sent
        receive(receiver, sent, 50_000)
        sent += 50_000
        receiver.stream.trim_oldest()
        receiver.base = receiver.stream.base
        return advance(*args, **more)

    monkeypatch.setattr(receiver, "advance", busy)
    positions = []
    for _ in range(4):
        offset = reader.latestOffset(offset, ReadMaxRows(1_000))
        positions.append(offset["receivers"]["a"]["position"])
    assert positions == sorted(set(positions))  # type: ignore[type-var]


def test_trimming_while_a_batch_is_planned_fails_a_query_that_refuses_loss(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive(services.a, 0, 300_000)
    reader = services.reader(startingOffsets="earliest")
    zero = reader.initialOffset()
    advance = services.a.advance

    def busy(*args: Any, **more: Any) -> Any:
        services.a.stream.trim_oldest()
        return advance(*args, **more)

    monkeypatch.setattr(services.a, "advance", busy)
    with pytest.raises(LogLostError, match="no longer in the log"):
        reader.latestOffset(zero, ReadMaxRows(100_000))


# --- receivers that are slow, away or starting ----------------------------------------------------


def test_a_receiver_that_says_where_it_ends_and_plans_nothing_is_out_of_reach(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])  # type: ignore[attr-defined]
    receive(services.a, 0, 20_000)
    reader = services.reader(startingOffsets="earliest", **{"receiver.timeout": "3s"})
    zero = reader.initialOffset()

    def slow(*_args: object, **_more: object) -> Never:
        now[0] += 0.5
        raise RangeServerError("too slow", is_reached=False)

    monkeypatch.setattr(services.a, "advance", slow)

    def plan() -> None:
        for _ in range(20):
            assert reader.latestOffset(zero, ReadMaxRows(10)) == zero
            now[0] += 0.5

    with pytest.raises(RangeServerError, match=r"receiver a has been out of reach for \d+ s"):
        plan()
    assert caplog.text.count("its samples wait there") == 1
    assert "is back" not in caplog.text


def test_a_receiver_that_plans_again_is_back(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    receive(services.a, 0, 20_000)
    reader = services.reader(startingOffsets="earliest")
    zero = reader.initialOffset()
    with monkeypatch.context() as patch:

        def slow(*_args: object, **_more: object) -> Never:
            raise RangeServerError("too slow", is_reached=False)

        patch.setattr(services.a, "advance", slow)
        reader.latestOffset(zero, ReadMaxRows(10))
    assert step(reader, zero, ReadMaxRows(10))[1] == list(range(10))
    assert "receiver a is back" in caplog.text


@pytest.mark.parametrize("restarts", [False, True])
def test_a_receiver_absent_at_the_query_start_loses_no_later_sample(
    services: ReceiverServices, restarts: bool
) -> None:
    receive(services.b, 90, 5)
    reader = services.reader()  # latest
    services.b.is_gone = True
    offset = reader.initialOffset()
    receive(services.a, 0, 2)
    receive(services.b, 100, 3)
    offset, got = step(reader, offset)
    if restarts:
        reader = services.reader()
        reader.partitions(offset, offset)
    services.b.is_gone = False
    for first in (103, 105):
        offset, found = step(reader, offset)
        got += found
        receive(services.b, first, 2)
    offset, found = step(reader, offset)
    assert sorted(got + found) == [0, 1, *range(100, 107)]
    assert "awaited" not in offset


def test_awaited_receivers_are_kept_in_the_checkpoint() -> None:
    offset = ReceiverServiceOffset("g", {}, None, {"b": 5, "a": 7})
    reported = json.loads(json.dumps(offset.to_json()))
    assert ReceiverServiceOffset.from_json(reported) == offset
    assert list(offset.to_json()["awaited"]) == ["a", "b"]
    for wrong in ({"a": "7"}, {"a": -1}, [7], "a"):
        with pytest.raises(UsageError, match="no offset of receiver services"):
            ReceiverServiceOffset.from_json({**reported, "awaited": wrong})


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_receiver_that_begins_a_new_log_is_waited_for(services: ReceiverServices, fail: str) -> None:
    services.a.receive(0, 2)
    reader = services.reader(startingOffsets="earliest", failOnDataLoss=fail)
    offset, got = step(reader, reader.initialOffset())
    assert got == [0, 1]
    services.a.renew()
    services.a.starts = 4
    services.b.receive(10, 1)
    offset, got = step(reader, offset)
    assert got == [10], "the others go on"
    services.a.receive(5, 2)

    def go_on() -> None:
        nonlocal offset
        for _ in range(5):
            offset, found = step(reader, offset)
            got.extend(found)

    if fail == "true":
        with pytest.raises(LogLostError, match=r"receiver a has the log .* now"):
            go_on()
        return
    go_on()
    assert got == [10, 5, 6]


def test_a_log_that_was_cut_is_resumed_at_its_end(services: ReceiverServices) -> None:
    services.a.receive(0, 2)
    reader = services.reader(startingOffsets="earliest", failOnDataLoss="false")
    offset, _ = step(reader, reader.initialOffset())
    log = services.a.log
    services.a.renew()
    services.a.stream.close()
    for old in (services.a.root / log).iterdir():
        old.unlink()
    for new in (services.a.root / services.a.log).iterdir():
        new.rename(services.a.root / log / new.name)
    services.a.log, services.a.stream = log, StreamLog.open(services.a.root / log)
    offset, got = step(reader, offset)
    for number in range(5, 9):
        services.a.receive(number, 1)
        offset, found = step(reader, offset)
        got += found
    assert got == [5, 6, 7, 8]


def test_a_batch_waits_for_a_receiver_that_starts(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.0)
    services.a.receive(0, 2)
    services.a.starts = 3
    settings = settings_of()
    reader = ReceiverServiceBatchReader(settings, plan_source(settings, COLUMNS), make=services.connect)
    assert ids(reader, reader.partitions()) == [0, 1]


@pytest.mark.parametrize("ending", [{}, {"endingTimestamp": "2200-01-01T00:00:00Z"}])
def test_a_batch_from_a_time_after_all_that_is_there_is_empty_while_samples_arrive(
    services: ReceiverServices, ending: dict[str, str]
) -> None:
    """The log grows between the question where it ends and the one what was received since then."""
    services.a.receive(0, 5)
    at = services.a.at

    def late(log: str, time_ns: int) -> Cursor:
        services.a.receive(5 + len(services.a.committed), 1)
        services.a.commit_offset(log, "g", Cursor(0))
        return at(log, time_ns)

    services.a.at = late  # type: ignore[method-assign]
    settings = settings_of(startingTimestamp="2100-01-01T00:00:00Z", **ending)
    reader = ReceiverServiceBatchReader(settings, plan_source(settings, COLUMNS), make=services.connect)
    assert reader.partitions() == []
