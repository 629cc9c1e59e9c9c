"""Asynchronous publishing: what writers with a flow controller send waits for its tokens.

RTI's PUBLISH_MODE and FlowControllers. Everything such a writer sends goes through its controller in order, its
HEARTBEATs and repairs too: a HEARTBEAT that overtook its data would have it requested.

What waits is bounded: a writer takes no more samples while half of FLOW_CONTROLLER_BYTES_MAX waits, and what is
reliable, and would be asked for again, does not queue behind twice as much.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...limits import FLOW_CONTROLLER_BYTES_MAX
from ...structure import Guid
from ..outgoing import Outgoing
from ..policies import FlowControllerPolicy
from .flow_controller import FlowController
from .writer import StatefulWriter

#: What a datagram that waits costs beside its bytes, about.
_DATAGRAM_OVERHEAD: Final = 1_024


class AsynchronousPublishing:
    """The flow controllers of a participant, by name, and which writers use them."""

    def __init__(self) -> None:
        self._controllers: dict[str, FlowController] = {}
        #: By GUID: the writer, its controller and its priority.
        self._writers: dict[Guid, tuple[StatefulWriter, FlowController, int]] = {}

    def add(self, writer: StatefulWriter, policy: FlowControllerPolicy, priority: int) -> None:
        """``writer`` publishes asynchronously. The first to name a controller says how it works."""
        controller = self._controllers.setdefault(policy.name, FlowController(policy))
        self._writers[writer.guid] = writer, controller, priority
        writer.sender.is_asynchronous = True

    def forget(self, writer: Guid) -> None:
        entry = self._writers.pop(writer, None)
        if entry is not None:
            entry[1].forget(writer)

    def pass_on(self, writer: StatefulWriter, now: int) -> Iterable[Outgoing]:
        """What the writer sends at once; nothing of an asynchronous one."""
        outgoing = writer.outgoing()
        entry = self._writers.get(writer.guid)
        if entry is None or not outgoing:
            return outgoing
        _, controller, priority = entry
        if writer.qos.is_reliable and _backlog(controller, writer.guid) > 2 * FLOW_CONTROLLER_BYTES_MAX:
            writer.counters.flow_controller_overflow += len(outgoing)
            return ()
        deadline = now + writer.qos.latency_budget
        controller.enqueue(writer.guid, outgoing, deadline=deadline, priority=priority, now=now)
        return ()

    def release(self, now: int) -> Iterable[Outgoing]:
        """What the controllers let go now."""
        for controller in self._controllers.values():
            yield from controller.release(now)
        for writer, controller, _ in self._writers.values():
            if (backlog := _backlog(controller, writer.guid)) != writer.backlog:
                writer.sender.backlog = backlog
                writer.touch()

    def get_timer(self) -> int | None:
        timers = [controller.get_timer() for controller in self._controllers.values()]
        return min((timer for timer in timers if timer is not None), default=None)

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for tokens."""
        return sum(controller.queued_bytes for controller in self._controllers.values())


def _backlog(controller: FlowController, writer: Guid) -> int:
    return controller.queued_bytes_of(writer) + _DATAGRAM_OVERHEAD * controller.queued_datagrams_of(writer)
