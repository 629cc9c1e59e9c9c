"""Whether samples of a writer's type can be read as the reader's type (XTypes 1.3 §7.2.4), and if not, why.

The specification's T1 is the reader's type, T2 the writer's. Where Cyclone DDS is stricter it is followed, because a
match that only one side sees loses samples silently; a comment marks each such place.
"""

from __future__ import annotations

import enum
from typing import Final

from ...limits import TYPE_REASONS_MAX
from ...qos import TypeConsistency, TypeConsistencyKind
from ..model import (
    Array,
    Bitmask,
    Case,
    Enum,
    Extensibility,
    Map,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    WString,
    number_size,
    resolve,
)
from .equivalence import Equivalence, describe, join


def incompatibilities_of_types(
    writer: Struct, reader: Struct, consistency: TypeConsistency, *, in_xcdr1: bool = False
) -> tuple[str, ...]:
    """Why a reader with this TYPE_CONSISTENCY_ENFORCEMENT cannot read a writer's type; () if it can.

    The sentences name members by their paths. ``force_type_validation`` is left to the caller, because it concerns
    types that are not known. ``in_xcdr1``: the samples are in XCDR1, in which nothing marks the end of an appendable
    value inside another.
    """
    comparison = _Comparison(consistency, in_xcdr1=in_xcdr1)
    if consistency.kind is TypeConsistencyKind.DISALLOW_TYPE_COERCION:
        comparison.equal("", writer, reader)
    else:
        comparison.assignable("", writer, reader, _Keys.MARKED)
    return tuple(comparison.reasons)


class _Keys(enum.Enum):
    """Which members of a type count as keys (XTypes 1.3 §7.2.4.4.7 KeyErased, KeyHolder)."""

    MARKED = "as marked"
    INSIDE = "as marked, inside a member that is no key: they tell no instances apart"
    ERASED = "none"
    HOLDER = "only these members count; all of them, where none is marked"


class _Comparison:
    """Compares types. ``seen``: pairs of structs and unions that have been compared; each is compared once, because the
    work would be exponential in shared types.

    ``has_end``: the compared value has an end of its own on the wire, or nothing follows it.
    """

    def __init__(self, consistency: TypeConsistency, *, in_xcdr1: bool) -> None:
        self.consistency = consistency
        self.in_xcdr1 = in_xcdr1
        self.has_end = True
        self.reasons: list[str] = []
        self.types = Equivalence()
        self.seen: set[tuple[int, int, _Keys, bool]] = set()

    def say(self, path: str, text: str) -> None:
        subject = f"member '{path}'" if path else "type"
        reason = f"TYPE_CONSISTENCY: {subject}: {text}"
        if reason not in self.reasons and len(self.reasons) < TYPE_REASONS_MAX:
            self.reasons.append(reason)

    def equal(self, path: str, writer: Type, reader: Type) -> None:
        if not self.types.same(writer, reader):
            self.say(*self.types.difference(path, writer, reader))

    def strongly_assignable(self, path: str, writer: Type, reader: Type, *, has_end: bool = False) -> None:
        """§7.2.4.3: assignable, and the reader can skip what it does not know of the writer's values."""
        writer, reader = resolve(writer), resolve(reader)
        known_reasons, outer = len(self.reasons), self.has_end
        self.has_end = has_end
        self.assignable(path, writer, reader)
        self.has_end = outer
        if (
            len(self.reasons) == known_reasons
            and not self.types.same(writer, reader)
            and not is_delimited(writer)
        ):
            where, text = self.types.difference(path, writer, reader)
            self.say(where, f"{text}, and {_innermost(writer)} is @final: both must be the same")

    def assignable(self, path: str, writer: Type, reader: Type, keys: _Keys = _Keys.INSIDE) -> None:
        writer, reader = resolve(writer), resolve(reader)
        pair = (id(writer), id(reader), keys, self.has_end)
        if pair in self.seen or self.types.same(writer, reader):
            return
        if isinstance(writer, Struct | Union):
            self.seen.add(pair)
        if isinstance(writer, Bitmask) or isinstance(reader, Bitmask):
            self._bitmask(path, writer, reader)
        elif isinstance(writer, Enum) and isinstance(reader, Enum):
            self._enum(path, writer, reader)
        elif isinstance(writer, String | WString) and isinstance(reader, type(writer)):
            self._bound(path, writer, reader, ignored=self.consistency.ignore_string_bounds)
        elif isinstance(writer, Sequence) and isinstance(reader, Sequence):
            self._bound(path, writer, reader, ignored=self.consistency.ignore_sequence_bounds)
            self.strongly_assignable(join(path, "[]"), writer.element, reader.element)
        elif isinstance(writer, Array) and isinstance(reader, Array):
            if writer.dimensions != reader.dimensions:
                self._mismatch(path, writer, reader)
            self.strongly_assignable(join(path, "[]"), writer.element, reader.element)
        elif isinstance(writer, Map) and isinstance(reader, Map):
            # Bounds of maps are not compared: ignore_sequence_bounds is about sequences, and Cyclone does not either.
            self.strongly_assignable(join(path, "[key]"), writer.key, reader.key)
            self.strongly_assignable(join(path, "[]"), writer.value, reader.value)
        elif isinstance(writer, Struct) and isinstance(reader, Struct):
            self._struct(path, writer, reader, keys)
        elif isinstance(writer, Union) and isinstance(reader, Union):
            self._union(path, writer, reader, keys)
        else:
            self._mismatch(path, writer, reader)

    def _mismatch(self, path: str, writer: Type, reader: Type) -> None:
        self.say(*self.types.difference(path, writer, reader))

    def _bound(self, path: str, writer: _Bounded, reader: _Bounded, *, ignored: bool, why: str = "") -> None:
        if not ignored and reader.bound and not 0 < writer.bound <= reader.bound:
            self.say(
                path, f"the writer's is {describe(writer)}, longer than the reader's {describe(reader)}{why}"
            )

    def _bitmask(self, path: str, writer: Type, reader: Type) -> None:
        """Bitmasks are assignable to those of the same bound, and to and from the integer that holds them."""
        masks = [t for t in (writer, reader) if isinstance(t, Bitmask)]
        if len(masks) == 2:
            if masks[0].bit_bound != masks[1].bit_bound:
                bounds = f"{masks[0].bit_bound} bits, the reader's has {masks[1].bit_bound}"
                self.say(path, f"the writer's bitmask has {bounds}")
            return
        other = reader if isinstance(writer, Bitmask) else writer
        held = _HOLDERS[masks[0].type_code]
        if not (isinstance(other, Primitive) and other.kind is held):
            self._mismatch(path, writer, reader)

    def _enum(self, path: str, writer: Enum, reader: Enum) -> None:
        """Final enums must have the same literals; other enums must agree about the names and values that both have.

        Extensibilities may differ, unlike in Cyclone DDS: XTypes 1.3 leaves the flag unused, and not all peers set it.
        Cyclone compares neither the sizes, without which nothing can be read, nor the values of equal names.
        """
        if number_size(writer) != number_size(reader):
            bits = f"{writer.bit_bound} bits, the reader's has {reader.bit_bound}"
            self.say(path, f"the writer's enum has {bits}")
        elif writer.type_code != reader.type_code and any(
            v < 0 for _, v in writer.literals + reader.literals
        ):
            self.say(path, f"values of {describe(writer)} are signed at one side only")
        of_writer, of_reader = dict(writer.literals), dict(reader.literals)
        names = {value: name for name, value in reader.literals}
        for name, value in writer.literals:
            if of_reader.get(name, value) != value:
                self.say(path, f"literal {name} is {value} at the writer, {of_reader[name]} at the reader")
            elif names.get(value, name) != name:
                self.say(path, f"{value} is {name} at the writer, {names[value]} at the reader")
        if writer.extensibility is reader.extensibility is Extensibility.FINAL:
            for name in sorted(of_writer.keys() ^ of_reader.keys()):
                side = "writer" if name in of_writer else "reader"
                self.say(path, f"only the {side} has literal {name}, and {describe(reader)} is @final")

    # --- structs ------------------------------------------------------------------------------------

    def _struct(self, path: str, writer: Struct, reader: Struct, keys: _Keys) -> None:
        if not self._same_extensibility(path, writer, reader):
            return
        of_writer, of_reader = _members(writer, keys), _members(reader, keys)
        if not self._same_names(path, of_writer, of_reader):
            return
        w_by_id = {member.id: member for member in of_writer}
        r_by_id = {member.id: member for member in of_reader}
        if not w_by_id.keys() & r_by_id.keys():
            self.say(
                path, f"writer's {describe(writer)} and reader's {describe(reader)} have no member in common"
            )
            return
        w_keys, r_keys = ({member.id for member in _key_members(t, keys)} for t in (writer, reader))
        for member in of_writer:
            if member.id not in r_by_id:
                self._lacking(path, member, writer, "writer", member.id in w_keys)
        for member in of_reader:
            if member.id not in w_by_id:
                self._lacking(path, member, reader, "reader", member.id in r_keys)
        # Two types with the same members but other keys have other instances. §7.2.4 only requires the members to
        # be there, as Cyclone does.
        for id_ in sorted(w_keys ^ r_keys) if keys is not _Keys.INSIDE else ():
            if id_ in w_by_id and id_ in r_by_id:
                side = "writer" if id_ in w_keys else "reader"
                self.say(join(path, w_by_id[id_].name), f"it is a key of the {side} only")
        if reader.extensibility is Extensibility.MUTABLE:
            outer, self.has_end = self.has_end, True
            for member in of_writer:
                if member.id in r_by_id:
                    name = join(path, member.name)
                    self.assignable(name, member.type, r_by_id[member.id].type, _Keys.ERASED)
            self.has_end = outer
        else:
            self._in_order(path, of_writer, of_reader, reader.extensibility)
        for member in of_writer:
            if member.id in w_keys and member.id in r_by_id:
                self._key(join(path, member.name), member.type, r_by_id[member.id].type)

    def _same_extensibility(self, path: str, writer: Struct | Union, reader: Struct | Union) -> bool:
        if writer.extensibility is reader.extensibility:
            return True
        w, r = writer.extensibility.value, reader.extensibility.value
        self.say(path, f"the writer's {describe(writer)} is @{w}, the reader's {describe(reader)} is @{r}")
        return False

    def _same_names(self, path: str, writer: _Named, reader: _Named) -> bool:
        """Members with the same id must have the same name, and the other way round."""
        if self.consistency.ignore_member_names:
            return True
        ids = {member.name: member.id for member in reader}
        names = {member.id: member.name for member in reader}
        agree = True
        for member in writer:
            name = join(path, member.name)
            if ids.get(member.name, member.id) != member.id:
                self.say(name, f"its id is {member.id} at the writer, {ids[member.name]} at the reader")
                agree = False
            elif names.get(member.id, member.name) != member.name:
                other = names[member.id]
                self.say(name, f"the reader calls it '{other}' (id {member.id}); see ignore_member_names")
                agree = False
        return agree

    def _lacking(self, path: str, member: Member, owner: Struct, side: str, is_key: bool) -> None:
        """Check a member that only one side has."""
        if is_key:
            why = "it is a key"
        elif owner.extensibility is Extensibility.FINAL:
            why = f"{describe(owner)} is @final"
        elif path and (side == "reader" or not self.has_end) and self._has_no_header(owner):
            why = _WITHOUT_HEADER
        elif member.must_understand and not member.optional:
            why = "it is @must_understand"
        # A wider type is not to be assigned to a narrower one (§7.6.3.4.1), so the reader must not lack a member.
        # Cyclone DDS wants the writer not to lack one either.
        elif self.consistency.prevent_type_widening:
            why = "prevent_type_widening is set"
        else:
            return
        self.say(join(path, member.name), f"only the {side} has it, and {why}")

    def _in_order(
        self,
        path: str,
        writer: tuple[Member, ...],
        reader: tuple[Member, ...],
        extensibility: Extensibility,
    ) -> None:
        """Compare the members of final and appendable types, which are identified by their order."""
        for place, (w, r) in enumerate(zip(writer, reader, strict=False), 1):
            if w.id != r.id:
                places = f"it is member {place} of the writer, the reader has '{r.name}' there"
                self.say(join(path, w.name), f"{places}, and the type is @{extensibility.value}")
                return
            name = join(path, w.name)
            if w.optional != r.optional:
                self.say(name, f"it is @optional at the {'writer' if w.optional else 'reader'} only")
            is_last = self.has_end and place == len(writer) == len(reader)
            self.strongly_assignable(name, w.type, r.type, has_end=is_last or w.optional)

    def _has_no_header(self, t: Struct | Union) -> bool:
        return self.in_xcdr1 and t.extensibility is Extensibility.APPENDABLE

    def _key(self, path: str, writer: Type, reader: Type) -> None:
        """A reader must be able to hold every key of the writer."""
        writer, reader = resolve(writer), resolve(reader)
        why = ", and it is a key"
        if isinstance(writer, _BOUNDED) and isinstance(reader, type(writer)):
            self._bound(path, writer, reader, ignored=False, why=why)
        elif isinstance(writer, Enum) and isinstance(reader, Enum):
            known = {value for _, value in reader.literals}
            for name, value in writer.literals:
                if value not in known:
                    self.say(path, f"the reader does not know the writer's literal {name}{why}")
        elif isinstance(writer, Struct | Union):
            self.assignable(path, writer, reader, _Keys.HOLDER)

    # --- unions -------------------------------------------------------------------------------------

    def _union(self, path: str, writer: Union, reader: Union, keys: _Keys) -> None:
        if not self._same_extensibility(path, writer, reader):
            return
        name = join(path, writer.discriminator_name)
        self.strongly_assignable(name, writer.discriminator, reader.discriminator)
        if keys is not _Keys.ERASED and writer.key != reader.key:
            self.say(name, f"it is a key of the {'writer' if writer.key else 'reader'} only")
        if keys is _Keys.HOLDER and writer.key and reader.key:
            return  # the branches are no part of such a key
        if not self._same_names(path, writer.cases, reader.cases):
            return
        of_writer, of_reader = _labels(writer), _labels(reader)
        w_default, r_default = _default(writer), _default(reader)
        for label in sorted(of_writer.keys() | of_reader.keys()):
            w, r = of_writer.get(label, w_default), of_reader.get(label, r_default)
            if w is not None and r is not None:
                self._branch(path, w, r, keys)
        if w_default is not None and r_default is not None:
            self._branch(path, w_default, r_default, keys)
        self._same_labels(path, writer, reader)

    def _branch(self, path: str, writer: Case, reader: Case, keys: _Keys) -> None:
        name = join(path, writer.name)
        self.assignable(name, writer.type, reader.type)
        if keys is _Keys.HOLDER:
            self.assignable(name, writer.type, reader.type, keys)

    def _same_labels(self, path: str, writer: Union, reader: Union) -> None:
        of_writer, of_reader = _labels(writer), _labels(reader)
        if reader.extensibility is Extensibility.FINAL:
            why = "the union is @final"
        elif not self.has_end and self._has_no_header(reader):
            why = _WITHOUT_HEADER
        elif self.consistency.prevent_type_widening:
            why = "prevent_type_widening is set"
        else:
            if not of_writer.keys() & of_reader.keys():
                self.say(path, "writer's and reader's union have no label in common")
            return
        for label in sorted(of_writer.keys() ^ of_reader.keys()):
            side, case = ("writer", of_writer[label]) if label in of_writer else ("reader", of_reader[label])
            self.say(join(path, case.name), f"only the {side} has a case {label}, and {why}")
        if (_default(writer) is None) != (_default(reader) is None):
            side = "reader" if _default(writer) is None else "writer"
            self.say(path, f"only the {side}'s union has a default, and {why}")


_Bounded = String | WString | Sequence | Map
_Named = tuple[Member, ...] | tuple[Case, ...]
_WITHOUT_HEADER: Final = (
    "nothing tells where an @appendable value inside of another ends in XCDR1: let the writer use XCDR2"
)
_BOUNDED: Final = (String, WString, Sequence, Map)
_HOLDERS: Final = {
    "u1": PrimitiveKind.UINT8,
    "u2": PrimitiveKind.UINT16,
    "u4": PrimitiveKind.UINT32,
    "u8": PrimitiveKind.UINT64,
}


def is_delimited(t: Type) -> bool:
    """Whether a value's end can be found without knowing its type (XTypes 1.3 §7.2.4.2). As in Cyclone DDS, appendable
    types count as delimited in XCDR1 too."""
    t = resolve(t)
    if isinstance(t, Sequence | Array):
        return is_delimited(t.element)
    if isinstance(t, Map):
        return is_delimited(t.key) and is_delimited(t.value)
    return not isinstance(t, Struct | Union) or t.extensibility is not Extensibility.FINAL


def _innermost(t: Type) -> str:
    """The inner type that makes a type not delimited, for messages."""
    t = resolve(t)
    if isinstance(t, Sequence | Array):
        return _innermost(t.element)
    if isinstance(t, Map):
        return _innermost(t.value if is_delimited(t.key) else t.key)
    return describe(t)


def _members(t: Struct, keys: _Keys) -> tuple[Member, ...]:
    return _key_members(t, keys) if keys is _Keys.HOLDER else t.members


def _key_members(t: Struct, keys: _Keys) -> tuple[Member, ...]:
    if keys is _Keys.ERASED:
        return ()
    marked = tuple(member for member in t.members if member.key)
    return t.members if keys is _Keys.HOLDER and not marked else marked


def _labels(t: Union) -> dict[int, Case]:
    return {label: case for case in t.cases for label in case.labels}


def _default(t: Union) -> Case | None:
    return next((case for case in t.cases if case.default), None)
