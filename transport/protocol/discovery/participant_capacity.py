"""Which remote participants are kept when their number reaches the capacity.

A participant is *matched* while one of its endpoints matches one of ours, else *unmatched*. An unmatched participant
may be unproven (:mod:`.spdp`). The capacity is PARTICIPANTS_MAX participants, and PARTICIPANTS_PER_ADDRESS_MAX that
send from one address. When it is used up, a newcomer replaces an unmatched participant, chosen by these rules in order:

1. one of the newcomer's address if that has used up its capacity, else one of the address with most participants;
2. among these, the unproven one that came first: an honest participant proves its address within milliseconds, and if
   it was replaced, its next announcement adds it again;
3. else the one silent for longest. A participant known for less than PROVEN_STAY is kept, unless its address has more
   participants than the newcomer's: otherwise a network with more participants than the capacity would make us
   discover them, and their endpoints, again and again.

If all are matched, the newcomer is refused. So unmatched participants from few addresses cannot exclude others, however
many they are: those of a single address take half of the capacity at most, and are replaced first.

Invariant: ``_addresses`` holds each participant of ``remotes`` once, under the address that it sends from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final, Protocol

from ...errors import DecodeError, DropReason
from ...limits import PARTICIPANTS_MAX, PARTICIPANTS_PER_ADDRESS_MAX
from ...structure import NANOSECONDS
from ...value_classes import slotted

#: A proven unmatched participant is kept for this long, unless its address has more participants than the newcomer's.
PROVEN_STAY: Final = 30 * NANOSECONDS
#: After a search found no participant to replace, the next search waits this long.
_LOOK_AGAIN: Final = NANOSECONDS


class Resident(Protocol):
    """The facts about a participant by which it is kept or replaced."""

    @property
    def prefix(self) -> bytes: ...
    @property
    def proven(self) -> bool: ...

    source_ip: str
    last_received: int


@slotted
class _Address:
    """The participants that send from one address, and when each came. Those in ``unproven`` may have been proven or
    matched since."""

    came_at: dict[bytes, int] = field(default_factory=dict)
    unproven: dict[bytes, None] = field(default_factory=dict)
    #: Until this time only unproven participants can be replaced.
    crowded_until: int = 0


class ParticipantCapacity:
    """Chooses the unmatched participants that newcomers replace."""

    def __init__(self, remotes: Mapping[bytes, Resident], is_matched: Callable[[bytes], bool]) -> None:
        """``remotes`` belongs to the owner, which reports its changes by :meth:`add_participant` and
        :meth:`remove_participant`."""
        self._remotes = remotes
        self._is_matched = is_matched
        self._addresses: dict[str, _Address] = {}

    def add_participant(self, remote: Resident, *, now: int) -> None:
        """Note a new participant."""
        address = self._addresses.setdefault(remote.source_ip, _Address())
        address.came_at[remote.prefix] = now
        if not remote.proven:
            address.unproven[remote.prefix] = None

    def remove_participant(self, remote: Resident) -> None:
        """Note that a participant was removed."""
        address = self._addresses[remote.source_ip]
        del address.came_at[remote.prefix]
        address.unproven.pop(remote.prefix, None)
        if not address.came_at:
            del self._addresses[remote.source_ip]

    def move(self, remote: Resident, source_ip: str) -> None:
        """Move a participant to another source address; called before ``remote`` itself changes."""
        if source_ip == remote.source_ip:
            return
        came_at = self._addresses[remote.source_ip].came_at[remote.prefix]
        self.remove_participant(remote)
        address = self._addresses.setdefault(source_ip, _Address())
        address.came_at[remote.prefix] = came_at
        address.unproven[remote.prefix] = None

    def choose_replaced(self, source_ip: str, *, now: int) -> bytes | None:
        """The participant that a newcomer from an address replaces; None: no need. Raises DecodeError if none can."""
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
        """The participant of an address to replace, if any."""
        unproven = address.unproven
        while unproven:
            first = next(iter(unproven))
            # With Trust.ANY, a matched participant may never address us, as in an overheard capture.
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
