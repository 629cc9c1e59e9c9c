"""Scans a publication log frame by frame, for tools that inspect the log of a live or a dead writer.

Nothing is changed. The writer may continue meanwhile, so a frame is trusted only if its position was not cleaned before
it was read.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import LogError
from .frame import align
from .publication_log import PublicationLog
from .publication_log_metadata import TAIL_OFFSET_MASK, TAILS
from .term_frames import DATA, PAD, TERMS, frame_header


class FrameKind(enum.Enum):
    """The kind of bytes in the log."""

    #: Whole messages, ready to be sent.
    DATA = "data"
    #: No samples: the end of a term, or a claim that was never filled.
    PAD = "pad"
    #: A claim that is being filled.
    CLAIM = "claim"


class PlacedFrame(NamedTuple):
    """One frame. ``segment``: bytes of each of its messages; 0: it is one message."""

    position: int
    length: int
    kind: FrameKind
    term_id: int
    first_sn: int
    samples: int
    segment: int


class TermState(NamedTuple):
    """One of the three terms: the id and the offset in its tail counter, and the positions of its frames."""

    number: int
    term_id: int
    tail: int
    start: int
    stop: int
    is_active: bool


def terms_of(log: PublicationLog) -> list[TermState]:
    """The terms in the order of their numbers, with the current tail counters."""
    length, first = log.term_length, log.clean_position
    active, offset = log.tail
    position = active * length + offset
    found = []
    for number in range(TERMS):
        tail: int = log.metadata.words[TAILS + number]
        count = active - (active - number) % TERMS
        start = max(count * length, 0)
        stop = min(start + length, position) if count >= 0 else start
        found.append(
            TermState(
                number,
                tail >> 32,
                tail & TAIL_OFFSET_MASK,
                min(max(start, first), stop),
                stop,
                count == active,
            )
        )
    return found


def first_frame(log: PublicationLog) -> int:
    """The position of the oldest frame whose begin is known: cleaning may end inside a frame."""
    cleaned = log.cleaning_position
    return min(cleaned + -cleaned % log.term_length, log.position)


def frames_of(
    log: PublicationLog, start: int | None = None, stop: int | None = None
) -> Iterator[PlacedFrame]:
    """The frames from ``start``, which is the begin of a frame, up to ``stop`` or the tail.

    Raises LogError if the log is damaged. It ends early if the writer overtakes it.
    """
    position = first_frame(log) if start is None else start
    end = log.position if stop is None else min(stop, log.position)
    while position < end:
        length, kind, offset, term_id, first_sn, samples, segment = frame_header(log.terms, position)
        if log.cleaning_position > position or not length:
            return
        size = align(abs(length))
        is_frame = offset == position % log.term_length and term_id == log.terms.term_id(position)
        # The length of a claim is stored first; its writer may be just about to store the rest of the header.
        is_sound = length < 0 or (kind in (DATA, PAD) and is_frame)
        if not is_sound or position % log.term_length + size > log.term_length:
            raise LogError(f"the publication log {log.path} is damaged at position {position}", path=log.path)
        shown = FrameKind.CLAIM if length < 0 else FrameKind.DATA if kind == DATA else FrameKind.PAD
        yield PlacedFrame(position, abs(length), shown, term_id, first_sn, samples, segment)
        position += size
