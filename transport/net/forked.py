"""Disowns nodes, with their sockets and publication logs, in a forked child: they belong to its parent.

Otherwise a child that ends in the ordinary way, or leaves a ``with`` block, disposes its parent's participant. A child
that joins a domain makes a participant of its own.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol


class Disownable(Protocol):
    """An object that belongs to the process which made it."""

    def disown(self) -> None:
        """Called in a forked child, which has one thread: be closed, and do nothing in the parent's name."""


_ALL: Final[weakref.WeakSet[Disownable]] = weakref.WeakSet()


def disowned_by_children(owned: Disownable) -> None:
    """Have each forked child disown it."""
    _ALL.add(owned)


def _disown_all() -> None:
    for owned in list(_ALL):
        owned.disown()


os.register_at_fork(after_in_child=_disown_all)
