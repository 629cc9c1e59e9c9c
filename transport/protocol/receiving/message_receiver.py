"""The receiver of RTPS messages: takes datagrams apart and routes what is in them (RTPS 2.5 §8.3.4).

Per datagram it costs a header, one look at each submessage header and one dictionary look-up per run; what happens per
sample happens in `wire.runs.scan`. What can be looked at together is (:mod:`.burst_receiver`).

Invariants
* Nothing a datagram holds makes :meth:`receive` raise. A submessage that breaks a rule is counted and skipped; one
  whose length is wrong ends its message (§8.3.4.1).
* Of samples that no reader of ours is matched for, no more is read than their headers and their writer's id
  (:mod:`.unread`).
* ``work`` grows with what is done, in units of about a microsecond; a message that is more work than
  MESSAGE_WORK_MAX ends there. What is cut off of a reliable writer's samples is requested again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Final, Literal, Protocol

import numpy as np

from ...errors import DecodeError, DropReason
from ...limits import ANNOUNCEMENTS_PER_MESSAGE_MAX, MESSAGE_WORK_MAX, UDP_PAYLOAD_MAX
from ...structure import ENTITYID_SPDP_WRITER, ENTITYID_UNKNOWN, PREFIX_UNKNOWN, VENDOR_ID, Guid, is_builtin
from ...wire.batch import DATA_BATCH, scan_batch
from ...wire.compressed import COMPRESSED, SERIES, decompress
from ...wire.info import INFO_TS_SIZE
from ...wire.message import FLAG_E, HEADER_SIZE, SUBMESSAGE_HEADER_SIZE, header_at, submessage_at
from ...wire.runs import scan
from ...wire.samples import NO_TIMESTAMP, U8, Run
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
    InfoDestination,
    InfoSource,
    InfoTimestamp,
    NackFrag,
    Pad,
    decode_submessage,
)
from ...wire.unread_samples import pass_over
from ..agenda import Failures
from ..discovery.remote_participant import RemoteParticipant
from ..reading.reader import StatefulReader
from ..trust import Trust, source_of_log
from ..writing.writer import StatefulWriter
from .message_work import (
    BYTES_PER_WORK,
    BYTES_PER_WORK_CLEARED,
    BYTES_PER_WORK_WALKED,
    SHORT,
    WORK,
    WORK_ENDPOINT,
    WORK_PARTICIPANT,
    WORK_PIECES,
    WORK_RANGE,
    WORK_SHORT,
)
from .unread import Unread

_LOOKAHEAD_MIN: Final = 1024
#: What the COMPRESSED of one message may come to.
_INFLATED_MAX: Final = 64 * UDP_PAYLOAD_MAX
_DATA: Final = Data.KIND
_DATA_FRAG: Final = DataFrag.KIND
#: The kinds of samples that name their writer, all at the same place.
_NAMING_WRITERS: Final = (_DATA, DATA_BATCH, _DATA_FRAG)
_INFO_TS: Final = InfoTimestamp.KIND
_INFO_DST: Final = InfoDestination.KIND
_INFO_SRC: Final = InfoSource.KIND
_PAD: Final = Pad.KIND
#: Empty ones, of which announcements of ours hold more than a hundred (`discovery.spdp`).
_PADS: Final = 16 * Pad().encode()
_INFO: Final = (_INFO_TS, _INFO_DST, _INFO_SRC)
_SAMPLES: Final = (*_NAMING_WRITERS, COMPRESSED)
#: Where readers, and writers, take what is sent to them.
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
#: A message of somebody who is not believed is looked through for so many submessages.
_LOOKED_THROUGH: Final = 16
#: Where a DATA, and what is like it, names its writer, from the beginning of its body.
_WRITER_ID: Final = slice(8, 12)


#: Where a message lies in the buffer, and the address it came from; one from a publication log of this host has
#: :func:`~.trust.source_of_log` instead.
Span = tuple[int, int, str]


class Matches(Protocol):
    """Who of ours reads whom (`participant.endpoints.LocalEndpoints`)."""

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


def _timestamp(flags: int, body: memoryview) -> int:
    """Of an INFO_TS."""
    stamp = InfoTimestamp.decode(flags, body).timestamp
    return NO_TIMESTAMP if stamp is None else stamp


class MessageReceiver:
    """Takes messages apart and hands submessages to readers and writers.

    ``endpoints`` (readers matched with a writer, or acknowledging it only), ``writers`` (ours, by entity id) and
    ``remotes`` are the participant's own, which changes them as endpoints come and go. SPDP samples are handed back in
    ``announcements``; ``builtin_touched`` says that built-in readers have something to take.

    A message is believed as ``trust`` says; ``addresses`` are our own. Of one that is not believed, only SPDP samples
    are looked at, which SPDP itself judges.
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
        self._failures = failures or Failures()
        self.announcements: list[Run] = []
        self.builtin_touched = False
        #: The sender of the last message, if it is not proven and the message was therefore not believed.
        self.unproven: RemoteParticipant | None = None
        #: What was done so far: about microseconds.
        self.work = 0
        #: Called with each writer that wrote, or asserted that it lives.
        self.on_alive: Callable[[Guid, int], None] = _ignore
        #: Called with a participant that has addressed us, and where from, if it was not heard from there before.
        self.on_addressed: Callable[[bytes, str, int], None] | None = None
        #: Participants that were made up, and what is called with who has addressed one, where from, and which.
        self.made_up: Container[bytes] = ()
        self.on_answered: Callable[[bytes, str, bytes, int], None] | None = None
        self._prefix = prefix
        self._endpoints = endpoints
        self._routes = endpoints.routes
        #: Samples that nobody reads.
        self.unread = Unread(prefix, endpoints.routes, endpoints.other_slices, drops)
        self._writers = writers
        self._remotes = remotes
        self._drops = drops
        self._addresses = addresses
        self._looks_at_addresses = trust is Trust.ADDRESS

    def is_believed(self, source: bytes, source_ip: str, count: int, now: int) -> bool:
        """Whether so many samples that span datagrams are its own; False: they are dropped."""
        if source == self._prefix and not self._endpoints.hears_itself:
            return False  # our own multicast
        if (refusal := self._refusal(source, source_ip, now)) is not None:
            self._drops[refusal] += count
            return False
        return True

    def on_heartbeat_at(self, data: U8, at: int, source: bytes, now: int) -> None:
        """Handle the HEARTBEAT behind datagrams that were looked at together."""
        try:
            heartbeat = Heartbeat.decode(int(data[at + 1]), memoryview(data)[at + 4 : at + HEARTBEAT_SIZE])
            self._on_other(Heartbeat.KIND, heartbeat, source, NO_TIMESTAMP, now)
        except DecodeError as error:
            self._drops[error.reason] += 1

    def believing_readers(
        self, writer: Guid, reader_id: bytes, source_ip: str, now: int
    ) -> list[StatefulReader]:
        """For whom datagrams of this writer are that were looked at together; none if they are not believed."""
        readers = self.addressed(writer, reader_id)
        if not readers or (writer.prefix == self._prefix and not self._endpoints.hears_itself):
            return []
        return [] if self._refusal(writer.prefix, source_ip, now) is not None else readers

    def receive(self, data: U8, view: memoryview, start: int, stop: int, source_ip: str, *, now: int) -> None:
        """Take in the datagram ``data[start:stop]``; ``view`` is a memoryview of all of ``data``."""
        try:
            _, vendor, source = header_at(view, start, stop)
            if source == self._prefix and not self._endpoints.hears_itself:
                return  # our own multicast
            self._submessages(data, view, start + HEADER_SIZE, stop, source, vendor, source_ip, now)
        except DecodeError as error:  # of the framing: the rest of the message cannot be found
            self._drops[error.reason] += 1

    def _refusal(self, prefix: bytes, source_ip: str, now: int) -> DropReason | None:
        """Why a message of that participant is not believed if it comes from there; None: it is believed."""
        remote = self._remotes.get(prefix)
        if remote is not None and source_ip in remote.addresses:
            remote.last_heard = now
            if remote.proven or not self._looks_at_addresses:
                return None
            self.unproven = remote
            return DropReason.UNKNOWN_WRITER
        if not self._looks_at_addresses or source_ip == source_of_log(prefix):
            return None
        if prefix == self._prefix:
            return None if source_ip in self._addresses else DropReason.FOREIGN_ADDRESS
        if remote is not None and (remote.proven or source_ip != remote.source_ip):
            return DropReason.FOREIGN_ADDRESS
        return DropReason.UNKNOWN_WRITER

    def _submessages(
        self,
        data: U8,
        view: memoryview,
        pos: int,
        stop: int,
        source: bytes,
        vendor: bytes,
        source_ip: str,
        now: int,
    ) -> None:
        for_us = True
        timestamp = NO_TIMESTAMP
        stamped = -1  # where an INFO_TS ended
        lookahead = UDP_PAYLOAD_MAX
        room = _INFLATED_MAX
        refusal = self._refusal(source, source_ip, now)
        looked_through = 0
        work_max = self.work + MESSAGE_WORK_MAX
        while pos < stop:
            if self.work > work_max:
                raise DecodeError(DropReason.OVER_LIMIT, "a message that is too much work")
            kind, flags, end = submessage_at(view, pos, stop)
            self.work += 1
            body = pos + SUBMESSAGE_HEADER_SIZE
            if refusal is not None:
                looked_through += 1
                if looked_through > _LOOKED_THROUGH:
                    return
                if kind not in _INFO and (
                    kind != _DATA or bytes(view[body:end][_WRITER_ID]) != ENTITYID_SPDP_WRITER
                ):
                    if for_us and (refusal is DropReason.FOREIGN_ADDRESS or kind in _SAMPLES):
                        self._drops[refusal] += 1
                    pos = end
                    continue
            try:
                if (
                    kind in _NAMING_WRITERS
                    and for_us
                    and not self._is_wanted(view[body:end][_WRITER_ID].tobytes(), source)
                ):
                    writer = Guid(source, view[body:end][_WRITER_ID].tobytes())
                    end, count, stamp_at = pass_over(data, view, pos, stop)
                    self.work += count // 2
                    if stamp_at >= 0:
                        stamped = stamp_at + INFO_TS_SIZE
                        timestamp = _timestamp(view[stamp_at + 1], view[stamp_at + 4 : stamped])
                    self.unread.drop(writer, count)
                elif kind == _DATA:
                    if for_us:
                        after_ts = pos == stamped
                        runs, end, timestamp = scan(
                            data, pos, stop, source, timestamp, after_info_ts=after_ts, lookahead=lookahead
                        )
                        # Where runs turn out short, little is looked at for the next: else a message of
                        # many short ones would be compared over and over.
                        lookahead = max(_LOOKAHEAD_MIN, 4 * (end - pos))
                        for run in runs:
                            if refusal is None or run.writer.entity == ENTITYID_SPDP_WRITER:
                                if run.count > 1:
                                    self.work += (end - pos) // BYTES_PER_WORK
                                    self.work += 0 if run.index is None else run.count
                                    self.work += WORK_SHORT if run.count < SHORT else 0
                                self.on_run(run, now, work_max - self.work)
                elif kind == _INFO_TS:
                    timestamp = _timestamp(flags, view[body:end])
                    stamped = end if end - pos == INFO_TS_SIZE else -1
                elif kind == _INFO_DST:
                    destination = InfoDestination.decode(flags, view[body:end]).prefix
                    for_us = destination in (self._prefix, PREFIX_UNKNOWN)
                    if destination == self._prefix and self.on_addressed is not None:
                        remote = self._remotes.get(source)
                        if remote is None or source_ip not in remote.heard_from:
                            self.on_addressed(source, source_ip, now)
                            refusal = self._refusal(source, source_ip, now)
                    elif destination in self.made_up and self.on_answered is not None:
                        self.on_answered(source, source_ip, destination, now)
                        refusal = self._refusal(source, source_ip, now)
                elif kind == _INFO_SRC:
                    # RTPS 2.5 §8.3.8.9: a new source, and nothing in force from the old one
                    info = InfoSource.decode(flags, view[body:end])
                    source, vendor, timestamp = info.prefix, info.vendor, NO_TIMESTAMP
                    refusal = self._refusal(source, source_ip, now)
                elif kind == _PAD:
                    while view[end : end + len(_PADS)] == _PADS:
                        end += len(_PADS)
                        self.work += 1
                elif not for_us:
                    pass
                elif kind == DATA_BATCH:
                    self._on_batch(data, pos, end, source, timestamp, now, work_max - self.work)
                elif kind == COMPRESSED:
                    if vendor == VENDOR_ID:
                        if not self._endpoints.hears(source):
                            self.unread.drop_compressed(source)
                            self.work += 8
                            pos = end
                            continue
                        order: Literal["little", "big"] = "little" if flags & FLAG_E else "big"
                        size = int.from_bytes(view[body + 4 : body + 8], order)
                        room -= size
                        if room < 0:
                            raise DecodeError(DropReason.OVER_LIMIT, "a message that grows too large")
                        self.work += WORK[COMPRESSED] + size // BYTES_PER_WORK
                        left = work_max - self.work
                        self._on_compressed(flags, view[body:end], source, timestamp, now, left)
                else:
                    self._on_other(
                        kind, decode_submessage(kind, flags, view[body:end]), source, timestamp, now
                    )
            except DecodeError as error:
                self._drops[error.reason] += 1
                self.work += 8
            pos = end

    def _is_wanted(self, entity: bytes, source: bytes) -> bool:
        """Whether a reader of ours is matched with the writer of samples; also where they are too short to name it."""
        return (
            self._routes.get(Guid(source, entity)) is not None
            or entity == ENTITYID_SPDP_WRITER
            or len(entity) < 4
        )

    def on_run(self, run: Run, now: int, work_max: int = MESSAGE_WORK_MAX) -> None:
        writer = run.writer
        readers = self._routes.get(writer)
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
                run = run.take(0, fits)
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
            self.announcements.append(run.take(0, min(fits, run.count)))
            self.work += WORK_PARTICIPANT * self.announcements[-1].count

    def _on_batch(
        self, data: U8, pos: int, end: int, source: bytes, timestamp: int, now: int, work_max: int
    ) -> None:
        """Handle a DATA_BATCH of a writer that is matched."""
        try:
            batch = scan_batch(data, pos, end, source, timestamp, work_max=work_max)
        except DecodeError:
            self.work += (end - pos) // BYTES_PER_WORK_WALKED
            raise
        self.work += batch.work + WORK[DATA_BATCH] * len(batch.runs)
        if sum(run.count for run in batch.runs) != batch.last_sn + 1 - batch.first_sn:
            self.work += WORK_PIECES
        self.on_alive(batch.writer, now)
        self.hand(
            self.addressed(batch.writer, batch.reader_id), lambda reader: reader.on_batch(batch, now=now)
        )

    def _on_compressed(
        self, flags: int, body: memoryview, source: bytes, timestamp: int, now: int, work_max: int
    ) -> None:
        """Handle what a COMPRESSED holds, as if it stood there."""
        inner = decompress(body, little_endian=bool(flags & FLAG_E))
        view = memoryview(inner)
        kind, flags, size = inner[0], inner[1], len(inner)
        if kind == SERIES:
            data = np.frombuffer(inner, np.uint8)
            self._on_series(data, view, source, timestamp, now, self.work + work_max)
            return
        if kind not in _NAMING_WRITERS:  # nobody compresses the small ones
            raise DecodeError(DropReason.BAD_ENCAPSULATION, f"COMPRESSED: kind {kind:#04x}")
        data = np.frombuffer(inner, np.uint8)
        if not self._is_wanted(inner[SUBMESSAGE_HEADER_SIZE:][_WRITER_ID], source):
            _, count, _ = pass_over(data, view, 0, size)
            self.unread.drop(Guid(source, inner[SUBMESSAGE_HEADER_SIZE:][_WRITER_ID]), count)
            return
        if kind == DATA_BATCH:
            self._on_batch(data, 0, size, source, timestamp, now, work_max)
            return
        self.work += size // BYTES_PER_WORK_WALKED
        if kind == _DATA:
            for run in scan(data, 0, size, source, timestamp).runs:
                self.on_run(run, now)
        else:
            self._on_data_frag(DataFrag.decode(flags, view[4:]), source, timestamp, now)

    def _on_series(
        self, data: U8, view: memoryview, source: bytes, timestamp: int, now: int, work_max: int
    ) -> None:
        """Handle the DATA and INFO_TS of a SERIES."""
        pos, stop, lookahead = SUBMESSAGE_HEADER_SIZE, len(data), UDP_PAYLOAD_MAX
        while pos < stop:
            if self.work > work_max:
                raise DecodeError(DropReason.OVER_LIMIT, "a series that is too much work")
            kind, flags, end = submessage_at(view, pos, stop)
            self.work += 1
            body = pos + SUBMESSAGE_HEADER_SIZE
            if kind == _INFO_TS:
                timestamp = _timestamp(flags, view[body:end])
            elif kind != _DATA:  # nobody compresses the small ones
                raise DecodeError(DropReason.BAD_ENCAPSULATION, f"SERIES: kind {kind:#04x}")
            elif not self._is_wanted(entity := view[body:end][_WRITER_ID].tobytes(), source):
                self.unread.drop(Guid(source, entity), 1)
            else:
                runs, end, timestamp = scan(data, pos, stop, source, timestamp, lookahead=lookahead)
                lookahead = max(_LOOKAHEAD_MIN, 4 * (end - pos))
                for run in runs:
                    self.work += (
                        run.count + WORK_SHORT if run.count < SHORT else (end - pos) // BYTES_PER_WORK
                    )
                    self.on_run(run, now, work_max - self.work)
            pos = end

    def hand(self, readers: Iterable[StatefulReader], take: Callable[[StatefulReader], None]) -> None:
        """Have each of the readers take something, whatever the plug-ins of the others do."""
        for reader in readers:
            try:
                take(reader)
            except DecodeError:
                raise
            except Exception as error:  # noqa: BLE001
                self._failures.note(error)

    def addressed(self, writer: Guid, reader_id: bytes) -> list[StatefulReader]:
        """The readers for which a writer's submessages are."""
        readers = self._routes.get(writer)
        if readers is None:
            return []
        if is_builtin(writer.entity):
            self.builtin_touched = True
        if reader_id == ENTITYID_UNKNOWN:
            return readers
        return [reader for reader in readers if reader.guid.entity == reader_id]

    def _on_other(self, kind: int, submessage: Any, source: bytes, timestamp: int, now: int) -> None:
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
                except Exception as error:  # noqa: BLE001  (a plug-in: the rest of the message is for others)
                    self._failures.note(error)
        elif kind == _DATA_FRAG:
            self._on_data_frag(submessage, source, timestamp, now)
        elif kind == RttMeasurement.KIND:
            self._on_rtt_measurement(submessage, source, now)
        # INFO_REPLY is not followed: replies go to the locators of discovery, never to an address that a single
        # message names.

    def _on_data_frag(self, fragments: DataFrag, source: bytes, timestamp: int, now: int) -> None:
        writer = Guid(source, fragments.writer_id)
        self.on_alive(writer, now)

        def take(reader: StatefulReader) -> None:
            before = reader.fragment_bytes
            reader.on_data_frag(writer, fragments, timestamp, now=now)
            self.work += (reader.fragment_bytes - before) // BYTES_PER_WORK_CLEARED

        self.hand(self.addressed(writer, fragments.reader_id), take)

    def _on_rtt_measurement(self, measurement: RttMeasurement, source: bytes, now: int) -> None:
        if measurement.reply:
            writer = Guid(source, measurement.writer_id)
            readers = self.addressed(writer, measurement.reader_id)
            self.hand(readers, lambda reader: reader.on_rtt_measurement(writer, measurement, now=now))
        elif (local := self._writers.get(measurement.writer_id)) is not None:
            local.feedback.on_rtt_measurement(Guid(source, measurement.reader_id), measurement, now=now)
