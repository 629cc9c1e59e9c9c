"""Which endpoints of a participant have something to do: a thousand idle endpoints cost nothing.

An exception in the turn of one endpoint (plug-ins may raise) is raised after all other due endpoints had their turns.

Invariants: an endpoint that may have something to send is in ``_talking``; an endpoint whose timer may have changed
since it was last read is in ``_unsettled``; for all others ``_timers`` holds the timer, and the heap an entry for it.
The heap has at most ``_STALE`` entries more than twice the number of timers.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar

from ..structure import Guid

#: Outdated entries in the heap before it is rebuilt.
_STALE: Final = 64
#: Nanoseconds before the timer of an endpoint that raised is called again.
_AGAIN: Final = 100_000_000


class TimedEndpoint(Protocol):
    """A reader or writer; it calls ``touch`` at each change of its state."""

    guid: Guid
    touch: Callable[[], None]

    @property
    def has_more_to_say(self) -> bool: ...
    def get_timer(self) -> int | None: ...
    def handle_timer(self, now: int) -> None: ...


_E = TypeVar("_E", bound=TimedEndpoint)


def untouched() -> None:
    """The ``touch`` of an endpoint that is in no agenda."""


class Failures:
    """Keeps the first exception of a plug-in until it is raised, so that the other endpoints have their turns first."""

    __slots__ = ("first",)

    def __init__(self) -> None:
        self.first: Exception | None = None

    def add_failure(self, error: Exception) -> None:
        if self.first is None:
            self.first = error

    def raise_first(self) -> None:
        """Raise the exception that was noted, if any."""
        if (error := self.first) is not None:
            self.first = None
            raise error


class Agenda:
    """The timers and pending messages of one participant's endpoints."""

    def __init__(self, failures: Failures | None = None) -> None:
        """``failures``: further exceptions to raise once all endpoints have had their turn."""
        self._failures = failures or Failures()
        self._endpoints: dict[int, TimedEndpoint] = {}
        self._talking: dict[int, None] = {}
        self._unsettled: dict[int, None] = {}
        self._timers: dict[int, int] = {}
        #: Endpoints that raised, and the time at which they are called again.
        self._paused: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        self._numbers = itertools.count()

    def add_endpoint(self, endpoint: TimedEndpoint) -> None:
        number = next(self._numbers)
        talking, unsettled = self._talking, self._unsettled

        def touch() -> None:
            talking[number] = unsettled[number] = None

        self._endpoints[number] = endpoint
        endpoint.touch = touch
        touch()

    def remove_endpoint(self, guid: Guid) -> None:
        for number in [number for number, each in self._endpoints.items() if each.guid == guid]:
            self._endpoints.pop(number).touch = untouched
            self._talking.pop(number, None)
            self._unsettled.pop(number, None)
            self._timers.pop(number, None)
            self._paused.pop(number, None)

    def all(self, kind: type[_E]) -> list[_E]:
        """All endpoints of a kind."""
        return [each for each in self._endpoints.values() if isinstance(each, kind)]

    def touched(self, kind: type[_E]) -> Iterator[_E]:
        """Endpoints of a kind that changed since they last sent, or that have more to send."""
        endpoints = self._endpoints
        return (each for number in self._talking if isinstance(each := endpoints[number], kind))

    def talking(self, kind: type[_E]) -> Iterator[_E]:
        """Endpoints of a kind that may have something to send; the caller lets each of them send now."""
        for number in list(self._talking):
            endpoint = self._endpoints[number]
            if isinstance(endpoint, kind):
                del self._talking[number]
                self._unsettled[number] = None
                yield endpoint
                if endpoint.has_more_to_say:
                    self._talking[number] = None

    def get_timer(self) -> int | None:
        """The earliest timer of all endpoints; None if there is none."""
        timers, heap = self._timers, self._heap
        for number in self._unsettled:
            try:
                timer = self._endpoints[number].get_timer()
            except Exception as error:  # noqa: BLE001  (a plug-in: the timers of the others still count)
                self._failures.add_failure(error)
                continue
            if timer is None:
                timers.pop(number, None)
                continue
            timer = max(timer, self._paused.get(number, timer))
            if timers.get(number) != timer:
                timers[number] = timer
                heapq.heappush(heap, (timer, number))
        self._unsettled.clear()
        if len(heap) > 2 * len(timers) + _STALE:
            heap[:] = [(timer, number) for number, timer in timers.items()]
            heapq.heapify(heap)
        while heap and timers.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)  # it has another one by now
        return heap[0][0] if heap else None

    def handle_timer(self, now: int) -> None:
        """Call the endpoints whose timers are due, then raise the first exception of those that raised."""
        due = []
        while (timer := self.get_timer()) is not None and timer <= now:
            number = heapq.heappop(self._heap)[1]
            del self._timers[number]
            due.append(number)
        for number in due:
            if (endpoint := self._endpoints.get(number)) is not None:
                self._talking[number] = self._unsettled[number] = None
                try:
                    endpoint.handle_timer(now)
                    self._paused.pop(number, None)
                except Exception as error:  # noqa: BLE001  (a plug-in: the timers of the others are due as well)
                    self._failures.add_failure(error)
                    self._paused[number] = now + _AGAIN
        self._failures.raise_first()
