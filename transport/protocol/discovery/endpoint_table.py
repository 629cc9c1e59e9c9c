"""The endpoints that remote participants have announced, by participant and by topic, within bounds.

Invariants
* An endpoint is known only while its participant is.
* ``_topics`` holds exactly the endpoints of ``_participants``, each under its topic.
* No participant, no address and no sum of all has more than its quota of endpoints and bytes. Endpoints on topics that
  no local endpoint uses leave a quarter of each quota to the others.
* The cost of an operation on one endpoint does not depend on the number of endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Final

from ...errors import DecodeError, DropReason
from ...limits import (
    ENDPOINT_BYTES_MAX,
    ENDPOINT_BYTES_PER_ADDRESS_MAX,
    ENDPOINT_BYTES_PER_PARTICIPANT_MAX,
    ENDPOINTS_PER_ADDRESS_MAX,
    ENDPOINTS_PER_PARTICIPANT_MAX,
)
from ...structure import INFINITE, Guid
from ...value_classes import slotted
from .endpoint_data import EndpointData

#: Approximate cost of an endpoint besides its serialized bytes.
_ENDPOINT_OVERHEAD: Final = 1_024


@slotted
class _Known:
    data: EndpointData
    payload: bytes

    @property
    def cost(self) -> int:
        v1 = self.data.type_object_v1
        return len(self.payload) + (0 if v1 is None else len(v1.value)) + _ENDPOINT_OVERHEAD


@slotted
class _Account:
    """The number and the bytes of some endpoints, and their quota."""

    count_max: int
    nbytes_max: int
    count: int = 0
    nbytes: int = 0

    def has_room(self, count: int, nbytes: int, *, wanted: bool) -> bool:
        """Whether the quota allows this much more; endpoints that are not ``wanted`` have three quarters of it."""
        eighths = 8 if wanted else 6
        return (8 * (self.count + count) <= eighths * self.count_max or count <= 0) and 8 * (
            self.nbytes + nbytes
        ) <= eighths * self.nbytes_max

    def charge(self, count: int, nbytes: int) -> None:
        self.count += count
        self.nbytes += nbytes


@slotted
class _Participant:
    address: str
    account: _Account
    endpoints: dict[Guid, _Known] = field(default_factory=dict)


class EndpointTable:
    """The endpoints of remote participants."""

    def __init__(self) -> None:
        self._participants: dict[bytes, _Participant] = {}
        self._topics: dict[str, dict[Guid, EndpointData]] = {}
        self._addresses: dict[str, _Account] = {}
        self._all = _Account(INFINITE, ENDPOINT_BYTES_MAX)

    @property
    def nbytes(self) -> int:
        """The approximate bytes of all endpoints."""
        return self._all.nbytes

    # --- participants -----------------------------------------------------------------------------

    def join(self, prefix: bytes, address: str) -> None:
        """Add a participant, or note that it now sends from another address."""
        participant = self._participants.get(prefix)
        if participant is None:
            account = _Account(ENDPOINTS_PER_PARTICIPANT_MAX, ENDPOINT_BYTES_PER_PARTICIPANT_MAX)
            self._participants[prefix] = _Participant(address, account)
        elif participant.address != address:
            account = participant.account
            self._charge(participant.address, -account.count, -account.nbytes)
            self._charge(address, account.count, account.nbytes)
            participant.address = address

    def leave(self, prefix: bytes) -> list[EndpointData]:
        """Remove a participant; returns its endpoints, which are removed, too."""
        participant = self._participants.pop(prefix, None)
        if participant is None:
            return []
        account = participant.account
        self._charge(participant.address, -account.count, -account.nbytes)
        self._all.charge(-account.count, -account.nbytes)
        gone = [known.data for known in participant.endpoints.values()]
        for data in gone:
            self._forget_topic(data)
        return gone

    # --- endpoints --------------------------------------------------------------------------------

    def all(self) -> list[EndpointData]:
        return [each.data for known in self._participants.values() for each in known.endpoints.values()]

    def of_participant(self, prefix: bytes) -> list[EndpointData]:
        participant = self._participants.get(prefix)
        return [] if participant is None else [each.data for each in participant.endpoints.values()]

    def on_topic(self, topic: str) -> Iterable[EndpointData]:
        return list(self._topics.get(topic, {}).values())

    def get(self, guid: Guid) -> EndpointData | None:
        participant = self._participants.get(guid.prefix)
        known = None if participant is None else participant.endpoints.get(guid)
        return None if known is None else known.data

    def knows(self, prefix: bytes) -> bool:
        """Whether a participant of that prefix is known."""
        return prefix in self._participants

    def is_known(self, guid: Guid, payload: bytes) -> bool:
        """Whether an endpoint is known with exactly this announcement."""
        participant = self._participants.get(guid.prefix)
        known = None if participant is None else participant.endpoints.get(guid)
        return known is not None and known.payload == payload

    def put(self, data: EndpointData, payload: bytes, is_wanted: Callable[[str], bool]) -> None:
        """Add or update an endpoint of a known participant. Raises DecodeError if a quota is used up.

        ``is_wanted``: whether a local endpoint uses a topic.
        """
        participant = self._participants[data.guid.prefix]
        address = self._account_of(participant.address)
        old, new = participant.endpoints.get(data.guid), _Known(data, payload)
        count, grows = (1, new.cost) if old is None else (0, new.cost - old.cost)
        wanted = is_wanted(data.topic)
        for account in (participant.account, address, self._all):
            if (count or grows > 0) and not account.has_room(count, grows, wanted=wanted):
                raise DecodeError(DropReason.OVER_LIMIT, "endpoints")
        for account in (participant.account, address, self._all):
            account.charge(count, grows)
        self._addresses[participant.address] = address
        if old is not None and old.data.topic != data.topic:
            self._forget_topic(old.data)
        participant.endpoints[data.guid] = new
        self._topics.setdefault(data.topic, {})[data.guid] = data

    def remove_endpoint(self, guid: Guid) -> EndpointData | None:
        """Remove an endpoint; returns its last announcement, None if it was not known."""
        participant = self._participants.get(guid.prefix)
        known = None if participant is None else participant.endpoints.pop(guid, None)
        if participant is None or known is None:
            return None
        participant.account.charge(-1, -known.cost)
        self._charge(participant.address, -1, -known.cost)
        self._all.charge(-1, -known.cost)
        self._forget_topic(known.data)
        return known.data

    # --- inside -----------------------------------------------------------------------------------

    def _account_of(self, address: str) -> _Account:
        return self._addresses.get(address) or _Account(
            ENDPOINTS_PER_ADDRESS_MAX, ENDPOINT_BYTES_PER_ADDRESS_MAX
        )

    def _charge(self, address: str, count: int, nbytes: int) -> None:
        account = self._account_of(address)
        account.charge(count, nbytes)
        if account.count:
            self._addresses[address] = account
        else:
            self._addresses.pop(address, None)

    def _forget_topic(self, data: EndpointData) -> None:
        on_topic = self._topics[data.topic]
        del on_topic[data.guid]
        if not on_topic:
            del self._topics[data.topic]
