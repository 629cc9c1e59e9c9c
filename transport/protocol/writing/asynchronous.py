"""Asynchronous publishing: what writers with a flow controller send waits for its tokens.

RTI's PUBLISH_MODE and FlowControllers. Everything such a writer sends goes through its controller in order, its
HEARTBEATs and repairs too: a HEARTBEAT that overtook its data would have it requested.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...structure import Guid
from ..outgoing import Outgoing
from ..policies import FlowControllerPolicy
from .flow_controller import FlowController
from .writer import StatefulWriter


class AsynchronousPublishing:
    """The flow controllers of a participant, by name, and which writers use them."""

    def __init__(self) -> None:
        self._controllers: dict[str, FlowController] = {}
        #: By writer: its controller, its priority and its latency budget.
        self._writers: dict[Guid, tuple[FlowController, int, int]] = {}

    def add(self, writer: Guid, policy: FlowControllerPolicy, priority: int, latency_budget: int) -> None:
        """``writer`` publishes asynchronously. The first to name a controller says how it works."""
        controller = self._controllers.setdefault(policy.name, FlowController(policy))
        self._writers[writer] = controller, priority, latency_budget

    def forget(self, writer: Guid) -> None:
        entry = self._writers.pop(writer, None)
        if entry is not None:
            entry[0].forget(writer)

    def pass_on(self, writer: StatefulWriter, now: int) -> Iterable[Outgoing]:
        """What the writer sends at once; nothing of an asynchronous one."""
        outgoing = writer.outgoing()
        entry = self._writers.get(writer.guid)
        if entry is None or not outgoing:
            return outgoing
        controller, priority, latency_budget = entry
        controller.enqueue(writer.guid, outgoing, deadline=now + latency_budget, priority=priority, now=now)
        return ()

    def release(self, now: int) -> Iterable[Outgoing]:
        """What the controllers let go now."""
        for controller in self._controllers.values():
            yield from controller.release(now)

    def get_timer(self) -> int | None:
        timers = [controller.get_timer() for controller in self._controllers.values()]
        return min((timer for timer in timers if timer is not None), default=None)

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for tokens."""
        return sum(controller.queued_bytes for controller in self._controllers.values())
