"""Readers and writers of ours on one host: samples go by the writer's publication log, not by UDP (Aeron's IPC).

Discovery, HEARTBEATs, acknowledgements, GAPs and what does not fit the log go by UDP as ever, and so do repairs: a
reader that cannot map the log, or loses its slot there, is a reader as any other. Both sides work in the duty cycle of
their node, under its lock:

* :class:`ReadLogs` hands what others have committed to the participant, as if it were drained datagrams, and tells in
  its slots how far that is;
* :class:`WrittenLogs` tells its writers how far the slots are, and wakes readers that sleep by a datagram without
  samples.

Invariants:
* a datagram is handed to the participant only after all that was in the logs when it was received: no HEARTBEAT
  announces what is still to be read;
* nothing is read that the reader has no room for, so that the writer feels it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..errors import LogError
from ..log.image import CopyBuffer, Frames, Image, Span
from ..log.publication_log import PublicationLog
from ..log.publication_metadata import Subscriber, SubscriberState
from ..log.publications import Publications
from ..protocol.events import Event, Matched, Unmatched
from ..protocol.reading.reader import StatefulReader
from ..structure import NANOSECONDS, Guid
from ..wire.samples import U8

_log = logging.getLogger(__name__)

#: Who has not shown itself for so long is dead; the longest duty cycle is a second.
_DEAD_NS: Final = 5 * NANOSECONDS
#: How often the owners of the logs that are read are looked for.
_OWNER_PERIOD_NS: Final = NANOSECONDS
#: What is handed to the participant at once.
_READ_BYTES: Final = 1 << 20
#: A writer that waits for readers of its log looks at them so often: they send it nothing when they get on.
_PATIENCE_MIN_NS: Final = 500_000
_PATIENCE_MAX_NS: Final = 20_000_000

#: Takes in messages that lie in one array.
Receive = Callable[[U8, Sequence[Span]], None]


# --- what others publish -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Place:
    """One of our readers in one log."""

    reader: StatefulReader
    slot: Subscriber
    resting: bool = False
    #: Of a reader that calls samples consumed later: (bytes received by then, position in the log).
    unconsumed: deque[tuple[int, int]] = field(default_factory=deque)
    consumed: int = 0


@dataclass(slots=True)
class _Reading:
    """One log, and those of our readers that read it."""

    writer: Guid
    image: Image
    places: dict[Guid, _Place] = field(default_factory=dict)
    #: Where a frame begins that found no room, and how much it needs: readers have seen it, and do not ask for it.
    refused: tuple[int, int] = (-1, 0)

    @property
    def active(self) -> list[_Place]:
        """Those that are not resting."""
        return [place for place in self.places.values() if not place.resting]

    @property
    def room(self) -> int:
        """Bytes that all of them can take; 0: there is nobody."""
        return min((place.reader.window for place in self.active), default=0)


class ReadLogs:
    """The logs of other writers that readers of one node read."""

    def __init__(self, receive: Receive, publications: Publications | None = None) -> None:
        self._receive = receive
        self._publications = publications or Publications()
        self._readers: dict[Guid, StatefulReader] = {}
        self._readings: dict[Guid, _Reading] = {}
        self._buffer = CopyBuffer()
        self._owners_at = 0

    @property
    def writers(self) -> list[Guid]:
        """Whose logs are read."""
        return list(self._readings)

    def add_reader(self, reader: StatefulReader) -> None:
        """Its writers on this host come by :meth:`on_event`."""
        self._readers[reader.guid] = reader

    def remove_reader(self, guid: Guid) -> None:
        self._readers.pop(guid, None)
        for reading in list(self._readings.values()):
            self._leave(reading, guid)

    def on_event(self, event: Event, *, now: int) -> None:
        """A reader may have been matched with a writer on this host, or have lost it."""
        if isinstance(event, Matched) and (reader := self._readers.get(event.local)) is not None:
            proxy = reader.writers.get(event.remote)
            if proxy is not None and proxy.info.publication_log:
                self._join(reader, proxy.info, now)
        elif isinstance(event, Unmatched) and (known := self._readings.get(event.remote)) is not None:
            self._leave(known, event.local)

    def read(self, *, now: int) -> tuple[int, int]:
        """Hand on all that is in the logs by now, as far as there is room; returns the frames and their bytes."""
        frames = nbytes = 0
        for reading in list(self._readings.values()):
            try:
                more = self._read(reading, now)
            except LogError as error:
                _log.warning("%s; what it holds comes by UDP from now on", error)
                self._drop(reading)
                continue
            frames += more[0]
            nbytes += more[1]
        if self._readings and now >= self._owners_at:
            self._owners_at = now + _OWNER_PERIOD_NS
            self._look_for_owners()
        return frames, nbytes

    def prepare_to_wait(self) -> bool:
        """Ask writers to wake us; False: there is something to be read already."""
        for reading in self._readings.values():
            for place in reading.active:
                place.slot.waiting = True
        # Whoever publishes looks at the word after it stored the frame, we look for frames after we stored the word,
        # and locks are taken in between: one of us sees the other's store.
        return not any(
            reading.image.has_more and self._takes_more(reading) for reading in self._readings.values()
        )

    def close(self) -> None:
        for reading in list(self._readings.values()):
            self._drop(reading)

    # --- inside ------------------------------------------------------------------------------------

    def _join(self, reader: StatefulReader, info: WriterInfo, now: int) -> None:
        reading = self._readings.get(info.guid)
        if reading is None:
            try:
                log = self._publications.open(info.publication_log)
            except LogError as error:
                _log.debug("%s is read by UDP: %s", info.guid, error)  # it is on another host, most likely
                return
            if log.token != info.publication_token or log.about.get("guid") != str(info.guid):
                _log.debug("%s is not the publication log of %s", log.path, info.guid)
                return
            reading = _Reading(info.guid, Image.joined(log, self._buffer))
        image = reading.image
        joined = Image.joined(image.log, self._buffer).position
        if self._subscribe(reading, reader, joined, now):
            image.position = min(image.position, joined)
            self._readings[info.guid] = reading

    def _subscribe(self, reading: _Reading, reader: StatefulReader, position: int, now: int) -> bool:
        log = reading.image.log
        try:
            slot = log.subscribe(reader.guid, position=position, now=now, tether=reader.policy.tether)
        except LogError as error:
            _log.debug("%s", error)
            return False
        if slot is not None:
            reading.places[reader.guid] = _Place(reader, slot, consumed=position)
        return slot is not None

    def _leave(self, reading: _Reading, reader: Guid) -> None:
        place = reading.places.pop(reader, None)
        if place is not None and place.slot.is_there:
            place.slot.leave()
        if not reading.places:
            self._readings.pop(reading.writer, None)

    def _drop(self, reading: _Reading) -> None:
        for reader in list(reading.places):
            self._leave(reading, reader)

    def _read(self, reading: _Reading, now: int) -> tuple[int, int]:
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
                _log.info("%s is read too slowly, and goes on at its newest position", image.log.path)
                image.rejoin()
            elif found.nbytes > room:
                reading.refused = image.position, found.nbytes
                # It does not ask for what it has seen to be too much for now.
                if all(place.reader.qos.is_reliable for place in reading.active):
                    self._receive(found.data, found.spans)
            else:
                if found.spans:
                    self._receive(found.data, found.spans)
                frames += len(found.spans)
                nbytes += found.nbytes
                image.position = found.end
                for place in reading.places.values():
                    _note_received(place, reading)
        if frames:
            self._show(reading, now)
        return frames, nbytes

    def _takes_more(self, reading: _Reading) -> bool:
        """Whether there is room for the next frame, as far as is known."""
        at, needed = reading.refused
        return reading.room >= (needed if at == reading.image.position else 1)

    def _show(self, reading: _Reading, now: int) -> None:
        """Tell the writer how far we are, and hear what it says of us."""
        for guid, place in list(reading.places.items()):
            slot = place.slot
            if not slot.is_there:
                # It took us for dead, and has sent by UDP since.
                if not self._subscribe(reading, place.reader, reading.image.position, now):
                    self._leave(reading, guid)
                continue
            slot.heartbeat = now
            if slot.waiting:
                slot.waiting = False
            self._follow(reading, place)
            if not place.resting:
                slot.position = _consumed(place, reading)

    def _follow(self, reading: _Reading, place: _Place) -> None:
        """Rest when the writer says so, and rejoin."""
        rests = place.slot.state is not SubscriberState.ACTIVE
        if rests == place.resting:
            return
        place.resting = rests
        if rests:
            _log.warning(
                "%s is unavailable to the untethered reader %s, which is too slow; it rejoins at the newest sample",
                reading.writer,
                place.reader.guid,
            )
            place.reader.rest(reading.writer)
            return
        place.reader.rejoin(reading.writer)
        place.unconsumed.clear()
        place.consumed = place.slot.position
        if len(reading.active) == 1:
            reading.image.position = place.slot.position

    def _look_for_owners(self) -> None:
        dead = [each for each in self._readings.values() if not each.image.log.metadata.owner_lives]
        for reading in dead:
            _log.info("the process that wrote %s is gone", reading.image.log.path)
            self._drop(reading)
        if dead:
            try:
                self._publications.remove_dead()
            except LogError as error:
                _log.debug("%s", error)


def _note_received(place: _Place, reading: _Reading) -> None:
    """What is consumed later than it is received is told later."""
    if place.reader.consumption_held and reading.writer in place.reader.writers:
        received = place.reader.positions(reading.writer).rcv_pos
        place.unconsumed.append((received, reading.image.position))


def _consumed(place: _Place, reading: _Reading) -> int:
    """Up to which position the reader has consumed the log."""
    if not place.reader.consumption_held or reading.writer not in place.reader.writers:
        return reading.image.position
    consumed = place.reader.positions(reading.writer).sub_pos
    while place.unconsumed and place.unconsumed[0][0] <= consumed:
        place.consumed = place.unconsumed.popleft()[1]
    return place.consumed


# --- what we publish ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Writing:
    """One writer of ours with a named log, and who reads it there."""

    writer: StatefulWriter
    log: PublicationLog
    tethering: Tethering
    slots: list[Subscriber] = field(default_factory=list)
    #: What the writer was told last.
    told: tuple[dict[Guid, int], list[int]] = field(default_factory=lambda: ({}, []))
    #: How long to wait until the readers have got on.
    patience: int = _PATIENCE_MIN_NS

    @property
    def waits(self) -> bool:
        """Whether the writer could do more if readers of the log got on."""
        positions = self.writer.positions
        return bool(self.slots) and (bool(self.writer.blocked_by) or positions.snd_pos < positions.pub_pos)


class WrittenLogs:
    """The named logs of one node's writers."""

    def __init__(self, prefix: bytes, publications: Publications | None = None) -> None:
        self._publications = publications or Publications()
        self._writings: dict[Guid, _Writing] = {}
        #: An RTPS message without submessages: it wakes who waits for a datagram.
        self._wake_up = Header(prefix=prefix).encode()

    def create(
        self, policy: FlowControlPolicy, term_length: int, about: Mapping[str, JSON]
    ) -> PublicationLog | None:
        """A log that readers on this host can find, if the policy wants one and there is room for it."""
        if not (policy.ipc or policy.spies_simulate_connection):
            return None
        told = {**about, "ipc": policy.ipc}
        try:
            return self._publications.create(term_length, told)
        except LogError as error:
            _log.warning("%s: nobody on this host can read it there, readers are sent datagrams", error)
            return None

    def add(self, writer: StatefulWriter, log: PublicationLog, policy: FlowControlPolicy) -> None:
        """The log of a writer, which is removed with it."""
        window = writer.positions.term_window
        # A writer that waits for room waits for two datagrams of it: it gets no nearer to the top.
        window -= min(2 * writer.message_size, window // 2)
        tethering = Tethering(
            window, policy.untethered_window_limit_timeout, policy.untethered_resting_timeout
        )
        self._writings[writer.guid] = _Writing(writer, log, tethering)

    def remove(self, guid: Guid) -> None:
        if (writing := self._writings.pop(guid, None)) is not None:
            remove(writing.log)

    def close(self) -> None:
        for guid in list(self._writings):
            self.remove(guid)

    def conduct(self, *, now: int) -> None:
        """Tell writers how far they are read (Aeron's conductor)."""
        for writing in self._writings.values():
            writing.log.record(writing.writer.positions)
            slots = writing.log.subscribers()
            if slots or writing.slots:
                writing.slots = [slot for slot in slots if _is_alive(slot, now)]
                self._conduct(writing, now)

    def wake_readers(self) -> list[Datagram]:
        """Datagrams for readers that wait for what was published now."""
        datagrams = []
        for writing in self._writings.values():
            for slot in writing.slots:
                if slot.waiting and slot.position < writing.log.position:
                    slot.waiting = False
                    proxy = writing.writer.readers.get(slot.guid)
                    if proxy is not None:
                        datagrams.append(Datagram([self._wake_up], proxy.info.destinations))
        return datagrams

    def patience(self) -> int:
        """How many ns to wait at most before :meth:`conduct` has to look again."""
        return min((each.patience for each in self._writings.values() if each.waits), default=INFINITE)

    # --- inside ------------------------------------------------------------------------------------

    def _conduct(self, writing: _Writing, now: int) -> None:
        writer = writing.writer
        self._tether(writing, now)
        newest = writer.positions.pub_pos
        readers, spies = {}, []
        for slot in writing.slots:
            rests = slot.state is SubscriberState.RESTING
            if not slot.is_spy and slot.guid in writer.readers:
                # One that rests is sent nothing, and waited for by nobody.
                readers[slot.guid] = newest if rests else slot.position
            elif slot.is_spy and not rests:
                spies.append(slot.position)
        if (readers, spies) == writing.told:
            writing.patience = min(2 * writing.patience, _PATIENCE_MAX_NS)
            return
        writing.told, writing.patience = (readers, spies), _PATIENCE_MIN_NS
        writer.on_log_positions(readers, spies, now=now)

    def _tether(self, writing: _Writing, now: int) -> None:
        """Apply to the slots what becomes of untethered readers."""
        writer, slots = writing.writer, {slot.guid: slot for slot in writing.slots}
        consumers = {slot.guid: Consumer(slot.position, slot.is_tethered) for slot in writing.slots}
        by_udp = any(guid not in slots for guid in writer.readers)
        sent = writer.positions.snd_pos if by_udp else 0
        for guid, state in writing.tethering.update(consumers, sent, now=now):
            slot = slots[guid]
            if state is TetherState.ACTIVE:
                slot.position = writing.log.position
            slot.state = SubscriberState(state)
            kind = "spy" if slot.is_spy else "reader"
            _log.info("the untethered %s %s of %s is %s", kind, guid, writer.guid, state.name)


def _is_alive(slot: Subscriber, now: int) -> bool:
    if now - slot.heartbeat <= _DEAD_NS:
        return True
    _log.info("the reader %s of a publication log is dead", slot.guid)
    slot.leave()
    return False
