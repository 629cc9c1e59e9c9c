"""Routes the contents of messages to our readers and writers, if the sender is trusted.

Messages are parsed one at a time (:mod:`.message_receiver`), or many of one layout at once (:mod:`.burst_receiver`);
both use the same router.

Invariants
* Samples without a matched reader here are counted (:mod:`.unread`), and not handed on.
* ``work`` grows by the cost of each step, in units of about a microsecond (:mod:`.message_work`).
* An exception of one endpoint's plug-in does not keep messages from the other endpoints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from ...errors import DecodeError, DropReason
from ...limits import ANNOUNCEMENTS_PER_MESSAGE_MAX, MESSAGE_WORK_MAX
from ...structure import ENTITYID_SPDP_WRITER, ENTITYID_UNKNOWN, Guid, is_builtin
from ...wire.batch import DATA_BATCH, Batch
from ...wire.samples import U8, Run
from ...wire.status_messages import RttMeasurement, StatusMessage
from ...wire.submessages import (
    HEARTBEAT_SIZE,
    AckNack,
    AckNackBatch,
    Data,
    DataFrag,
    Gap,
    Heartbeat,
    HeartbeatBatch,
    HeartbeatFrag,
    NackFrag,
)
from ..agenda import Failures
from ..discovery.remote_participant import RemoteParticipant
from ..reading.reader import StatefulReader
from ..trust import Trust, source_of_log
from ..writing.writer import StatefulWriter
from .message_work import (
    BYTES_PER_WORK_CLEARED,
    WORK,
    WORK_ENDPOINT,
    WORK_PARTICIPANT,
    WORK_PIECES,
    WORK_RANGE,
)
from .unread import UnreadMessages

_DATA: Final = Data.KIND
#: The methods of readers, and of writers, that process each kind of submessage.
_TO_READER: Final[dict[int, Callable[[StatefulReader], Callable[..., None]]]] = {
    Heartbeat.KIND: lambda reader: reader.on_heartbeat,
    HeartbeatBatch.KIND: lambda reader: reader.on_heartbeat_batch,
    HeartbeatFrag.KIND: lambda reader: reader.on_heartbeat_frag,
    Gap.KIND: lambda reader: reader.on_gap,
}
_TO_WRITER: Final[dict[int, Callable[[StatefulWriter], Callable[..., None]]]] = {
    AckNack.KIND: lambda writer: writer.feedback.on_acknack,
    AckNackBatch.KIND: lambda writer: writer.feedback.on_acknack_batch,
    NackFrag.KIND: lambda writer: writer.feedback.on_nack_frag,
    StatusMessage.KIND: lambda writer: writer.feedback.on_status_message,
}
#: The kinds that hold a number set.
_OF_SETS: Final = (Gap.KIND, AckNack.KIND, AckNackBatch.KIND)
_ASSERT_LIVELINESS: Final = (Heartbeat.KIND, HeartbeatBatch.KIND)


class Matches(Protocol):
    """Which readers of ours read which writers (`participant.endpoints.LocalEndpoints`)."""

    @property
    def routes(self) -> Mapping[Guid, list[StatefulReader]]: ...
    @property
    def other_slices(self) -> Mapping[Guid, list[StatefulReader]]: ...
    @property
    def hears_itself(self) -> bool: ...
    def hears(self, prefix: bytes) -> bool:
        """Whether a reader of ours, not a built-in one, is matched with a writer of this participant."""
        ...


def _ignore(writer: Guid, now: int) -> None:
    pass


class Router:
    """Hands the contents of messages to readers and writers.

    ``endpoints`` (readers matched with a writer, or acknowledging it only), ``writers`` (ours, by entity id) and
    ``remotes`` belong to the participant, which changes them as endpoints come and go. SPDP samples are returned in
    ``announcements``; ``builtin_touched`` says that built-in readers have samples to take.

    A sender is trusted as ``trust`` says; ``addresses`` are our own.
    """

    def __init__(
        self,
        prefix: bytes,
        endpoints: Matches,
        writers: Mapping[bytes, StatefulWriter],
        remotes: Mapping[bytes, RemoteParticipant],
        drops: Counter[DropReason],
        *,
        addresses: frozenset[str] = frozenset(),
        trust: Trust = Trust.ADDRESS,
        failures: Failures | None = None,
    ) -> None:
        self.announcements: list[Run] = []
        self.builtin_touched = False
        #: The sender of the last message, if it was not trusted because it is unproven.
        self.unproven: RemoteParticipant | None = None
        #: The work so far, in units of about a microsecond.
        self.work = 0
        #: Called with each writer that wrote, or asserted its liveliness.
        self.on_alive: Callable[[Guid, int], None] = _ignore
        self.prefix = prefix
        self.endpoints = endpoints
        #: Handles samples without a reader here.
        self.unread = UnreadMessages(prefix, endpoints.routes, endpoints.other_slices, drops)
        self.routes = endpoints.routes
        self._writers = writers
        self._remotes = remotes
        self._drops = drops
        self._failures = failures or Failures()
        self._addresses = addresses
        self._looks_at_addresses = trust is Trust.ADDRESS

    # --- senders and destinations ------------------------------------------------------------------

    def refusal(self, prefix: bytes, source_ip: str, now: int) -> DropReason | None:
        """Why a message of this participant from this source is not trusted; None: it is."""
        remote = self._remotes.get(prefix)
        if remote is not None and source_ip in remote.addresses:
            remote.last_received = now
            if remote.proven or not self._looks_at_addresses:
                return None
            self.unproven = remote
            return DropReason.UNKNOWN_WRITER
        if not self._looks_at_addresses or source_ip == source_of_log(prefix):
            return None
        if prefix == self.prefix:
            return None if source_ip in self._addresses else DropReason.FOREIGN_ADDRESS
        if remote is not None and (remote.proven or source_ip != remote.source_ip):
            return DropReason.FOREIGN_ADDRESS
        return DropReason.UNKNOWN_WRITER

    def is_trusted(self, source: bytes, source_ip: str, count: int, now: int) -> bool:
        """Whether the sender of ``count`` samples in several datagrams is trusted; if not, they are dropped."""
        if source == self.prefix and not self.endpoints.hears_itself:
            return False  # our own multicast
        if (refusal := self.refusal(source, source_ip, now)) is not None:
            self._drops[refusal] += count
            return False
        return True

    def readers_if_trusted(
        self, writer: Guid, reader_id: bytes, source_ip: str, now: int
    ) -> list[StatefulReader]:
        """The readers of a writer whose datagrams were parsed together; none if the sender is not trusted."""
        readers = self.addressed(writer, reader_id)
        if not readers or (writer.prefix == self.prefix and not self.endpoints.hears_itself):
            return []
        return [] if self.refusal(writer.prefix, source_ip, now) is not None else readers

    def is_wanted(self, entity: bytes, source: bytes) -> bool:
        """Whether a reader of ours is matched with the writer of samples, or these are too short to name it."""
        return (
            self.routes.get(Guid(source, entity)) is not None
            or entity == ENTITYID_SPDP_WRITER
            or len(entity) < 4
        )

    def addressed(self, writer: Guid, reader_id: bytes) -> list[StatefulReader]:
        """The readers to which a writer's submessages with this reader id are addressed."""
        readers = self.routes.get(writer)
        if readers is None:
            return []
        if is_builtin(writer.entity):
            self.builtin_touched = True
        if reader_id == ENTITYID_UNKNOWN:
            return readers
        return [reader for reader in readers if reader.guid.entity == reader_id]

    # --- samples ----------------------------------------------------------------------------------

    def on_run(self, run: Run, now: int, work_max: int = MESSAGE_WORK_MAX) -> None:
        """DATA of one writer, all for the same readers."""
        writer = run.writer
        readers = self.routes.get(writer)
        self.work += WORK[_DATA]
        if readers is None:
            if writer.entity == ENTITYID_SPDP_WRITER:
                self._on_announcements(run)
            else:
                self.unread.drop(writer, run.count)
            return
        self.on_alive(writer, now)
        if is_builtin(writer.entity):
            fits = 1 + max(work_max, 0) // WORK_ENDPOINT
            if run.count > fits:  # the rest is requested again
                self._drops[DropReason.OVER_LIMIT] += run.count - fits
                run = run.take_range(0, fits)
            self.work += run.count * WORK_ENDPOINT
            self.builtin_touched = True
        if run.reader_id != ENTITYID_UNKNOWN:
            readers = [reader for reader in readers if run.reader_id == reader.guid.entity]
        self.hand(readers, lambda reader: reader.on_run(run, now=now))

    def _on_announcements(self, run: Run) -> None:
        fits = ANNOUNCEMENTS_PER_MESSAGE_MAX - sum(each.count for each in self.announcements)
        if run.count > fits:
            self._drops[DropReason.OVER_LIMIT] += run.count - fits
        if fits > 0:
            self.announcements.append(run.take_range(0, min(fits, run.count)))
            self.work += WORK_PARTICIPANT * self.announcements[-1].count

    def on_batch(self, batch: Batch, now: int) -> None:
        """A DATA_BATCH of a writer that is matched."""
        self.work += batch.work + WORK[DATA_BATCH] * len(batch.runs)
        if sum(run.count for run in batch.runs) != batch.last_sn + 1 - batch.first_sn:
            self.work += WORK_PIECES
        self.on_alive(batch.writer, now)
        self.hand(
            self.addressed(batch.writer, batch.reader_id), lambda reader: reader.on_batch(batch, now=now)
        )

    def on_data_frag(self, fragments: DataFrag, source: bytes, timestamp: int, now: int) -> None:
        """Fragments of one sample."""
        writer = Guid(source, fragments.writer_id)
        self.on_alive(writer, now)

        def take(reader: StatefulReader) -> None:
            before = reader.delivery.reassembly.budget.taken
            reader.on_data_frag(writer, fragments, timestamp, now=now)
            self.work += (reader.delivery.reassembly.budget.taken - before) // BYTES_PER_WORK_CLEARED

        self.hand(self.addressed(writer, fragments.reader_id), take)

    # --- other submessages --------------------------------------------------------------------------

    def on_other(self, kind: int, submessage: Any, source: bytes, now: int) -> None:
        """Process a submessage without samples: announcements of writers, and answers of readers."""
        self.work += WORK.get(kind, 1)
        if kind in _OF_SETS:
            numbers = submessage.irrelevant if kind == Gap.KIND else submessage.missing
            self.work += WORK_RANGE * numbers.ranges_max
        if (to_reader := _TO_READER.get(kind)) is not None:
            writer = Guid(source, submessage.writer_id)
            if kind in _ASSERT_LIVELINESS and submessage.liveliness:
                self.on_alive(writer, now)
            readers = self.addressed(writer, submessage.reader_id)
            self.hand(readers, lambda reader: to_reader(reader)(writer, submessage, now=now))
            self.unread.hear(kind, submessage, writer, now)
        elif (to_writer := _TO_WRITER.get(kind)) is not None:
            local = self._writers.get(submessage.writer_id)
            if local is not None:
                try:
                    to_writer(local)(Guid(source, submessage.reader_id), submessage, now=now)
                except DecodeError:
                    raise
                except Exception as error:  # noqa: BLE001  (of a plug-in: the rest of the message is processed)
                    self._failures.add_failure(error)
        elif kind == RttMeasurement.KIND:
            self._on_rtt_measurement(submessage, source, now)
        # INFO_REPLY is not followed: replies go to the locators of discovery, never to an address that a single
        # message names.

    def on_heartbeat_at(self, data: U8, at: int, source: bytes, now: int) -> None:
        """Process the HEARTBEAT behind datagrams that were parsed together."""
        try:
            heartbeat = Heartbeat.decode(int(data[at + 1]), memoryview(data)[at + 4 : at + HEARTBEAT_SIZE])
            self.on_other(Heartbeat.KIND, heartbeat, source, now)
        except DecodeError as error:
            self._drops[error.reason] += 1

    def _on_rtt_measurement(self, measurement: RttMeasurement, source: bytes, now: int) -> None:
        if measurement.reply:
            writer = Guid(source, measurement.writer_id)
            readers = self.addressed(writer, measurement.reader_id)
            self.hand(readers, lambda reader: reader.on_rtt_measurement(writer, measurement, now=now))
        elif (local := self._writers.get(measurement.writer_id)) is not None:
            local.feedback.on_rtt_measurement(Guid(source, measurement.reader_id), measurement, now=now)

    def hand(self, readers: Iterable[StatefulReader], take: Callable[[StatefulReader], None]) -> None:
        """Call ``take`` with each reader; an exception of one reader's plug-in does not affect the others."""
        for reader in readers:
            try:
                take(reader)
            except DecodeError:
                raise
            except Exception as error:  # noqa: BLE001
                self._failures.add_failure(error)
