"""Dataclass decorators that are cheap to apply: ``value``, compared and hashed by its fields, and ``slotted``.

`dataclasses` compiles six methods for each frozen class, which takes a quarter of a millisecond, and a command or a
receiver imports hundreds of classes. Here only ``__init__`` is compiled. Setting a field of a ``value`` does not raise;
the type checker reports it. Values that users get are ``dataclass(frozen=True, slots=True)``, which raises.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def value(kind: type[T]) -> type[T]:
    """As ``dataclass(frozen=True, slots=True)``, equal and hashed by its fields, but not protected against setting."""
    made = slotted(kind)
    if "__hash__" not in kind.__dict__:
        made.__hash__ = _hash_of(_compared(made))  # type: ignore[assignment]
    return made


@dataclass_transform(field_specifiers=(dataclasses.field,))
def slotted(kind: type[T]) -> type[T]:
    """As ``dataclass(slots=True)``: equal by its fields, and not hashed."""
    if kind.__doc__ is None:
        kind.__doc__ = (
            kind.__name__
        )  # where there is none, dataclass looks up the signature, which takes longer
    made = dataclasses.dataclass(kind, eq=False, repr=False, slots=True)
    if "__repr__" not in kind.__dict__:
        made.__repr__ = _repr  # type: ignore[method-assign]
    if "__eq__" not in kind.__dict__:
        made.__eq__ = _eq_by(_compared(made))  # type: ignore[method-assign]
        if "__hash__" not in kind.__dict__:
            made.__hash__ = None  # type: ignore[assignment]
    return made


def _compared(made: Any) -> Callable[[object], object]:
    """A function that reads the fields which take part in comparison."""
    names = [each.name for each in dataclasses.fields(made) if each.compare]
    return attrgetter(*names) if names else _nothing


def _nothing(_: object) -> object:
    return ()


def _eq_by(compared: Callable[[object], object]) -> Callable[[object, object], bool]:
    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash_of(compared: Callable[[object], object]) -> Callable[[object], int]:
    def __hash__(self: object) -> int:  # noqa: N807
        return hash(compared(self))

    return __hash__


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{e.name}={getattr(self, e.name)!r}" for e in dataclasses.fields(self) if e.repr)
    return f"{type(self).__qualname__}({shown})"
