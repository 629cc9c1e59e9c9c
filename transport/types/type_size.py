"""The sizes of types as trees: a few definitions, each used twice by the next one, expand to any number of types.

Type objects are measured where they are read (:mod:`.xtypes.assembly`), with the same limits.
"""

from __future__ import annotations

from typing import Final

from ..limits import TYPE_DEPTH_MAX, TYPE_NODES_MAX
from .model import Alias, Array, Map, Sequence, Struct, Type, Union

#: The limits of a type's size, for messages.
TOO_LARGE: Final = f"more than {TYPE_NODES_MAX} types inside, or {TYPE_DEPTH_MAX} levels"


class TypeSizes:
    """The sizes of the types of one text, each measured once."""

    def __init__(self) -> None:
        #: By identity, because equality compares whole trees. Types are kept, so that identities stay unique.
        self._known: dict[int, tuple[Type, int, int]] = {}

    def is_too_large(self, t: Type) -> bool:
        """Whether a type holds more types, or nests deeper, than the limits for columns."""
        nodes, depth = self._size(t)
        return nodes > TYPE_NODES_MAX or depth > TYPE_DEPTH_MAX

    def _size(self, t: Type) -> tuple[int, int]:
        known = self._known.get(id(t))
        if known is not None:
            return known[1], known[2]
        parts = [self._size(part) for part in _parts(t)]
        nodes = 1 + sum(size for size, _ in parts)
        depth = 1 + max((depth for _, depth in parts), default=0)
        self._known[id(t)] = t, nodes, depth
        return nodes, depth


def _parts(t: Type) -> list[Type]:
    if isinstance(t, Sequence | Array):
        return [t.element]
    if isinstance(t, Map):
        return [t.key, t.value]
    if isinstance(t, Struct):
        parts = [member.type for member in t.members]
        return [*parts, t.base] if t.base is not None else parts
    if isinstance(t, Union):
        return [t.discriminator, *(case.type for case in t.cases)]
    return [t.type] if isinstance(t, Alias) else []
