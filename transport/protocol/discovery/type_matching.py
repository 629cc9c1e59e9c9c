"""Whether the types of a writer and a reader let them match (XTypes 1.3 §7.6.3.4.2).

If both announce their types, the types decide and their names do not matter, as in Cyclone DDS. Otherwise the names
decide, unless the reader forces type validation.
"""

from __future__ import annotations

from ...errors import UsageError
from ...limits import TYPE_COMPARISONS_MAX
from ...qos import DataRepresentation, TypeConsistency, TypeConsistencyKind, written_representation
from ...types.model import Struct
from ...types.xtypes.assignability import incompatibilities_of_types
from ...types.xtypes.information import TypeInformation
from .endpoint_data import EndpointData
from .matching import mismatches_by_name
from .type_library import KnownType, TypeLibrary
from .type_lookup import NOT_ANNOUNCED, TypeLookup

#: The announced type information of both, whether the writer's samples are in XCDR1, and the hash of a type object that
#: one of them announces in addition, which may describe another type.
_Key = tuple[TypeInformation, TypeInformation, TypeConsistency, bool, bool, int]


class TypeMatching:
    """Compares the types of our endpoints with those of peers, and with each other."""

    def __init__(self, prefix: bytes, library: TypeLibrary, lookup: TypeLookup) -> None:
        self._prefix = prefix
        self._library = library
        self._lookup = lookup
        self._remembered: dict[_Key, tuple[str, ...]] = {}

    def mismatches(
        self, writer: EndpointData, reader: EndpointData, *, awaits_type: bool = False
    ) -> tuple[str, ...] | None:
        """The reasons against a match, one sentence each; None: not known yet."""
        written, read = writer.type_information, reader.type_information
        if written is None or read is None:
            is_own = writer.guid.prefix == self._prefix  # our own types are never looked up
            if awaits_type and written is not None and not is_own and self._lookup.known(writer.guid) is None:
                return None
            endpoint = writer if written is None else reader
            return mismatches_by_name(writer, reader, _unknown(endpoint, NOT_ANNOUNCED))
        if _are_equal(written, read):
            return ()
        complete, announced = True, 0
        for endpoint in (writer, reader):
            if endpoint.guid.prefix != self._prefix:
                announced = hash(endpoint.type_object_v1)
                known = self._lookup.known(endpoint.guid)
                if not isinstance(known, KnownType):
                    if known is None:
                        return None
                    return mismatches_by_name(writer, reader, _unknown(endpoint, known))
                complete = complete and known.is_complete
        in_xcdr1 = written_representation(writer.qos) == DataRepresentation.XCDR1
        key = (written, read, reader.qos.type_consistency, in_xcdr1, complete, announced)
        if (reasons := self._remembered.get(key)) is None:
            if len(self._remembered) >= TYPE_COMPARISONS_MAX:
                self._remembered.clear()
            reasons = self._remembered[key] = self._compare(
                writer, reader, complete=complete, in_xcdr1=in_xcdr1
            )
        return reasons

    def _compare(
        self, writer: EndpointData, reader: EndpointData, *, complete: bool, in_xcdr1: bool
    ) -> tuple[str, ...]:
        """Minimal types have no names, so both types are compared in their minimal forms."""
        policy = reader.qos.type_consistency
        written, read = self._struct(writer, complete), self._struct(reader, complete)
        reasons = incompatibilities_of_types(written, read, policy, in_xcdr1=in_xcdr1)
        if not reasons and policy.kind is TypeConsistencyKind.DISALLOW_TYPE_COERCION:
            reasons = (
                "TYPE_CONSISTENCY: the reader allows no other type than its own, and the writer's has another hash",
            )
        return reasons

    def _struct(self, endpoint: EndpointData, complete: bool) -> Struct:
        if endpoint.guid.prefix != self._prefix:
            known = self._lookup.known(endpoint.guid)
            if isinstance(known, KnownType):
                return known.struct
        if endpoint.type_information is None:
            raise UsageError(f"endpoint {endpoint.guid} has no type")
        return self._library.own_type(endpoint.type_information, complete=complete)


def _unknown(endpoint: EndpointData, why: str) -> str:
    return f"the {'writer' if endpoint.is_writer else 'reader'}'s type is not known: {why}"


def _are_equal(a: TypeInformation, b: TypeInformation) -> bool:
    """Whether they have the same hash, in either form."""
    forms = ((a.complete, b.complete), (a.minimal, b.minimal))
    return any(x is not None and y is not None and x.type.id == y.type.id for x, y in forms)
