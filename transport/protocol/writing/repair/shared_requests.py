"""Requests that several readers of one multicast group share: the repair is sent to the group once, not to each reader.

A single reader that requests something is answered alone. If `multicast_resend_threshold` readers request the same, at
one time or within ``ASKED_TOGETHER``, the repair goes to the group. So a loss that all of N readers see costs as many
datagrams as the threshold, not N. Readers that request it later find it sent already
(:meth:`.ReaderRepairs.sent_to_group`).

Invariants: a group gets repairs only of samples that were first sent after all its readers matched, so that none of
them gets samples from before its match; repairs to the group have the bounds of a single reader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from ....limits import REORDER_RUNS_MAX
from ....structure import ENTITYID_UNKNOWN, INFINITE, PREFIX_UNKNOWN, Guid, Locator
from ...endpoint_info import ReaderInfo
from ...intervals import IntervalSet
from ...policies import WriterPolicy
from ..flow import Receiver
from ..readers import ReaderProxy, Requested

#: Nanoseconds within which requests for the same count together; a reader does not repeat a request sooner.
ASKED_TOGETHER: Final = 20_000_000

#: Requested fragments by the number of their sample, and requested samples under 0.
_Asked = dict[int, IntervalSet]


class GroupProxy(ReaderProxy):
    """Stands for all readers of a group in repairs that go to the group."""

    __slots__ = ("_suppression", "asked", "members")

    def __init__(self, group: Locator, suppression: int) -> None:
        guid = Guid(PREFIX_UNKNOWN, ENTITYID_UNKNOWN)
        info = ReaderInfo(guid, (), (group,), reliable=True, transient_local=False, status_messages=True)
        super().__init__(info, reliable=True, first_relevant=1, joined_sn=0)
        self.members: list[ReaderProxy] = []
        self._suppression = suppression
        #: Recent requests of single readers: (time, reader, of, first, last).
        self.asked: deque[tuple[int, Guid, int, int, int]] = deque(maxlen=REORDER_RUNS_MAX)

    def consists_of(self, members: list[ReaderProxy], askers: list[ReaderProxy]) -> None:
        """Set the readers of the group; ``askers`` are those with requests."""
        self.members = members
        self.form = members[0].form
        self.acked = min(proxy.acked for proxy in askers)
        self.first_relevant = max(max(proxy.first_relevant, proxy.joined_sn + 1) for proxy in members)
        windows = [proxy.receiver.window for proxy in askers if not proxy.receiver.presumed]
        self.receiver = Receiver(0, min(windows, default=INFINITE))
        size = min(proxy.info.message_size_max for proxy in members)
        if size != self.info.message_size_max:
            self.info = self.info.resized(size)

    def sent_again(self, first: int, last: int, nbytes: int, now: int, *, of: int = 0) -> None:
        super().sent_again(first, last, nbytes, now, of=of)
        for proxy in self.members:
            proxy.repairs.sent_to_group(first, last, now, suppression=self._suppression, of=of)

    def sent_gap(self, first: int, last: int, nbytes: int) -> None:
        super().sent_gap(first, last, nbytes)
        for proxy in self.members:
            proxy.repairs.requested.remove_range(first, last)


class SharedRequests:
    """Finds requests that readers of the groups of one writer share."""

    def __init__(self, policy: WriterPolicy) -> None:
        self._threshold = policy.multicast_resend_threshold
        self._suppression = policy.repair_suppression
        self._groups: dict[Locator, GroupProxy] = {}

    def shared(
        self, readers: Iterable[ReaderProxy], askers: Iterable[ReaderProxy], now: int
    ) -> Iterator[GroupProxy]:
        """The groups with shared requests; the caller repairs what each has ``requested`` before it takes the next one.

        ``readers`` are all readers of the writer. Requests that then remain with one of the ``askers`` are for that
        reader alone.
        """
        asking: dict[Locator, list[ReaderProxy]] = {}
        for proxy in askers:
            if proxy.group is not None:
                asking.setdefault(proxy.group, []).append(proxy)
        if not asking:
            return
        members: dict[Locator, list[ReaderProxy]] = {}
        for proxy in readers:
            if proxy.group is not None:
                members.setdefault(proxy.group, []).append(proxy)
        self._groups = {
            group: self._groups.get(group) or GroupProxy(group, self._suppression) for group in members
        }
        for group, together in asking.items():
            shared = self._groups[group]
            shared.consists_of(members[group], together)
            self._find(shared, together, now)
            if shared.repairs.requested:
                yield shared
            for proxy in together:
                for of, first, last in _ranges(proxy.repairs.requested):
                    shared.asked.append((now, proxy.guid, of, first, last))

    def _find(self, group: GroupProxy, askers: list[ReaderProxy], now: int) -> None:
        """Have the group request what enough of its readers request."""
        while group.asked and group.asked[0][0] <= now - ASKED_TOGETHER:
            group.asked.popleft()
        by_reader: dict[Guid, _Asked] = {}
        asked_now: _Asked = {}
        for proxy in askers:
            for of, first, last in _ranges(proxy.repairs.requested):
                by_reader.setdefault(proxy.guid, {}).setdefault(of, IntervalSet()).add_range(first, last)
                asked_now.setdefault(of, IntervalSet()).add_range(first, last)
        for _, guid, of, first, last in group.asked:
            if of in asked_now:
                by_reader.setdefault(guid, {}).setdefault(of, IntervalSet()).add_range(first, last)
        requested = group.repairs.requested = Requested()
        for of, asked in asked_now.items():
            if of and of < group.first_relevant:
                continue
            for first, last in _often(
                [each[of] for each in by_reader.values() if of in each], self._threshold
            ):
                first = first if of else max(first, group.first_relevant)
                for a, b in asked.within(first, last):
                    if not of:
                        requested.samples.add_range(a, b)
                    else:
                        requested.fragments.setdefault(of, IntervalSet()).add_range(a, b)


def _ranges(requested: Requested) -> Iterator[tuple[int, int, int]]:
    for first, last in requested.samples:
        yield 0, first, last
    for sn, fragments in requested.fragments.items():
        for first, last in fragments:
            yield sn, first, last


def _often(sets: list[IntervalSet], times: int) -> Iterator[tuple[int, int]]:
    """The ranges that are in at least ``times`` of the sets."""
    changes = sorted(each for numbers in sets for a, b in numbers for each in ((a, 1), (b + 1, -1)))
    depth, begun = 0, 0
    for at, change in changes:
        before, depth = depth, depth + change
        if before < times <= depth:
            begun = at
        elif depth < times <= before and begun < at:
            yield begun, at - 1
