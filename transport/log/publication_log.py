"""The publication log: what a writer has written, in three terms of one mapping (Aeron's log buffer).

Whoever writes claims a place at the tail, fills it and commits. Terms rotate: while one is written, what lies
up to a term behind the sender can still be sent again, and what is older is zeroed, for the next rotation.
The same frames serve the network, repairs, readers on this host that map the file, and spies.

Invariants:
* positions count bytes since the log's birth; the tail never falls, and frames follow each other without a hole;
* nothing is claimed where bytes of an earlier term are not zeroed yet;
* one process claims, unblocks and cleans: the owner; its threads may claim at once;
* what was unblocked can no longer be committed: its bytes may be another frame's.
"""

from __future__ import annotations

import contextlib
import enum
import mmap
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from ..errors import LogError, UsageError
from ..protocol.writing.positions import PublicationPositions
from ..structure import Guid
from ..wire.samples import U8
from .frame import align
from .mapped_file import create_mapped, map_file
from .publication_metadata import (
    ACTIVE_TERM_COUNT,
    CLEAN_POS,
    CLEANING_POS,
    TAIL_OFFSET_MASK,
    TAILS,
    Metadata,
    Subscriber,
    check_metadata,
    check_term_length,
    encode_about,
    format_metadata,
    metadata_bytes,
)
from .segment import JSON, PAGE
from .term_frames import HEADER_BYTES, PAD, TERMS, Frame, Terms, term_id_at

#: A message is at most an eighth of a term, and this.
MESSAGE_LENGTH_MAX: Final = 16 << 20
#: What one call of :meth:`PublicationLog.clean` zeroes at most, to keep a duty cycle short.
CLEAN_BYTES: Final = 256 << 10


class PublicationResult(enum.IntEnum):
    """What an offer or a claim answers instead of a position (Aeron's codes)."""

    NOT_CONNECTED = -1
    BACK_PRESSURED = -2
    ADMIN_ACTION = -3
    CLOSED = -4
    MAX_POSITION_EXCEEDED = -5


BACK_PRESSURED: Final = PublicationResult.BACK_PRESSURED
ADMIN_ACTION: Final = PublicationResult.ADMIN_ACTION
CLOSED: Final = PublicationResult.CLOSED
MAX_POSITION_EXCEEDED: Final = PublicationResult.MAX_POSITION_EXCEEDED


class Claim:
    """A place in the log: fill ``data``, then commit or abort."""

    __slots__ = ("_at", "_length", "_log", "data", "end", "start")

    def __init__(self, log: PublicationLog, start: int, end: int, at: int, length: int, data: U8) -> None:
        self._log = log
        self._at = at
        self._length = length
        self.start = start
        self.end = end
        self.data = data

    def commit(self) -> bool:
        """Make it a frame. False: it took too long, and was unblocked."""
        log = self._log
        with log.lock:
            if self.start < log.unblocked_to:
                return False
            log.lengths[self._at >> 2] = self._length
            return True

    def abort(self) -> None:
        """Nothing is to be sent: it becomes a PAD."""
        log = self._log
        with log.lock:
            if self.start >= log.unblocked_to:
                log.terms.make_pad(self._at, self._length)


class PublicationLog:
    """A mapped publication log; see :meth:`create` and :meth:`open`."""

    def __init__(self, mapping: mmap.mmap, path: Path | None) -> None:
        """Use :meth:`create` or :meth:`open`."""
        self.path = path
        self.metadata = metadata = Metadata(memoryview(mapping), path)
        self.term_length: Final = metadata.term_length
        self.initial_term_id: Final = metadata.initial_term_id
        self.token: Final = metadata.token
        self.about: Final = metadata.about
        self.max_message_length: Final = min(self.term_length // 8, MESSAGE_LENGTH_MAX)
        self.max_position: Final = self.term_length << 31
        #: All terms; the byte of position p is ``data[p % data.size]``. It keeps the mapping alive.
        self.data: U8 = np.frombuffer(mapping, np.uint8, offset=metadata.terms_at)
        self.terms = Terms(self.data, self.term_length, self.initial_term_id)
        self.lengths = self.terms.lengths
        self.lock = threading.Lock()
        #: Claims that begin before this are no longer their owner's.
        self.unblocked_to = 0
        self._words = metadata.words
        self._closed = False
        #: Up to here there are zeros to claim; only :meth:`clean` moves it.
        self._cleaned_to = self.clean_position + self.terms.span
        self._enter_term()

    @classmethod
    def create(
        cls,
        term_length: int,
        *,
        path: Path | None = None,
        about: Mapping[str, JSON] | None = None,
        initial_term_id: int | None = None,
        token: int | None = None,
    ) -> PublicationLog:
        """A new one of zeros: in anonymous memory that is used up page by page, or in a file, allocated whole.

        ``about`` is for whoever opens the file. Raises UsageError for a term length that cannot be, LogFullError
        where there is no room, LogError where the file cannot be made.
        """
        check_term_length(term_length)
        text = encode_about(about or {})
        size = metadata_bytes(text) + TERMS * term_length
        if path is None:
            mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            # One huge page for each of a thousand quiet writers would be 2 GiB.
            with contextlib.suppress(OSError):
                mapping.madvise(mmap.MADV_NOHUGEPAGE)
            return cls._begin(mapping, None, term_length, text, initial_term_id, token)
        return create_mapped(
            path,
            size,
            lambda mapping: cls._begin(mapping, path, term_length, text, initial_term_id, token),
            what=f"the publication log {path}",
            mode=0o600,  # other users must not read what is written, nor a reader's slots be theirs to change
        )

    @classmethod
    def _begin(
        cls,
        mapping: mmap.mmap,
        path: Path | None,
        term_length: int,
        about: bytes,
        initial_term_id: int | None,
        token: int | None,
    ) -> PublicationLog:
        format_metadata(memoryview(mapping), term_length, about, initial_term_id, token)
        log = cls(mapping, path)
        log.metadata.own()
        return log

    @classmethod
    def open(cls, path: Path) -> PublicationLog:
        """Map one that is there; LogError if there is none, or none that is whole."""
        otherwise = f"{path} is not a publication log"
        mapping = map_file(path, PAGE, what=f"the publication log {path}", otherwise=otherwise)
        check_metadata(memoryview(mapping), path)
        return cls(mapping, path)

    def adopt(self) -> None:
        """Go on as the owner of a log whose owner has died. What it had claimed is for :meth:`unblock`."""
        if self.metadata.owner_lives and self.metadata.owner != os.getpid():
            raise LogError(f"process {self.metadata.owner} writes {self.path}: stop it first")
        with self.lock:
            self.unblocked_to = self.position
            self.metadata.own()

    def close(self) -> None:
        """Claims answer CLOSED from now on. The mapping goes with the last view of it, the file stays."""
        self._closed = True

    @property
    def name(self) -> str:
        """Where others on this host find it; empty: nowhere."""
        return "" if self.path is None else str(self.path)

    # --- writing ---------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The tail: all before is claimed."""
        tail: int = self._words[TAILS + self._words[ACTIVE_TERM_COUNT] % TERMS]
        # Of the tail alone: in another process's log the term may change between two loads.
        term_count = ((tail >> 32) - self.initial_term_id) % (1 << 32)
        return term_count * self.term_length + (tail & TAIL_OFFSET_MASK)

    def claim(
        self, length: int, *, limit: int, first_sn: int = 0, count: int = 0, segment: int = 0
    ) -> Claim | PublicationResult:
        """A place for a body of ``length`` bytes, which ends at ``limit`` at the latest.

        ``segment``: it will be messages of so many bytes each, the last maybe fewer; 0: it is one.

        ADMIN_ACTION: the term was full and the next one begun, call again. BACK_PRESSURED also where the log is not
        cleaned yet. UsageError for more than ``max_message_length``.
        """
        if not 0 <= length <= self.max_message_length:
            raise UsageError(
                f"a message of {length} bytes does not fit: with terms of {self.term_length} bytes the longest has "
                f"{self.max_message_length}"
            )
        if self._closed:
            return CLOSED
        frame_length = HEADER_BYTES + length
        room = align(frame_length)
        words = self._words
        with self.lock:
            tail = words[self._tail]
            offset = tail & TAIL_OFFSET_MASK
            start = self._term_start + offset
            end = start + room
            if offset + room > self.term_length:
                return self._rotate(offset, limit)
            if end > limit or end > self._cleaned_to:
                return BACK_PRESSURED
            words[self._tail] = tail + room
            at = self._term_at + offset
            self.terms.claim(at, frame_length, offset, self._term_id, first_sn, count, segment)
        return Claim(self, start, end, at, frame_length, self.data[at + HEADER_BYTES : at + frame_length])

    def _rotate(self, offset: int, limit: int) -> PublicationResult:
        """Pad the term, unless it is full to the byte, and begin the next one."""
        term_end = self._term_start + self.term_length
        if term_end >= self.max_position:
            return MAX_POSITION_EXCEEDED
        if term_end > limit or term_end > self._cleaned_to:
            return BACK_PRESSURED
        words = self._words
        if offset < self.term_length:
            words[self._tail] += self.term_length - offset
            self.terms.pad(term_end - self.term_length + offset, self.term_length - offset)
        term_count = words[ACTIVE_TERM_COUNT] + 1
        words[TAILS + term_count % TERMS] = term_id_at(self.initial_term_id, term_count) << 32
        words[ACTIVE_TERM_COUNT] = term_count
        self._enter_term()
        return ADMIN_ACTION

    def _enter_term(self) -> None:
        """Know the active term by heart: it is asked for with every claim."""
        term_count: int = self._words[ACTIVE_TERM_COUNT]
        self._tail = TAILS + term_count % TERMS
        self._term_id = term_id_at(self.initial_term_id, term_count)
        self._term_start = term_count * self.term_length
        self._term_at = term_count % TERMS * self.term_length

    # --- reading ---------------------------------------------------------------------------------

    def frame(self, position: int) -> Frame | None:
        """The frame that begins at ``position``, if it is committed and still there."""
        return self.terms.read(position)

    def scan(self, position: int, limit: int, max_bytes: int) -> tuple[list[Frame], int]:
        """The DATA frames from ``position`` on that follow each other, and where the next one begins.

        It stops where nothing is committed, at the term's end, and before the first frame that would end beyond
        ``limit`` or exceed ``max_bytes`` together with those before; one alone may exceed them. PADs are passed,
        for they go nowhere.
        """
        frames: list[Frame] = []
        read = self.terms.read
        stop = (position // self.term_length + 1) * self.term_length
        full = position + max_bytes
        while position < stop:
            frame = read(position)
            if frame is None:
                break
            if frame.type != PAD:
                if frame.end > limit or (frames and frame.end > full):
                    break
                frames.append(frame)
            position = frame.end
        return frames, position

    # --- the conductor's -------------------------------------------------------------------------

    @property
    def clean_position(self) -> int:
        """All before is zeroed."""
        position: int = self._words[CLEAN_POS]
        return position

    @property
    def cleaning_position(self) -> int:
        """Of what is before, some may be zeroed, or already be of a later term."""
        position: int = self._words[CLEANING_POS]
        return position

    def clean(self, to: int) -> int:
        """Zero the terms up to position ``to``, ``CLEAN_BYTES`` at most; returns up to where it came."""
        start = self.clean_position
        at = start % self.terms.span
        count = min(min(to, self.position) - start, CLEAN_BYTES, self.terms.span - at)
        if count <= 0:
            return start
        # Who copies frames looks at this word afterwards (log.image); the other one comes after the zeros.
        self._words[CLEANING_POS] = start + count
        self.data[at : at + count] = 0
        self._words[CLEAN_POS] = start + count
        self._cleaned_to = start + count + self.terms.span
        return start + count

    def unblock(self, position: int) -> bool:
        """Make what is not committed at ``position`` a PAD, if anything was claimed there."""
        with self.lock:
            tail = self.position
            length = self.terms.length_at(position) if position < tail else 1
            if length > 0:
                return False
            # 0: its claimer died between the tail and the header.
            length = -length or self.terms.gap(position, tail) - position
            self.unblocked_to = max(self.unblocked_to, position + align(length))
            self.terms.pad(position, length)
            self.metadata.count_unblocked()
            return True

    def record(self, positions: PublicationPositions) -> None:
        """Let everybody who maps the log see the positions."""
        self.metadata.record(positions)

    # --- readers on this host --------------------------------------------------------------------

    def subscribe(
        self, guid: Guid, *, position: int, now: int, spy: bool = False, tether: bool = True
    ) -> Subscriber | None:
        """Become a subscriber of the log; None: it has as many as it takes."""
        return self.metadata.subscribe(guid, position=position, now=now, spy=spy, tether=tether)

    def subscribers(self) -> list[Subscriber]:
        return self.metadata.subscribers()
