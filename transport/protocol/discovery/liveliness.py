"""The writer liveliness protocol: our AUTOMATIC writers live, do theirs? (RTPS 2.5 §8.4.13)

Any message of a participant shows that its stack runs, so it asserts all its AUTOMATIC writers; a
ParticipantMessageData is then only the message that comes when there is nothing else to say. The MANUAL
kinds are not tracked: no reader here asks for them.

Invariant: a tracked writer is in exactly one of ``_alive`` and ``_lost``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...qos import LivelinessKind
from ...structure import (
    ENTITYID_P2P_MESSAGE_READER,
    ENTITYID_P2P_MESSAGE_WRITER,
    INFINITE,
    Guid,
)
from .builtin import builtin_reader, builtin_writer, match_reader, match_writer, write_one
from .endpoint_data import EndpointData
from .participant_data import PARTICIPANT_MESSAGE_READER, PARTICIPANT_MESSAGE_WRITER
from .spdp import RemoteParticipant

#: ParticipantMessageData.kind (RTPS 2.5 §9.6.3.1)
KIND_AUTOMATIC: Final = b"\x00\x00\x00\x01"
_ASSERTIONS_PER_LEASE: Final = 3
#: Assertions a reader may leave unacknowledged.
_BEHIND_MAX: Final = 64


class Liveliness:
    """The ParticipantMessage endpoints, our assertions and the matched remote AUTOMATIC writers."""

    def __init__(self, prefix: bytes, remotes: Mapping[bytes, RemoteParticipant], *, now: int) -> None:
        self.reader = builtin_reader(prefix, ENTITYID_P2P_MESSAGE_READER)
        self.writer = builtin_writer(prefix, ENTITYID_P2P_MESSAGE_WRITER, now=now)
        self._prefix = prefix
        self._remotes = remotes
        self._own_leases: dict[Guid, int] = {}
        self._next_assertion: int | None = None
        self._alive: dict[Guid, int] = {}  # lease durations
        self._lost: dict[Guid, int] = {}
        self._next_check: int | None = None

    # --- participants -----------------------------------------------------------------------------

    def match(self, remote: RemoteParticipant, *, now: int) -> None:
        if remote.data.builtin_endpoints & PARTICIPANT_MESSAGE_WRITER:
            match_writer(self.reader, remote, ENTITYID_P2P_MESSAGE_WRITER, now=now)
        if remote.data.builtin_endpoints & PARTICIPANT_MESSAGE_READER:
            match_reader(self.writer, remote, ENTITYID_P2P_MESSAGE_READER, now=now)

    # --- our writers ------------------------------------------------------------------------------

    def add_local(self, writer: EndpointData, *, now: int) -> None:
        """Assert this writer of ours as often as its lease wants."""
        qos = writer.qos
        if qos.liveliness is LivelinessKind.AUTOMATIC and qos.liveliness_lease_duration < INFINITE:
            self._own_leases[writer.guid] = qos.liveliness_lease_duration
            self._next_assertion = now

    def remove_local(self, guid: Guid) -> None:
        self._own_leases.pop(guid, None)
        if not self._own_leases:
            self._next_assertion = None

    # --- remote writers ---------------------------------------------------------------------------

    def track(self, writer: EndpointData, *, now: int) -> None:
        """Watch a matched remote writer; again, when its QoS may have changed."""
        qos, guid = writer.qos, writer.guid
        lease = qos.liveliness_lease_duration if qos.liveliness is LivelinessKind.AUTOMATIC else INFINITE
        if lease == INFINITE:
            self.forget(guid)
        elif guid in self._lost:
            self._lost[guid] = lease
        else:
            self._alive[guid] = lease
            self._next_check = now

    def forget(self, guid: Guid) -> None:
        self._alive.pop(guid, None)
        self._lost.pop(guid, None)

    def lost(self, *, now: int) -> list[Guid]:
        """Writers whose liveliness was lost just now."""
        if self._next_check is None or now < self._next_check:
            return []
        lost = [guid for guid, lease in self._alive.items() if self._expiry(guid, lease) <= now]
        for guid in lost:
            self._lost[guid] = self._alive.pop(guid)
        self._next_check = min((self._expiry(*each) for each in self._alive.items()), default=None)
        return lost

    def gained(self, *, now: int) -> list[Guid]:
        """Writers that were lost and live again; cheap while none is lost."""
        if not self._lost:
            return []
        back = [guid for guid, lease in self._lost.items() if self._expiry(guid, lease) > now]
        for guid in back:
            lease = self._alive[guid] = self._lost.pop(guid)
            expiry = self._expiry(guid, lease)
            self._next_check = expiry if self._next_check is None else min(self._next_check, expiry)
        return back

    def _expiry(self, guid: Guid, lease: int) -> int:
        remote = self._remotes.get(guid.prefix)
        return lease + (0 if remote is None else remote.last_heard)

    # --- timers -----------------------------------------------------------------------------------

    def get_timer(self) -> int | None:
        if self._next_assertion is None or self._next_check is None:
            return self._next_check if self._next_assertion is None else self._next_assertion
        return min(self._next_assertion, self._next_check)

    def handle_timer(self, now: int) -> None:
        if self._next_assertion is not None and now >= self._next_assertion:
            self._next_assertion = now + min(self._own_leases.values()) // _ASSERTIONS_PER_LEASE
            # Who has not acknowledged for so long is dead or means ill; the history is not kept for it.
            for guid in self.writer.unacknowledged(self.writer.last_sn - _BEHIND_MAX):
                self.writer.unmatch_reader(guid)
            write_one(self.writer, encode_assertion(self._prefix), self._prefix + KIND_AUTOMATIC, now=now)


def encode_assertion(prefix: bytes) -> bytes:
    """ParticipantMessageData: the AUTOMATIC writers of this participant live.

    CDR_LE: prefix, kind, and a sequence of one octet, as Cyclone DDS sends it (an empty one would do).
    """
    return b"\x00\x01\x00\x00" + prefix + KIND_AUTOMATIC + b"\x01\x00\x00\x00" + bytes(4)
