"""The publication log: the frames that a writer has published, in three terms of one mapping (Aeron's log buffer).

A frame is written in three steps: claim its bytes at the tail, fill them, commit. Terms rotate: while one is written,
everything up to a term behind the sender can still be sent again, and everything older is zeroed for the next rotation.
The same frames serve the network, repairs, readers on this host that map the file, and spies.

Invariants:
* positions count bytes since the log's birth; the tail never falls, and frames follow each other without a gap;
* nothing is claimed where bytes of an earlier term are not zeroed yet;
* one process claims, unblocks and cleans: the owner; its threads may claim at once;
* a claim becomes a frame at most once: an aborted claim can no longer be committed, nor a committed one aborted.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from ..errors import UsageError
from ..protocol.writing.publication import FRAME_HEADER_BYTES, PublicationPositions, PublicationResult
from ..structure import Guid
from ..wire.samples import U8
from .frame import align
from .mapped_file import create_mapped, map_file, unfinished
from .owner_lock import OwnerLock
from .publication_log_metadata import (
    ACTIVE_TERM_COUNT,
    CLEAN_POS,
    CLEANING_POS,
    TAIL_OFFSET_MASK,
    TAILS,
    PublicationLogMetadata,
    check_metadata,
    check_term_length,
    encode_about,
    format_metadata,
    metadata_bytes,
)
from .segment import JSON, PAGE
from .subscriber_slots import SubscriberSlot
from .term_frames import TERMS, Terms, term_id_at

#: The longest message takes an eighth of a term, and at most this.
MESSAGE_LENGTH_MAX: Final = 16 << 20
#: One call of :meth:`PublicationLog.clean` zeroes no more than this, to keep a duty cycle short.
CLEAN_BYTES: Final = 256 << 10
#: Bytes at the beginning of a log in memory that have small pages.
_SMALL_PAGES_BYTES: Final = 2 << 20


BACK_PRESSURED: Final = PublicationResult.BACK_PRESSURED
ADMIN_ACTION: Final = PublicationResult.ADMIN_ACTION
CLOSED: Final = PublicationResult.CLOSED
MAX_POSITION_EXCEEDED: Final = PublicationResult.MAX_POSITION_EXCEEDED


class FrameClaim:
    """Claimed bytes in the log: fill ``data``, then commit or abort."""

    __slots__ = ("_at", "_is_open", "_length", "_log", "data", "end", "start")

    def __init__(self, log: PublicationLog, start: int, end: int, at: int, length: int, data: U8) -> None:
        self._log = log
        self._at = at
        self._length = length
        self._is_open = True
        self.start = start
        self.end = end
        self.data = data

    def commit(self) -> bool:
        """Make it a frame. False: it was aborted before, and its bytes may belong to another frame by now."""
        log = self._log
        with log.lock:
            if not self._is_open:
                return False
            log.lengths[self._at >> 2] = self._length
            self._is_open = False
            return True

    @property
    def is_committed(self) -> bool:
        """Whether it is a frame with samples, also if an exception has stopped :meth:`commit` after its store.

        Call this before its bytes can be cleaned."""
        log = self._log
        return log.lengths[self._at >> 2] > 0 and not log.terms.is_pad(self._at)

    def abort(self) -> None:
        """Make it a PAD, unless it is a frame already."""
        log = self._log
        with log.lock:
            if not self._is_open:
                return
            if log.lengths[self._at >> 2] < 0:
                log.terms.make_pad(self._at, self._length)
            self._is_open = False


class PublicationLog:
    """A mapped publication log; see :meth:`create` and :meth:`open`."""

    def __init__(self, mapping: mmap.mmap, path: Path | None) -> None:
        """Use :meth:`create` or :meth:`open`."""
        self.path = path
        #: Whether cleaning zeroes the bytes.
        self._zeroes = True
        self.metadata = metadata = PublicationLogMetadata(memoryview(mapping), path)
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
        self._words = metadata.words
        self._closed = False
        self._owner_lock: OwnerLock | None = None
        #: Everything before this position is zeroed or in use; only :meth:`clean` moves it.
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
        zeroes: bool = True,
    ) -> PublicationLog:
        """A new log of zeros: in anonymous memory that is allocated page by page, or in a file, allocated whole.

        ``about`` is for the processes that open the file. Without ``zeroes``, for a log in memory that is never
        scanned, reused terms keep their old bytes. Raises UsageError for an invalid term length, LogFullError for a
        full disk or memory, LogError if the file cannot be made.
        """
        check_term_length(term_length)
        text = encode_about(about or {})
        size = metadata_bytes(text) + TERMS * term_length
        if path is None:
            mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            # One huge page for each of a thousand quiet writers would be 2 GiB. Writers that send more get huge pages:
            # with small ones the copy into the log takes half as long again.
            with contextlib.suppress(OSError):
                mapping.madvise(mmap.MADV_NOHUGEPAGE, 0, min(size, _SMALL_PAGES_BYTES))
                if size > _SMALL_PAGES_BYTES:
                    mapping.madvise(mmap.MADV_HUGEPAGE, _SMALL_PAGES_BYTES)
            log = cls._begin(mapping, None, term_length, text, initial_term_id, token)
            log._zeroes = zeroes
            return log
        return create_mapped(
            path,
            size,
            lambda mapping: cls._begin(mapping, path, term_length, text, initial_term_id, token),
            what=f"the publication log {path}",
            mode=0o600,  # other users must neither read the samples nor change a reader's slot
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
        if path is not None:
            log._owner_lock = OwnerLock.hold(unfinished(path))
        log.metadata.own(locks=log._owner_lock is not None)
        return log

    @classmethod
    def open(cls, path: Path) -> PublicationLog:
        """Map the log of another process; LogError if there is none, or it is not complete."""
        otherwise = f"{path} is not a publication log"
        mapping = map_file(path, PAGE, what=f"the publication log {path}", otherwise=otherwise)
        check_metadata(memoryview(mapping), path)
        return cls(mapping, path)

    def close(self) -> None:
        """Claims return CLOSED from now on. The mapping is freed with its last view, the file stays without an
        owner."""
        self._closed = True
        if self._owner_lock is not None:
            self._owner_lock.release()

    # --- writing ---------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The tail: everything before it is claimed."""
        term_count, offset = self.tail
        return term_count * self.term_length + offset

    @property
    def tail(self) -> tuple[int, int]:
        """The number of terms before the active one, and the offset in it up to which everything is claimed."""
        tail: int = self._words[TAILS + self._words[ACTIVE_TERM_COUNT] % TERMS]
        # From the tail alone: in another process's log the term may change between two loads.
        return ((tail >> 32) - self.initial_term_id) % (1 << 32), tail & TAIL_OFFSET_MASK

    def claim(
        self, length: int, *, limit: int, first_sn: int = 0, count: int = 0, segment: int = 0
    ) -> FrameClaim | PublicationResult:
        """Claim a body of ``length`` bytes that ends at ``limit`` at the latest.

        ``segment``: the body will hold messages of this many bytes each, the last one perhaps shorter; 0: one message.

        ADMIN_ACTION: the term was full and the next one has begun, call again. BACK_PRESSURED is also returned if the
        log is not cleaned yet. Raises UsageError for more than ``max_message_length``.
        """
        if not 0 <= length <= self.max_message_length:
            raise UsageError(
                f"a message of {length} bytes does not fit: with terms of {self.term_length} bytes the longest message "
                f"has {self.max_message_length}"
            )
        if self._closed:
            return CLOSED
        frame_length = FRAME_HEADER_BYTES + length
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
        return FrameClaim(
            self, start, end, at, frame_length, self.data[at + FRAME_HEADER_BYTES : at + frame_length]
        )

    def unblock(self, start: int, stop: int) -> int:
        """Turn the claims between two positions that were never committed into PADs; returns their number.

        ``start`` and ``stop`` are the begins of claims. No thread may hold a claim between them any more: its thread
        was stopped by an exception, or its process is dead.
        """
        unblocked = 0
        with self.lock:
            while start < stop:
                length = self.terms.length_at(start)
                if length <= 0:
                    # 0: the claimer was stopped between the stores of the tail and of the header.
                    gap = self.terms.gap(start, stop) if self._zeroes else stop
                    length = min(-length or gap - start, stop - start)
                    self.terms.pad(start, length)
                    unblocked += 1
                start += align(length)
        return unblocked

    def _rotate(self, offset: int, limit: int) -> PublicationResult:
        """Pad the term, unless it is full to the byte, and begin the next one.

        If an exception stops a thread in the middle of this, the next call finishes it.
        """
        term_end = self._term_start + self.term_length
        if term_end >= self.max_position:
            return MAX_POSITION_EXCEEDED
        if term_end > limit or term_end > self._cleaned_to:
            return BACK_PRESSURED
        words = self._words
        if offset < self.term_length:
            words[self._tail] += self.term_length - offset
            self.terms.pad(term_end - self.term_length + offset, self.term_length - offset)
        term_count = term_end // self.term_length
        words[TAILS + term_count % TERMS] = term_id_at(self.initial_term_id, term_count) << 32
        words[ACTIVE_TERM_COUNT] = term_count
        self._enter_term()
        return ADMIN_ACTION

    def _enter_term(self) -> None:
        """Cache the active term: every claim needs it."""
        term_count: int = self._words[ACTIVE_TERM_COUNT]
        tail, term_id = TAILS + term_count % TERMS, term_id_at(self.initial_term_id, term_count)
        start, at = term_count * self.term_length, term_count % TERMS * self.term_length
        self._tail, self._term_id, self._term_start, self._term_at = tail, term_id, start, at

    # --- the conductor's -------------------------------------------------------------------------

    @property
    def clean_position(self) -> int:
        """Everything before this position is zeroed."""
        position: int = self._words[CLEAN_POS]
        return position

    @property
    def cleaning_position(self) -> int:
        """Bytes before this position may be zeroed, or belong to a later term."""
        position: int = self._words[CLEANING_POS]
        return position

    def clean(self, to: int) -> int:
        """Zero the terms up to position ``to``, at most ``CLEAN_BYTES`` of non-zero bytes; returns the position
        reached."""
        start = self.clean_position
        at = start % self.terms.span
        count = min(min(to, self.position) - start, self.terms.span - at)
        if self._zeroes:
            count = min(count, CLEAN_BYTES)
        if count <= 0:
            return start
        # A process that copies frames looks at this word afterwards (log.image); the other one comes after the zeros.
        self._words[CLEANING_POS] = start + count
        if self._zeroes:
            self.data[at : at + count] = 0
        self._words[CLEAN_POS] = start + count
        self._cleaned_to = start + count + self.terms.span
        return start + count

    def record(
        self, positions: PublicationPositions, *, snd_pos: int | None = None, unblocked: int = 0
    ) -> None:
        """Show the positions, and the number of unblocked claims, to every process that maps the log; the arguments are
        those of :meth:`PublicationLogMetadata.record`."""
        self.metadata.record(positions, snd_pos=snd_pos, unblocked=unblocked)

    # --- readers on this host --------------------------------------------------------------------

    def subscribe(
        self, guid: Guid, *, position: int, now: int, spy: bool = False, tether: bool = True
    ) -> SubscriberSlot | None:
        """Become a subscriber of the log; None: all slots are taken."""
        return self.metadata.slots.subscribe(guid, position=position, now=now, spy=spy, tether=tether)

    def subscribers(self) -> list[SubscriberSlot]:
        """All subscribers, whatever their state."""
        return self.metadata.slots.taken()
