"""Single values in little-endian XCDR2, their layout declared by dataclasses (XTypes 1.3 §7.4.3).

XTypes describes types by structures of its own. Such a structure is a class here, decorated with its extensibility,
whose annotations are its members in order: numbers and texts as named below, ``X | None`` an optional member,
``tuple[X, ...]`` a sequence, another structure itself. :func:`encode` and :func:`decode` do the rest.

Samples are not encoded this way, but by columns (``transport.types.cdr``).
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Annotated, Any, Final, Protocol, TypeAlias, TypeVar, dataclass_transform

from ...errors import DecodeError, DropReason, TypeDefinitionError
from ...limits import TYPE_DEPTH_MAX
from ...value_classes import value
from ..cdr.member_headers import LENGTH_CODE, MEMBER_ID_MASK, MUST_UNDERSTAND, NEXTINT
from ..model import Extensibility

T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview

_U32: Final = Struct("<I")


class XcdrCursor:
    """The reading position. ``stop`` is the end of the innermost delimited structure."""

    __slots__ = ("at", "data", "depth", "stop")

    def __init__(self, data: Buffer) -> None:
        self.data = memoryview(data)
        self.at = 0
        self.stop = len(self.data)
        self.depth = 0

    def take_bytes(self, size: int, alignment: int = 1) -> memoryview:
        """The next ``size`` bytes after alignment."""
        start = self.at + (-self.at % alignment)
        if size > self.stop - start:
            raise DecodeError(DropReason.BAD_PARAMETER, f"type information ends within {size} bytes")
        self.at = start + size
        return self.data[start : self.at]

    def u32(self) -> int:
        value: int = _U32.unpack(self.take_bytes(4, 4))[0]
        return value

    def delimited(self, read: Callable[[], T]) -> T:
        """The result of ``read`` for the bytes that a DHEADER counts; unread bytes belong to a later version."""
        size = self.u32()
        if size > self.stop - self.at:
            raise DecodeError(
                DropReason.BAD_PARAMETER,
                f"a structure declares {size} bytes, and {self.stop - self.at} are left",
            )
        outer, self.stop = self.stop, self.at + size
        value = read()
        self.at, self.stop = self.stop, outer
        return value


class Layout(Protocol):
    """Writes and reads values of one kind."""

    def write_value(self, out: bytearray, value: Any) -> None: ...

    def read_value(self, cursor: XcdrCursor) -> Any: ...


def _align(out: bytearray, alignment: int) -> None:
    out.extend(bytes(-len(out) % alignment))


def _write_delimited(out: bytearray, write: Callable[[], None]) -> None:
    _align(out, 4)
    at = len(out)
    out.extend(bytes(4))
    write()
    _U32.pack_into(out, at, len(out) - at - 4)


class PrimitiveLayout:
    """A primitive; ``code`` is its format in the ``struct`` module. XCDR2 aligns to at most four bytes."""

    def __init__(self, code: str) -> None:
        self.packer = Struct(f"<{code}")
        self.alignment = min(self.packer.size, 4)

    def write_value(self, out: bytearray, value: Any) -> None:
        _align(out, self.alignment)
        out.extend(self.packer.pack(value))

    def read_value(self, cursor: XcdrCursor) -> Any:
        return self.packer.unpack(cursor.take_bytes(self.packer.size, self.alignment))[0]


class OctetsLayout:
    """An array of octets."""

    def __init__(self, size: int) -> None:
        self.size = size

    def write_value(self, out: bytearray, value: bytes) -> None:
        out.extend(value)

    def read_value(self, cursor: XcdrCursor) -> bytes:
        return bytes(cursor.take_bytes(self.size))


class TextLayout:
    """A string; ``bound`` counts its bytes."""

    def __init__(self, bound: int = 0) -> None:
        self.bound = bound

    def write_value(self, out: bytearray, value: str) -> None:
        raw = value.encode()
        if self.bound and len(raw) > self.bound:
            raise TypeDefinitionError(
                f"{value[:64]!r}... is longer than the {self.bound} bytes XTypes allows"
            )
        _align(out, 4)
        out.extend(_U32.pack(len(raw) + 1) + raw + b"\0")

    def read_value(self, cursor: XcdrCursor) -> str:
        raw = bytes(cursor.take_bytes(cursor.u32()))
        if raw[-1:] != b"\0" or (self.bound and len(raw) > self.bound + 1):
            raise DecodeError(DropReason.BAD_PARAMETER, "a string in type information")
        try:
            return raw[:-1].decode()
        except UnicodeDecodeError:
            raise DecodeError(DropReason.BAD_PARAMETER, "a string in type information") from None


class Text16Layout:
    """A wide string: a length in bytes and UTF-16 code units without terminator."""

    def write_value(self, out: bytearray, value: str) -> None:
        raw = value.encode("utf-16-le")
        _align(out, 4)
        out.extend(_U32.pack(len(raw)) + raw)

    def read_value(self, cursor: XcdrCursor) -> str:
        return bytes(cursor.take_bytes(cursor.u32())).decode("utf-16-le", "replace")


class _Nothing:
    """A branch of a union without a member."""

    def write_value(self, out: bytearray, value: None) -> None:
        pass

    def read_value(self, cursor: XcdrCursor) -> None:
        return None


class _Optional:
    def __init__(self, inner: Layout) -> None:
        self.inner = inner

    def write_value(self, out: bytearray, value: Any) -> None:
        out.append(value is not None)
        if value is not None:
            self.inner.write_value(out, value)

    def read_value(self, cursor: XcdrCursor) -> Any:
        return self.inner.read_value(cursor) if cursor.take_bytes(1)[0] else None


class _Sequence:
    """A sequence, delimited unless its elements are primitive (XTypes 1.3 §7.4.3.5 rule 12)."""

    def __init__(self, element: Layout) -> None:
        self.element = element

    def write_value(self, out: bytearray, value: tuple[Any, ...]) -> None:
        if isinstance(self.element, PrimitiveLayout):
            self.write_elements(out, value)
        else:
            _write_delimited(out, lambda: self.write_elements(out, value))

    def write_elements(self, out: bytearray, value: tuple[Any, ...]) -> None:
        _align(out, 4)
        out.extend(_U32.pack(len(value)))
        for element in value:
            self.element.write_value(out, element)

    def read_value(self, cursor: XcdrCursor) -> tuple[Any, ...]:
        if isinstance(self.element, PrimitiveLayout):
            return self.read_elements(cursor)
        return cursor.delimited(lambda: self.read_elements(cursor))

    def read_elements(self, cursor: XcdrCursor) -> tuple[Any, ...]:
        count = cursor.u32()
        if count > cursor.stop - cursor.at:  # no element is smaller than a byte
            raise DecodeError(
                DropReason.BAD_PARAMETER, f"type information declares a sequence of {count} elements"
            )
        return tuple(self.element.read_value(cursor) for _ in range(count))


class _BareSequence(_Sequence):
    """A sequence that is never delimited."""

    def write_value(self, out: bytearray, value: tuple[Any, ...]) -> None:
        self.write_elements(out, value)

    def read_value(self, cursor: XcdrCursor) -> tuple[Any, ...]:
        return self.read_elements(cursor)


class _Final:
    """A structure whose members follow one another."""

    def __init__(self, kind: Callable[..., Any], members: Mapping[str, Layout]) -> None:
        self.kind = kind
        self.members = members

    def write_value(self, out: bytearray, value: Any) -> None:
        for name, layout in self.members.items():
            layout.write_value(out, getattr(value, name))

    def read_value(self, cursor: XcdrCursor) -> Any:
        return self.kind(*[layout.read_value(cursor) for layout in self.members.values()])


class _Appendable(_Final):
    def write_value(self, out: bytearray, value: Any) -> None:
        _write_delimited(out, lambda: super(_Appendable, self).write_value(out, value))

    def read_value(self, cursor: XcdrCursor) -> Any:
        return cursor.delimited(lambda: super(_Appendable, self).read_value(cursor))


class _Mutable:
    """A structure whose members are found by id; all of them are optional, appendable structures."""

    def __init__(self, kind: Callable[..., Any], members: Mapping[str, tuple[int, Layout]]) -> None:
        self.kind = kind
        self.members = members
        self.names = {member_id: (name, layout) for name, (member_id, layout) in members.items()}

    def write_value(self, out: bytearray, value: Any) -> None:
        _write_delimited(out, lambda: self.write_members(out, value))

    def write_members(self, out: bytearray, value: Any) -> None:
        for name, (member_id, layout) in self.members.items():
            if (member := getattr(value, name)) is not None:
                _align(out, 4)
                out.extend(_U32.pack(NEXTINT << LENGTH_CODE | member_id))
                _write_delimited(out, functools.partial(layout.write_value, out, member))

    def read_value(self, cursor: XcdrCursor) -> Any:
        return cursor.delimited(lambda: self.read_members(cursor))

    def read_members(self, cursor: XcdrCursor) -> Any:
        found: dict[str, Any] = dict.fromkeys(self.members)
        while cursor.stop - cursor.at >= 4:
            header = cursor.u32()
            code, member_id = header >> LENGTH_CODE & 7, header & MEMBER_ID_MASK
            size = 1 << code if code < NEXTINT else cursor.u32() * (1, 1, 4, 8)[code - NEXTINT]
            if code > NEXTINT:
                cursor.at -= 4
                size += 4
            start = cursor.at
            cursor.take_bytes(size)
            if member_id in self.names:
                name, layout = self.names[member_id]
                end, cursor.at = cursor.at, start
                outer, cursor.stop = cursor.stop, end
                found[name] = layout.read_value(cursor)
                cursor.at, cursor.stop = end, outer
            elif header & MUST_UNDERSTAND:
                raise DecodeError(
                    DropReason.BAD_PARAMETER, f"type information has the unexpected member {member_id:#x}"
                )
        return self.kind(**found)


class _Union:
    """A union: an octet, and the case that it selects. Only unions nest, so their depth is bounded here."""

    def __init__(self, kind: Callable[..., Any], cases: Mapping[int, Layout]) -> None:
        self.kind = kind
        self.cases = cases

    def write_value(self, out: bytearray, value: Any) -> None:
        out.append(value.kind)
        self.cases[value.kind if value.kind in self.cases else DEFAULT].write_value(out, value.value)

    def read_value(self, cursor: XcdrCursor) -> Any:
        which = cursor.take_bytes(1)[0]
        case = self.cases.get(which, self.cases.get(DEFAULT))
        if case is None:
            raise DecodeError(DropReason.BAD_PARAMETER, f"type information has the unknown kind {which:#04x}")
        if cursor.depth >= TYPE_DEPTH_MAX:
            raise DecodeError(DropReason.OVER_LIMIT, "type information is nested too deeply")
        cursor.depth += 1
        value = self.kind(which, case.read_value(cursor))
        cursor.depth -= 1
        return value


class _AppendableUnion(_Union):
    def write_value(self, out: bytearray, value: Any) -> None:
        _write_delimited(out, lambda: super(_AppendableUnion, self).write_value(out, value))

    def read_value(self, cursor: XcdrCursor) -> Any:
        return cursor.delimited(lambda: super(_AppendableUnion, self).read_value(cursor))


# --- what declarations are made of ----------------------------------------------------------------------

U8: TypeAlias = Annotated[int, PrimitiveLayout("B")]
U16: TypeAlias = Annotated[int, PrimitiveLayout("H")]
U32: TypeAlias = Annotated[int, PrimitiveLayout("I")]
I32: TypeAlias = Annotated[int, PrimitiveLayout("i")]


@dataclasses.dataclass(frozen=True)
class MemberId:
    """The id of a member of a mutable structure."""

    value: int


@dataclass_transform(frozen_default=True)
def final(kind: type[T]) -> type[T]:
    return _structure(kind, Extensibility.FINAL)


@dataclass_transform(frozen_default=True)
def appendable(kind: type[T]) -> type[T]:
    return _structure(kind, Extensibility.APPENDABLE)


@dataclass_transform(frozen_default=True)
def mutable(kind: type[T]) -> type[T]:
    return _structure(kind, Extensibility.MUTABLE)


def _structure(kind: type[T], extensibility: Extensibility) -> type[T]:
    made = value(kind)
    made.__extensibility__ = extensibility  # type: ignore[attr-defined]
    return made


#: The key of a union's default case, for all kinds without a case.
DEFAULT: Final = -1


def union(cases: Mapping[int, Any], *, delimited: bool = False) -> Callable[[type[T]], type[T]]:
    """Makes a class with ``kind`` and ``value`` a union of ``cases``; None is a case without a value."""

    def declare(kind: type[T]) -> type[T]:
        kind.__cases__ = cases  # type: ignore[attr-defined]
        kind.__extensibility__ = Extensibility.APPENDABLE if delimited else Extensibility.FINAL  # type: ignore[attr-defined]
        return kind

    return declare


class _Later:
    """The layout of a structure whose declaration contains itself."""

    def __init__(self, hint: Any, bare: bool) -> None:
        self.hint = hint
        self.bare = bare

    def write_value(self, out: bytearray, value: Any) -> None:
        layout_of(self.hint, bare=self.bare).write_value(out, value)

    def read_value(self, cursor: XcdrCursor) -> Any:
        return layout_of(self.hint, bare=self.bare).read_value(cursor)


@functools.cache
def layout_of(hint: Any, *, bare: bool = False) -> Layout:
    """The layout of a structure, or of a member's annotation.

    ``bare``: without headers and flags; everything is final, and optional members are always present.
    """
    if hint is None:
        return _Nothing()
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        marked: Layout = arguments[1]
        return marked
    if origin in (types.UnionType, typing.Union):
        present = layout_of(next(each for each in arguments if each is not type(None)), bare=bare)
        return present if bare else _Optional(present)
    if origin is tuple:
        element = layout_of(arguments[0], bare=bare)
        return (_BareSequence if bare else _Sequence)(element)
    kind = origin or hint
    extensibility = Extensibility.FINAL if bare else kind.__extensibility__
    if cases := getattr(kind, "__cases__", None):
        layouts = {which: _later(case, bare) for which, case in cases.items()}
        return (_Union if extensibility is Extensibility.FINAL else _AppendableUnion)(kind, layouts)
    members = typing.get_type_hints(kind, include_extras=True)
    members = {field.name: members[field.name] for field in dataclasses.fields(kind)}
    if extensibility is Extensibility.MUTABLE:
        by_id = {
            name: (typing.get_args(member)[1].value, _present(typing.get_args(member)[0]))
            for name, member in members.items()
        }
        return _Mutable(kind, by_id)
    bindings = dict(zip(getattr(kind, "__parameters__", ()), arguments, strict=True))
    layouts_of_members = {
        name: layout_of(_bound(member, bindings), bare=bare) for name, member in members.items()
    }
    return (_Final if extensibility is Extensibility.FINAL else _Appendable)(kind, layouts_of_members)


def _later(hint: Any, bare: bool) -> Layout:
    return _Nothing() if hint is None else _Later(hint, bare)


def _present(hint: Any) -> Layout:
    optional = layout_of(hint)
    return optional.inner if isinstance(optional, _Optional) else optional


def _bound(hint: Any, bindings: Mapping[Any, Any]) -> Any:
    """An annotation with its type variables replaced."""
    if isinstance(hint, TypeVar):
        return bindings[hint]
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(bindings[each] for each in parameters)] if parameters else hint


def encode(kind: Any, value: Any) -> bytes:
    """The bytes of a value of the structure ``kind``, without encapsulation header."""
    out = bytearray()
    layout_of(kind).write_value(out, value)
    return bytes(out)


def decode(kind: type[T], data: Buffer, *, bare: bool = False) -> T:
    """The structure ``kind`` from bytes without encapsulation header; bytes behind it are ignored.

    Raises DecodeError.
    """
    layout: Layout = layout_of(kind, bare=bare)  # type: ignore[arg-type]
    value: T = layout.read_value(XcdrCursor(data))
    return value
