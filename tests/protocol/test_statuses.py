"""The statuses, each by its name in DDS."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.protocol.participant import statuses as statuses_module
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.participant.events import (
    IncompatibleQos,
    LivelinessGained,
    LivelinessLost,
    Matched,
    Unmatched,
)
from spark_rtps.transport.protocol.participant.statuses import POLICY_IDS, ReaderStatuses, WriterStatuses
from spark_rtps.transport.protocol.policies import ReaderCounters, WriterCounters
from spark_rtps.transport.protocol.reading.cache.reader_cache import ReaderCacheCounters
from spark_rtps.transport.qos import (
    DestinationOrderKind,
    DurabilityKind,
    LivelinessKind,
    OwnershipKind,
    PresentationScope,
    Qos,
    ReliabilityKind,
    incompatibilities,
)
from spark_rtps.transport.structure import INFINITE, Guid
from tests.support.virtual_network import SECOND, VirtualNetwork

US, WE = (Guid(b"\1" * 12, bytes((0, 0, n, 7))) for n in (1, 2))
ONE, TWO = (Guid(bytes((n,)) * 12, b"\0\0\1\3") for n in (5, 6))


def matched(remote: Guid, local: Guid = US) -> Matched:
    return Matched(local, remote, "t", (), ())


def unmatched(remote: Guid, local: Guid = US) -> Unmatched:
    return Unmatched(local, remote, "t")


def fields(snapshot: Mapping[str, int], status: str) -> dict[str, int]:
    """A status's fields that are not zero."""
    prefix = f"status.{status}."
    return {label.removeprefix(prefix): n for label, n in snapshot.items() if n and label.startswith(prefix)}


@pytest.mark.parametrize(
    ("statuses", "name"),
    [(ReaderStatuses(US), "subscription_matched"), (WriterStatuses(US), "publication_matched")],
)
def test_matched(statuses: ReaderStatuses | WriterStatuses, name: str) -> None:
    for event in (
        matched(ONE),
        matched(ONE),
        matched(TWO),
        unmatched(ONE),
        unmatched(ONE),
        matched(ONE, local=WE),
    ):
        statuses.on_event(event)
    expected = {"total_count": 2, "current_count": 1, "current_count_peak": 2}
    assert fields(statuses.snapshot({}), name) == expected
    statuses.on_event(matched(ONE))
    assert fields(statuses.snapshot({}), name) == {
        "total_count": 3,
        "current_count": 2,
        "current_count_peak": 2,
    }


@pytest.mark.parametrize(
    ("statuses", "name"),
    [(ReaderStatuses(), "requested_incompatible_qos"), (WriterStatuses(), "offered_incompatible_qos")],
)
def test_incompatible_qos(statuses: ReaderStatuses | WriterStatuses, name: str) -> None:
    reasons = ("RELIABILITY: no", "LIVELINESS: no", "LIVELINESS lease_duration: no", "PARTITION: no")
    statuses.on_event(IncompatibleQos(US, ONE, "t", reasons))
    statuses.on_event(IncompatibleQos(US, TWO, "t", ("LIVELINESS: no",)))
    statuses.on_event(IncompatibleQos(US, TWO, "t", ("PARTITION: no",)))
    snapshot = statuses.snapshot({})
    assert fields(snapshot, name) == {
        "total_count": 2,
        "last_policy_id": 8,
        "by_reliability": 1,
        "by_liveliness": 2,
    }
    assert fields(snapshot, "inconsistent_topic") == {}


def test_inconsistent_topic() -> None:
    statuses = ReaderStatuses()
    statuses.on_event(IncompatibleQos(US, ONE, "t", ("TYPE: no", "KEY: no")))
    statuses.on_event(IncompatibleQos(US, ONE, "t", ("LOCATOR: no",)))
    assert fields(statuses.snapshot({}), "inconsistent_topic") == {"total_count": 1}
    assert fields(statuses.snapshot({}), "requested_incompatible_qos") == {}


def test_every_policy_that_can_be_incompatible_has_its_id() -> None:
    offered = Qos(
        deadline=2,
        latency_budget=2,
        liveliness_lease_duration=2,
        partition=("a",),
        data_representation=(0,),
    )
    requested = Qos(
        reliability=ReliabilityKind.RELIABLE,
        durability=DurabilityKind.TRANSIENT_LOCAL,
        deadline=1,
        latency_budget=1,
        liveliness=LivelinessKind.MANUAL_BY_TOPIC,
        liveliness_lease_duration=1,
        ownership=OwnershipKind.EXCLUSIVE,
        destination_order=DestinationOrderKind.BY_SOURCE_TIMESTAMP,
        presentation_scope=PresentationScope.TOPIC,
        data_representation=(2,),
    )
    statuses = WriterStatuses()
    statuses.on_event(IncompatibleQos(US, ONE, "t", tuple(incompatibilities(offered, requested))))
    counted = fields(statuses.snapshot({}), "offered_incompatible_qos")
    assert {name for name in counted if name.startswith("by_")} == {f"by_{p.lower()}" for p in POLICY_IDS}


def test_liveliness_changed() -> None:
    statuses = ReaderStatuses(US)

    def counts(*events: Matched | Unmatched | LivelinessLost | LivelinessGained) -> tuple[int, int]:
        for event in events:
            statuses.on_event(event)
        snapshot = statuses.snapshot({})
        name = "status.liveliness_changed."
        return snapshot[name + "alive_count"], snapshot[name + "not_alive_count"]

    assert counts(matched(ONE), matched(TWO)) == (2, 0)
    assert counts(LivelinessLost(ONE, "t")) == (1, 1)
    assert counts(LivelinessLost(WE, "t")) == (1, 1)  # of another topic
    assert counts(LivelinessGained(ONE, "t")) == (2, 0)
    assert counts(LivelinessLost(TWO, "t"), unmatched(TWO)) == (1, 0)
    assert counts(LivelinessGained(TWO, "t")) == (1, 0)


def test_liveliness_lost() -> None:
    statuses = WriterStatuses(US)
    for writer in (US, ONE, US):
        statuses.on_event(LivelinessLost(writer, ""))
    statuses.on_event(LivelinessGained(US, ""))
    assert fields(statuses.snapshot({}), "liveliness_lost") == {"total_count": 2}


def test_liveliness_lost_comes_from_the_participant() -> None:
    network = VirtualNetwork()
    one = network.add()
    qos = Qos(
        reliability=ReliabilityKind.RELIABLE,
        liveliness=LivelinessKind.MANUAL_BY_TOPIC,
        liveliness_lease_duration=SECOND,
    )
    writer = one.create_writer(WriterSpec("t", "T", qos), now=network.now)
    statuses = WriterStatuses(writer.guid)
    network.run(3 * SECOND)
    for event in network.events[one.prefix]:
        statuses.on_event(event)
    assert fields(statuses.snapshot({}), "liveliness_lost") == {"total_count": 1}


def test_sample_lost() -> None:
    reader = ReaderCounters(lost_samples=3, missed_samples=1, oversized_samples=2, irrelevant_samples=9)
    cache = ReaderCacheCounters(lost_by_history=4)
    snapshot = ReaderStatuses().snapshot(reader.snapshot(), cache.snapshot())
    assert fields(snapshot, "sample_lost") == {
        "total_count": 9,
        "by_writer": 2,
        "by_move": 1,
        "by_history": 4,
        "by_size": 2,
    }


def test_sample_lost_stays_within_64_bits() -> None:
    reader = ReaderCounters(lost_samples=1 << 70, oversized_samples=1)
    assert fields(ReaderStatuses().snapshot(reader.snapshot()), "sample_lost")["total_count"] == INFINITE


def test_sample_rejected() -> None:
    reader = ReaderCounters(window_closed=1, reorder_overflow=2)
    cache = ReaderCacheCounters(
        rejected_by_instances_limit=3, rejected_by_samples_limit=4, rejected_by_samples_per_instance_limit=5
    )
    snapshot = ReaderStatuses().snapshot(reader.snapshot(), cache.snapshot())
    assert fields(snapshot, "sample_rejected") == {
        "total_count": 15,
        "by_log_limit": 1,
        "by_reorder_limit": 2,
        "by_instances_limit": 3,
        "by_samples_limit": 4,
        "by_samples_per_instance_limit": 5,
    }


def test_requested_deadline_missed() -> None:
    snapshot = ReaderStatuses().snapshot({}, ReaderCacheCounters(requested_deadline_missed=6).snapshot())
    assert fields(snapshot, "requested_deadline_missed") == {"total_count": 6}


def test_data_reader_cache_status() -> None:
    cache = ReaderCacheCounters(writer_removed_batch_sample_dropped_sample_count=2, alive_instance_count=1)
    snapshot = ReaderStatuses().snapshot({}, cache.snapshot())
    found = {label: n for label, n in snapshot.items() if label.startswith("cache.")}
    assert found == {f"cache.{field}": n for field, n in cache.snapshot().items()}
    assert found["cache.writer_removed_batch_sample_dropped_sample_count"] == 2


def test_data_writer_cache_status() -> None:
    statuses = WriterStatuses()
    statuses.snapshot({}, sample_count=5)
    snapshot = statuses.snapshot({}, sample_count=3)
    assert (snapshot["cache.sample_count"], snapshot["cache.sample_count_peak"]) == (3, 5)


def test_offered_deadline_missed() -> None:
    counters = WriterCounters().snapshot() | {"offered_deadline_missed": 4}
    assert fields(WriterStatuses().snapshot(counters), "offered_deadline_missed") == {"total_count": 4}


def test_reliable_reader_activity_changed() -> None:
    counters = {"active_readers": 2, "inactive_readers": 1, "reader_activity_changes": 5}
    expected = {"active_count": 2, "inactive_count": 1, "changes": 5}
    assert fields(WriterStatuses().snapshot(counters), "reliable_reader_activity_changed") == expected


def test_reliable_writer_cache_changed() -> None:
    counters = {
        "empty_reached": 1,
        "full_reached": 2,
        "low_watermark_reached": 3,
        "high_watermark_reached": 4,
        "unacknowledged_samples": 5,
        "unacknowledged_samples_peak": 6,
    }
    assert fields(WriterStatuses().snapshot(counters), "reliable_writer_cache_changed") == {
        "empty": 1,
        "full": 2,
        "low_watermark": 3,
        "high_watermark": 4,
        "unacknowledged": 5,
        "unacknowledged_peak": 6,
    }


def test_counters_are_called_so_where_they_are_counted() -> None:
    reader = ReaderCounters().snapshot() | ReaderCacheCounters().snapshot()
    for names in (statuses_module._LOST, statuses_module._REJECTED):
        assert set(names.values()) <= reader.keys()
    writer = WriterCounters().snapshot()
    for names in (statuses_module._WRITER_CACHE, statuses_module._READER_ACTIVITY):
        assert set(names.values()) <= writer.keys()
    assert "offered_deadline_missed" in writer


def test_all_labels_fit_the_counters_file(tmp_path: Path) -> None:
    counters = Counters.create(tmp_path / "counters")
    for snapshot in (
        ReaderStatuses().snapshot(ReaderCounters().snapshot(), ReaderCacheCounters().snapshot()),
        WriterStatuses().snapshot(WriterCounters().snapshot()),
    ):
        for label, value in snapshot.items():
            counters.counter(label).set(value)
    assert len(counters.snapshot()) < 100


@pytest.mark.parametrize("kind", [ReaderStatuses, WriterStatuses])
def test_last_handles_name_the_endpoint_that_changed(
    kind: type[ReaderStatuses] | type[WriterStatuses],
) -> None:
    statuses = kind(US)

    def last() -> dict[str, Guid]:
        snapshot = statuses.snapshot({})
        halves = {
            label.split(".")[1]: b"".join(
                snapshot[f"last.{label.split('.')[1]}.guid_{half}"].to_bytes(8, "big", signed=True)
                for half in ("high", "low")
            )
            for label in snapshot
            if label.startswith("last.")
        }
        return {status: Guid.from_bytes(raw) for status, raw in halves.items() if any(raw)}

    matched_status, incompatible_status = kind._matched_status, kind._incompatible_status
    assert last() == {}
    statuses.on_event(matched(ONE))
    statuses.on_event(matched(TWO))
    assert last() == {matched_status: TWO}
    statuses.on_event(unmatched(ONE))
    statuses.on_event(unmatched(TWO, local=WE))
    assert last() == {matched_status: ONE}
    statuses.on_event(IncompatibleQos(US, TWO, "t", ("DEADLINE: no",)))
    assert last() == {matched_status: ONE, incompatible_status: TWO}


def test_last_publication_handle_names_the_writer_whose_liveliness_changed() -> None:
    statuses = ReaderStatuses(US)
    for event in (matched(ONE), matched(TWO), LivelinessLost(ONE, ""), LivelinessLost(TWO, "")):
        statuses.on_event(event)
    raw = TWO.to_bytes()
    high, low = (int.from_bytes(half, "big", signed=True) for half in (raw[:8], raw[8:]))
    found = statuses.snapshot({})
    assert (found["last.liveliness_changed.guid_high"], found["last.liveliness_changed.guid_low"]) == (
        high,
        low,
    )
    statuses.on_event(LivelinessGained(ONE, ""))
    assert statuses.snapshot({})["last.liveliness_changed.guid_high"] != high


def test_liveliness_of_a_writer_of_another_topic_changes_nothing() -> None:
    statuses = ReaderStatuses(US)
    statuses.on_event(matched(ONE))
    before = statuses.snapshot({})
    statuses.on_event(LivelinessLost(TWO, ""))
    statuses.on_event(LivelinessGained(TWO, ""))
    assert statuses.snapshot({}) == before
