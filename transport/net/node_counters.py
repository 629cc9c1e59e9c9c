"""The counters of a node for all its endpoints together."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import DropReason
from .sockets import Sockets


class NodeCounters:
    """The counters of a node; without sockets, only those of its participant."""

    def __init__(self, drops: Mapping[DropReason, int], sockets: Sockets | None = None) -> None:
        #: Messages and submessages that were dropped, by reason.
        self.drops = drops
        self._sockets = sockets

    @property
    def receive_overflows(self) -> int:
        """Datagrams with samples that the kernel dropped because a receive buffer was full."""
        return 0 if self._sockets is None else self._sockets.overflows

    def by_label(self) -> dict[str, int]:
        """All counters, by their labels in the counters file."""
        short_sends = 0 if self._sockets is None else self._sockets.short_sends
        return {
            "writer.short_sends": short_sends,
            **{f"drop.{reason.value}": count for reason, count in self.drops.items()},
        }
