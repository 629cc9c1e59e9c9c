"""The receiver of RTPS messages: takes datagrams apart and routes what is in them (RTPS 2.5 §8.3.4).

The hot path of a participant. Per datagram it costs a header, one look at each submessage header and one
dictionary look-up per run; what happens per sample happens in `wire.runs.scan`.

Invariant: nothing a datagram holds makes :meth:`receive` raise. A submessage that breaks a rule is counted
and skipped; one whose length is wrong ends its message (§8.3.4.1).
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, Protocol

import numpy as np

from ..errors import DecodeError, DropReason
from ..limits import UDP_PAYLOAD_MAX
from ..structure import ENTITYID_SPDP_WRITER, ENTITYID_UNKNOWN, PREFIX_UNKNOWN, VENDOR_ID, Guid
from ..wire.batch import DATA_BATCH, Batch, scan_batch
from ..wire.compressed import COMPRESSED, decompress
from ..wire.datagrams import DATAGRAMS_MIN, scan_datagrams
from ..wire.message import FLAG_E, HEADER_SIZE, MAGIC
from ..wire.runs import scan
from ..wire.samples import NO_TIMESTAMP, U8, Run
from ..wire.status_messages import RttMeasurement, StatusMessage
from ..wire.submessages import (
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
    decode_submessage,
)
from .discovery.spdp import RemoteParticipant
from .reading.reader import StatefulReader
from .writing.writer import StatefulWriter

_PAD: Final = 0x01
_INFO_TS_SIZE: Final = 12
_LOOKAHEAD_MIN: Final = 1024
_HEARTBEAT_SIZE: Final = 32
#: Datagrams up to this size on average, that of jumbo frames, are looked at together; larger ones hold so many
#: samples that it gains nothing.
_SMALL_BYTES: Final = 9216
#: What the COMPRESSED of one message may come to.
_INFLATED_MAX: Final = 64 * UDP_PAYLOAD_MAX
_DATA: Final = Data.KIND
_INFO_TS: Final = InfoTimestamp.KIND
_INFO_DST: Final = InfoDestination.KIND
_INFO_SRC: Final = InfoSource.KIND


#: Where a datagram lies in the buffer, and where it came from ("" when nobody asked).
Span = tuple[int, int, str]


class Matches(Protocol):
    """Who of ours reads whom (`endpoints.LocalEndpoints`)."""

    @property
    def routes(self) -> Mapping[Guid, list[StatefulReader]]: ...
    @property
    def hears_itself(self) -> bool: ...


def _ignore(writer: Guid, now: int) -> None:
    pass


class MessageReceiver:
    """Takes messages apart and hands submessages to readers and writers.

    ``endpoints.routes`` (readers matched with a writer), ``writers`` (ours, by entity id) and ``remotes`` are
    the participant's own, which changes them as endpoints come and go. SPDP samples are handed back in
    ``announcements``; ``builtin_touched`` says that built-in readers have something to take. A datagram
    larger than ``message_size_max`` is dropped, and ``on_oversized`` told its sender and size.
    """

    def __init__(
        self,
        prefix: bytes,
        endpoints: Matches,
        writers: Mapping[bytes, StatefulWriter],
        remotes: Mapping[bytes, RemoteParticipant],
        drops: Counter[DropReason],
    ) -> None:
        self.announcements: list[Run] = []
        self.builtin_touched = False
        self.message_size_max = UDP_PAYLOAD_MAX
        self.on_oversized: Callable[[str, int], None] | None = None
        #: Told who wrote, or said that it lives.
        self.on_alive: Callable[[Guid, int], None] = _ignore
        self._prefix = prefix
        self._endpoints = endpoints
        self._routes = endpoints.routes
        self._writers = writers
        self._remotes = remotes
        self._drops = drops

    def receive_runs(self, data: U8, spans: Sequence[Span], *, now: int) -> Iterator[Span]:
        """Take in what `wire.datagrams` finds in small datagrams all at once; the datagrams left are handed out
        for :meth:`receive`, each when its turn comes."""
        if self.message_size_max < UDP_PAYLOAD_MAX:
            spans = [span for span in spans if self._admits(data, span)]
        if len(spans) < DATAGRAMS_MIN or spans[-1][1] - spans[0][0] > len(spans) * _SMALL_BYTES:
            yield from spans
            return
        starts, stops, ips = zip(*spans, strict=True)
        found = scan_datagrams(data, np.array(starts, np.int64), np.array(stops, np.int64))
        rest, handed = found.rest, 0
        sources = set(ips) if found.runs else set()
        for first, run, heartbeat_at in found.runs:
            before = bisect(rest, first, handed)
            yield from (spans[i] for i in rest[handed:before])
            handed = before
            remote = self._remotes.get(run.writer.prefix)
            if remote is not None and not remote.addresses.isdisjoint(sources):
                remote.last_heard = now
            elif run.writer.prefix == self._prefix and not self._endpoints.hears_itself:
                continue  # our own multicast
            self._on_run(run, now)
            if heartbeat_at >= 0:
                body = memoryview(data)[heartbeat_at + 4 : heartbeat_at + _HEARTBEAT_SIZE]
                try:
                    heartbeat = Heartbeat.decode(int(data[heartbeat_at + 1]), body)
                    self._on_heartbeat(run.writer.prefix, heartbeat, now)
                except DecodeError as error:
                    self._drops[error.reason] += 1
        yield from (spans[i] for i in rest[handed:])

    def _admits(self, data: U8, span: Span) -> bool:
        start, stop, source_ip = span
        size = stop - start
        if size <= self.message_size_max:
            return True
        self._drops[DropReason.MESSAGE_TOO_LARGE] += 1
        if self.on_oversized is not None:
            prefix = data[start + 8 : start + HEADER_SIZE].tobytes()
            remote = self._remotes.get(prefix)
            known = () if remote is None else remote.addresses
            self.on_oversized(f"{source_ip or ', '.join(sorted(known)) or 'unknown'} ({prefix.hex()})", size)
        return False

    def receive(self, data: U8, view: memoryview, start: int, stop: int, source_ip: str, *, now: int) -> None:
        """Take in the datagram ``data[start:stop]``, one of those :meth:`receive_runs` left; ``view`` is a
        memoryview of all of ``data``."""
        if stop - start < HEADER_SIZE:  # RTI's keep-alives are 16 bytes
            self._drops[DropReason.SHORT_MESSAGE] += 1
            return
        if bytes(view[start : start + 4]) != MAGIC:
            self._drops[DropReason.NOT_RTPS] += 1
            return
        if view[start + 4] != 2:
            self._drops[DropReason.UNSUPPORTED_VERSION] += 1
            return
        source = bytes(view[start + 8 : start + 20])
        remote = self._remotes.get(source)
        if remote is not None:
            if source_ip in remote.addresses:
                remote.last_heard = now
        elif source == self._prefix and not self._endpoints.hears_itself:
            return  # our own multicast
        try:
            self._submessages(data, view, start + HEADER_SIZE, stop, source, source_ip, now)
        except DecodeError as error:  # of the framing: the rest of the message cannot be found
            self._drops[error.reason] += 1

    def _submessages(
        self, data: U8, view: memoryview, pos: int, stop: int, source: bytes, source_ip: str, now: int
    ) -> None:
        for_us = True
        timestamp = NO_TIMESTAMP
        stamped = -1  # where an INFO_TS ended
        lookahead = UDP_PAYLOAD_MAX
        header = pos - HEADER_SIZE
        vendor: bytes | None = None  # of INFO_SRC; else the header's
        room = _INFLATED_MAX
        while pos < stop:
            body = pos + 4
            if body > stop:
                raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "submessage header")
            kind, flags = view[pos], view[pos + 1]
            if flags & 1:
                length = view[pos + 2] | view[pos + 3] << 8
            else:
                length = view[pos + 2] << 8 | view[pos + 3]
            # RTPS 2.5 §9.4.5.1.3: zero means "to the end of the message", but for PAD and INFO_TS
            end = stop if length == 0 and kind not in (_PAD, _INFO_TS) else body + length
            if end > stop:
                raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "submessage longer than its message")
            try:
                if kind == _DATA:
                    if for_us:
                        runs, end, timestamp = scan(
                            data,
                            pos,
                            stop,
                            source,
                            timestamp,
                            after_info_ts=pos == stamped,
                            lookahead=lookahead,
                        )
                        # Where runs turn out short, little is looked at for the next: else a message of
                        # many short ones would be compared over and over.
                        lookahead = max(_LOOKAHEAD_MIN, 4 * (end - pos))
                        for run in runs:
                            self._on_run(run, now)
                elif kind == DATA_BATCH:
                    if for_us:
                        self._on_batch(scan_batch(data, pos, end, source, timestamp), now)
                elif kind == COMPRESSED:
                    ours = (vendor or bytes(view[header + 6 : header + 8])) == VENDOR_ID
                    if for_us and ours:
                        order: Literal["little", "big"] = "little" if flags & FLAG_E else "big"
                        room -= int.from_bytes(view[body + 4 : body + 8], order)
                        if room < 0:
                            raise DecodeError(DropReason.OVER_LIMIT, "a message that grows too large")
                        self._on_compressed(flags, view[body:end], source, timestamp, now)
                elif for_us or kind in (_INFO_DST, _INFO_SRC, _INFO_TS):
                    submessage = decode_submessage(kind, flags, view[body:end])
                    if isinstance(submessage, InfoTimestamp):
                        stamp = submessage.timestamp
                        timestamp = NO_TIMESTAMP if stamp is None else stamp
                        stamped = end if end - pos == _INFO_TS_SIZE else -1
                    elif isinstance(submessage, InfoDestination):
                        for_us = submessage.prefix in (self._prefix, PREFIX_UNKNOWN)
                        if submessage.prefix == self._prefix and source in self._remotes:
                            self._remotes[source].prove(source_ip)
                    elif isinstance(submessage, InfoSource):
                        # RTPS 2.5 §8.3.8.9: a new source, and nothing in force from the old one
                        source, timestamp = submessage.prefix, NO_TIMESTAMP
                        vendor = submessage.vendor
                    elif isinstance(submessage, Heartbeat):
                        self._on_heartbeat(source, submessage, now)
                    elif isinstance(submessage, AckNack):
                        writer = self._writers.get(submessage.writer_id)
                        if writer is not None:
                            writer.on_acknack(Guid(source, submessage.reader_id), submessage, now=now)
                    elif submessage is not None:
                        self._on_other(source, submessage, timestamp, now)
                    # INFO_REPLY is not followed: replies go to the locators of discovery, never to an
                    # address that a single message names.
            except DecodeError as error:
                self._drops[error.reason] += 1
            if end % 4 != pos % 4 and end != stop:
                raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "submessage ends unaligned")
            pos = end

    def _on_run(self, run: Run, now: int) -> None:
        writer = run.writer
        readers = self._routes.get(writer)
        if readers is None:
            if writer.entity == ENTITYID_SPDP_WRITER:
                self.announcements.append(run)
            elif writer.prefix != self._prefix:
                self._drops[DropReason.UNKNOWN_WRITER] += run.count
            return
        self.on_alive(writer, now)
        if writer.entity[3] & 0xC0 == 0xC0:
            self.builtin_touched = True
        for reader in readers:
            if run.reader_id == ENTITYID_UNKNOWN or run.reader_id == reader.guid.entity:
                reader.on_run(run, now=now)

    def _on_batch(self, batch: Batch, now: int) -> None:
        readers = self._addressed(batch.writer, batch.reader_id)
        if not readers and batch.writer.prefix != self._prefix:
            self._drops[DropReason.UNKNOWN_WRITER] += sum(run.count for run in batch.runs)
        self.on_alive(batch.writer, now)
        for reader in readers:
            reader.on_batch(batch, now=now)

    def _on_compressed(self, flags: int, body: memoryview, source: bytes, timestamp: int, now: int) -> None:
        """Handle what a COMPRESSED holds, as if it stood there."""
        inner = decompress(body, little_endian=bool(flags & FLAG_E))
        data = np.frombuffer(inner, np.uint8)
        kind, flags, size = inner[0], inner[1], len(inner)
        if kind == DATA_BATCH:
            self._on_batch(scan_batch(data, 0, size, source, timestamp), now)
        elif kind == _DATA:
            for run in scan(data, 0, size, source, timestamp).runs:
                self._on_run(run, now)
        elif kind == DataFrag.KIND:
            submessage = decode_submessage(kind, flags, memoryview(inner)[4:])
            self._on_other(source, submessage, timestamp, now)
        else:  # nobody compresses the small ones
            raise DecodeError(DropReason.BAD_ENCAPSULATION, f"COMPRESSED: kind {kind:#04x}")

    def _addressed(self, writer: Guid, reader_id: bytes) -> list[StatefulReader]:
        readers = self._routes.get(writer)
        if readers is None:
            return []
        if writer.entity[3] & 0xC0 == 0xC0:
            self.builtin_touched = True
        if reader_id == ENTITYID_UNKNOWN:
            return readers
        return [reader for reader in readers if reader.guid.entity == reader_id]

    def _on_heartbeat(self, source: bytes, heartbeat: Heartbeat, now: int) -> None:
        writer = Guid(source, heartbeat.writer_id)
        if heartbeat.liveliness:
            self.on_alive(writer, now)
        for reader in self._addressed(writer, heartbeat.reader_id):
            reader.on_heartbeat(writer, heartbeat, now=now)

    def _on_other(self, source: bytes, submessage: object, timestamp: int, now: int) -> None:
        if isinstance(submessage, DataFrag):
            writer = Guid(source, submessage.writer_id)
            readers = self._addressed(writer, submessage.reader_id)
            if not readers:
                self._drops[DropReason.UNKNOWN_WRITER] += 1
            self.on_alive(writer, now)
            for reader in readers:
                reader.on_data_frag(writer, submessage, timestamp, now=now)
        elif isinstance(submessage, HeartbeatFrag):
            writer = Guid(source, submessage.writer_id)
            for reader in self._addressed(writer, submessage.reader_id):
                reader.on_heartbeat_frag(writer, submessage, now=now)
        elif isinstance(submessage, Gap):
            writer = Guid(source, submessage.writer_id)
            for reader in self._addressed(writer, submessage.reader_id):
                reader.on_gap(writer, submessage, now=now)
        elif isinstance(submessage, HeartbeatBatch):
            writer = Guid(source, submessage.writer_id)
            if submessage.liveliness:
                self.on_alive(writer, now)
            for reader in self._addressed(writer, submessage.reader_id):
                reader.on_heartbeat_batch(writer, submessage, now=now)
        elif isinstance(submessage, AckNackBatch):
            local = self._writers.get(submessage.writer_id)
            if local is not None:
                local.on_acknack_batch(Guid(source, submessage.reader_id), submessage, now=now)
        elif isinstance(submessage, NackFrag):
            local = self._writers.get(submessage.writer_id)
            if local is not None:
                local.on_nack_frag(Guid(source, submessage.reader_id), submessage, now=now)
        elif isinstance(submessage, StatusMessage):
            local = self._writers.get(submessage.writer_id)
            if local is not None:
                local.on_status_message(Guid(source, submessage.reader_id), submessage, now=now)
        elif isinstance(submessage, RttMeasurement):
            if submessage.reply:
                writer = Guid(source, submessage.writer_id)
                for reader in self._addressed(writer, submessage.reader_id):
                    reader.on_rtt_measurement(writer, submessage, now=now)
            elif (local := self._writers.get(submessage.writer_id)) is not None:
                local.on_rtt_measurement(Guid(source, submessage.reader_id), submessage)
