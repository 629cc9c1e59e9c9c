"""The Simple Endpoint Discovery Protocol: the readers and writers of topics (RTPS 2.5 §8.5.4).

Invariants
* An endpoint is known only while its participant is, and only that participant can announce or dispose it.
* At most ENDPOINTS_PER_PARTICIPANT_MAX endpoints of one participant are kept, and at most ENDPOINT_BYTES_MAX
  serialized bytes of all; what does not fit is counted and forgotten.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...errors import DecodeError, DropReason
from ...limits import ENDPOINT_BYTES_MAX, ENDPOINTS_PER_PARTICIPANT_MAX, MESSAGE_SIZE_MAX
from ...structure import (
    ENTITYID_SEDP_PUBLICATIONS_READER,
    ENTITYID_SEDP_PUBLICATIONS_WRITER,
    ENTITYID_SEDP_SUBSCRIPTIONS_READER,
    ENTITYID_SEDP_SUBSCRIPTIONS_WRITER,
    Guid,
)
from ...wire.samples import DISPOSED, HAS_KEY_HASH, KEY_ONLY, UNREGISTERED, Run
from . import participant_data as bits
from .builtin import builtin_reader, builtin_writer, match_reader, match_writer, write_one
from .endpoint_data import (
    EndpointData,
    decode_endpoint,
    decode_endpoint_key,
    encode_endpoint,
    encode_endpoint_key,
)
from .spdp import RemoteParticipant

#: Approximate cost of an endpoint besides its serialized bytes.
_ENDPOINT_OVERHEAD: Final = 1_024


class Announced(NamedTuple):
    """An endpoint is ``known`` now, because it is new or has changed; or it is gone, with its last description."""

    data: EndpointData
    known: bool


@dataclass(slots=True)
class _Known:
    data: EndpointData
    payload: bytes


class Sedp:
    """The four SEDP endpoints and the table of remote endpoints."""

    def __init__(self, prefix: bytes, *, message_size: int = MESSAGE_SIZE_MAX, incarnation: int = 0) -> None:
        self.publications_writer = builtin_writer(
            prefix, ENTITYID_SEDP_PUBLICATIONS_WRITER, message_size=message_size, incarnation=incarnation
        )
        self.publications_reader = builtin_reader(prefix, ENTITYID_SEDP_PUBLICATIONS_READER)
        self.subscriptions_writer = builtin_writer(
            prefix, ENTITYID_SEDP_SUBSCRIPTIONS_WRITER, message_size=message_size, incarnation=incarnation
        )
        self.subscriptions_reader = builtin_reader(prefix, ENTITYID_SEDP_SUBSCRIPTIONS_READER)
        self._remote: dict[bytes, dict[Guid, _Known]] = {}
        self._bytes = 0

    # --- participants -----------------------------------------------------------------------------

    def match(self, remote: RemoteParticipant, *, now: int) -> None:
        """Match the SEDP endpoints of a participant; called again when its addresses have changed."""
        has = remote.data.builtin_endpoints
        self._remote.setdefault(remote.prefix, {})
        if has & bits.PUBLICATIONS_ANNOUNCER:
            match_writer(self.publications_reader, remote, ENTITYID_SEDP_PUBLICATIONS_WRITER, now=now)
        if has & bits.PUBLICATIONS_DETECTOR:
            match_reader(self.publications_writer, remote, ENTITYID_SEDP_PUBLICATIONS_READER, now=now)
        if has & bits.SUBSCRIPTIONS_ANNOUNCER:
            match_writer(self.subscriptions_reader, remote, ENTITYID_SEDP_SUBSCRIPTIONS_WRITER, now=now)
        if has & bits.SUBSCRIPTIONS_DETECTOR:
            match_reader(self.subscriptions_writer, remote, ENTITYID_SEDP_SUBSCRIPTIONS_READER, now=now)

    def forget(self, prefix: bytes) -> list[EndpointData]:
        """A participant is gone: drop its endpoints and return them."""
        known = self._remote.pop(prefix, {})
        self._bytes -= sum(_cost(each) for each in known.values())
        return [each.data for each in known.values()]

    # --- our endpoints ----------------------------------------------------------------------------

    def announce(self, endpoint: EndpointData, *, now: int) -> None:
        writer = self.publications_writer if endpoint.is_writer else self.subscriptions_writer
        write_one(writer, encode_endpoint(endpoint), endpoint.guid.to_bytes(), now=now)

    def withdraw(self, endpoint: EndpointData, *, now: int) -> None:
        writer = self.publications_writer if endpoint.is_writer else self.subscriptions_writer
        flags = DISPOSED | UNREGISTERED | KEY_ONLY
        guid = endpoint.guid
        write_one(writer, encode_endpoint_key(guid), guid.to_bytes(), flags=flags, now=now)

    # --- remote endpoints -------------------------------------------------------------------------

    def endpoints(self) -> list[EndpointData]:
        """All remote endpoints known now."""
        return [each.data for known in self._remote.values() for each in known.values()]

    def endpoint(self, guid: Guid) -> EndpointData | None:
        known = self._remote.get(guid.prefix, {}).get(guid)
        return None if known is None else known.data

    def take(self, drops: Counter[DropReason]) -> list[Announced]:
        """The changes that the SEDP readers received since the last call; broken samples are counted in ``drops``."""
        changes: list[Announced] = []
        for reader in (self.publications_reader, self.subscriptions_reader):
            writers = reader is self.publications_reader
            for run in reader.take():
                flags, hashes, samples = run.sample_flags(), run.key_hashes(), run.samples()
                for i in range(run.count):
                    hashed = flags[i] & HAS_KEY_HASH
                    key = hashes[i].tobytes() if hashes is not None and hashed else None
                    try:
                        change = self._on_sample(run, bytes(samples.payload(i)), int(flags[i]), key, writers)
                    except DecodeError as error:
                        drops[error.reason] += 1
                        continue
                    if change is not None:
                        changes.append(change)
                        if change.known and change.data.type_error:  # it goes on by the type's name
                            drops[DropReason.BAD_PARAMETER] += 1
        return changes

    def _on_sample(
        self, run: Run, payload: bytes, flags: int, key: bytes | None, writers: bool
    ) -> Announced | None:
        prefix = run.writer.prefix
        known = self._remote.get(prefix)
        if known is None:
            return None  # its participant has just gone
        if flags & (DISPOSED | UNREGISTERED):
            guid = Guid.from_bytes(key) if key else decode_endpoint_key(payload)
            old = known.pop(guid, None)  # of this participant: it cannot be another's
            if old is None:
                return None
            self._bytes -= _cost(old)
            return Announced(old.data, known=False)
        data = decode_endpoint(payload, writer=writers)
        if data.guid.prefix != prefix:
            raise DecodeError(DropReason.BAD_PARAMETER, "an endpoint announced by another participant")
        old = known.get(data.guid)
        if old is not None and old.payload == payload:
            return None
        new = _Known(data, payload)
        grows = _cost(new) - (0 if old is None else _cost(old))
        if self._bytes + grows > ENDPOINT_BYTES_MAX or (
            old is None and len(known) >= ENDPOINTS_PER_PARTICIPANT_MAX
        ):
            raise DecodeError(DropReason.OVER_LIMIT, "endpoints")
        self._bytes += grows
        known[data.guid] = new
        return Announced(data, known=True)


def _cost(known: _Known) -> int:
    v1 = known.data.type_object_v1
    return len(known.payload) + (0 if v1 is None else len(v1.value)) + _ENDPOINT_OVERHEAD
