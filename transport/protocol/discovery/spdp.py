"""The Simple Participant Discovery Protocol: our announcements, and the remote participants (RTPS 2.5 §8.5.3).

Invariants
* At most PARTICIPANTS_MAX remote participants are known; :mod:`.participant_capacity` decides which.
* Each is forgotten when its lease ends. An unmatched participant, without an endpoint that matches one of ours, has a
  lease between UNMATCHED_LEASE_MIN and UNMATCHED_LEASE_MAX, or UNPROVEN_LEASE as long as it is unproven.
* A participant sends from the addresses that it announces. Only messages from there are trusted: others do not renew
  its lease, change it or end it. A participant that announces itself from an address which it does not announce may be
  behind NAT. It is challenged (:mod:`.challenge`); if it answers from there, messages from there are trusted too, and
  the address at which it was challenged is proven.
* An address is *proven* once a message addressed to us came from there and its participant announces the address. The
  participant then uses the address itself, and does not point us at another host. Only answers to announcements are
  sent to unproven addresses, and only a participant with a proven address is matched.
* An announcement of a participant that cannot be reached yet is answered by at most one datagram, to one address. The
  answers to the announcements of one datagram are together no longer than that datagram: nothing is amplified. An
  answer holds our announcement, for a participant that does not know us, and a HEARTBEAT, which a participant that
  does know us must acknowledge. Unproven participants are forgotten after UNPROVEN_LEASE.
* With :attr:`~..trust.Trust.ANY`, we may send to all addresses that a participant announces once any message of it was
  addressed to us, whatever address that came from. Until then the bounds on answers hold as well.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from ...errors import DecodeError, DropReason
from ...limits import EARLY_MESSAGES_MAX, UDP_PAYLOAD_MAX, UNMATCHED_LEASE_MAX, UNMATCHED_LEASE_MIN
from ...structure import (
    ENTITYID_PARTICIPANT,
    ENTITYID_SPDP_WRITER,
    ENTITYID_UNKNOWN,
    NANOSECONDS,
    Guid,
    Locator,
)
from ...wire.info import INFO_DST_SIZE
from ...wire.message import HEADER_SIZE, SUBMESSAGE_HEADER_SIZE
from ...wire.parameters import PID_KEY_HASH, PID_STATUS_INFO, ParameterList, encode_status_info
from ...wire.samples import DISPOSED, UNREGISTERED, Run
from ...wire.submessages import DATA_HEADER_SIZE, HEARTBEAT_SIZE, Data, Pad
from ..outgoing import Buffer, Outgoing, union_of
from ..trust import Trust
from .challenge import Challenges
from .matching import usable_unicast
from .participant_capacity import ParticipantCapacity
from .participant_data import (
    LEASE_MIN,
    ParticipantData,
    decode_participant,
    decode_participant_key,
    encode_participant,
    encode_participant_key,
)
from .remote_participant import Announcement, RemoteParticipant

INITIAL_ANNOUNCEMENTS: Final = 5
INITIAL_PERIOD: Final = NANOSECONDS // 10
#: Announcements per lease: two in a row may be lost.
ANNOUNCEMENTS_PER_LEASE: Final = 3
#: An honest participant addresses us within milliseconds; if that message is lost, the participant is still known at
#: its next announcement (Cyclone DDS: after 8 s).
UNPROVEN_LEASE: Final = 10 * NANOSECONDS
#: How long an unmatched, silent participant keeps a GUID prefix that another sender claims.
CONTESTED_LEASE: Final = 60 * NANOSECONDS
_SN_CLOCK_SHIFT: Final = 20
#: Announcements of a participant that we may miss before we take it for restarted.
_SN_JUMP: Final = 16
#: Our announcement is padded to this many bytes, so that peers which answer with no more bytes can answer.
_PADDED_SIZE: Final = 512
#: Loopback is equivalent to every address of our own host: Fast DDS sends from it to other participants on its host.
_LOOPBACK: Final = "127.0.0.1"


class AnnouncementEffect(enum.Enum):
    """The effect of an announcement."""

    NONE = "none"
    DISCOVERED = "discovered"
    UPDATED = "updated"
    DISPOSED = "disposed"


class OwnAnnouncement:
    """Our announcement: to all participants, to one, and the disposal when we leave."""

    def __init__(self, own: ParticipantData, now: int) -> None:
        self._prefix = own.guid_prefix
        self._payload = encode_participant(own)
        self._short_payload = encode_participant(_shortened(own))
        # Fast DDS ignores announcements that are not newer, even after a restart under the old GUID. So the numbers
        # begin at the clock, which runs faster (about 950 a second) than we announce: a participant that was killed and
        # is back within a tenth of a second is then still recognised as restarted.
        self._sn = max(now >> _SN_CLOCK_SHIFT, 1)

    def whole(self, destinations: tuple[Locator, ...]) -> Outgoing:
        """The whole announcement, with the next sequence number."""
        self._sn += 1
        data = self._data(self._payload)
        # A participant with an announcement as long as ours answers with more bytes.
        room = max(_PADDED_SIZE - HEADER_SIZE - len(data), INFO_DST_SIZE + HEARTBEAT_SIZE)
        # Empty PADs: Wireshark reports a PAD with content as malformed.
        pad = Pad().encode() * (room // SUBMESSAGE_HEADER_SIZE)
        return Outgoing(destinations, None, None, [data, pad])

    def answer(self, remote: RemoteParticipant, size: int, heartbeat: Callable[[], bytes]) -> Outgoing | None:
        """The part of the announcement that fits ``size`` bytes, to one participant; None: none fits.

        The answer is addressed to the participant, so that it proves our address there.
        """
        room = size - HEADER_SIZE - INFO_DST_SIZE - HEARTBEAT_SIZE
        if room < 0:
            return None
        submessages: list[Buffer] = [heartbeat()]
        for payload in (self._payload, self._short_payload):
            if DATA_HEADER_SIZE + len(payload) <= room:
                submessages.insert(0, self._data(payload))
                break
        return Outgoing((remote.next_answered(),), remote.prefix, None, submessages, shareable=False)

    def dispose(self, destinations: tuple[Locator, ...]) -> Outgoing:
        """The disposal of our participant."""
        self._sn += 1
        # Fast DDS wants the key hash, others read the serialized key.
        status = (
            (PID_KEY_HASH, self._prefix + ENTITYID_PARTICIPANT),
            (PID_STATUS_INFO, encode_status_info(DISPOSED | UNREGISTERED)),
        )
        data = Data(
            ENTITYID_UNKNOWN,
            ENTITYID_SPDP_WRITER,
            self._sn,
            encode_participant_key(self._prefix),
            ParameterList(status),
            key=True,
        )
        return Outgoing(destinations, None, None, [data.encode()])

    def _data(self, payload: bytes) -> bytes:
        # An answer repeats the last number: with new numbers, a participant that answers many others would look
        # restarted to each of them, and they would answer each other for ever.
        return Data(ENTITYID_UNKNOWN, ENTITYID_SPDP_WRITER, self._sn, payload).encode()


class Spdp:
    """Our announcements, and the table of remote participants."""

    def __init__(
        self,
        own: ParticipantData,
        multicast: tuple[Locator, ...],
        peers: tuple[Locator, ...],
        *,
        now: int,
        matches: Callable[[bytes], bool],
        trust: Trust = Trust.ADDRESS,
        keep_silent: bool = False,
    ) -> None:
        """``matches``: whether a participant with this prefix has an endpoint that one of ours matches.

        ``keep_silent``: no lease ends.
        """
        self.remotes: dict[bytes, RemoteParticipant] = {}
        self._matches = matches
        self._capacity = ParticipantCapacity(self.remotes, matches)
        self._sent_away: list[RemoteParticipant] = []
        self._own = own
        self._trust = trust
        self._keep_silent = keep_silent
        self._own_host = own.addresses | {_LOOPBACK}
        self._own_announcement = OwnAnnouncement(own, now)
        self._multicast = multicast
        self._peers = peers
        self._initial_left = INITIAL_ANNOUNCEMENTS
        self._next_announcement: int | None = now
        self._announce = False
        #: Participants to answer, each with the size of the datagram that it sent.
        self._answers: dict[bytes, tuple[RemoteParticipant, int]] = {}
        #: Unknown participants that have addressed us, with their source addresses: their announcements may be on their
        #: way, and then their addresses are proven already.
        self._early_messages: dict[bytes, str] = {}
        #: Challenges to participants that do not announce the address from which they send.
        self.challenges = Challenges(own)
        #: No lease ends before this, of matched or unmatched participants.
        self._next_expiry: int | None = None

    def set_peers(self, peers: tuple[Locator, ...]) -> None:
        """Announce to these addresses from now on; if some are new, at once and at short intervals at first."""
        if set(peers) - set(self._peers):
            self._initial_left = INITIAL_ANNOUNCEMENTS
            self._next_announcement = 0  # a time in the past, since this class has no clock
        self._peers = peers

    # --- what others announce ---------------------------------------------------------------------

    def on_addressed(self, prefix: bytes, source_ip: str) -> RemoteParticipant | None:
        """A participant sent a message addressed to us. Returns it if it can be reached at more addresses now."""
        remote = self.remotes.get(prefix)
        if remote is None:
            self._early_messages.pop(prefix, None)
            if len(self._early_messages) >= EARLY_MESSAGES_MAX:
                del self._early_messages[next(iter(self._early_messages))]
            self._early_messages[prefix] = source_ip
        elif source_ip in remote.addresses and remote.prove(self._equal_to(source_ip)):
            return remote
        return None

    def on_answered(self, prefix: bytes, source_ip: str, made_up: bytes) -> RemoteParticipant | None:
        """A participant answered the alias of a challenge. Returns the participant if it can be reached now."""
        remote, address = self.remotes.get(prefix), self.challenges.verify_address(made_up, prefix)
        if remote is None or address is None or source_ip != remote.source_ip:
            return None
        remote.translated = frozenset((source_ip,))
        remote.addresses |= remote.translated
        self._answers[prefix] = remote, UDP_PAYLOAD_MAX  # it is proven, and may not know us
        return remote if remote.prove((address,)) else None

    def _equal_to(self, address: str) -> frozenset[str]:
        """An address, and the addresses equivalent to it."""
        return self._own_host if address in self._own_host else frozenset((address,))

    def on_announcement(
        self, run: Run, source_ip: str, *, size: int, now: int
    ) -> tuple[AnnouncementEffect, RemoteParticipant | None]:
        """Take one SPDP sample, which came in a datagram of ``size`` bytes. Raises DecodeError."""
        prefix = run.writer.prefix
        remote = self.remotes.get(prefix)
        if remote is not None and source_ip not in remote.addresses:
            if remote.proven or source_ip != remote.source_ip:
                # Another sender uses its GUID prefix, or it moved, and then its old lease will end. A silent unmatched
                # participant does not keep the prefix.
                remote.contested = True
                self._next_expiry = _earlier(self._next_expiry, max(now, self._expiry(remote)))
                return AnnouncementEffect.NONE, remote
        payload = bytes(run.samples().payload(0))
        flags = int(run.sample_flags()[0])
        if flags & (DISPOSED | UNREGISTERED):
            return self._on_dispose(run, payload, prefix, remote)
        # A participant restarted under its old GUID (as our receivers are) knows no participants: answer it at once.
        restarted = remote is not None and not 0 <= run.first_sn - remote.announced_sn <= _SN_JUMP
        if remote is not None and payload == remote.payload:
            remote.last_received, remote.announced_sn = now, run.first_sn
            if source_ip != remote.source_ip and remote.source_ip not in remote.data.addresses:
                self._capacity.move(remote, source_ip)
                remote.speak_from(self._addresses_of(remote.data, source_ip), source_ip)  # it has moved
            self._answer(remote, restarted, size)
            return AnnouncementEffect.NONE, remote
        data = decode_participant(payload)
        if data.guid_prefix != prefix:
            raise DecodeError(DropReason.BAD_PARAMETER, "a participant announced by another")
        if data.domain not in (None, self._own.domain) or data.domain_tag != self._own.domain_tag:
            return AnnouncementEffect.NONE, None  # RTPS 2.5 §8.5.3.2: another domain on our port
        if not usable_unicast(data.metatraffic_unicast, source_ip):
            raise DecodeError(DropReason.BAD_LOCATOR, "no metatraffic locator that can be sent to")
        if remote is None and (unmatched := self._capacity.choose_replaced(source_ip, now=now)) is not None:
            self._sent_away.append(self._forget(unmatched))
        addresses = self._addresses_of(data, source_ip)
        if remote is None:
            change = AnnouncementEffect.DISCOVERED
            remote = RemoteParticipant(data, payload, addresses, source_ip, now, run.first_sn, self._trust)
            self.remotes[prefix] = remote
            self._capacity.add_participant(remote, now=now)
            early_source = self._early_messages.pop(prefix, "")
            if early_source in addresses:
                remote.prove(self._equal_to(early_source))
        else:
            change = AnnouncementEffect.UPDATED
            self._capacity.move(remote, source_ip)
            remote.data, remote.payload, remote.last_received = data, payload, now
            remote.announced_sn = run.first_sn
        remote.speak_from(addresses, source_ip)
        self._next_expiry = _earlier(self._next_expiry, now + min(data.lease_duration, UNPROVEN_LEASE))
        self._answer(remote, restarted, size)
        return change, remote

    def _addresses_of(self, data: ParticipantData, source_ip: str) -> frozenset[str]:
        """The addresses that a participant may send from, if its announcement came from ``source_ip``."""
        addresses = data.addresses
        if self._trust is Trust.ANY:
            addresses |= {source_ip}
        return addresses | self._own_host if addresses & self._own_host else addresses

    def recall(self, announcement: Announcement, *, now: int) -> RemoteParticipant | None:
        """Restore a participant that an earlier participant with our GUID knew. Raises DecodeError."""
        _, remote = self.on_announcement(announcement.to_run(), announcement.source_ip, size=0, now=now)
        if remote is not None:
            remote.prove(announcement.proven_from)
        return remote

    def _on_dispose(
        self, run: Run, payload: bytes, prefix: bytes, remote: RemoteParticipant | None
    ) -> tuple[AnnouncementEffect, RemoteParticipant | None]:
        key_hashes = run.key_hashes()
        if key_hashes is not None:
            guid = Guid.from_bytes(key_hashes[0].tobytes())
        else:
            guid = decode_participant_key(payload)
        if guid != Guid(prefix, ENTITYID_PARTICIPANT):
            raise DecodeError(DropReason.BAD_PARAMETER, "a participant disposed by another")
        if remote is None:
            return AnnouncementEffect.NONE, None
        return AnnouncementEffect.DISPOSED, self._forget(prefix)

    def _forget(self, prefix: bytes) -> RemoteParticipant:
        remote = self.remotes.pop(prefix)
        self._capacity.remove_participant(remote)
        return remote

    def take_sent_away(self) -> list[RemoteParticipant]:
        """The participants that were replaced by others since the last call."""
        sent_away, self._sent_away = self._sent_away, []
        return sent_away

    def _answer(self, remote: RemoteParticipant, restarted: bool, size: int) -> None:
        # Until it is proven it may not know us.
        if restarted:
            remote.to_answer = INITIAL_ANNOUNCEMENTS  # an answer may get lost
        reached = remote.proven and remote.reachable(remote.data.metatraffic_unicast)
        if remote.to_answer > 0 or not reached:
            remote.to_answer = max(remote.to_answer - 1, 0)
            self._answers[remote.prefix] = remote, size

    def expired(self, *, now: int) -> list[RemoteParticipant]:
        """Forget the participants whose lease has ended, and return them."""
        if self._next_expiry is None or now < self._next_expiry:
            return []
        if self._keep_silent:
            self._next_expiry = None
            return []
        gone = [prefix for prefix, remote in self.remotes.items() if self._expiry(remote) <= now]
        lost = [self._forget(prefix) for prefix in gone]
        self._next_expiry = None
        if (
            self.remotes
        ):  # unmatched participants become matched, and the other way round: the shorter lease counts
            least = min(
                min(self._expiry(remote), remote.last_received + remote.data.lease_duration)
                for remote in self.remotes.values()
            )
            self._next_expiry = max(now + LEASE_MIN, min(least, now + UNMATCHED_LEASE_MAX))
        return lost

    def _expiry(self, remote: RemoteParticipant) -> int:
        lease = remote.data.lease_duration
        if not self._matches(remote.prefix):
            most = CONTESTED_LEASE if remote.contested else UNMATCHED_LEASE_MAX
            lease = min(max(lease, UNMATCHED_LEASE_MIN), most if remote.proven else UNPROVEN_LEASE)
        return remote.last_received + lease

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

    def outgoing(self, heartbeat: Callable[[], bytes]) -> Iterator[Outgoing]:
        """Our announcement: to all participants when it is due, and with a HEARTBEAT to the participants to answer."""
        if self._announce:
            # Multicast may not reach all known participants (peers, other subnets): send unicast to them as well.
            self._announce = False
            yield self._own_announcement.whole(self._everywhere())
        for remote, size in self._answers.values():
            if remote.prefix not in self.remotes:
                continue
            if (
                remote.source_ip not in remote.addresses and remote.answered % 2
            ):  # alternately, since it may not know us
                self.challenges.ask(remote.prefix, remote.next_answered(), size)
            elif (answer := self._own_announcement.answer(remote, size, heartbeat)) is not None:
                yield answer
        self._answers.clear()

    def dispose(self) -> Outgoing | None:
        """The disposal of our participant, to all participants."""
        self._next_announcement = None
        self._announce = False
        destinations = self._everywhere()
        if not destinations:
            return None
        return self._own_announcement.dispose(destinations)

    def _everywhere(self) -> tuple[Locator, ...]:
        known = [remote.unicast for remote in self.remotes.values() if remote.proven]
        return union_of([self._multicast, self._peers, *known])


def _shortened(own: ParticipantData) -> ParticipantData:
    """The minimal announcement by which a participant can address us before it has received the whole one."""
    return replace(
        own,
        name="",
        properties=(),
        user_data=b"",
        metatraffic_unicast=own.metatraffic_unicast[:1],
        default_unicast=own.default_unicast[:1],
        metatraffic_multicast=(),
        default_multicast=(),
    )


def _earlier(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)
