"""The Simple Endpoint Discovery Protocol: the readers and writers of topics (RTPS 2.5 §8.5.4).

Invariants
* An endpoint is known only while its participant is, and only that participant can announce or dispose it.
* An endpoint beyond the quotas of :mod:`.endpoint_table` is counted and dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from ...errors import DecodeError, DropReason
from ...limits import DISPOSED_ENDPOINTS_MAX, MESSAGE_SIZE_MAX
from ...structure import (
    ENTITYID_SEDP_PUBLICATIONS_READER,
    ENTITYID_SEDP_PUBLICATIONS_WRITER,
    ENTITYID_SEDP_SUBSCRIPTIONS_READER,
    ENTITYID_SEDP_SUBSCRIPTIONS_WRITER,
    Guid,
    is_writer,
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
from .endpoint_table import EndpointTable
from .remote_participant import RemoteParticipant


class Announced(NamedTuple):
    """An endpoint that is new or has changed (``known``), or that is gone; ``data`` is its last announcement."""

    data: EndpointData
    known: bool


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
        #: The remote endpoints.
        self.remote = EndpointTable()
        #: Endpoints of ours whose disposals are kept for participants that are matched later, oldest first.
        self._disposed: dict[Guid, None] = {}

    # --- participants -----------------------------------------------------------------------------

    def match(self, remote: RemoteParticipant, *, now: int) -> None:
        """Match the SEDP endpoints of a participant; called again when its addresses have changed."""
        has = remote.data.builtin_endpoints
        self.remote.join(remote.prefix, remote.source_ip)
        if has & bits.PUBLICATIONS_ANNOUNCER:
            match_writer(self.publications_reader, remote, ENTITYID_SEDP_PUBLICATIONS_WRITER, now=now)
        if has & bits.PUBLICATIONS_DETECTOR:
            match_reader(self.publications_writer, remote, ENTITYID_SEDP_PUBLICATIONS_READER, now=now)
        if has & bits.SUBSCRIPTIONS_ANNOUNCER:
            match_writer(self.subscriptions_reader, remote, ENTITYID_SEDP_SUBSCRIPTIONS_WRITER, now=now)
        if has & bits.SUBSCRIPTIONS_DETECTOR:
            match_reader(self.subscriptions_writer, remote, ENTITYID_SEDP_SUBSCRIPTIONS_READER, now=now)

    # --- our endpoints ----------------------------------------------------------------------------

    def announce(self, endpoint: EndpointData, *, now: int) -> None:
        writer = self.publications_writer if endpoint.is_writer else self.subscriptions_writer
        write_one(writer, encode_endpoint(endpoint), endpoint.guid.to_bytes(), now=now)
        self._disposed.pop(endpoint.guid, None)

    def withdraw(self, guid: Guid, *, now: int) -> None:
        """Dispose an endpoint of ours. The disposal is sent to participants matched later, too: a participant whose
        lease ended here may still know us, and with us this endpoint."""
        self._dispose(guid, DISPOSED, now)
        self._disposed[guid] = None
        if len(self._disposed) > DISPOSED_ENDPOINTS_MAX:
            oldest = next(iter(self._disposed))
            del self._disposed[oldest]
            self._dispose(oldest, DISPOSED | UNREGISTERED, now)

    def _dispose(self, guid: Guid, status: int, now: int) -> None:
        """Dispose an endpoint; with UNREGISTERED, the writer keeps nothing of it for participants matched later."""
        writer = self.publications_writer if is_writer(guid.entity) else self.subscriptions_writer
        write_one(writer, encode_endpoint_key(guid), guid.to_bytes(), flags=status | KEY_ONLY, now=now)

    # --- remote endpoints -------------------------------------------------------------------------

    def take_changes(self, drops: Counter[DropReason], is_wanted: Callable[[str], bool]) -> list[Announced]:
        """The changes that the SEDP readers received since the last call; broken samples are counted in ``drops``.

        ``is_wanted``: whether a local endpoint uses a topic.
        """
        changes: list[Announced] = []
        for reader in (self.publications_reader, self.subscriptions_reader):
            writers = reader is self.publications_reader
            for run in reader.take_runs():
                flags, hashes, samples = run.sample_flags(), run.key_hashes(), run.samples()
                for i in range(run.count):
                    hashed = flags[i] & HAS_KEY_HASH
                    key = hashes[i].tobytes() if hashes is not None and hashed else None
                    try:
                        payload = bytes(samples.payload(i))
                        change = self._on_sample(run, payload, int(flags[i]), key, writers, is_wanted)
                    except DecodeError as error:
                        drops[error.reason] += 1
                        continue
                    if change is not None:
                        changes.append(change)
                        if change.known and change.data.type_error:  # matching continues by the type's name
                            drops[DropReason.BAD_PARAMETER] += 1
        return changes

    def _on_sample(
        self,
        run: Run,
        payload: bytes,
        flags: int,
        key: bytes | None,
        writers: bool,
        is_wanted: Callable[[str], bool],
    ) -> Announced | None:
        prefix = run.writer.prefix
        if not self.remote.knows(prefix):
            return None  # its participant has just been removed
        if flags & (DISPOSED | UNREGISTERED):
            guid = Guid.from_bytes(key) if key else decode_endpoint_key(payload)
            old = (
                self.remote.remove_endpoint(guid) if guid.prefix == prefix else None
            )  # it cannot be another's
            return None if old is None else Announced(old, known=False)
        data = decode_endpoint(payload, writer=writers)
        if data.guid.prefix != prefix:
            raise DecodeError(DropReason.BAD_PARAMETER, "an endpoint announced by another participant")
        if self.remote.is_known(data.guid, payload):
            return None
        self.remote.put(data, payload, is_wanted)
        return Announced(data, known=True)
