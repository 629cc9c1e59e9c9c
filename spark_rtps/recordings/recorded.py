"""The parts of recordings in every format: topics, channels, sections, and samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from ..transport.errors import RecordingError
from ..transport.structure import GUID_UNKNOWN, Guid
from ..transport.types.model import Struct
from ..transport.value_classes import slotted, value
from ..transport.wire.samples import I64, U8

TIME_MIN: Final = 0
TIME_MAX: Final = (1 << 63) - 1


class Times(NamedTuple):
    """Log times [since, until), ns since the epoch."""

    since: int = TIME_MIN
    until: int = TIME_MAX

    def overlaps(self, first: int, last: int) -> bool:
        """Whether any of [first, last] lies within."""
        return first < self.until and last >= self.since

    @property
    def is_all(self) -> bool:
        return self == (TIME_MIN, TIME_MAX)


ALL_TIMES: Final = Times()


@value
class Channel:
    """Samples of one topic in one file, of one type and perhaps of one writer.

    ``struct`` is None if the recording does not have the type, or it was not requested; ``why`` is then the reason.
    """

    id: int
    topic: str
    type_name: str
    struct: Struct | None = None
    why: str = ""
    writer: Guid = GUID_UNKNOWN
    #: As the topic's writers announced it, where that is known, and was asked for.
    type_hash: str | None = None


@value
class FileSection:
    """A part of a file that is read at once: bytes [start, stop) of it, or rows; ``nbytes`` is its approximate size.

    ``index`` has the positions of the index of each channel's messages, if there is one.
    """

    start: int
    stop: int
    nbytes: int
    first_time: int = TIME_MIN
    last_time: int = TIME_MAX
    index: tuple[tuple[int, int], ...] = ()


@value
class Piece:
    """Sections of one file, for one task; ``form`` names the class that reads it."""

    path: str
    form: str
    channels: tuple[Channel, ...]
    sections: tuple[FileSection, ...]
    #: Of a capture.
    domain: int = 0

    @property
    def nbytes(self) -> int:
        return sum(section.nbytes for section in self.sections)


@slotted
class RecordedSamples:
    """Samples of one channel, in the order of the file: payload i is ``data[offsets[i] :][:lengths[i]]``.

    Times are in ns since the epoch. The sequence number 0 means none.
    """

    channel: Channel
    data: U8
    offsets: I64
    lengths: I64
    log_times: I64
    source_times: I64
    sequence_numbers: I64
    #: Sample flags (wire.samples); None: all samples hold data.
    flags: Any = None
    #: (count, 16); None: no sample has one.
    key_hashes: Any = None

    @property
    def count(self) -> int:
        return len(self.offsets)

    def within(self, times: Times) -> RecordedSamples:
        """The samples that were logged within these times; no copy of payloads."""
        if times.is_all:
            return self
        kept = np.flatnonzero((self.log_times >= times.since) & (self.log_times < times.until))
        return self if len(kept) == self.count else self.select(kept)

    def parts(self, rows: int, nbytes: int) -> Iterator[RecordedSamples]:
        """The samples in order, in parts of at most ``rows`` and ``nbytes``, or of one sample; no copy of payloads."""
        ends, first = np.cumsum(self.lengths), 0
        while first < self.count:
            before = int(ends[first - 1]) if first else 0
            enough = int(np.searchsorted(ends, before + nbytes, side="right"))
            last = max(first + 1, min(first + rows, enough))
            yield self if (first, last) == (0, self.count) else self.select(slice(first, last))
            first = last

    def payload(self, i: int) -> bytes:
        return self.data[self.offsets[i] :][: self.lengths[i]].tobytes()

    def select(self, which: Any) -> RecordedSamples:
        """Some of the samples, by a slice or by numbers; no copy of payloads."""
        return RecordedSamples(
            self.channel,
            self.data,
            self.offsets[which],
            self.lengths[which],
            self.log_times[which],
            self.source_times[which],
            self.sequence_numbers[which],
            None if self.flags is None else self.flags[which],
            None if self.key_hashes is None else self.key_hashes[which],
        )


class RecordingFile(Protocol):
    """One file of a recording, opened to be read."""

    #: Names the class, in a piece.
    form: str

    def topics(self) -> dict[str, str]:
        """The topics that can be read, and the names of their types."""

    def channels(self, topic: str, *, typed: bool, hashed: bool = False) -> tuple[Channel, ...]:
        """The channels of a topic, with their types if ``typed``, and the hashes of these if ``hashed``.

        Raises RecordingError for a type that cannot be read, if ``typed``, and for samples that are not CDR.
        """

    def sections(self, channels: Iterable[Channel], times: Times) -> list[FileSection]:
        """The sections that may have samples of these channels within these times, in the order of the file."""

    def read_piece(self, piece: Piece, times: Times) -> Iterator[RecordedSamples]:
        """The samples of a piece. Raises RecordingError for what is damaged."""


def needed(module: str, path: str) -> ModuleType:
    """A module that reading ``path`` needs. Raises RecordingError with the package to install."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        fix = "pip install 'spark-rtps[recordings]', on the driver and where tasks run"
        raise RecordingError(f"reading it needs the package {package}: {fix}", path=path) from None
