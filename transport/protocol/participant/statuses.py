"""The communication statuses of a reader or writer, as counters (DDS 1.4 §2.2.4.1, and RTI's).

A label is ``status.<status>.<field>``, with the names of DDS: ``total_count``, ``current_count`` and so on. Where the
standard keeps only the last reason, ``by_<reason>`` counts each reason. Two names are shortened to fit a label of the
counters file: the fields of RELIABLE_WRITER_CACHE_CHANGED, and DATA_READER_CACHE_STATUS and DATA_WRITER_CACHE_STATUS,
whose fields are ``cache.<field>``.

The endpoint of the last change, DDS's ``last_..._handle``, is ``last.<status>.guid_high`` and ``.guid_low``: its GUID
as two int64, big-endian, and zeros if there was no change.

The statuses that events report are kept here; :meth:`snapshot` takes all others from the counters of reader, writer and
cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ...qos import QosPolicyId, policies_of
from ...structure import GUID_UNKNOWN, INFINITE, Guid
from .events import Event, IncompatibleQos, LivelinessGained, LivelinessLost, Matched, Unmatched

#: QosPolicyId_t of the policies that can be incompatible (DDS 1.4 §2.3.3; XTypes 1.3 §7.6.3.1.1). PARTITION is not one
#: of them: endpoints in different partitions are not compared (DDS 1.4 §2.2.3.13).
POLICY_IDS: Final = {
    policy.name: policy.value
    for policy in (
        QosPolicyId.DURABILITY,
        QosPolicyId.PRESENTATION,
        QosPolicyId.DEADLINE,
        QosPolicyId.LATENCY_BUDGET,
        QosPolicyId.OWNERSHIP,
        QosPolicyId.LIVELINESS,
        QosPolicyId.RELIABILITY,
        QosPolicyId.DESTINATION_ORDER,
        QosPolicyId.DATA_REPRESENTATION,
    )
}
#: Reasons of a mismatch that are about the type: INCONSISTENT_TOPIC.
_OF_THE_TYPE: Final = ("TYPE", "KEY")

_LIVELINESS_CHANGED: Final = "liveliness_changed"

_Counts = Mapping[str, int]
#: SAMPLE_LOST: reason, and the counter that has it.
_LOST: Final = {
    "by_writer": "lost_samples",
    "by_move": "missed_samples",
    "by_history": "lost_by_history",
    "by_size": "oversized_samples",
}
#: SAMPLE_REJECTED. Reliable writers send again what did not fit the log or the reorder buffer.
_REJECTED: Final = {
    "by_instances_limit": "rejected_by_instances_limit",
    "by_samples_limit": "rejected_by_samples_limit",
    "by_samples_per_instance_limit": "rejected_by_samples_per_instance_limit",
    "by_log_limit": "window_closed",
    "by_reorder_limit": "reorder_overflow",
}
#: RELIABLE_WRITER_CACHE_CHANGED: how often a fill level was reached, and the number of unacknowledged samples.
_WRITER_CACHE: Final = {
    "empty": "empty_reached",
    "full": "full_reached",
    "low_watermark": "low_watermark_reached",
    "high_watermark": "high_watermark_reached",
    "unacknowledged": "unacknowledged_samples",
    "unacknowledged_peak": "unacknowledged_samples_peak",
}
_READER_ACTIVITY: Final = {
    "active_count": "active_readers",
    "inactive_count": "inactive_readers",
    "changes": "reader_activity_changes",
}


class _MatchStatuses:
    """The common statuses of readers and writers: matched and incompatible endpoints."""

    _matched_status: str
    _incompatible_status: str

    def __init__(self, local: Guid | None = None) -> None:
        self.local = local
        self.matched: set[Guid] = set()
        self._matched_total = 0
        self._matched_peak = 0
        self._inconsistent_topics = 0
        self._incompatible_total = 0
        self._last_policy_id = 0
        self._policies: Counter[str] = Counter()
        #: The endpoint of the last change of each status.
        self._last: dict[str, Guid] = dict.fromkeys(
            (self._matched_status, self._incompatible_status), GUID_UNKNOWN
        )

    def on_event(self, event: Event) -> None:
        """Count an event of a participant; events about other endpoints than ``local`` are ignored."""
        if isinstance(event, Matched | Unmatched | IncompatibleQos):
            if self.local is not None and event.local != self.local:
                return
            if isinstance(event, IncompatibleQos):
                self._last[self._incompatible_status] = event.remote
                self._on_incompatible(event.reasons)
                return
            self._last[self._matched_status] = event.remote
            if isinstance(event, Matched):
                self._on_matched(event.remote)
            else:
                self._on_unmatched(event.remote)

    def _on_matched(self, remote: Guid) -> None:
        if remote not in self.matched:
            self.matched.add(remote)
            self._matched_total += 1
            self._matched_peak = max(self._matched_peak, len(self.matched))

    def _on_unmatched(self, remote: Guid) -> None:
        self.matched.discard(remote)

    def _on_incompatible(self, reasons: Iterable[str]) -> None:
        kinds = policies_of(reasons)
        policies = [kind for kind in kinds if kind in POLICY_IDS]
        self._inconsistent_topics += any(kind in _OF_THE_TYPE for kind in kinds)
        if policies:
            self._incompatible_total += 1
            self._last_policy_id = POLICY_IDS[policies[0]]
            self._policies.update(policies)

    def _common(self) -> Iterator[tuple[str, int]]:
        matched, incompatible = self._matched_status, self._incompatible_status
        yield f"status.{matched}.total_count", self._matched_total
        yield f"status.{matched}.current_count", len(self.matched)
        yield f"status.{matched}.current_count_peak", self._matched_peak
        yield "status.inconsistent_topic.total_count", self._inconsistent_topics
        yield f"status.{incompatible}.total_count", self._incompatible_total
        yield f"status.{incompatible}.last_policy_id", self._last_policy_id
        for policy in POLICY_IDS:
            yield f"status.{incompatible}.by_{policy.lower()}", self._policies[policy]
        for status, guid in self._last.items():
            raw = guid.to_bytes()
            yield f"last.{status}.guid_high", int.from_bytes(raw[:8], "big", signed=True)
            yield f"last.{status}.guid_low", int.from_bytes(raw[8:], "big", signed=True)


class ReaderStatuses(_MatchStatuses):
    """The statuses of one reader; ``local`` is its GUID, None: every event handed in is about it."""

    _matched_status = "subscription_matched"
    _incompatible_status = "requested_incompatible_qos"

    def __init__(self, local: Guid | None = None) -> None:
        super().__init__(local)
        self._not_alive: set[Guid] = set()  # of the matched ones
        self._last[_LIVELINESS_CHANGED] = GUID_UNKNOWN

    def on_event(self, event: Event) -> None:
        super().on_event(event)
        if isinstance(event, LivelinessLost) and event.writer in self.matched:
            self._not_alive.add(event.writer)
            self._last[_LIVELINESS_CHANGED] = event.writer
        elif isinstance(event, LivelinessGained) and event.writer in self.matched:
            self._not_alive.discard(event.writer)
            self._last[_LIVELINESS_CHANGED] = event.writer

    def _on_unmatched(self, remote: Guid) -> None:
        super()._on_unmatched(remote)
        self._not_alive.discard(remote)

    def snapshot(self, reader_counters: _Counts, cache_counters: _Counts | None = None) -> dict[str, int]:
        """All labels and values; counters are what ``ReaderCounters`` and ``ReaderCacheCounters`` snapshot."""
        cache = cache_counters or {}
        counters = {**reader_counters, **cache}
        found = dict(self._common())
        found["status.liveliness_changed.alive_count"] = len(self.matched) - len(self._not_alive)
        found["status.liveliness_changed.not_alive_count"] = len(self._not_alive)
        found["status.requested_deadline_missed.total_count"] = counters.get("requested_deadline_missed", 0)
        lost = counters.get("lost_samples", 0) - counters.get("missed_samples", 0)
        found |= _by_reason("sample_lost", _LOST, {**counters, "lost_samples": lost})
        found |= _by_reason("sample_rejected", _REJECTED, counters)
        found |= {f"cache.{field}": count for field, count in cache.items()}
        return found


class WriterStatuses(_MatchStatuses):
    """The statuses of one writer; ``local`` is its GUID, None: every event handed in is about it."""

    _matched_status = "publication_matched"
    _incompatible_status = "offered_incompatible_qos"

    def __init__(self, local: Guid | None = None) -> None:
        super().__init__(local)
        self._liveliness_lost = 0
        self._samples_peak = 0

    def on_event(self, event: Event) -> None:
        super().on_event(event)
        if isinstance(event, LivelinessLost) and self.local in (None, event.writer):
            self._liveliness_lost += 1

    def snapshot(
        self, writer_counters: _Counts, *, sample_count: int = 0, sample_count_peak: int = 0
    ) -> dict[str, int]:
        """All labels and values; ``writer_counters`` are what ``WriterCounters`` snapshots, ``sample_count`` is how
        many samples the writer's history holds, ``sample_count_peak`` how many it has held at most."""
        self._samples_peak = max(self._samples_peak, sample_count, sample_count_peak)
        found = dict(self._common())
        found["status.liveliness_lost.total_count"] = self._liveliness_lost
        missed = writer_counters.get("offered_deadline_missed", 0)
        found["status.offered_deadline_missed.total_count"] = missed
        found |= _fields("reliable_reader_activity_changed", _READER_ACTIVITY, writer_counters)
        found |= _fields("reliable_writer_cache_changed", _WRITER_CACHE, writer_counters)
        found["cache.sample_count"] = sample_count
        found["cache.sample_count_peak"] = self._samples_peak
        return found


def _fields(status: str, fields: Mapping[str, str], counters: _Counts) -> dict[str, int]:
    return {f"status.{status}.{field}": counters.get(counter, 0) for field, counter in fields.items()}


def _by_reason(status: str, reasons: Mapping[str, str], counters: _Counts) -> dict[str, int]:
    found = _fields(status, reasons, counters)
    return {f"status.{status}.total_count": min(sum(found.values()), INFINITE), **found}
