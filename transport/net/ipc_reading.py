"""Readers of publication logs on one host: samples go by the writer's publication log, not by UDP (Aeron's IPC).

Discovery, HEARTBEATs, acknowledgements, GAPs, repairs and samples that do not fit into the log go by UDP. A reader that
cannot map the log, or loses its slot in it, receives everything by UDP. Both sides work in the duty cycle of their
node, under its lock:

* :class:`ReadLogs` hands frames that writers have committed to the participant, as if they were received datagrams, and
  records in its slots how far it has read;
* :class:`~.ipc_writing.WrittenLogs` hands the positions of the slots to the writers, and wakes sleeping readers by a
  datagram without samples.

Invariants:
* a datagram is handed to the participant only after all frames that were in the logs when it was received: no
  HEARTBEAT announces samples that are still to be read;
* a frame is read only if the readers have space for it, so that a full reader holds the writer back.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final

from ..errors import LogError
from ..log.image import CopyBuffer, Image
from ..log.named_logs import NamedLogs
from ..log.publication_log import PublicationLog
from ..log.subscriber_slots import SubscriberSlot, SubscriberState
from ..protocol.endpoint_info import WriterInfo
from ..protocol.participant.events import Event, Matched, Unmatched
from ..protocol.reading.reader import StatefulReader
from ..protocol.receiving.message_receiver import Span
from ..protocol.trust import source_of_log
from ..structure import INFINITE, NANOSECONDS, Guid
from ..value_classes import slotted
from ..wire.samples import U8

_log = logging.getLogger(__name__)

#: How often the node checks whether the processes that own the logs still live.
_OWNER_PERIOD_NS: Final = NANOSECONDS
#: Bytes that are handed to the participant in one call.
_READ_BYTES: Final = 1 << 20

#: Processes messages that lie in one array, and since when they were in the log; None: they are new.
Receive = Callable[[U8, Sequence[Span], int | None], None]


@slotted
class _LogReader:
    """One local reader of one log."""

    reader: StatefulReader
    slot: SubscriberSlot
    resting: bool = False
    #: For a reader whose owner reports consumption itself: (bytes received so far, position in the log).
    unconsumed: deque[tuple[int, int]] = field(default_factory=deque)
    consumed: int = 0


@slotted
class _ReadLog:
    """One log, and the local readers that read it."""

    writer: Guid
    image: Image
    places: dict[Guid, _LogReader] = field(default_factory=dict)
    #: Position and size of a frame that no reader had space for. Readers know of it, and do not request it.
    refused: tuple[int, int] = (-1, 0)
    #: The log's end when a spy joined, and the time at which it joined.
    found: tuple[int, int] = (-1, 0)

    @property
    def active(self) -> list[_LogReader]:
        """The readers that are not resting."""
        return [place for place in self.places.values() if not place.resting]

    @property
    def since(self) -> int | None:
        """Since when the next frame is known to be in the log; None: it is new."""
        behind, since = self.found
        return since if self.image.position < behind else None

    @property
    def largest(self) -> int:
        """Bytes of the largest sample that some reader accepts; readers skip larger ones."""
        return max((place.reader.delivery.sample_size_max for place in self.active), default=0)

    @property
    def room(self) -> int:
        """Bytes that every reader can take; 0: there are no readers."""
        return min((self._room_of(place.reader) for place in self.active), default=0)

    def _room_of(self, reader: StatefulReader) -> int:
        proxy = reader.writers.get(self.writer)
        # A reader that rests drops all samples of the writer.
        return INFINITE if proxy is not None and proxy.resting else reader.window


class ReadLogs:
    """The logs of other writers that the readers of one node read."""

    def __init__(self, receive: Receive, named_logs: NamedLogs | None = None, *, spies: bool = False) -> None:
        """``spies``: writers do not know of the readers."""
        self._receive = receive
        self._named_logs = named_logs or NamedLogs()
        self._spies = spies
        self._readers: dict[Guid, StatefulReader] = {}
        self._readings: dict[Guid, _ReadLog] = {}
        self._buffer = CopyBuffer()
        self._owners_at = 0

    @property
    def writers(self) -> list[Guid]:
        """The writers whose logs are read."""
        return list(self._readings)

    def is_read_by(self, reader: Guid, writer: Guid) -> bool:
        """Whether a reader reads the log of a writer."""
        reading = self._readings.get(writer)
        return reading is not None and reader in reading.places

    def add_reader(self, reader: StatefulReader) -> None:
        """Add a reader; :meth:`on_event` adds its writers on this host."""
        self._readers[reader.guid] = reader

    def remove_reader(self, guid: Guid) -> None:
        self._readers.pop(guid, None)
        for reading in list(self._readings.values()):
            self._leave(reading, guid)

    def on_event(self, event: Event, *, now: int) -> None:
        """Follow a match of a reader with a writer on this host, or its end."""
        if isinstance(event, Matched) and (reader := self._readers.get(event.local)) is not None:
            proxy = reader.writers.get(event.remote)
            if proxy is None or not proxy.info.publication_log:
                return
            known = self._readings.get(event.remote)
            log = self._find(proxy.info) if known is None else known.image.log
            if log is not None:
                self.join(reader, event.remote, log, now=now)
        elif isinstance(event, Unmatched) and event.remote in self._readings:
            self._leave(self._readings[event.remote], event.local)

    def join(self, reader: StatefulReader, writer: Guid, log: PublicationLog, *, now: int) -> bool:
        """Have a reader read the log of a writer that it is matched with; False: the log takes no more readers."""
        image = Image.joined(log, self._buffer, source_of_log(writer.prefix))
        reading = self._readings.get(writer) or _ReadLog(writer, image)
        if self._spies and reader.writers[writer].synced:
            # The reader knows which samples it has, and the others are not repeated. However long it takes to read
            # them, they are not a sign that the writer continues with lower numbers.
            if reading.image.position >= reading.found[0]:
                reading.found = -1, now
            reading.found = log.position, reading.found[1]
            image.rewind()
        if not self._subscribe(reading, reader, image.position, now):
            return False
        reading.image.position = min(reading.image.position, image.position)
        self._readings[writer] = reading
        return True

    def read_logs(self, *, now: int) -> tuple[int, int]:
        """Hand on all frames in the logs that the readers have space for; returns the number of frames and their
        bytes."""
        frames = nbytes = 0
        for reading in list(self._readings.values()):
            try:
                more = self._read(reading, now)
            except LogError as error:
                if self._spies:  # a spy gets no repairs
                    _log.warning("%s; continuing at the newest position", error)
                    reading.image.rejoin()
                else:
                    _log.warning("%s; its samples are received by UDP from now on", error)
                    self._drop(reading)
                continue
            frames += more[0]
            nbytes += more[1]
        if self._readings and now >= self._owners_at:
            self._owners_at = now + _OWNER_PERIOD_NS
            self._look_for_owners()
        return frames, nbytes

    def prepare_to_wait(self) -> bool:
        """Ask writers to wake this node; False: there is something to read already."""
        for reading in self._readings.values():
            for place in reading.active:
                place.slot.waiting = True
        # The publisher loads the word after it stored the frame; this node looks for frames after it stored the word.
        # Locks are taken in between, so that one of the two sees the other's store.
        return not any(
            reading.image.has_more and self._takes_more(reading) for reading in self._readings.values()
        )

    def close(self) -> None:
        for reading in list(self._readings.values()):
            self._drop(reading)

    # --- inside ------------------------------------------------------------------------------------

    def _find(self, info: WriterInfo) -> PublicationLog | None:
        """The log of a writer, if it is on this host and readers may read it."""
        try:
            log = self._named_logs.map_log(info.publication_log)
        except LogError as error:
            _log.debug("%s is read by UDP: %s", info.guid, error)  # most likely the writer is on another host
            return None
        about = log.about
        is_its = log.token == info.publication_token and about.get("guid") == str(info.guid)
        return log if is_its and about.get("ipc") else None

    def _subscribe(self, reading: _ReadLog, reader: StatefulReader, position: int, now: int) -> bool:
        log = reading.image.log
        try:
            slot = log.subscribe(
                reader.guid, position=position, now=now, spy=self._spies, tether=reader.policy.tether
            )
        except LogError as error:
            _log.debug("%s", error)
            return False
        if slot is not None:
            reading.places[reader.guid] = _LogReader(reader, slot, consumed=position)
        return slot is not None

    def _leave(self, reading: _ReadLog, reader: Guid) -> None:
        if (place := reading.places.pop(reader, None)) is not None:
            if place.slot.is_there:
                place.slot.leave()
            place.reader.untethered.rejoin(reading.writer)
        if not reading.places:
            self._readings.pop(reading.writer, None)

    def _drop(self, reading: _ReadLog) -> None:
        for reader in list(reading.places):
            self._leave(reading, reader)

    def _read(self, reading: _ReadLog, now: int) -> tuple[int, int]:
        image = reading.image
        self._show(reading, now)
        frames = nbytes = 0
        end = image.log.position
        while image.position < end and self._takes_more(reading):
            room = reading.room
            found = image.poll(min(room, _READ_BYTES))
            if found is None:
                if not image.is_lapped:
                    break
                _log.info("%s is read too slowly: continuing at its newest position", image.log.path)
                image.rejoin()
            elif room < found.nbytes <= reading.largest:
                reading.refused = image.position, found.nbytes
                # A reader does not request a sample that it has seen and has no space for.
                if all(_is_reliable(place.reader, reading.writer) for place in reading.active):
                    self._receive(found.data, found.spans, reading.since)
            else:
                if found.spans:
                    self._receive(found.data, found.spans, reading.since)
                frames += len(found.spans)
                nbytes += found.nbytes
                image.position = found.end
                for place in reading.places.values():
                    _note_received(place, reading)
                self._show(reading, now)
        return frames, nbytes

    def _takes_more(self, reading: _ReadLog) -> bool:
        """Whether the readers have space for the next frame if its size is known, otherwise for any."""
        at, needed = reading.refused
        return reading.room >= (needed if at == reading.image.position else 1)

    def _show(self, reading: _ReadLog, now: int) -> None:
        """Record in the slots how far the readers are, and follow the states that the writer has set there."""
        for guid, place in list(reading.places.items()):
            slot = place.slot
            if not slot.is_there:
                # The writer considered the reader dead, and has sent by UDP since.
                place.reader.untethered.rejoin(reading.writer)
                if not self._subscribe(reading, place.reader, reading.image.position, now):
                    self._leave(reading, guid)
                continue
            slot.heartbeat = now
            if slot.waiting:
                slot.waiting = False
            self._follow(reading, place)
            if not place.resting:
                slot.position = _consumed(place, reading)

    def _follow(self, reading: _ReadLog, place: _LogReader) -> None:
        """Rest and rejoin as the writer decides."""
        rests = place.slot.state is not SubscriberState.ACTIVE
        if rests == place.resting:
            return
        place.resting = rests
        place.reader.touch()
        if rests:
            _log.warning(
                "%s is unavailable to the untethered reader %s: it is too slow; it rejoins at the newest sample",
                reading.writer,
                place.reader.guid,
            )
            place.reader.untethered.rest(reading.writer)
            return
        place.reader.untethered.rejoin(reading.writer)
        place.unconsumed.clear()
        place.consumed = place.slot.position
        if len(reading.active) == 1:
            reading.image.position = place.slot.position

    def _look_for_owners(self) -> None:
        over = [each for each in self._readings.values() if _is_over(each)]
        for reading in over:
            _log.info("the writer of %s left", reading.image.log.path)
            self._drop(reading)
        if over:
            try:
                self._named_logs.remove_dead()
            except LogError as error:
                _log.debug("%s", error)


def _is_over(reading: _ReadLog) -> bool:
    """Whether the log is read to its end."""
    image, metadata = reading.image, reading.image.log.metadata
    if not metadata.end_of_stream and metadata.owner_lives:
        return False
    return not (image.has_more and reading.active)  # checked last: nothing is added once the writer is gone


def _is_reliable(reader: StatefulReader, writer: Guid) -> bool:
    proxy = reader.writers.get(writer)
    return proxy is not None and proxy.reliable


def _note_received(place: _LogReader, reading: _ReadLog) -> None:
    """Record what a later report of consumption needs."""
    if place.reader.status.consumption_held and reading.writer in place.reader.writers:
        received = place.reader.status.positions(place.reader.writers[reading.writer]).rcv_pos
        place.unconsumed.append((received, reading.image.position))


def _consumed(place: _LogReader, reading: _ReadLog) -> int:
    """The position up to which the reader has consumed the log."""
    if not place.reader.status.consumption_held or reading.writer not in place.reader.writers:
        return reading.image.position
    consumed = place.reader.status.positions(place.reader.writers[reading.writer]).sub_pos
    while place.unconsumed and place.unconsumed[0][0] <= consumed:
        place.consumed = place.unconsumed.popleft()[1]
    return place.consumed
