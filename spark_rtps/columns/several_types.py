"""One type for a topic whose writers have several: the one as which all of them can be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..transport.errors import UsageError
from ..transport.qos import TypeConsistency
from ..transport.types.model import Struct
from ..transport.types.xtypes.assignability import incompatibilities_of_types

#: Types of one topic that are compared with each other.
TYPES_MAX: Final = 32
#: A reader's and a writer's type, and why one does not read the other.
Clash = tuple[Struct, Struct, tuple[str, ...]]


def one_for_all(told: Iterable[Struct], consistency: TypeConsistency) -> tuple[Struct, Clash | None]:
    """The type with most members as which all the others can be read; or the first clash, if there is none.

    Raises UsageError for more types than are compared.
    """
    candidates = sorted(told, key=lambda struct: -len(struct.members))
    if len(candidates) > TYPES_MAX:
        raise UsageError(f"{len(candidates)} types, of which {TYPES_MAX} at most are compared")
    clashes: list[Clash] = []
    for reader in candidates:
        for writer in candidates:
            if found := incompatibilities_of_types(writer, reader, consistency):
                clashes.append((reader, writer, tuple(found)))
                break
        else:
            return reader, None
    return candidates[0], clashes[0]
