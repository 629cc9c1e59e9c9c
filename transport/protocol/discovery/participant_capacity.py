"""Which remote participants are kept when there are more of them than there is room for.

A participant is *matched* while one of its endpoints matches one of ours, else it is a *stranger*. A stranger may be
unproven (:mod:`.spdp`). The room is for PARTICIPANTS_MAX participants, and PARTICIPANTS_PER_ADDRESS_MAX of those that
speak from one address. When it is used up, a newcomer gets the place of a stranger, the first of these that there is:

1. of the same address, if that has used up its room, else of the address that has most participants;
2. an unproven one, that which came first: an honest one proves itself within milliseconds, and if it lost its place,
   its next announcement gets it another one;
3. the one that was silent longest. One that has been there for less than PROVEN_STAY is left where it is, unless its
   address has more participants than the newcomer's: else a network with more participants than there is room for would
   make us find them, and their endpoints, again and again.

There is no place for a newcomer where all are matched. So what strangers do keeps nobody out, whatever their number, as
long as they speak from few addresses: those of a single one cost the others half of the room, and lose it to them.

Invariant: ``_addresses`` holds each participant of ``remotes`` once, under the address it speaks from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final, Protocol

from ...errors import DecodeError, DropReason
from ...limits import PARTICIPANTS_MAX, PARTICIPANTS_PER_ADDRESS_MAX
from ...structure import NANOSECONDS
from ...value_classes import slotted

#: A proven stranger keeps its place for so long, if the newcomer's address has as much room as its own.
PROVEN_STAY: Final = 30 * NANOSECONDS
#: Where nobody could be sent away, nobody is looked for again for so long.
_LOOK_AGAIN: Final = NANOSECONDS


class Resident(Protocol):
    """What is to be known of a participant."""

    @property
    def prefix(self) -> bytes: ...
    @property
    def proven(self) -> bool: ...

    source_ip: str
    last_received: int


@slotted
class _Address:
    """The participants that speak from one address, and when each came. Those in ``unproven`` may have been proven
    or matched since."""

    came_at: dict[bytes, int] = field(default_factory=dict)
    unproven: dict[bytes, None] = field(default_factory=dict)
    #: Before this nobody can be sent away but those who are unproven.
    crowded_until: int = 0


class ParticipantCapacity:
    """Sends strangers away when there is no room for newcomers."""

    def __init__(self, remotes: Mapping[bytes, Resident], is_matched: Callable[[bytes], bool]) -> None:
        """``remotes`` is the owner's, which calls :meth:`add` and :meth:`remove` when it has changed it."""
        self._remotes = remotes
        self._is_matched = is_matched
        self._addresses: dict[str, _Address] = {}

    def add_participant(self, remote: Resident, *, now: int) -> None:
        """A participant has come."""
        address = self._addresses.setdefault(remote.source_ip, _Address())
        address.came_at[remote.prefix] = now
        if not remote.proven:
            address.unproven[remote.prefix] = None

    def remove_participant(self, remote: Resident) -> None:
        """A participant is gone."""
        address = self._addresses[remote.source_ip]
        del address.came_at[remote.prefix]
        address.unproven.pop(remote.prefix, None)
        if not address.came_at:
            del self._addresses[remote.source_ip]

    def move(self, remote: Resident, source_ip: str) -> None:
        """A participant, which is as it was, is about to speak from an address."""
        if source_ip == remote.source_ip:
            return
        came_at = self._addresses[remote.source_ip].came_at[remote.prefix]
        self.remove_participant(remote)
        address = self._addresses.setdefault(source_ip, _Address())
        address.came_at[remote.prefix] = came_at
        address.unproven[remote.prefix] = None

    def make(self, source_ip: str, *, now: int) -> bytes | None:
        """Whose place a newcomer from an address gets; None: there is room. Raises DecodeError if there is no place."""
        own = self._addresses.get(source_ip)
        count = 0 if own is None else len(own.came_at)
        victim: bytes | None = None
        if own is not None and count >= PARTICIPANTS_PER_ADDRESS_MAX:
            victim = self._unmatched(own, now, PROVEN_STAY)
        elif len(self._remotes) < PARTICIPANTS_MAX:
            return None
        else:
            for address in sorted(self._addresses.values(), key=lambda each: -len(each.came_at)):
                stay = 0 if len(address.came_at) > count + 1 else PROVEN_STAY
                if (victim := self._unmatched(address, now, stay)) is not None:
                    break
        if victim is None:
            raise DecodeError(DropReason.OVER_LIMIT, "participants")
        return victim

    def _unmatched(self, address: _Address, now: int, stay: int) -> bytes | None:
        """Who is sent away from an address."""
        unproven = address.unproven
        while unproven:
            first = next(iter(unproven))
            # With Trust.ANY, one that is matched may never address us, as one that is overheard.
            if not self._remotes[first].proven and not self._is_matched(first):
                return first
            del unproven[first]
        if stay and now < address.crowded_until:
            return None
        found = self._longest_silent(
            prefix for prefix, came_at in address.came_at.items() if now - came_at >= stay
        )
        if found is None and stay:
            address.crowded_until = now + _LOOK_AGAIN
        return found

    def _longest_silent(self, prefixes: Iterable[bytes]) -> bytes | None:
        unmatched_peers = (prefix for prefix in prefixes if not self._is_matched(prefix))
        return min(unmatched_peers, key=lambda prefix: self._remotes[prefix].last_received, default=None)
