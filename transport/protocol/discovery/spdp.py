"""The Simple Participant Discovery Protocol: our announcements, and the remote participants (RTPS 2.5 §8.5.3).

Invariants
* At most PARTICIPANTS_MAX remote participants are known; each is forgotten with its lease, which is bounded.
* A participant is *proven* once it has sent something addressed to us from an address that it named: it then knows our
  GUID prefix, so that address leads to it. An unproven participant gets one announcement of ours for each of its own,
  and is forgotten after UNPROVEN_LEASE: a forged announcement cannot direct our traffic at a third party for long.
* Only messages from an address from which a participant sent, or which it named, keep its lease, change it or end it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from ...errors import DecodeError, DropReason
from ...limits import LEASE_MAX_NS, PARTICIPANTS_MAX
from ...structure import (
    ENTITYID_PARTICIPANT,
    ENTITYID_SPDP_WRITER,
    ENTITYID_UNKNOWN,
    NANOSECONDS,
    VENDOR_FAST_DDS,
    VENDOR_RTI,
    Guid,
    Locator,
)
from ...wire.parameters import PID_KEY_HASH, PID_STATUS_INFO, ParameterList, encode_status_info
from ...wire.samples import DISPOSED, UNREGISTERED, Run
from ...wire.submessages import Data
from ..outgoing import Outgoing, union_of
from .matching import usable_unicast
from .participant_data import (
    ParticipantData,
    decode_participant,
    decode_participant_key,
    encode_participant,
    encode_participant_key,
)

INITIAL_ANNOUNCEMENTS: Final = 5
INITIAL_PERIOD: Final = NANOSECONDS // 10
#: Announcements per lease, so that two in a row may get lost.
ANNOUNCEMENTS_PER_LEASE: Final = 3
#: An honest participant addresses us within milliseconds; if that is lost, its next announcement (Cyclone DDS:
#: after 8 s) still finds it known.
UNPROVEN_LEASE: Final = 10 * NANOSECONDS
_SN_CLOCK_SHIFT: Final = 24
#: Announcements of a participant that we may miss (it may answer others) before it looks restarted.
_SN_JUMP: Final = 16


class Change(enum.Enum):
    """The effect of an announcement."""

    NONE = "none"
    DISCOVERED = "discovered"
    UPDATED = "updated"
    DISPOSED = "disposed"


class Announcement(NamedTuple):
    """A participant's last announcement and where it came from: enough to recognise it after a restart."""

    prefix: bytes
    sn: int
    payload: bytes
    source_ip: str

    def to_run(self) -> Run:
        data = np.frombuffer(self.payload, np.uint8)
        size = len(data)
        return Run(Guid(self.prefix, ENTITYID_SPDP_WRITER), self.sn, 1, data, size, payload_length=size)


@dataclass(slots=True, eq=False)
class RemoteParticipant:
    """A participant that has announced itself. The message receiver keeps ``last_heard`` current."""

    data: ParticipantData
    payload: bytes  # its last announcement: an equal one changes nothing
    addresses: frozenset[str]  # it may speak from these
    unicast: tuple[Locator, ...]  # where its discovery traffic goes
    source_ip: str
    last_heard: int
    announced_sn: int  # of its last announcement
    proven: bool = False

    @property
    def prefix(self) -> bytes:
        return self.data.guid_prefix

    @property
    def announcement(self) -> Announcement:
        return Announcement(self.prefix, self.announced_sn, self.payload, self.source_ip)

    @property
    def preemptive_base(self) -> int:
        """See :class:`~..endpoint_info.WriterInfo`. Fast DDS answers 0 alone, and what it sent at the match may have
        come before we had matched."""
        return 0 if self.data.vendor == VENDOR_FAST_DDS else 1

    @property
    def filters(self) -> bool:
        """Whether its writers evaluate the filters of readers; Cyclone DDS has none that do."""
        return self.data.vendor in (VENDOR_FAST_DDS, VENDOR_RTI)

    def prove(self, source_ip: str) -> None:
        """It sent something addressed to our prefix: proof, if it came from an address that it named ("": unknown)."""
        named = chain(self.data.metatraffic_unicast, self.data.default_unicast)
        self.proven = self.proven or any(locator.address == source_ip for locator in named)

    @property
    def expiry(self) -> int:
        lease = min(self.data.lease_duration, LEASE_MAX_NS)
        return self.last_heard + (lease if self.proven else min(lease, UNPROVEN_LEASE))


class Spdp:
    """Our announcements, and the table of remote participants."""

    def __init__(
        self, own: ParticipantData, multicast: tuple[Locator, ...], peers: tuple[Locator, ...], *, now: int
    ) -> None:
        self.remotes: dict[bytes, RemoteParticipant] = {}
        self._own = own
        self._payload = encode_participant(own)
        self._multicast = multicast
        self._peers = peers
        # Fast DDS ignores announcements that are not newer, also after a restart under the old GUID:
        # start where the clock is, which runs faster (about 60 a second) than we announce.
        self._sn = now >> _SN_CLOCK_SHIFT
        self._initial_left = INITIAL_ANNOUNCEMENTS
        self._next_announcement: int | None = now
        self._announce = False
        self._answers: dict[bytes, RemoteParticipant] = {}
        #: No lease ends before this: leases only grow while it is not recomputed.
        self._next_expiry: int | None = None

    def set_peers(self, peers: tuple[Locator, ...]) -> None:
        """Announce to these addresses from now on; if some are new, at once and at short intervals at first."""
        if set(peers) - set(self._peers):
            self._initial_left = INITIAL_ANNOUNCEMENTS
            self._next_announcement = 0  # a timer in the past: there is no clock here
        self._peers = peers

    # --- what others announce ---------------------------------------------------------------------

    def on_announcement(
        self, run: Run, source_ip: str, *, now: int
    ) -> tuple[Change, RemoteParticipant | None]:
        """Take one SPDP sample. Raises DecodeError."""
        prefix = run.writer.prefix
        remote = self.remotes.get(prefix)
        if remote is not None and source_ip not in remote.addresses:
            return Change.NONE, remote  # another sender in its name, or it moved: then its lease will end
        payload = bytes(run.samples().payload(0))
        flags = int(run.sample_flags()[0])
        if flags & (DISPOSED | UNREGISTERED):
            return self._on_dispose(run, payload, prefix, remote)
        # A participant restarted under its old GUID (as our receiver is) knows no other: do not let it wait.
        restarted = remote is not None and not 0 <= run.first_sn - remote.announced_sn <= _SN_JUMP
        if remote is not None and payload == remote.payload:
            remote.last_heard, remote.announced_sn = now, run.first_sn
            self._answer(remote, restarted)
            return Change.NONE, remote
        data = decode_participant(payload)
        if data.guid_prefix != prefix:
            raise DecodeError(DropReason.BAD_PARAMETER, "a participant announced by another")
        if data.domain not in (None, self._own.domain) or data.domain_tag != self._own.domain_tag:
            return Change.NONE, None  # RTPS 2.5 §8.5.3.2: another domain on our port
        unicast = usable_unicast(data.metatraffic_unicast, source_ip)
        if not unicast:
            raise DecodeError(DropReason.BAD_LOCATOR, "no metatraffic locator that can be sent to")
        if remote is None and len(self.remotes) >= PARTICIPANTS_MAX:
            raise DecodeError(DropReason.OVER_LIMIT, "participants")
        named = data.metatraffic_unicast + data.default_unicast
        addresses = frozenset({source_ip, *(locator.address for locator in named)})
        if remote is None:
            change = Change.DISCOVERED
            remote = RemoteParticipant(data, payload, addresses, unicast, source_ip, now, run.first_sn)
            self.remotes[prefix] = remote
        else:
            change = Change.UPDATED
            remote.data, remote.payload, remote.last_heard = data, payload, now
            remote.addresses, remote.unicast, remote.source_ip = addresses, unicast, source_ip
            remote.announced_sn = run.first_sn
        self._next_expiry = _earlier(self._next_expiry, remote.expiry)
        self._answer(remote, restarted)
        return change, remote

    def _on_dispose(
        self, run: Run, payload: bytes, prefix: bytes, remote: RemoteParticipant | None
    ) -> tuple[Change, RemoteParticipant | None]:
        key_hashes = run.key_hashes()
        if key_hashes is not None:
            guid = Guid.from_bytes(key_hashes[0].tobytes())
        else:
            guid = decode_participant_key(payload)
        if guid != Guid(prefix, ENTITYID_PARTICIPANT):
            raise DecodeError(DropReason.BAD_PARAMETER, "a participant disposed by another")
        if remote is None:
            return Change.NONE, None
        del self.remotes[prefix]
        return Change.DISPOSED, remote

    def _answer(self, remote: RemoteParticipant, restarted: bool) -> None:
        # Until it is proven it may not have heard of us. One for one: nothing is amplified.
        if restarted or not remote.proven:
            self._answers[remote.prefix] = remote

    def expired(self, *, now: int) -> list[RemoteParticipant]:
        """Forget the participants whose lease has ended, and return them."""
        if self._next_expiry is None or now < self._next_expiry:
            return []
        gone = [remote for remote in self.remotes.values() if remote.expiry <= now]
        for remote in gone:
            del self.remotes[remote.prefix]
        self._next_expiry = min((remote.expiry for remote in self.remotes.values()), default=None)
        return gone

    # --- what we announce -------------------------------------------------------------------------

    def get_timer(self) -> int | None:
        return _earlier(self._next_announcement, self._next_expiry)

    def handle_timer(self, now: int) -> None:
        if self._next_announcement is not None and now >= self._next_announcement:
            self._announce = True
            if self._initial_left > 0:
                self._initial_left -= 1
                self._next_announcement = now + INITIAL_PERIOD
            else:
                self._next_announcement = now + self._own.lease_duration // ANNOUNCEMENTS_PER_LEASE

    def outgoing(self) -> Iterator[Outgoing]:
        """Our announcement: to all participants when it is due, else to those which it answers."""
        if self._announce:
            # Multicast may not reach everybody we know (peers, other subnets): unicast to them as well.
            known = [remote for remote in self.remotes.values() if remote.proven]
            self._announce = False
            yield self._data(self._everywhere(chain(known, self._answers.values())))
        elif self._answers:
            yield self._data(_locators(self._answers.values()))
        self._answers.clear()

    def dispose(self) -> Outgoing | None:
        """The datagrams that announce to all participants that we leave."""
        self._next_announcement = None
        self._announce = False
        destinations = self._everywhere(self.remotes.values())
        if not destinations:
            return None
        self._sn += 1
        prefix = self._own.guid_prefix
        # Fast DDS wants the key hash, others read the serialized key.
        status = (
            (PID_KEY_HASH, prefix + ENTITYID_PARTICIPANT),
            (PID_STATUS_INFO, encode_status_info(DISPOSED | UNREGISTERED)),
        )
        data = Data(
            ENTITYID_UNKNOWN,
            ENTITYID_SPDP_WRITER,
            self._sn,
            encode_participant_key(prefix),
            ParameterList(status),
            key=True,
        )
        return Outgoing(destinations, None, None, [data.encode()])

    def _everywhere(self, known: Iterable[RemoteParticipant]) -> tuple[Locator, ...]:
        return union_of([self._multicast, self._peers, _locators(known)])

    def _data(self, destinations: tuple[Locator, ...]) -> Outgoing:
        self._sn += 1
        data = Data(ENTITYID_UNKNOWN, ENTITYID_SPDP_WRITER, self._sn, self._payload)
        return Outgoing(destinations, None, None, [data.encode()])


def _locators(remotes: Iterable[RemoteParticipant]) -> tuple[Locator, ...]:
    return union_of([remote.unicast for remote in remotes])


def _earlier(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)
