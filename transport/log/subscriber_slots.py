"""The slots of a publication log in which readers on its host show their positions.

They lie behind the words of the log's metadata (:mod:`.publication_log_metadata`), 56 bytes each::

     0  guid        16s
    16  position    i64  all before is consumed
    24  heartbeat   i64  when the subscriber last showed itself, by the host's monotonic clock in ns
    32  state       i64  see :class:`SubscriberState`
    40  waiting     i64  1: it sleeps, and wants to be woken
    48  what it is  i64  bits: a spy, untethered

A slot belongs to its subscriber from :meth:`SubscriberSlots.subscribe` to :meth:`SubscriberSlot.leave`, except for two
words that the log's owner writes as well: the state, by which it excludes a slow subscriber, and the position of a
subscriber that rests.
"""

from __future__ import annotations

import enum
import fcntl
import os
import threading
from pathlib import Path
from typing import Final

import numpy as np

from ..structure import GUID_BYTES, Guid
from .appending import let_go
from .segment import refusal

SUBSCRIBERS_MAX: Final = 64
SLOTS_AT: Final = 256

_SLOT_BYTES: Final = 56
SLOTS_END: Final = SLOTS_AT + SUBSCRIBERS_MAX * _SLOT_BYTES
#: Indices of the words behind the GUID.
_POSITION: Final = 0
_HEARTBEAT: Final = 1
_STATE: Final = 2
_WAITING: Final = 3
_WHAT: Final = 4
_SPY: Final = 1
_UNTETHERED: Final = 2


class SubscriberState(enum.IntEnum):
    """Aeron's states of a tethered or untethered subscription."""

    FREE = 0
    ACTIVE = 1
    LINGER = 2
    RESTING = 3


_STATES: Final = frozenset(SubscriberState)


class SubscriberSlot:
    """The slot of one reader of the log."""

    __slots__ = ("_at", "_bytes", "_guid_at", "_words", "guid")

    def __init__(self, guid: Guid, metadata: memoryview, words: memoryview, at: int) -> None:
        self.guid = guid
        self._bytes = metadata
        self._words = words
        self._guid_at = at
        self._at = (at + GUID_BYTES) // 8

    @property
    def position(self) -> int:
        """The subscriber has consumed everything before this position."""
        value: int = self._words[self._at + _POSITION]
        return value

    @position.setter
    def position(self, value: int) -> None:
        self._words[self._at + _POSITION] = value

    @property
    def heartbeat(self) -> int:
        """When the subscriber last showed itself, by the host's monotonic clock in ns."""
        value: int = self._words[self._at + _HEARTBEAT]
        return value

    @heartbeat.setter
    def heartbeat(self, value: int) -> None:
        self._words[self._at + _HEARTBEAT] = value

    @property
    def state(self) -> SubscriberState:
        value = self._words[self._at + _STATE]
        # Another process may have stored anything there.
        return SubscriberState(value) if value in _STATES else SubscriberState.FREE

    @state.setter
    def state(self, value: SubscriberState) -> None:
        self._words[self._at + _STATE] = value

    @property
    def waiting(self) -> bool:
        """Whether the subscriber sleeps, and wants to be woken by the next frame."""
        return bool(self._words[self._at + _WAITING])

    @waiting.setter
    def waiting(self, value: bool) -> None:
        self._words[self._at + _WAITING] = value

    @property
    def is_spy(self) -> bool:
        """Whether the owner's writer is not matched with this reader."""
        return bool(self._words[self._at + _WHAT] & _SPY)

    @property
    def is_tethered(self) -> bool:
        """Whether the writer waits for this reader, however slow it is."""
        return not self._words[self._at + _WHAT] & _UNTETHERED

    @property
    def is_there(self) -> bool:
        """Whether the slot still belongs to this subscriber: a subscriber that was considered dead loses it."""
        at = self._guid_at
        mine = self._bytes[at : at + GUID_BYTES] == self.guid.to_bytes()
        return mine and self.state is not SubscriberState.FREE

    def leave(self) -> None:
        """Free the slot; called by the subscriber, or by the owner when the subscriber has died."""
        self.state = SubscriberState.FREE


class SubscriberSlots:
    """All slots of one mapped log; ``path`` names its file, None stands for anonymous memory."""

    __slots__ = ("_bytes", "_path", "_states", "_words")

    _subscribing = threading.Lock()

    def __init__(self, metadata: memoryview, words: memoryview, path: Path | None) -> None:
        self._bytes = metadata
        self._words = words
        self._path = path
        first = (SLOTS_AT + GUID_BYTES) // 8 + _STATE
        #: The states of all slots, for one check of all.
        self._states = np.frombuffer(metadata, np.int64)[first : SLOTS_END // 8 : _SLOT_BYTES // 8]

    def subscribe(
        self, guid: Guid, *, position: int, now: int, spy: bool = False, tether: bool = True
    ) -> SubscriberSlot | None:
        """Take a slot, or the one that belongs to ``guid`` already; None: all are taken."""
        what = (_SPY if spy else 0) | (0 if tether else _UNTETHERED)
        with self._subscribing:
            if self._path is None:
                return self._take(guid, position, now, what)
            try:
                fd = os.open(self._path, os.O_RDWR)
            except OSError as error:
                raise refusal(error, f"subscribe to {self._path}", path=self._path) from error
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)  # other processes take slots too
                return self._take(guid, position, now, what)
            finally:
                let_go(fd)

    def taken(self) -> list[SubscriberSlot]:
        """The slots of all subscribers, whatever their state; an empty list costs a microsecond."""
        slots = (self._slot(number) for number in self._states.nonzero()[0].tolist())
        return [slot for slot in slots if slot.state is not SubscriberState.FREE]

    def _take(self, guid: Guid, position: int, now: int, what: int) -> SubscriberSlot | None:
        free = None
        for number in range(SUBSCRIBERS_MAX):
            slot = self._slot(number)
            if slot.state is SubscriberState.FREE:
                free = number if free is None else free
            elif slot.guid == guid:
                free = number
                break
        if free is None:
            return None
        at = SLOTS_AT + free * _SLOT_BYTES
        self._bytes[at : at + GUID_BYTES] = guid.to_bytes()
        slot = self._slot(free)
        slot.position = position
        slot.heartbeat = now
        slot.waiting = False
        self._words[(at + GUID_BYTES) // 8 + _WHAT] = what
        slot.state = SubscriberState.ACTIVE
        return slot

    def _slot(self, number: int) -> SubscriberSlot:
        at = SLOTS_AT + number * _SLOT_BYTES
        guid = Guid.from_bytes(bytes(self._bytes[at : at + GUID_BYTES]))
        return SubscriberSlot(guid, self._bytes, self._words, at)


def _in_child() -> None:
    """A thread of the parent may have held the lock, and does not exist here to release it."""
    SubscriberSlots._subscribing = threading.Lock()


os.register_at_fork(after_in_child=_in_child)
