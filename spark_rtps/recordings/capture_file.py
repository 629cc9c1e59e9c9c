"""Captures of a network (``.pcap``, ``.pcapng``), replayed through the protocol as if a reader had been there.

A participant that sends nothing receives all datagrams, at the times of the capture (:mod:`.packets`,
``transport.protocol.receiving.overhearing``). So repairs replace lost samples, fragments are reassembled, batches are
divided, and samples are delivered once and in order per writer. Samples missing in the capture are counted.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from ..columns.chunks import chunks
from ..transport.log.frame import Frame
from ..transport.net.directory import type_hash
from ..transport.protocol.counts import CountFilter
from ..transport.protocol.participant.config import ParticipantConfig
from ..transport.protocol.participant.endpoint_specs import ReaderSpec
from ..transport.protocol.participant.events import EndpointDiscovered
from ..transport.protocol.participant.participant import RtpsParticipant
from ..transport.protocol.reading.reader import StatefulReader
from ..transport.protocol.receiving.overhearing import parse_captured
from ..transport.protocol.trust import Trust
from ..transport.qos import DataRepresentation, HistoryKind, Qos
from ..transport.structure import ENTITYID_UNKNOWN, INFINITE, Guid, is_builtin, is_keyed
from ..transport.types.model import Struct
from ..transport.wire.samples import I64, U8
from ..transport.wire.submessages import Heartbeat
from .mcap_chunks import mapped
from .packets import Datagram, datagrams
from .recorded import Channel, FileSection, Piece, RecordedSamples, Times

_log = logging.getLogger("spark_rtps.recordings")

#: A GUID prefix that no participant has: it names no vendor.
_PREFIX: Final = b"\0\0listening\0"
#: Datagrams are processed together if they are this close (ns), and at most this many.
_TOGETHER: Final = 1_000_000
_TOGETHER_MAX: Final = 64
_TOGETHER_BYTES: Final = 1 << 20
#: How long a GAP for one reader waits for another explanation.
_GAP_DELAY: Final = 5_000_000_000


class CaptureFile:
    """One capture."""

    form = "pcap"

    def __init__(self, path: str, *, is_lenient: bool = False, domain: int = 0) -> None:
        self.path = path
        self._domain = domain
        self._is_lenient = is_lenient
        self._data = mapped(path)

    def topics(self) -> dict[str, str]:
        return {
            announced_writers.topic: announced_writers.type_name for announced_writers, _ in self._writers
        }

    def channels(self, topic: str, *, typed: bool, hashed: bool = False) -> tuple[Channel, ...]:
        found: dict[tuple[_AnnouncedTopic, Struct | None], Channel] = {}
        for i, (announced_writers, struct) in enumerate(self._writers):
            if announced_writers.topic == topic:
                why = "" if struct is not None else "its writers announce only the name of the type"
                known = struct if typed else None
                channel = Channel(
                    i, topic, announced_writers.type_name, known, why, type_hash=announced_writers.type_hash
                )
                found.setdefault((announced_writers, struct), channel)
        return tuple(found.values())

    def sections(self, channels: Iterable[Channel], times: Times) -> list[FileSection]:
        """One section, the whole: later samples depend on earlier ones."""
        return [FileSection(0, self._data.nbytes, self._data.nbytes)]

    def read_piece(self, piece: Piece, times: Times) -> Iterator[RecordedSamples]:
        """A piece that begins later is of a capture that has grown: samples before it are not repeated."""
        start, stop = piece.sections[0].start, piece.sections[-1].stop
        given: dict[Guid, list[I64]] = defaultdict(list)
        for samples in self._samples(piece, start) if start else ():
            given[samples.channel.writer].append(samples.sequence_numbers)
        known = {writer: np.concatenate(numbers) for writer, numbers in given.items()}
        for samples in self._samples(piece, stop):
            numbers = known.get(samples.channel.writer)
            if numbers is not None:
                samples = samples.select(~np.isin(samples.sequence_numbers, numbers))
            yield samples.within(times)

    def _samples(self, piece: Piece, stop: int) -> Iterator[RecordedSamples]:
        """The samples of the capture up to byte ``stop``, as if it ended there."""
        topics = frozenset((channel.topic, channel.type_name) for channel in piece.channels)
        listener = _Listener(self.path, self._domain, topics)
        for chunk in chunks(listener.frames(self._datagrams(stop))):
            of_frames = chunk.frame_index()
            writers = [frame.run.writer for frame in chunk.frames]
            offsets, lengths = chunk.samples.all_offsets(), chunk.samples.all_lengths()
            hashes = chunk.key_hashes()
            for writer in dict.fromkeys(writers):
                mine = np.array([each == writer for each in writers])
                rows = np.flatnonzero(mine[of_frames])
                yield RecordedSamples(
                    replace(listener.channel(piece, writer), writer=writer),
                    chunk.samples.data,
                    offsets[rows],
                    lengths[rows],
                    chunk.receptions()[rows],
                    chunk.source_timestamps()[rows],
                    chunk.sequence_numbers()[rows],
                    chunk.flags()[rows],
                    None if hashes is None else hashes[rows],
                )

    def _datagrams(self, stop: int | None = None) -> Iterator[Datagram]:
        return datagrams(self._data[:stop], self.path, is_lenient=self._is_lenient)

    @cached_property
    def _writers(self) -> list[tuple[_AnnouncedTopic, Struct | None]]:
        """What each writer announced of itself, and its type if that is known."""
        listener = _Listener(self.path, self._domain, None)
        for _ in listener.frames(self._datagrams()):
            pass
        return [
            (announced_writers, listener.types.get(guid)) for guid, announced_writers in listener.seen.items()
        ]


#: The position of the sender's GUID prefix in the header of a message.
_PREFIX_AT: Final = slice(8, 20)


class _Message(NamedTuple):
    """A captured message, and its parts that are processed later."""

    time: int
    source: str
    data: bytes
    is_discovery: bool
    is_farewell: bool
    gaps: bytes | None


class _AnnouncedTopic(NamedTuple):
    """The announcement of a writer."""

    topic: str
    type_name: str
    type_hash: str | None


class _Listener:
    """A participant that only listens, and the readers of topics.

    ``topics`` are pairs of a topic and a type name; None: it only discovers writers.
    """

    def __init__(self, path: str, domain: int, topics: frozenset[tuple[str, str]] | None) -> None:
        self._path = path
        self._topics = topics
        config = ParticipantConfig(_PREFIX, domain, trust=Trust.ANY, resolve_types=True, keep_silent=True)
        self._participant = RtpsParticipant(config, now=0)
        self._readers: dict[tuple[str, str, bool, Qos], StatefulReader] = {}
        self._reader_of: dict[Guid, StatefulReader] = {}
        #: Each writer that was ever seen.
        self.seen: dict[Guid, _AnnouncedTopic] = {}
        self.types: dict[Guid, Struct] = {}
        self._gaps: deque[_Message] = deque()

    def channel(self, piece: Piece, writer: Guid) -> Channel:
        """The channel of the piece that a writer's samples belong to."""
        announced_writers, struct = self.seen[writer], self.types.get(writer)
        name = announced_writers.topic, announced_writers.type_name
        alike = [each for each in piece.channels if (each.topic, each.type_name) == name]
        alike = [each for each in alike if each.type_hash == announced_writers.type_hash] or alike
        return next((each for each in alike if each.struct == struct), alike[0])

    def frames(self, given: Iterable[Datagram]) -> Iterator[Frame]:
        """The delivered samples as frames, which own their memory."""
        last = 0
        messages = _captured(given)
        if self._topics is None:
            messages = (each for each in messages if each.is_discovery)
        for group in _groups(messages):
            last = max(last, group[0].time)
            self._pass_time(last)
            yield from self._take_in_gaps(last - _GAP_DELAY, last)
            if group[0].is_farewell:  # this participant sends no more: nothing need wait for it
                yield from self._take_in_gaps(last, last)
                yield from self._give_up(last, group[0].data[_PREFIX_AT])
            yield from self._take_in(group, last)
            # the clock may have been set back since
            self._gaps += (
                each._replace(time=last, data=each.gaps) for each in group if each.gaps is not None
            )
        yield from self._take_in_gaps(last, last)
        yield from self._give_up(last)
        self._tell_losses()

    # --- inside ------------------------------------------------------------------------------------

    def _take_in(self, messages: list[_Message], now: int) -> Iterator[Frame]:
        buffer, spans = _buffer(messages)
        readers = self._participant.receive(buffer, spans, now=now)
        self._follow(now)
        yield from self._delivered(readers, now)
        self._participant.datagrams_to_send(now)  # requests are discarded

    def _take_in_gaps(self, until: int, now: int) -> Iterator[Frame]:
        """Process the postponed GAPs until then."""
        while self._gaps and self._gaps[0].time <= until:
            yield from self._take_in([self._gaps.popleft()], now)

    def _pass_time(self, now: int) -> None:
        timer = self._participant.get_timer()
        if timer is not None and timer <= now:
            self._participant.handle_timer(now)
            self._participant.datagrams_to_send(now)

    def _delivered(self, readers: Iterable[StatefulReader], now: int) -> Iterator[Frame]:
        for reader in readers:
            while runs := reader.take_runs():
                for run in runs:
                    if self._reader_of.get(run.writer) is reader and not run.ends_coherent_set:
                        yield Frame(0, 0, now, 0, run.copy())

    def _follow(self, now: int) -> None:
        """Record new writers, and make a reader for each writer of the topic."""
        while (event := self._participant.next_event()) is not None:
            if not isinstance(event, EndpointDiscovered) or not event.endpoint.is_writer:
                continue
            found = event.endpoint
            if is_builtin(found.guid.entity):
                continue
            announced = self._participant.database.endpoint(found.guid)
            announced_writers = _AnnouncedTopic(
                found.topic, found.type_name, None if announced is None else type_hash(announced)
            )
            self.seen[found.guid] = announced_writers
            if self._topics is not None and (found.topic, found.type_name) in self._topics:
                self._read_from(found.guid, announced_writers, found.qos, now)
        for guid in self.seen.keys() - self.types.keys():
            if (struct := self._participant.database.type_of(guid)) is not None:
                self.types[guid] = struct

    def _read_from(self, writer: Guid, announced_writers: _AnnouncedTopic, qos: Qos, now: int) -> None:
        """Match a writer, with the QoS that it offers."""
        wanted = replace(
            Qos(),
            reliability=qos.reliability,
            durability=qos.durability,
            history=HistoryKind.KEEP_ALL,
            ownership=qos.ownership,
            partition=qos.partition,
            data_representation=(DataRepresentation.XCDR1, DataRepresentation.XCDR2),
        )
        keyed = is_keyed(writer.entity)
        key = announced_writers.topic, announced_writers.type_name, keyed, wanted
        if key not in self._readers:
            spec = ReaderSpec(announced_writers.topic, announced_writers.type_name, wanted, keyed=keyed)
            reader = self._readers[key] = self._participant.create_reader(spec, now=now)
            reader.window = INFINITE
        self._reader_of[writer] = self._readers[key]

    def _give_up(self, now: int, prefix: bytes = b"") -> Iterator[Frame]:
        """Deliver samples that wait for missing ones: of all writers, or of one participant's."""
        for reader in self._readers.values():
            for writer, proxy in reader.writers.items():
                if not (
                    proxy.held and self._reader_of.get(writer) is reader and writer.prefix.startswith(prefix)
                ):
                    continue
                lowest, highest = proxy.held.covered.lowest[0], proxy.held.highest
                for first in [lowest, *(last + 1 for _, last in proxy.missing_changes(lowest, highest))]:
                    # a HEARTBEAT by which the writer has forgotten what is missing
                    proxy.heartbeats = CountFilter()
                    announced_writers = Heartbeat(
                        ENTITYID_UNKNOWN, writer.entity, first, max(proxy.announced, first), 1
                    )
                    reader.on_heartbeat(writer, announced_writers, now=now)
            yield from self._delivered([reader], now)

    def _tell_losses(self) -> None:
        for reader in self._readers.values():
            for (writer, _), count in reader.delivery.losses.take().items():
                if self._reader_of.get(writer) is reader:
                    _log.warning(
                        "%s: %d samples of writer %s are missing in the capture", self._path, count, writer
                    )


def _captured(given: Iterable[Datagram]) -> Iterator[_Message]:
    for each in given:
        data = bytearray(each.payload)
        found = parse_captured(data)
        yield _Message(each.time, each.source, bytes(data), *found)


def _groups(given: Iterable[_Message]) -> Iterator[list[_Message]]:
    """Messages that are processed together. Discovery messages are received before later user data."""
    held: list[_Message] = []
    size = 0
    for each in given:
        if held and (
            each.is_discovery
            or held[-1].is_discovery
            or each.time - held[0].time > _TOGETHER
            or len(held) >= _TOGETHER_MAX
            or size >= _TOGETHER_BYTES
        ):
            yield held
            held, size = [], 0
        held.append(each)
        size += len(each.data)
    if held:
        yield held


def _buffer(messages: list[_Message]) -> tuple[U8, list[tuple[int, int, str]]]:
    """The messages in one buffer, each at a multiple of 4, and where they are."""
    parts: list[bytes] = []
    spans = []
    at = 0
    for each in messages:
        length, padding = len(each.data), -len(each.data) & 3
        spans.append((at, at + length, each.source))
        parts += (each.data, bytes(padding))
        at += length + padding
    return np.frombuffer(b"".join(parts), np.uint8), spans
