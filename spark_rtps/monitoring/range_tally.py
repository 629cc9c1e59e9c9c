"""A task's counts of one range of a log: the samples that gave no rows, by their numbers, and the losses.

They are added to the log's report where the log is. A task on another host sends them there as JSON, in which numbers
of samples are one bit for each sample from the first to the last one, compressed.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from dataclasses import field, replace
from typing import Final

import numpy as np

from ..transport.limits import MALFORMED_REASON_MAX, MALFORMED_REASONS_MAX
from ..transport.value_classes import value
from ..transport.wire.samples import I64
from .decoding_report import DecodingReport, LostPart, MalformedSamples
from .untrusted_json import parse_number, parse_optional

_VERSION: Final = 1
_WRITER_MAX: Final = 80
_CAUSE_MAX: Final = 80
_NUMBER_MAX: Final = 1 << 62
#: More samples than a range of the longest partition has; the limit of all numbers of a tally.
_SAMPLES_MAX: Final = 1 << 26
#: Of all its numbers together: a few kilobytes may unpack to very many.
_BITS_MAX: Final = 8 * _SAMPLES_MAX
_LOST_MAX: Final = 4096
NONE: Final[I64] = np.empty(0, np.int64)


@value
class MalformedNumbers:
    """Samples of one writer that are malformed for one reason: their numbers; times as in :class:`MalformedSamples`."""

    writer: str
    reason: str
    numbers: I64
    first_ns: int
    last_ns: int


@value
class RangeTally:
    """Numbers ascend and are distinct; the number of a sample is how many lie before it in the log."""

    malformed: tuple[MalformedNumbers, ...] = ()
    #: Malformed samples of further writers and reasons.
    overflow: I64 = field(default_factory=lambda: NONE)
    filtered: I64 = field(default_factory=lambda: NONE)
    #: The samples first..last were decoded; None: none were.
    seen: tuple[int, int] | None = None
    #: The sample that ended the task; -1: none did.
    failed: int = -1
    lost: tuple[LostPart, ...] = ()

    def add_to(self, report: DecodingReport) -> None:
        """Add the samples that were not counted before."""
        for part in self.lost:
            report.lose(part)
        if self.seen is None:
            return
        for each in self.malformed:
            if count := self._uncounted(report, each.numbers):
                report.add_malformed(
                    MalformedSamples(each.writer, each.reason, count, each.first_ns, each.last_ns)
                )
        report.overflow += self._uncounted(report, self.overflow)
        report.filtered += self._uncounted(report, self.filtered)
        report.see(*self.seen)
        if self.failed >= 0:
            report.see(self.failed, self.failed)

    def _uncounted(self, report: DecodingReport, numbers: I64) -> int:
        assert self.seen is not None
        return report.uncounted(numbers[(numbers <= self.seen[1]) | (numbers == self.failed)])

    def split(self, most: int) -> Iterator[bytes]:
        """The tally as JSON, in parts for :meth:`from_json` of at most ``most`` bytes each as far as possible."""
        yield from replace(self, lost=())._halves(most)
        for i in range(0, len(self.lost), _LOST_MAX):
            yield RangeTally(lost=self.lost[i : i + _LOST_MAX]).to_json()

    def _halves(self, most: int) -> Iterator[bytes]:
        if self.seen is None:
            return
        first, last = self.seen
        raw = self.to_json() if self._is_little or first >= last else b""
        if raw and (len(raw) <= most or first >= last):
            yield raw
            return
        middle = (first + last) // 2
        yield from self._of(first, middle, -1)._halves(most)
        yield from self._of(middle + 1, last, self.failed)._halves(most)

    def _of(self, first: int, last: int, failed: int) -> RangeTally:
        """The counts of the samples first..last, and of the one that ended the task."""

        def some(numbers: I64) -> I64:
            kept: I64 = numbers[(numbers >= first) & (numbers <= last) | (numbers == failed)]
            return kept

        parts = (replace(each, numbers=some(each.numbers)) for each in self.malformed)
        malformed = tuple(each for each in parts if len(each.numbers))
        return RangeTally(malformed, some(self.overflow), some(self.filtered), (first, last), failed)

    @property
    def _is_little(self) -> bool:
        """Whether all its numbers together take no more bits than the numbers of one reason may."""
        every = (*(each.numbers for each in self.malformed), self.overflow, self.filtered)
        return sum(int(each[-1] - each[0]) + 1 for each in every if len(each)) <= _SAMPLES_MAX

    def to_json(self) -> bytes:
        """The tally as JSON, of at most a bit for each sample of the range and reason."""
        return json.dumps(
            {
                "v": _VERSION,
                "malformed": [
                    [m.writer, m.reason, _packed(m.numbers), m.first_ns, m.last_ns] for m in self.malformed
                ],
                "overflow": _packed(self.overflow),
                "filtered": _packed(self.filtered),
                "seen": self.seen,
                "failed": self.failed,
                "lost": [[p.cause, p.position, p.at_ns, p.nbytes, p.samples, p.writer] for p in self.lost],
            }
        ).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> RangeTally:
        """Raises ValueError if the form is wrong, or the numbers are too many."""
        try:
            found = json.loads(raw)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        match found:
            case {
                "v": 1,
                "malformed": list(malformed),
                "overflow": overflow,
                "filtered": filtered,
                "seen": seen,
                "failed": failed,
                "lost": list(lost),
            }:
                pass
            case _:
                raise ValueError("it is not of version 1")
        if len(malformed) > MALFORMED_REASONS_MAX or len(lost) > _LOST_MAX:
            raise ValueError("it has too many entries")
        numbers = _Unpacking()
        return cls(
            tuple(_malformed(entry, numbers) for entry in malformed),
            numbers.unpack(overflow),
            numbers.unpack(filtered),
            _seen(seen),
            _number(failed, least=-1),
            tuple(map(_lost, lost)),
        )


def distinct(some: list[I64]) -> I64:
    """The numbers of all parts, sorted, each once."""
    return np.unique(np.concatenate(some)) if some else NONE


def _packed(numbers: I64) -> list[object]:
    """The first number, and a bit for each from there on."""
    if not len(numbers):
        return [0, ""]
    first = int(numbers[0])
    bits = np.zeros(int(numbers[-1]) - first + 1, np.bool_)
    bits[numbers - first] = True
    return [first, base64.b64encode(zlib.compress(np.packbits(bits).tobytes(), 1)).decode()]


class _Unpacking:
    """Unpacks the numbers of one tally, within the bounds of all of them together."""

    def __init__(self) -> None:
        self._bits_left = _BITS_MAX
        self._numbers_left = _SAMPLES_MAX

    def unpack(self, packed: object) -> I64:
        """Raises ValueError if the form is wrong, or the numbers are too many."""
        match packed:
            case [first, str(text)]:
                start = _number(first)
            case _:
                raise ValueError("numbers have the wrong form")
        if not text:
            return NONE
        bits = np.unpackbits(np.frombuffer(self._decompressed(text), np.uint8))
        self._bits_left -= len(bits)
        self._numbers_left -= int(np.count_nonzero(bits))
        if self._numbers_left < 0:
            raise ValueError("numbers of too many samples")
        numbers: I64 = np.flatnonzero(bits).astype(np.int64, copy=False)
        numbers += start
        return numbers

    def _decompressed(self, text: str) -> bytes:
        most = min(_SAMPLES_MAX, self._bits_left) // 8
        decompress = zlib.decompressobj()
        try:
            raw = decompress.decompress(base64.b64decode(text, validate=True), most + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if len(raw) > most or not decompress.eof:
            raise ValueError("numbers of too many samples, or cut off")
        return raw


def _malformed(entry: object, numbers: _Unpacking) -> MalformedNumbers:
    match entry:
        case [str(writer), str(reason), packed, first_ns, last_ns]:
            writer = _text(writer, _WRITER_MAX)
            reason = _text(reason, MALFORMED_REASON_MAX)
            return MalformedNumbers(
                writer, reason, numbers.unpack(packed), _number(first_ns, most=1 << 63), _number(last_ns)
            )
    raise ValueError("an entry of the malformed samples has the wrong form")


def _lost(entry: object) -> LostPart:
    match entry:
        case [str(cause), position, at_ns, nbytes, samples, str(writer)]:
            count = parse_optional(samples, _number)
            return LostPart(
                _text(cause, _CAUSE_MAX),
                _number(position),
                _number(at_ns),
                _number(nbytes),
                count,
                _text(writer, _WRITER_MAX),
            )
    raise ValueError("an entry of the losses has the wrong form")


def _seen(seen: object) -> tuple[int, int] | None:
    match seen:
        case None:
            return None
        case [first, last]:
            # in a range without samples the last one lies before the first
            return _number(first), _number(last, least=-1)
    raise ValueError("the range of decoded samples has the wrong form")


def _number(value: object, *, least: int = 0, most: int = _NUMBER_MAX) -> int:
    return parse_number(value, least, most)


def _text(text: str, most: int) -> str:
    if len(text) > most:
        raise ValueError(f"a text of {len(text)} characters")
    return "".join(c if c.isprintable() else " " for c in text)
