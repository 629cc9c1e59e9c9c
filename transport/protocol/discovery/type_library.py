"""TypeObjects by their identifiers: those of our endpoints' types, and those of peers' types up to a limit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import field

from ...errors import DecodeError, DropReason
from ...limits import TYPE_OBJECTS_BYTES_MAX
from ...types.model import Struct
from ...types.xtypes.information import SizedIdentifier, TypeInformation
from ...types.xtypes.structures import normalized
from ...types.xtypes.type_objects import (
    TypeObjects,
    dependencies_of,
    identifier_of,
    struct_of,
    type_objects_of,
)
from ...value_classes import slotted, value


@value
class KnownType:
    """A type; if only its minimal form is known, its members are named by their ids."""

    struct: Struct
    is_complete: bool = True


@slotted
class _Own:
    """A type of endpoints of ours, and the number of endpoints that have it."""

    objects: TypeObjects
    complete: Struct
    minimal: Struct | None = None
    endpoints: int = 0


@slotted
class _Object:
    data: bytes
    dependencies: frozenset[bytes]


@slotted
class TypeLibrary(Mapping[bytes, bytes]):
    """All known TypeObjects. Those of peers are verified; the one unused for longest is dropped first."""

    _own: dict[TypeInformation, _Own] = field(default_factory=dict)
    #: Our TypeObjects: each with the number of our types that contain it.
    _own_objects: dict[bytes, tuple[_Object, int]] = field(default_factory=dict)
    _others: OrderedDict[bytes, _Object] = field(default_factory=OrderedDict)
    _others_bytes: int = 0

    # --- ours -------------------------------------------------------------------------------------

    def offer(self, struct: Struct) -> TypeInformation:
        """Add the type of an endpoint of ours. Returns the type information to announce."""
        known = next((own for own in self._own.values() if own.complete == struct), None)
        if known is None:
            objects = type_objects_of(struct)
            known = self._own.setdefault(objects.information, _Own(objects, struct))
            if not known.endpoints:
                for identifier, data in objects.objects.items():
                    _, count = self._own_objects.get(identifier, (None, 0))
                    self._own_objects[identifier] = _Object(data, dependencies_of(data)), count + 1
        known.endpoints += 1
        return known.objects.information

    def withdraw(self, information: TypeInformation) -> None:
        """Remove the type of an endpoint of ours that is gone."""
        known = self._own[information]
        known.endpoints -= 1
        if not known.endpoints:
            del self._own[information]
            for identifier in known.objects.objects:
                kept, count = self._own_objects.pop(identifier)
                if count > 1:
                    self._own_objects[identifier] = kept, count - 1

    def own_type(self, information: TypeInformation, *, complete: bool) -> Struct:
        """A type of ours, in its complete or minimal form."""
        own = self._own[information]
        if complete or information.minimal is None:
            return own.complete
        if own.minimal is None:
            own.minimal = struct_of(information.minimal.type.id, own.objects.objects)
        return own.minimal

    def own_object(self, identifier: bytes) -> bytes | None:
        """The TypeObject of a type of ours."""
        known = self._own_objects.get(identifier)
        return None if known is None else known[0].data

    def own_dependencies(self, identifiers: tuple[bytes, ...]) -> list[SizedIdentifier]:
        """The types on which types of ours depend, at every depth, in a stable order."""
        found: dict[bytes, None] = {}
        heap = [each for each in identifiers if each in self._own_objects]
        while heap:
            for each in sorted(self._own_objects[heap.pop()][0].dependencies):
                if each not in found and each in self._own_objects:
                    found[each] = None
                    heap.append(each)
        return [SizedIdentifier(each, len(self._own_objects[each][0].data)) for each in found]

    # --- of others --------------------------------------------------------------------------------

    def add_type_object(self, identifier: bytes, data: bytes) -> None:
        """Keep the TypeObject that a peer sent for this identifier. Raises DecodeError if the two do not fit."""
        if identifier_of(data) != identifier:
            data = normalized(data)
        if identifier_of(data) != identifier:
            raise DecodeError(DropReason.BAD_PARAMETER, "a TypeObject that has another identifier")
        if identifier in self:
            return
        self._others[identifier] = _Object(data, dependencies_of(data))
        self._others_bytes += len(data)
        while self._others_bytes > TYPE_OBJECTS_BYTES_MAX:
            _, oldest = self._others.popitem(last=False)
            self._others_bytes -= len(oldest.data)

    # --- all --------------------------------------------------------------------------------------

    def dependencies(self, identifier: bytes) -> frozenset[bytes]:
        """The types to which this one refers."""
        return self._find(identifier).dependencies

    def __getitem__(self, identifier: bytes) -> bytes:
        return self._find(identifier).data

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._own_objects or identifier in self._others

    def __iter__(self) -> Iterator[bytes]:
        yield from self._own_objects
        yield from (each for each in self._others if each not in self._own_objects)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _find(self, identifier: bytes) -> _Object:
        if (own := self._own_objects.get(identifier)) is not None:
            return own[0]
        found = self._others[identifier]
        self._others.move_to_end(identifier)
        return found
