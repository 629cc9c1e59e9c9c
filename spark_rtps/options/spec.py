"""The definition of an option, and how its values are written."""

from __future__ import annotations

import enum
from typing import Final

from ..transport.structure import INFINITE, NANOSECONDS
from ..transport.value_classes import value


class OptionKind(enum.Enum):
    """The kind of an option's value; the enum's text is shown in the documents."""

    TEXT = "text"
    OCTETS = "text, or `0x` and hexadecimal digits"
    INTEGER = "integer"
    COUNT = "integer or `unlimited`"
    BOOLEAN = "`true`, `false`"
    DURATION = "duration"
    SIZE = "size"
    SIZE_LIMIT = "size or `unlimited`"
    WORD = "one of"
    PLUGIN = "one of, or `module:class`"
    LIST = "comma-separated list"
    OFFSETS = "one of, or a position for each receiver service as JSON"


class AppliesTo(enum.Enum):
    READ = "read"
    WRITE = "write"
    BOTH = "read, write"


@value
class OptionSpec:
    """One option. ``default`` is None if there is none, or if ``doc`` describes what it depends on."""

    name: str
    kind: OptionKind
    default: str | None
    doc: str
    applies_to: AppliesTo = AppliesTo.BOTH
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    #: For a list: whether a name may be empty, and whether commas between single quotes do not separate names.
    may_be_empty: bool = False
    is_quoted: bool = False

    @property
    def takes_auto(self) -> bool:
        """Whether ``auto`` is a value too; it is parsed as None."""
        return self.default == "auto" and self.kind is not OptionKind.WORD

    def values(self) -> str:
        """The values as the table shows them."""
        if self.choices:
            more = {OptionKind.PLUGIN: ("module:class",), OptionKind.OFFSETS: ('{"NAME": POSITION}',)}
            return ", ".join(f"`{choice}`" for choice in self.choices + more.get(self.kind, ()))
        return f"{self.kind.value} or `auto`" if self.takes_auto else self.kind.value

    def show(self, value: int) -> str:
        """A number in the notation of this option."""
        return duration_text(value) if self.kind is OptionKind.DURATION else str(value)


YEAR: Final = 365 * 86_400 * NANOSECONDS

_UNITS: Final = (
    ("d", 86_400 * NANOSECONDS),
    ("s", NANOSECONDS),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
)
_SIZES: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1))


def duration_text(ns: int) -> str:
    """Nanoseconds as a user writes them: ``200ms``, ``infinite``."""
    if ns >= INFINITE:
        return "infinite"
    if ns == 0:
        return "0s"
    return next(f"{ns // unit}{name}" for name, unit in _UNITS if ns % unit == 0)


def size_text(nbytes: int) -> str:
    """Bytes as a user writes them: ``64KiB``, ``unlimited``."""
    if nbytes == INFINITE:
        return "unlimited"
    return next(f"{nbytes // unit}{name}" for name, unit in _SIZES if nbytes % unit == 0)


def value_text(kind: OptionKind, value: object) -> str:
    """A policy's default as the text of an option."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, int):
        if kind is OptionKind.DURATION:
            return duration_text(value)
        if kind in (OptionKind.SIZE, OptionKind.SIZE_LIMIT):
            return size_text(value)
        return "unlimited" if value == INFINITE else str(value)
    return str(value)
