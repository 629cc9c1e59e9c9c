"""The TypeLookup service: built-in endpoints which request types from peers and send ours (XTypes 1.3 §7.6.3.3).

Cyclone DDS and Fast DDS send requests and replies to every participant; ours are sent only to the addressed one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from ...errors import DecodeError, DropReason
from ...limits import (
    MESSAGE_SIZE_MAX,
    TYPE_LOOKUP_BACKLOG_MAX,
    TYPE_LOOKUP_DEPENDENTS_MAX,
    TYPE_LOOKUP_REPLY_BYTES,
    TYPE_LOOKUP_REPLY_BYTES_MAX,
    TYPE_LOOKUP_REQUEST_BYTES_MAX,
)
from ...qos import HistoryKind, Qos, ReliabilityKind
from ...structure import (
    ENTITYID_PARTICIPANT,
    ENTITYID_TYPE_LOOKUP_REPLY_READER,
    ENTITYID_TYPE_LOOKUP_REPLY_WRITER,
    ENTITYID_TYPE_LOOKUP_REQUEST_READER,
    ENTITYID_TYPE_LOOKUP_REQUEST_WRITER,
    Guid,
)
from ...types.xtypes.lookup_messages import (
    GetTypeDependencies,
    GetTypes,
    Reply,
    RequestId,
    TypeDependencies,
    TypeLookupRequest,
    Types,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    instance_name,
    reply_is_for,
)
from ...wire.samples import DISPOSED, NO_TIMESTAMP, UNREGISTERED, Run, Samples
from ..endpoint_info import ReaderInfo, WriterInfo
from ..policies import WriterPolicy
from ..reading.reader import StatefulReader
from ..writing.writer import StatefulWriter
from . import participant_data as bits
from .builtin import first_sn
from .remote_participant import RemoteParticipant
from .type_library import TypeLibrary
from .type_lookup import TypeLookup

_QOS: Final = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
#: After this number of unanswered HEARTBEATs, about ten seconds, the service no longer waits for a peer.
_POLICY: Final = WriterPolicy(send_window_bytes=8 << 20, max_heartbeat_retries=100)


class TypeLookupService:
    """The four endpoints; :mod:`.type_lookup` chooses the questions and evaluates the answers."""

    def __init__(
        self,
        prefix: bytes,
        library: TypeLibrary,
        lookup: TypeLookup,
        remotes: Mapping[bytes, RemoteParticipant],
        drops: Counter[DropReason],
        *,
        message_size: int = MESSAGE_SIZE_MAX,
        incarnation: int = 0,
    ) -> None:
        self.request_writer = _writer(prefix, ENTITYID_TYPE_LOOKUP_REQUEST_WRITER, message_size, incarnation)
        self.request_reader = StatefulReader(Guid(prefix, ENTITYID_TYPE_LOOKUP_REQUEST_READER), _QOS)
        self.request_reader.delivery.sample_size_max = TYPE_LOOKUP_REQUEST_BYTES_MAX
        self.reply_writer = _writer(prefix, ENTITYID_TYPE_LOOKUP_REPLY_WRITER, message_size, incarnation)
        self.reply_reader = StatefulReader(Guid(prefix, ENTITYID_TYPE_LOOKUP_REPLY_READER), _QOS)
        self.reply_reader.delivery.sample_size_max = TYPE_LOOKUP_REPLY_BYTES_MAX
        self._library = library
        self._lookup = lookup
        self._remotes = remotes
        self._drops = drops
        self._our_guid = self.request_writer.guid.to_bytes()
        self._our_instance = instance_name(prefix + ENTITYID_PARTICIPANT)

    def match(self, remote: RemoteParticipant, *, now: int) -> None:
        """Match the endpoints of a participant; called again when its addresses have changed."""
        has, prefix, unicast = remote.data.builtin_endpoints, remote.prefix, remote.unicast

        def writer(reader: StatefulReader, writer_id: bytes) -> None:
            guid = Guid(prefix, writer_id)
            info = WriterInfo(
                guid,
                unicast,
                (),
                reliable=True,
                transient_local=False,
                preemptive_base=remote.preemptive_base,
            )
            reader.match_writer(info, now=now)

        def reader(writer: StatefulWriter, reader_id: bytes) -> None:
            guid = Guid(prefix, reader_id)
            writer.match_reader(ReaderInfo(guid, unicast, (), reliable=True, transient_local=False), now=now)

        if has & bits.TYPE_LOOKUP_REQUEST_WRITER:
            writer(self.request_reader, ENTITYID_TYPE_LOOKUP_REQUEST_WRITER)
        if has & bits.TYPE_LOOKUP_REPLY_READER:
            reader(self.reply_writer, ENTITYID_TYPE_LOOKUP_REPLY_READER)
        if has & bits.TYPE_LOOKUP_REPLY_WRITER:
            writer(self.reply_reader, ENTITYID_TYPE_LOOKUP_REPLY_WRITER)
        if has & bits.TYPE_LOOKUP_REQUEST_READER:
            reader(self.request_writer, ENTITYID_TYPE_LOOKUP_REQUEST_READER)
            if has & bits.TYPE_LOOKUP_REPLY_WRITER:
                self._lookup.join(prefix)

    # --- asking -----------------------------------------------------------------------------------

    def ask(self, *, now: int) -> None:
        """Send the questions that are due."""
        for prefix, identifiers in self._lookup.questions(now=now):
            number = self.request_writer.last_sn + 1
            service = instance_name(prefix + ENTITYID_PARTICIPANT)
            request = TypeLookupRequest(RequestId(self._our_guid, number), service, GetTypes(identifiers))
            reader = Guid(prefix, ENTITYID_TYPE_LOOKUP_REQUEST_READER)
            _write(self.request_writer, reader, encode_request(request), now)

    # --- what comes -------------------------------------------------------------------------------

    def take_messages(self, *, now: int) -> None:
        """Process the requests and replies received since the last call; broken ones are counted."""
        for prefix, payload in _samples(self.reply_reader):
            if not reply_is_for(payload, self._our_guid) or not self._lookup.expects(prefix, len(payload)):
                continue
            try:
                result = decode_reply(payload).result
            except DecodeError as error:
                self._drops[error.reason] += 1
                continue
            if isinstance(result, Types):
                self._lookup.on_types(prefix, result.objects)
        for prefix, payload in _samples(self.request_reader):
            try:
                self._on_request(prefix, decode_request(payload), now)
            except DecodeError as error:
                self._drops[error.reason] += 1

    def _on_request(self, prefix: bytes, request: TypeLookupRequest, now: int) -> None:
        reader = Guid(prefix, ENTITYID_TYPE_LOOKUP_REPLY_READER)
        remote = self._remotes.get(prefix)
        if remote is None or not remote.proven or reader not in self.reply_writer.readers:
            return  # an unproven address is not sent more bytes than came from it
        for result in self._results(request):
            if self.reply_writer.unacknowledged_bytes > TYPE_LOOKUP_BACKLOG_MAX:
                raise DecodeError(DropReason.OVER_LIMIT, "replies that nobody acknowledges")
            _write(self.reply_writer, reader, encode_reply(Reply(request.id, result)), now)

    def _results(self, request: TypeLookupRequest) -> Iterator[Types | TypeDependencies]:
        if isinstance(request.call, GetTypes):
            yield from self._types(request.call, is_ours=request.instance == self._our_instance)
        elif isinstance(request.call, GetTypeDependencies):
            known = self._library.own_dependencies(request.call.ids)
            start = int.from_bytes(request.call.continuation_point, "little")
            stop = start + TYPE_LOOKUP_DEPENDENTS_MAX
            if known or request.instance == self._our_instance:
                more = stop.to_bytes(4, "little") if stop < len(known) else b""
                yield TypeDependencies(tuple(known[start:stop]), more)

    def _types(self, call: GetTypes, *, is_ours: bool) -> Iterator[Types]:
        """Answer in several replies if one would be long. Requests to other peers' services arrive here too."""
        part: list[tuple[bytes, bytes]] = []
        nbytes, announced = 0, False
        for identifier in dict.fromkeys(call.ids):
            if (data := self._library.own_object(identifier)) is None:
                continue
            if part and nbytes + len(data) > TYPE_LOOKUP_REPLY_BYTES:
                yield Types(tuple(part))
                part, nbytes, announced = [], 0, True
            part.append((identifier, data))
            nbytes += len(data)
        if part or (is_ours and not announced):
            yield Types(tuple(part))


def _writer(prefix: bytes, entity: bytes, message_size: int, incarnation: int) -> StatefulWriter:
    return StatefulWriter(
        Guid(prefix, entity), _QOS, policy=_POLICY, message_size=message_size, first_sn=first_sn(incarnation)
    )


def _write(writer: StatefulWriter, reader: Guid, payload: bytes, now: int) -> None:
    samples = Samples.uniform(np.frombuffer(payload, np.uint8), 1, len(payload))
    writer.write_to(reader, samples, timestamp=NO_TIMESTAMP, now=now)


def _samples(reader: StatefulReader) -> Iterator[tuple[bytes, memoryview]]:
    """The sender and the payload of each sample."""
    run: Run
    for run in reader.take_runs():
        samples, flags = run.samples(), run.sample_flags()
        for i in range(run.count):
            if not flags[i] & (DISPOSED | UNREGISTERED):
                yield run.writer.prefix, memoryview(samples.payload(i))
