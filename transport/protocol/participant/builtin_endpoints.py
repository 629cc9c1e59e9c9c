"""The built-in readers and writers of a participant, each with its remote counterpart (RTPS 2.5 §8.5.4.2, §8.4.13)."""

from __future__ import annotations

from collections.abc import Iterator

from ...structure import (
    ENTITYID_P2P_MESSAGE_READER,
    ENTITYID_P2P_MESSAGE_WRITER,
    ENTITYID_SEDP_PUBLICATIONS_READER,
    ENTITYID_SEDP_PUBLICATIONS_WRITER,
    ENTITYID_SEDP_SUBSCRIPTIONS_READER,
    ENTITYID_SEDP_SUBSCRIPTIONS_WRITER,
    ENTITYID_TYPE_LOOKUP_REPLY_READER,
    ENTITYID_TYPE_LOOKUP_REPLY_WRITER,
    ENTITYID_TYPE_LOOKUP_REQUEST_READER,
    ENTITYID_TYPE_LOOKUP_REQUEST_WRITER,
    Guid,
)
from ..discovery.liveliness import Liveliness
from ..discovery.sedp import Sedp
from ..discovery.type_lookup_service import TypeLookupService
from ..reading.reader import StatefulReader
from ..writing.writer import StatefulWriter
from .endpoints import LocalEndpoints


class BuiltinEndpoints:
    """The built-in endpoints of SEDP, the writer liveliness protocol and TypeLookup; SPDP has no such endpoints
    here."""

    def __init__(self, sedp: Sedp, liveliness: Liveliness, types: TypeLookupService) -> None:
        #: Each with the entity id of its counterpart.
        self._readers = (
            (sedp.publications_reader, ENTITYID_SEDP_PUBLICATIONS_WRITER),
            (sedp.subscriptions_reader, ENTITYID_SEDP_SUBSCRIPTIONS_WRITER),
            (liveliness.reader, ENTITYID_P2P_MESSAGE_WRITER),
            (types.request_reader, ENTITYID_TYPE_LOOKUP_REQUEST_WRITER),
            (types.reply_reader, ENTITYID_TYPE_LOOKUP_REPLY_WRITER),
        )
        self._writers = (
            (sedp.publications_writer, ENTITYID_SEDP_PUBLICATIONS_READER),
            (sedp.subscriptions_writer, ENTITYID_SEDP_SUBSCRIPTIONS_READER),
            (liveliness.writer, ENTITYID_P2P_MESSAGE_READER),
            (types.request_writer, ENTITYID_TYPE_LOOKUP_REQUEST_READER),
            (types.reply_writer, ENTITYID_TYPE_LOOKUP_REPLY_READER),
        )

    def __iter__(self) -> Iterator[StatefulReader | StatefulWriter]:
        yield from (reader for reader, _ in self._readers)
        yield from self.writers()

    def writers(self) -> Iterator[StatefulWriter]:
        return (writer for writer, _ in self._writers)

    def route(self, prefix: bytes, endpoints: LocalEndpoints) -> None:
        """Route the samples of a participant's matched built-in writers to our built-in readers."""
        for reader, writer_id in self._readers:
            guid = Guid(prefix, writer_id)
            if guid in reader.writers:
                endpoints.routes[guid] = [reader]

    def unmatch(self, prefix: bytes, endpoints: LocalEndpoints) -> None:
        """Unmatch the built-in endpoints of a participant that is gone."""
        for reader, writer_id in self._readers:
            guid = Guid(prefix, writer_id)
            if endpoints.routes.pop(guid, None) is not None:
                reader.unmatch_writer(guid)
        for writer, reader_id in self._writers:
            guid = Guid(prefix, reader_id)
            if guid in writer.readers:
                writer.unmatch_reader(guid)
