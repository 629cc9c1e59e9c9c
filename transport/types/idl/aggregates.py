"""Structs and unions, with their members."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from lark import Token

from ..model import (
    INTEGER_RANGES,
    MEMBER_ID_MAX,
    Array,
    Case,
    Enum,
    Extensibility,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    TryConstruct,
    Type,
    Union,
    WString,
    hash_id,
    resolve,
)
from .annotations import Annotations
from .expressions import Constant, EnumLiteral
from .reader import MemberNames, Reader, TypeDefaults, annotated
from .scopes import Scope, qualified
from .syntax import Node, first_token, identifier, token, tree, trees
from .tokens import IdlError

_TYPE_ANNOTATIONS: Final = (
    "final",
    "appendable",
    "mutable",
    "extensibility",
    "nested",
    "autoid",
    "topic",
    "default_nested",
)
_MEMBER_ANNOTATIONS: Final = (
    "id",
    "hashid",
    "external",
    "try_construct",
    "default",
    "unit",
    "min",
    "max",
    "range",
)
_CHOICES: Final = tuple(choice.value for choice in TryConstruct)


def read_struct(
    reader: Reader, node: Node, annotations: Annotations, scope: Scope, settings: TypeDefaults
) -> Struct:
    annotations.ignore_but(*_TYPE_ANNOTATIONS)
    at = token(node.children[0])
    base = None
    for scoped in trees(node, "scoped"):
        found = resolve(reader.named_type(scoped, scope))
        if not isinstance(found, Struct):
            raise IdlError(first_token(scoped), "a struct can only inherit from a struct")
        base = found
    hashed = autoid_hash(annotations, settings)
    members = list(base.members) if base is not None else []
    taken = MemberNames(member.name for member in members)
    ids = _Ids(hashed, 0, dict.fromkeys(member.id for member in members))
    for child in trees(node, "member"):
        own = reader.annotations(child, scope)
        own.ignore_but("key", "optional", "must_understand", *_MEMBER_ANNOTATIONS)
        for name_at, t in reader.declarations(child, reader.type(annotated(child), scope), scope):
            name = taken.add_name(name_at)
            key, optional = own.flag("key"), own.flag("optional")
            if key and optional:
                raise IdlError(name_at, f"{name}: a key cannot be @optional: leave one of them out")
            members.append(
                Member(
                    name,
                    t,
                    ids.id_of(name_at, own),
                    key,
                    optional,
                    own.flag("must_understand"),
                    own.flag("external"),
                    _try_construct(own),
                    _notes(reader, own, t, scope),
                )
            )
    name = qualified(scope, identifier(at))
    if not members:
        raise IdlError(at, f"struct {name} has no members: write at least one")
    extensibility = extensibility_of(annotations, at, settings.extensibility)
    return Struct(name, tuple(members), extensibility, base, _is_nested(annotations, settings), hashed)


def read_union(
    reader: Reader, node: Node, annotations: Annotations, scope: Scope, settings: TypeDefaults
) -> Union:
    annotations.ignore_but(*_TYPE_ANNOTATIONS)
    at = token(node.children[0])
    hashed = autoid_hash(annotations, settings)
    of_discriminator = reader.annotations(node, scope)
    of_discriminator.ignore_but("key", "external", "try_construct", "must_understand")
    discriminator = reader.type(trees(node, "type")[0], scope)
    if not _is_discriminator(resolve(discriminator)):
        raise IdlError(
            first_token(trees(node, "type")[0]),
            "a union is switched by an integer, a char, a boolean, an octet or an enum",
        )
    # XTypes 1.3 §7.3.1.2.1.1: 0 is the discriminator. Cyclone DDS begins at 0 up to release 11.0.1.
    ids = _Ids(hashed, 1)
    cases: list[Case] = []
    taken = MemberNames()
    selected: dict[int, str] = {}
    has_default = False
    for child in trees(node, "case"):
        own = reader.annotations(child, scope)
        own.ignore_but(*_MEMBER_ANNOTATIONS)
        ((name_at, t),) = reader.declarations(child, reader.type(annotated(child), scope), scope)
        name = taken.add_name(name_at)
        labels: list[int] = []
        default = False
        for label in trees(child, "label"):
            if not label.children:
                if has_default:
                    raise IdlError(name_at, "a union has one default at most")
                default = has_default = True
                continue
            expression = tree(label.children[0])
            code = _code(reader.evaluate(expression, scope, discriminator))
            if code in selected:
                raise IdlError(first_token(expression), f"this label already selects {selected[code]}")
            selected[code] = name
            labels.append(code)
        cases.append(
            Case(
                name,
                t,
                ids.id_of(name_at, own),
                tuple(labels),
                default,
                own.flag("external"),
                _try_construct(own),
                _notes(reader, own, t, scope),
            )
        )
    return Union(
        qualified(scope, identifier(at)),
        discriminator,
        tuple(cases),
        extensibility_of(annotations, at, settings.extensibility),
        of_discriminator.flag("key"),
        _is_nested(annotations, settings),
        hashed,
    )


def _is_discriminator(t: Type) -> bool:
    others = (PrimitiveKind.BOOLEAN, PrimitiveKind.CHAR8, PrimitiveKind.CHAR16)
    return isinstance(t, Enum) or (
        isinstance(t, Primitive) and (t.kind in INTEGER_RANGES or t.kind in others)
    )


def _code(label: Constant) -> int:
    return ord(label) if isinstance(label, str) else int(label)


# --- what annotations say ---------------------------------------------------------------------------


def extensibility_of(annotations: Annotations, at: Token, default: Extensibility) -> Extensibility:
    found = [kind for kind in Extensibility if annotations.flag(kind.value)]
    chosen = annotations.choice("extensibility", tuple(kind.name for kind in Extensibility))
    found += [kind for kind in Extensibility if kind.name == chosen]
    if len(set(found)) > 1:
        raise IdlError(at, f"more than one extensibility: leave @{found[0].value} or @{found[1].value} out")
    return found[0] if found else default


def autoid_hash(annotations: Annotations, settings: TypeDefaults) -> bool:
    chosen = annotations.choice("autoid", ("SEQUENTIAL", "HASH"), "HASH")
    return settings.autoid_hash if chosen is None else chosen == "HASH"


def _is_nested(annotations: Annotations, settings: TypeDefaults) -> bool:
    default = settings.nested and "topic" not in annotations
    return annotations.flag("nested", annotations.flag("default_nested", default))


def _try_construct(annotations: Annotations) -> TryConstruct:
    return TryConstruct(annotations.choice("try_construct", _CHOICES, "USE_DEFAULT") or "DISCARD")


@dataclass
class _Ids:
    """Member ids (XTypes 1.3 §7.3.1.2.1.1): @id, @hashid, @autoid(HASH), or one more than the member before."""

    hashed: bool
    first: int
    taken: dict[int, None] = field(default_factory=dict)

    def id_of(self, at: Token, annotations: Annotations) -> int:
        member_id = annotations.integer("id", 0, MEMBER_ID_MAX)
        if member_id is None:
            if "hashid" in annotations or self.hashed:
                member_id = hash_id(annotations.text("hashid") or identifier(at))
            else:
                member_id = next(reversed(self.taken)) + 1 if self.taken else self.first
        if member_id > MEMBER_ID_MAX:  # the member before has the last id
            raise IdlError(
                at, f"no id is left after {MEMBER_ID_MAX}: give {identifier(at)} an @id of its own"
            )
        if member_id in self.taken:
            raise IdlError(at, f"two members have the id {member_id}: give one of them another @id")
        self.taken[member_id] = None
        return member_id


def _notes(
    reader: Reader, annotations: Annotations, t: Type, scope: Scope
) -> tuple[tuple[str, Constant], ...]:
    """The annotations that describe values, in the order in which they are written."""
    notes: list[tuple[str, Constant]] = []
    inner = resolve(t)
    while isinstance(inner, Array | Sequence):
        inner = resolve(inner.element)
    typed = inner if isinstance(inner, Primitive | String | WString | Enum) else None

    def value(node: Node) -> Constant:
        found = reader.evaluate(node, scope, typed)
        return found.name if isinstance(found, EnumLiteral) else found

    for annotation in annotations.all:
        name, arguments = annotation.name, annotation.arguments
        if name in ("unit", "hashid"):
            notes.append((name, annotations.text(name) or ""))
        elif name == "range":
            if not arguments or arguments.keys() - {"min", "max"}:
                raise IdlError(annotation.at, "@range needs @range(min=..., max=...)")
            notes += [(bound, value(arguments[bound])) for bound in ("min", "max") if bound in arguments]
        elif name in ("default", "min", "max"):
            if "value" not in arguments:
                raise IdlError(annotation.at, f"@{name} needs a value: write @{name}(...)")
            notes.append((name, value(arguments["value"])))
    return tuple(notes)
