"""Address challenges: prove that a participant behind NAT receives at a locator that it announces.

A network address translator (NAT) makes a participant's messages come from an address that it does not announce. The
announced address might then belong to another host. The proof is an answer to a message that was sent to the announced
address and cannot be guessed. Every participant answers the announcement of an unknown participant, addressed to that
one's GUID prefix. So the challenge is the announcement of an alias: a participant with our address and a random prefix.

Invariants
* A challenge goes to one address, in place of an answer to an announcement, and is no longer than that announcement.
* The alias is random, used once, and known to no other participant. A participant has at most one open challenge, and
  there are at most CHALLENGES_MAX.
* The alias has a short lease and only the discovery endpoints; it is disposed once the answer has come.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Final, NamedTuple

from ...limits import CHALLENGES_MAX
from ...structure import (
    ENTITYID_PARTICIPANT,
    ENTITYID_SEDP_PUBLICATIONS_WRITER,
    ENTITYID_SPDP_WRITER,
    ENTITYID_UNKNOWN,
    NANOSECONDS,
    Locator,
)
from ...wire.info import INFO_DST_SIZE
from ...wire.message import HEADER_SIZE
from ...wire.parameters import PID_KEY_HASH, PID_STATUS_INFO, ParameterList, encode_status_info
from ...wire.samples import DISPOSED, UNREGISTERED
from ...wire.submessages import DATA_HEADER_SIZE, HEARTBEAT_SIZE, Data, Heartbeat
from ..outgoing import Outgoing
from .participant_data import (
    PARTICIPANT_ANNOUNCER,
    PARTICIPANT_DETECTOR,
    PUBLICATIONS_ANNOUNCER,
    PUBLICATIONS_DETECTOR,
    ParticipantData,
    encode_participant,
    encode_participant_key,
)

#: The lease and the built-in endpoints of an alias.
_LEASE: Final = 5 * NANOSECONDS
_ENDPOINTS: Final = (
    PARTICIPANT_ANNOUNCER | PARTICIPANT_DETECTOR | PUBLICATIONS_ANNOUNCER | PUBLICATIONS_DETECTOR
)


class _Question(NamedTuple):
    prefix: bytes
    to: Locator


class Challenges:
    """The open challenges, by alias, and their datagrams to send."""

    def __init__(self, own: ParticipantData) -> None:
        self.open: dict[bytes, _Question] = {}
        self._own = replace(
            own,
            lease_duration=_LEASE,
            builtin_endpoints=_ENDPOINTS,
            metatraffic_multicast=(),
            default_multicast=(),
            name="",
            properties=(),
            user_data=b"",
        )
        self._outgoing: list[tuple[bytes, Outgoing]] = []

    def ask(self, prefix: bytes, to: Locator, size: int) -> None:
        """Challenge a participant at one of its addresses, unless that takes more than ``size`` bytes."""
        alias = self._own.guid_prefix[:2] + secrets.token_bytes(10)
        payload = encode_participant(replace(self._own, guid_prefix=alias))
        if HEADER_SIZE + INFO_DST_SIZE + DATA_HEADER_SIZE + len(payload) + HEARTBEAT_SIZE > size:
            return
        old = next((alias for alias, each in self.open.items() if each.prefix == prefix), None)
        if old is None and len(self.open) >= CHALLENGES_MAX:
            old = next(iter(self.open))
        if old is not None:
            del self.open[old]
        self.open[alias] = _Question(prefix, to)
        data = Data(ENTITYID_UNKNOWN, ENTITYID_SPDP_WRITER, 1, payload)
        beat = Heartbeat(ENTITYID_UNKNOWN, ENTITYID_SEDP_PUBLICATIONS_WRITER, 1, 0, 1)
        self._send(alias, prefix, to, data.encode(), beat.encode())

    def verify_address(self, alias: bytes, prefix: bytes) -> str | None:
        """Participant ``prefix`` sent a message to an alias. Returns the address that this proves, if any."""
        question = self.open.get(alias)
        if question is None or question.prefix != prefix:
            return None
        del self.open[alias]
        status = (
            (PID_KEY_HASH, alias + ENTITYID_PARTICIPANT),
            (PID_STATUS_INFO, encode_status_info(DISPOSED | UNREGISTERED)),
        )
        key = encode_participant_key(alias)
        leave = Data(ENTITYID_UNKNOWN, ENTITYID_SPDP_WRITER, 2, key, ParameterList(status), key=True)
        self._send(alias, prefix, question.to, leave.encode())
        return question.to.address

    def take_datagrams(self) -> list[tuple[bytes, Outgoing]]:
        """The datagrams to send now, each with the GUID prefix of its sender."""
        taken, self._outgoing = self._outgoing, []
        return taken

    def _send(self, alias: bytes, prefix: bytes, to: Locator, *submessages: bytes) -> None:
        self._outgoing.append((alias, Outgoing((to,), prefix, None, [*submessages], shareable=False)))
