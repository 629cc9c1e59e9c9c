"""The communication statuses of a subscription or publication (DDS 1.4 §2.2.4.1): by reading, and by a listener.

A status has DDS's name, ``SUBSCRIPTION_MATCHED``, and fields with DDS's names, ``total_count``. Where DDS keeps only
the last reason of something, ``by_<reason>`` counts each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..transport.errors import UsageError
from ..transport.protocol.participant.events import (
    Event,
    IncompatibleQos,
    LivelinessGained,
    LivelinessLost,
    Matched,
    Unmatched,
)
from ..transport.protocol.participant.statuses import ReaderStatuses, WriterStatuses

_PREFIX: Final = "status."
_TOTAL: Final = "total_count"
_CHANGE: Final = "total_count_change"


@dataclass(frozen=True, slots=True)
class StatusChange:
    """The argument of a listener: a changed communication status.

    Attributes:
        status: DDS's name, such as ``SUBSCRIPTION_MATCHED``, ``REQUESTED_INCOMPATIBLE_QOS``, ``SAMPLE_LOST`` or,
            without fields, ``DATA_AVAILABLE``.
        topic: the topic of the subscription or publication.
        fields: the status as it is now, by the names that DDS gives its fields; counts.
        remote: GUID of the reader or writer that it is about; None where it is about several, or none.
        reasons: for an incompatible QoS, one sentence for each policy.
        policy_ids: for an incompatible QoS, the QosPolicyId_t of each policy (DDS 1.4 §2.3.3).
    """

    status: str
    topic: str
    fields: Mapping[str, int]
    remote: str | None = None
    reasons: tuple[str, ...] = ()
    policy_ids: tuple[int, ...] = ()


#: Called with each change, in a thread of the participant, with no lock held that a subscription or publication needs.
Listener: TypeAlias = Callable[[StatusChange], object]


class StatusBoard:
    """The statuses of one endpoint.

    ``counted`` gives them all, by the labels of `transport.protocol.participant.statuses`.
    """

    def __init__(
        self,
        topic: str,
        kept: ReaderStatuses | WriterStatuses,
        counted: Callable[[], dict[str, int]],
        listener: Listener | None,
    ) -> None:
        self._topic = topic
        self._kept = kept
        self._counted = counted
        self._listener = listener
        #: Total counts as :meth:`get` last returned them, by status.
        self._read: dict[str, int] = {}
        #: The statuses that the listener knows; None: not yet.
        self._received: dict[str, dict[str, int]] = {}

    @property
    def has_listener(self) -> bool:
        """Whether there is a listener for changes."""
        return self._listener is not None

    def all(self) -> dict[str, dict[str, int]]:
        """Every status by its name, each with its fields."""
        found: dict[str, dict[str, int]] = {}
        for label, value in self._counted().items():
            if label.startswith(_PREFIX):
                status, _, field = label.removeprefix(_PREFIX).partition(".")
                found.setdefault(status.upper(), {})[field] = value
        return found

    def get(self, name: str) -> dict[str, int]:
        """One status; ``total_count_change`` counts since the previous call. Raises UsageError for an unknown name."""
        statuses = self.all()
        wanted = name.upper().removesuffix("_STATUS")
        if wanted not in statuses:
            raise UsageError(f"there is no status {name!r}; the statuses are {', '.join(sorted(statuses))}")
        fields = statuses[wanted]
        if _TOTAL in fields:
            fields[_CHANGE] = fields[_TOTAL] - self._read.get(wanted, 0)
            self._read[wanted] = fields[_TOTAL]
        return fields

    def on_event(self, event: Event) -> None:
        """Take an event of the participant, and call the listener if it is about this endpoint."""
        local = self._kept.local
        if isinstance(event, LivelinessLost | LivelinessGained):
            matters = event.writer == local or event.writer in self._kept.matched
        else:
            matters = isinstance(event, Matched | Unmatched | IncompatibleQos) and event.local == local
        if matters:
            self.notify_changes()  # earlier changes are not about this event's peer
        self._kept.on_event(event)
        if matters:
            self.notify_changes(event)

    def notify_changes(self, cause: Event | None = None) -> None:
        """Call the listener for each status that changed since the last call; ``cause`` is the event behind it."""
        if self._listener is None:
            return
        remote, reasons, policy_ids = _about(cause)
        for status, fields in self.all().items():
            if fields == self._received.get(status):
                continue
            is_new = status not in self._received
            self._received[status] = fields
            if is_new and not any(fields.values()):
                continue  # nothing has happened so far
            self._listener(StatusChange(status, self._topic, fields, remote, reasons, policy_ids))

    def announce(self, status: str) -> None:
        """Call the listener for a status without fields."""
        if self._listener is not None:
            self._listener(StatusChange(status, self._topic, {}))


def _about(event: Event | None) -> tuple[str | None, tuple[str, ...], tuple[int, ...]]:
    """The peer of an event, and the reasons of an incompatible QoS."""
    match event:
        case IncompatibleQos():
            return str(event.remote), event.reasons, event.policy_ids
        case Matched() | Unmatched():
            return str(event.remote), (), ()
        case LivelinessLost() | LivelinessGained():
            return str(event.writer), (), ()
    return None, (), ()
