"""The writer liveliness protocol, for our writers and those of peers (RTPS 2.5 §8.4.13, DDS 1.4 §2.2.3.11).

What shows that a writer is alive depends on its LIVELINESS kind:

* AUTOMATIC: any message of its participant, because it shows that the participant runs. A ParticipantMessageData is
  needed only when the participant sends nothing else;
* MANUAL_BY_PARTICIPANT: a write of any such writer of its participant, or a ParticipantMessageData of that kind;
* MANUAL_BY_TOPIC: a write of its own, or a HEARTBEAT of its own with the liveliness flag.

Our writers are asserted accordingly: AUTOMATIC ones here, three times per lease; MANUAL ones by the user, and by what
the user writes. MANUAL_BY_PARTICIPANT writers are then asserted to peers by a ParticipantMessageData, because not every
reader is matched with the writer that was used: at most three times per lease, however often the user asserts. A MANUAL
writer of ours that was not asserted in time has lost its liveliness, and is in ``lost`` like any other.

Invariants
* A watched writer is in exactly one of ``_alive`` and ``_lost``.
* Before ``_next_check`` no writer's lease ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...errors import DecodeError, DropReason
from ...qos import LivelinessKind
from ...structure import (
    ENTITYID_P2P_MESSAGE_READER,
    ENTITYID_P2P_MESSAGE_WRITER,
    INFINITE,
    Guid,
)
from ...wire.samples import DISPOSED, UNREGISTERED
from ..writing.writer import StatefulWriter
from .builtin import builtin_reader, builtin_writer, match_reader, match_writer, write_one
from .endpoint_data import EndpointData
from .participant_data import PARTICIPANT_MESSAGE_READER, PARTICIPANT_MESSAGE_WRITER
from .remote_participant import RemoteParticipant

#: ParticipantMessageData.kind (RTPS 2.5 §9.6.3.1)
KIND_AUTOMATIC: Final = b"\x00\x00\x00\x01"
KIND_MANUAL: Final = b"\x00\x00\x00\x02"
_ASSERTIONS_PER_LEASE: Final = 3
#: Assertions a reader may leave unacknowledged.
_BEHIND_MAX: Final = 64
_ENCAPSULATION_SIZE: Final = 4
_MESSAGE_MIN: Final = _ENCAPSULATION_SIZE + 12 + 4


@dataclass(slots=True, eq=False)
class _Signs:
    """When a MANUAL writer was last asserted: by itself, or together with the other such writers of its participant."""

    last_received: int
    writers: int = 0


@dataclass(slots=True, eq=False)
class _WatchedWriter:
    """A writer with a lease; without its own assertions it is alive as long as its participant's messages arrive."""

    lease: int
    kind: LivelinessKind
    signs: _Signs | None
    #: When watching began: the first lease begins then, whenever other writers of its participant were last asserted.
    since: int


class _Assertions:
    """The assertions of our AUTOMATIC and MANUAL_BY_PARTICIPANT writers; the latter are sent only after assertions by
    the user."""

    def __init__(
        self, prefix: bytes, writer: StatefulWriter, remotes: Mapping[bytes, RemoteParticipant]
    ) -> None:
        self._prefix = prefix
        self._writer = writer
        self._remotes = remotes
        #: The leases of the writers of each kind, and when its next assertion is due.
        self._leases: dict[Guid, int] = {}
        self._next: int | None = None
        self._manual_leases: dict[Guid, int] = {}
        self._next_manual: int | None = None
        self._last_manual: int | None = None

    def add(self, guid: Guid, kind: LivelinessKind, lease: int, now: int) -> None:
        """Assert this writer of ours as often as its lease requires."""
        if kind is LivelinessKind.AUTOMATIC:
            self._leases[guid] = lease
            self._next = now
        elif kind is LivelinessKind.MANUAL_BY_PARTICIPANT:
            self._manual_leases[guid] = lease
            if self._next_manual is not None:
                # The due time was set for leases that may be longer than this one.
                self._next_manual = None
                self._schedule_manual(now)

    def remove(self, guid: Guid) -> None:
        self._leases.pop(guid, None)
        if not self._leases:
            self._next = None
        self._manual_leases.pop(guid, None)
        if not self._manual_leases:
            self._next_manual = None

    def on_written(self, writer: Guid, now: int) -> None:
        """A MANUAL writer wrote: if it is ours, that asserts all of its kind."""
        if writer in self._manual_leases:
            self._schedule_manual(now)

    def on_asserted(self, now: int) -> None:
        """The user asserts the MANUAL_BY_PARTICIPANT writers."""
        if self._manual_leases:
            self._schedule_manual(now)
            self._send_manual(now)

    def _schedule_manual(self, now: int) -> None:
        if self._next_manual is None:
            pause = min(self._manual_leases.values()) // _ASSERTIONS_PER_LEASE
            last = self._last_manual
            self._next_manual = now if last is None else max(now, last + pause)

    def _send_manual(self, now: int) -> None:
        if self._next_manual is not None and now >= self._next_manual:
            self._next_manual, self._last_manual = None, now
            self._send(KIND_MANUAL, now)

    def _send(self, kind: bytes, now: int) -> None:
        # The history is not kept for a reader that left this many assertions unacknowledged. It restarts with the
        # newest assertions, since the reader may be unreachable for less than its participant's lease.
        writer = self._writer
        for guid in writer.unacknowledged(writer.last_sn - _BEHIND_MAX):
            writer.unmatch_reader(guid)
            if (remote := self._remotes.get(guid.prefix)) is not None:
                match_reader(writer, remote, guid.entity, now=now)
        write_one(writer, encode_assertion(self._prefix, kind), self._prefix + kind, now=now)

    def get_timer(self) -> int | None:
        timers = (self._next, self._next_manual)
        return min((timer for timer in timers if timer is not None), default=None)

    def handle_timer(self, now: int) -> None:
        if self._next is not None and now >= self._next:
            self._next = now + min(self._leases.values()) // _ASSERTIONS_PER_LEASE
            self._send(KIND_AUTOMATIC, now)
        self._send_manual(now)


class Liveliness:
    """The ParticipantMessage endpoints, our assertions, and the writers whose liveliness is watched: matched
    remote ones, and our own MANUAL ones."""

    def __init__(
        self, prefix: bytes, remotes: Mapping[bytes, RemoteParticipant], *, incarnation: int = 0
    ) -> None:
        self.reader = builtin_reader(prefix, ENTITYID_P2P_MESSAGE_READER)
        self.writer = builtin_writer(prefix, ENTITYID_P2P_MESSAGE_WRITER, incarnation=incarnation)
        self._prefix = prefix
        self._remotes = remotes
        self._assertions = _Assertions(prefix, self.writer, remotes)
        self._alive: dict[Guid, _WatchedWriter] = {}
        self._lost: dict[Guid, _WatchedWriter] = {}
        self._next_check: int | None = None
        #: The last assertion of each watched MANUAL writer; MANUAL_BY_PARTICIPANT writers share their participant's.
        self._signs: dict[Guid, _Signs] = {}
        self._participants: dict[bytes, _Signs] = {}

    # --- participants -----------------------------------------------------------------------------

    def match(self, remote: RemoteParticipant, *, now: int) -> None:
        if remote.data.builtin_endpoints & PARTICIPANT_MESSAGE_WRITER:
            match_writer(self.reader, remote, ENTITYID_P2P_MESSAGE_WRITER, now=now)
        if remote.data.builtin_endpoints & PARTICIPANT_MESSAGE_READER:
            match_reader(self.writer, remote, ENTITYID_P2P_MESSAGE_READER, now=now)

    def take_messages(self, drops: Counter[DropReason], *, now: int) -> None:
        """Process the ParticipantMessageData received since the last call; broken ones are counted in ``drops``."""
        for run in self.reader.take_runs():
            samples, flags = run.samples(), run.sample_flags()
            for i in range(run.count):
                if flags[i] & (DISPOSED | UNREGISTERED):
                    continue
                try:
                    prefix, kind = decode_assertion(samples.payload(i))
                    if prefix != run.writer.prefix:
                        raise DecodeError(DropReason.BAD_PARAMETER, "an assertion of another participant")
                except DecodeError as error:
                    drops[error.reason] += 1
                else:
                    self.on_message(prefix, kind, now)

    def on_message(self, prefix: bytes, kind: bytes, now: int) -> None:
        """A participant asserts its writers of a kind. For AUTOMATIC writers the message itself was noted already."""
        signs = self._participants.get(prefix)
        if kind == KIND_MANUAL and signs is not None:
            signs.last_received = now

    def on_data(self, writer: Guid, now: int) -> None:
        """A writer, remote or ours, wrote, or asserted its liveliness; cheap for writers that are not MANUAL."""
        signs = self._signs.get(writer)
        if signs is not None and signs.last_received < now:
            signs.last_received = now
            self._assertions.on_written(writer, now)

    # --- our writers ------------------------------------------------------------------------------

    def add_local(self, writer: EndpointData, *, now: int) -> None:
        """Assert this writer of ours as often as its lease requires, or watch whether the user does."""
        guid, kind, lease = writer.guid, writer.qos.liveliness, writer.qos.liveliness_lease_duration
        if lease >= INFINITE:
            return
        if kind is not LivelinessKind.AUTOMATIC:
            self._watch(guid, kind, lease, now)
        self._assertions.add(guid, kind, lease, now)

    def remove_local(self, guid: Guid) -> None:
        self._assertions.remove(guid)
        self._unwatch(guid)

    def assert_participant(self, now: int) -> None:
        """The user asserts the MANUAL_BY_PARTICIPANT writers (DDS 1.4 §2.2.2.2.1.11)."""
        self.on_message(self._prefix, KIND_MANUAL, now)
        self._assertions.on_asserted(now)

    # --- watched writers --------------------------------------------------------------------------

    def track(self, writer: EndpointData, *, now: int) -> None:
        """Watch a matched remote writer; called again when its QoS may have changed, and for each reader that matches
        it. A lost writer is reported as lost again, because the new reader does not know it yet."""
        qos = writer.qos
        if qos.liveliness_lease_duration >= INFINITE:
            self.forget_writer(writer.guid)
        else:
            self._watch(writer.guid, qos.liveliness, qos.liveliness_lease_duration, now)
            lost = self._lost.get(writer.guid)
            if lost is not None and self._expiry(writer.guid, lost) <= now:
                self._alive[writer.guid] = self._lost.pop(writer.guid)
                self._next_check = now

    def forget_writer(self, guid: Guid) -> None:
        """Stop watching a remote writer without matched readers here. Our own writers are watched regardless."""
        if guid.prefix != self._prefix:
            self._unwatch(guid)

    def is_alive(self, guid: Guid) -> bool:
        """Whether the writer was not returned by :meth:`lost`, or was returned by :meth:`gained` since then."""
        return guid not in self._lost

    def lost(self, *, now: int) -> list[Guid]:
        """Writers, ours included, whose liveliness was lost since the last call."""
        if self._next_check is None or now < self._next_check:
            return []
        lost = [guid for guid, watched in self._alive.items() if self._expiry(guid, watched) <= now]
        for guid in lost:
            self._lost[guid] = self._alive.pop(guid)
        self._next_check = min((self._expiry(*each) for each in self._alive.items()), default=None)
        return lost

    def gained(self, *, now: int) -> list[Guid]:
        """Writers that were lost and are alive again; cheap while none is lost."""
        if not self._lost:
            return []
        back = [guid for guid, watched in self._lost.items() if self._expiry(guid, watched) > now]
        for guid in back:
            watched = self._alive[guid] = self._lost.pop(guid)
            expiry = self._expiry(guid, watched)
            self._next_check = expiry if self._next_check is None else min(self._next_check, expiry)
        return back

    def _watch(self, guid: Guid, kind: LivelinessKind, lease: int, now: int) -> None:
        known = self._alive.get(guid) or self._lost.get(guid)
        if known is not None and known.kind is kind:
            known.lease = lease
        else:
            self._unwatch(guid)
            signs: _Signs | None = None
            if kind is LivelinessKind.MANUAL_BY_PARTICIPANT:
                signs = self._participants.setdefault(guid.prefix, _Signs(now))
            elif kind is LivelinessKind.MANUAL_BY_TOPIC:
                signs = _Signs(now)
            if signs is not None:
                signs.writers += 1
                self._signs[guid] = signs
            self._alive[guid] = _WatchedWriter(lease, kind, signs, now)
        if guid in self._alive:
            self._next_check = now

    def _unwatch(self, guid: Guid) -> None:
        self._alive.pop(guid, None)
        self._lost.pop(guid, None)
        signs = self._signs.pop(guid, None)
        if signs is not None:
            signs.writers -= 1
            if not signs.writers and self._participants.get(guid.prefix) is signs:
                del self._participants[guid.prefix]

    def _expiry(self, guid: Guid, watched: _WatchedWriter) -> int:
        if watched.signs is not None:
            return watched.lease + max(watched.signs.last_received, watched.since)
        remote = self._remotes.get(guid.prefix)
        return watched.lease + (0 if remote is None else remote.last_received)

    # --- timers -----------------------------------------------------------------------------------

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` and then :meth:`lost` are to be called."""
        timers = (self._assertions.get_timer(), self._next_check)
        return min((timer for timer in timers if timer is not None), default=None)

    def handle_timer(self, now: int) -> None:
        self._assertions.handle_timer(now)


def encode_assertion(prefix: bytes, kind: bytes = KIND_AUTOMATIC) -> bytes:
    """ParticipantMessageData: the writers of that kind of this participant are alive.

    CDR_LE: prefix, kind, and a sequence of one octet, as Cyclone DDS sends it (an empty one would do).
    """
    return b"\x00\x01\x00\x00" + prefix + kind + b"\x01\x00\x00\x00" + bytes(4)


def decode_assertion(payload: bytes | memoryview) -> tuple[bytes, bytes]:
    """Prefix and kind of a ParticipantMessageData; both are octets, so byte order does not matter.

    Raises DecodeError.
    """
    if len(payload) < _MESSAGE_MIN:
        raise DecodeError(DropReason.BAD_PARAMETER, "ParticipantMessageData")
    return bytes(payload[4:16]), bytes(payload[16:20])
