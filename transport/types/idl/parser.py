"""OMG IDL 4.2 (building blocks for data types, with XTypes annotations) to DDS types, and back."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeAlias

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ...errors import TypeDefinitionError
from ..model import (
    Array,
    Enum,
    Extensibility,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    hash_id,
)
from .printer import print_idl

__all__ = ["parse_idl", "print_idl"]

Value: TypeAlias = int | float | str | bool
Node: TypeAlias = "Tree[Token]"

_INTEGERS: Final = {
    "short": PrimitiveKind.INT16,
    "unsigned short": PrimitiveKind.UINT16,
    "long": PrimitiveKind.INT32,
    "unsigned long": PrimitiveKind.UINT32,
    "long long": PrimitiveKind.INT64,
    "unsigned long long": PrimitiveKind.UINT64,
}
_NOT_SUPPORTED: Final = re.compile(
    "union|bitmask|bitset|wstring|wchar|any|fixed|interface|valuetype|exception|native|Object"
)
_UNARY: Final[dict[str, Callable[[Any], int | float]]] = {
    "+": operator.pos,
    "-": operator.neg,
    "~": operator.inv,
}
_BINARY: Final[dict[str, Callable[[Any, Any], int | float]]] = {
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "<<": operator.lshift,
    ">": operator.rshift,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_SIZE_MAX: Final = (1 << 31) - 1
_ID_MAX: Final = 0x0FFF_FFFF


class _IdlError(Exception):
    def __init__(self, at: Token | None, message: str) -> None:
        self.at = at
        self.message = message


def parse_idl(
    text: str, file: str = "<idl>", *, extensibility: Extensibility = Extensibility.APPENDABLE
) -> dict[str, Type]:
    """Structs, enums and typedefs of an IDL text, by qualified name (``a::b::C``).

    ``extensibility`` is that of structs without an annotation; the default is the one of XTypes 1.3
    §7.3.3.1.8 (IDL compilers of some vendors differ). Annotations without a meaning for data are ignored.
    Include directives and include guards are ignored too: hand in all the text that is needed.

    Raises TypeDefinitionError naming file, line and column.
    """
    reader = _Reader(extensibility)
    try:
        reader.read(_parser().parse(text), ())
    except _IdlError as error:
        where = f"{file}:{error.at.line}:{error.at.column}" if error.at is not None else file
        raise TypeDefinitionError(f"{where}: {error.message}") from None
    except UnexpectedInput as error:
        if isinstance(error, UnexpectedToken) and error.token.type == "$END":
            lines = text.splitlines() or [""]
            where = f"{file}:{len(lines)}:{len(lines[-1]) + 1}"
            raise TypeDefinitionError(f"{where}: unexpected end of the text") from None
        raise TypeDefinitionError(f"{file}:{error.line}:{error.column}: {_unexpected(error)}") from None
    except RecursionError:
        raise TypeDefinitionError(f"{file}: nested too deeply") from None
    return reader.types


def _unexpected(error: UnexpectedInput) -> str:
    if isinstance(error, UnexpectedCharacters):
        return f"unexpected character {error.char!r}"
    if isinstance(error, UnexpectedToken):
        if _NOT_SUPPORTED.fullmatch(error.token):
            return f"{error.token} is not supported"
        return f"unexpected {str(error.token)!r}"
    return "syntax error"


@cache
def _parser() -> Lark:
    return Lark(
        files(__package__).joinpath("grammar.lark").read_text("utf-8"),
        parser="lalr",
        maybe_placeholders=False,
        lexer_callbacks={"COMMENT": _check_comment, "DIRECTIVE": _check_directive},
    )


def _check_comment(token: Token) -> Token:
    if token.startswith("//@"):
        raise _IdlError(token, "annotations in comments are not read: write @key before the member")
    return token


def _check_directive(token: Token) -> Token:
    words = token[1:].split()
    if words[:2] == ["pragma", "keylist"]:
        raise _IdlError(token, "#pragma keylist is not supported: write @key before the members")
    # what is left over of an include guard, and what says nothing about types
    harmless = not words or words[0] in ("include", "pragma", "ifndef", "endif", "line") or words[0].isdigit()
    if not harmless and not (words[0] == "define" and len(words) == 2):
        raise _IdlError(token, f"#{words[0]} is not supported: hand in preprocessed IDL")
    return token


@dataclass(frozen=True, slots=True)
class _Annotations:
    """The annotations before a thing; unknown ones are kept and never looked at."""

    nodes: dict[str, Node]

    def __contains__(self, name: str) -> bool:
        return name in self.nodes

    def flag(self, name: str, reader: _Reader, scope: tuple[str, ...]) -> bool:
        return name in self and bool(self.value(name, reader, scope, True))

    def value(self, name: str, reader: _Reader, scope: tuple[str, ...], default: Value) -> Value:
        node = self.nodes[name]
        if len(node.children) < 2:
            return default
        argument = _tree(_tree(node.children[1]).children[0])
        if argument.data == "argument":
            argument = _tree(argument.children[1])
        return reader.evaluate(argument, scope)


class _Reader:
    def __init__(self, extensibility: Extensibility) -> None:
        self.extensibility = extensibility
        self.types: dict[str, Type] = {}
        self.constants: dict[str, Value] = {}
        self.forward: set[str] = set()

    def read(self, tree: Node, scope: tuple[str, ...]) -> None:
        for child in tree.children:
            if isinstance(child, Tree) and child.data == "definition":
                self.definition(child, scope)

    def definition(self, tree: Node, scope: tuple[str, ...]) -> None:
        annotations = _annotations(tree)
        node = _tree(tree.children[-1])
        if node.data == "module":
            self.read(node, (*scope, _name(node.children[0])))
        elif node.data == "struct":
            self.struct(node, annotations, scope)
        elif node.data == "enum":
            self.enum(node, annotations, scope)
        elif node.data == "typedef":
            kind, declarators = self.declaration(node, scope)
            for name, dimensions in declarators:
                self.define(name, scope, Array(kind, dimensions) if dimensions else kind)
        elif node.data == "const":
            value = self.constant(self.type(_tree(node.children[0]), scope), node, scope)
            self.define_constant(_token(node.children[1]), scope, value)
        else:
            self.forward.add("::".join((*scope, _name(node.children[0]))))

    def define(self, name: Token, scope: tuple[str, ...], kind: Type) -> None:
        qualified = "::".join((*scope, _name(name)))
        if qualified in self.types or qualified in self.constants:
            raise _IdlError(name, f"{qualified} is defined twice")
        self.types[qualified] = kind

    def define_constant(self, name: Token, scope: tuple[str, ...], value: Value) -> None:
        qualified = "::".join((*scope, _name(name)))
        if qualified in self.types or qualified in self.constants:
            raise _IdlError(name, f"{qualified} is defined twice")
        self.constants[qualified] = value

    def struct(self, node: Node, annotations: _Annotations, scope: tuple[str, ...]) -> None:
        name = _token(node.children[0])
        qualified = "::".join((*scope, _name(name)))
        members: list[Member] = []
        rest = node.children[1:]
        if rest and _tree(rest[0]).data == "scoped":
            base = self.resolve(_tree(rest[0]), scope)
            if not isinstance(base, Struct):
                raise _IdlError(_first_token(_tree(rest[0])), "a struct can only inherit from a struct")
            members.extend(base.members)
            rest = rest[1:]
        hashed = "autoid" in annotations and _argument_name(annotations.nodes["autoid"]) == "HASH"
        for child in rest:
            self.member(_tree(child), hashed, members, scope)
        if not members:
            raise _IdlError(name, f"struct {qualified} has no members")
        self.define(name, scope, Struct(qualified, tuple(members), self.extensibility_of(annotations, name)))

    def extensibility_of(self, annotations: _Annotations, at: Token) -> Extensibility:
        found = [kind for kind in Extensibility if kind.value in annotations]
        if "extensibility" in annotations:
            argument = _argument_name(annotations.nodes["extensibility"])
            found += [kind for kind in Extensibility if kind.name == argument.removesuffix("_EXTENSIBILITY")]
            if not found:
                raise _IdlError(at, "@extensibility needs FINAL, APPENDABLE or MUTABLE")
        if len(set(found)) > 1:
            raise _IdlError(at, "more than one extensibility")
        return found[0] if found else self.extensibility

    def member(self, node: Node, hashed: bool, members: list[Member], scope: tuple[str, ...]) -> None:
        annotations = _annotations(node)
        kind, declarators = self.declaration(node, scope)
        for token, dimensions in declarators:
            name = _name(token)
            if any(member.name == name for member in members):
                raise _IdlError(token, f"two members are named {name}")
            member_id = self.member_id(annotations, name, hashed, members, token, scope)
            key, optional = annotations.flag("key", self, scope), annotations.flag("optional", self, scope)
            if key and optional:
                raise _IdlError(token, f"{name}: a key cannot be @optional")
            t = Array(kind, dimensions) if dimensions else kind
            members.append(Member(name, t, member_id, key, optional))

    def member_id(
        self,
        annotations: _Annotations,
        name: str,
        hashed: bool,
        members: list[Member],
        at: Token,
        scope: tuple[str, ...],
    ) -> int:
        """XTypes 1.3 §7.3.1.2.1.1: @id, @hashid, @autoid(HASH), or one more than the member before."""
        if "id" in annotations:
            value = annotations.value("id", self, scope, -1)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _ID_MAX:
                raise _IdlError(at, f"@id needs a number from 0 to {_ID_MAX}")
            member_id = value
        elif "hashid" in annotations or hashed:
            text = annotations.value("hashid", self, scope, "") if "hashid" in annotations else ""
            member_id = hash_id(str(text) or name)
        else:
            member_id = members[-1].id + 1 if members else 0
        if any(member.id == member_id for member in members):
            raise _IdlError(at, f"two members have the id {member_id}")
        return member_id

    def enum(self, node: Node, annotations: _Annotations, scope: tuple[str, ...]) -> None:
        name = _token(node.children[0])
        literals: list[tuple[str, int]] = []
        bit_bound = annotations.value("bit_bound", self, scope, 32) if "bit_bound" in annotations else 32
        if isinstance(bit_bound, bool) or not isinstance(bit_bound, int) or not 1 <= bit_bound <= 32:
            raise _IdlError(name, "@bit_bound of an enum is 1 to 32")
        for child in node.children[1:]:
            enumerator = _tree(child)
            own = _annotations(enumerator)
            token = _token(enumerator.children[-1])
            value = own.value("value", self, scope, 0) if "value" in own else _next(literals)
            if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 31) <= value < 1 << 31:
                raise _IdlError(token, "@value of an enum literal needs a 32-bit number")
            if not -(1 << bit_bound - 1) <= value < 1 << bit_bound - 1:
                raise _IdlError(token, f"{_name(token)} = {value} does not fit @bit_bound({bit_bound})")
            if any(value == known or _name(token) == literal for literal, known in literals):
                raise _IdlError(token, f"{_name(token)} = {value}: the enum has that name or value already")
            literals.append((_name(token), value))
            self.define_constant(token, scope, value)
        self.define(name, scope, Enum("::".join((*scope, _name(name))), tuple(literals), bit_bound))

    def declaration(
        self, node: Node, scope: tuple[str, ...]
    ) -> tuple[Type, list[tuple[Token, tuple[int, ...]]]]:
        children = [child for child in map(_tree, node.children) if child.data != "annotation"]
        kind = self.type(children[0], scope)
        declarators = []
        for declarator in children[1:]:
            name = _token(declarator.children[0])
            dimensions = tuple(
                self.size(_tree(_tree(dimension).children[0]), scope, name, "array")
                for dimension in declarator.children[1:]
            )
            declarators.append((name, dimensions))
        return kind, declarators

    def type(self, node: Node, scope: tuple[str, ...]) -> Type:
        if node.data == "string":
            return String(self.size(_tree(node.children[0]), scope, None, "string") if node.children else 0)
        if node.data == "sequence":
            children = [child for child in map(_tree, node.children) if child.data != "annotation"]
            bound = self.size(children[1], scope, None, "sequence") if len(children) > 1 else 0
            element = self.type(children[0], scope)
            return Sequence(element, bound)
        if node.data == "map":
            raise _IdlError(_first_token(node), "map is not supported")
        inner = _tree(node.children[0])
        if inner.data == "scoped":
            found = self.resolve(inner, scope)
            if not isinstance(found, Primitive | String | Enum | Sequence | Array | Struct):
                raise _IdlError(_first_token(inner), f"{_spelled(inner)} is a constant, not a type")
            return found
        words = " ".join(str(token) for token in inner.children)
        if words == "long double":
            raise _IdlError(_first_token(inner), "long double is not supported")
        return Primitive(_INTEGERS.get(words) or PrimitiveKind(words))

    def size(self, node: Node, scope: tuple[str, ...], at: Token | None, what: str) -> int:
        value = self.evaluate(node, scope)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _SIZE_MAX:
            raise _IdlError(
                _first_token(node) or at, f"the size of {what} must be a positive number, not {value}"
            )
        return value

    def resolve(self, node: Node, scope: tuple[str, ...]) -> Type | Value:
        """Look a name up from the innermost scope outwards (IDL 4.2 §7.5.2)."""
        absolute = _token(node.children[0]).type == "ABSOLUTE"
        path = [_name(token) for token in node.children if _token(token).type == "NAME"]
        for depth in range(0 if absolute else len(scope), -1, -1):
            qualified = "::".join((*scope[:depth], *path))
            if qualified in self.types:
                return self.types[qualified]
            if qualified in self.constants:
                return self.constants[qualified]
            if qualified in self.forward:
                raise _IdlError(
                    _first_token(node),
                    f"{qualified} is used before its definition; recursive types are not supported",
                )
        spelled = _spelled(node)
        if _NOT_SUPPORTED.fullmatch(spelled):
            raise _IdlError(_first_token(node), f"{spelled} is not supported")
        raise _IdlError(_first_token(node), f"{spelled} is not defined (before this line, in this text)")

    def constant(self, kind: Type, node: Node, scope: tuple[str, ...]) -> Value:
        value = self.evaluate(_tree(node.children[2]), scope)
        if isinstance(kind, Primitive) and kind.kind in (PrimitiveKind.FLOAT32, PrimitiveKind.FLOAT64):
            return float(value) if isinstance(value, int) else value
        return value

    def evaluate(self, node: Node, scope: tuple[str, ...]) -> Value:
        if node.data == "literal":
            return _literal([_token(child) for child in node.children])
        if node.data == "scoped":
            found = self.resolve(node, scope)
            if isinstance(found, int | float | str):
                return found
            raise _IdlError(_first_token(node), f"{_spelled(node)} is a type, not a constant")
        values = [self.evaluate(child, scope) for child in node.children if isinstance(child, Tree)]
        sign = next(child for child in node.children if isinstance(child, Token))
        if not all(isinstance(value, int | float) for value in values):
            raise _IdlError(sign, f"{sign} needs numbers")
        try:
            return _calculate(str(sign), values)
        except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
            raise _IdlError(sign, f"cannot calculate {sign}: {error}") from None


def _calculate(sign: str, values: list[Value]) -> Value:
    numbers = [value for value in values if not isinstance(value, str)]
    if len(numbers) == 1:
        return _UNARY[sign](numbers[0])
    a, b = numbers
    if sign in ("<<", ">") and not 0 <= b < 64:
        raise ValueError(f"shift by {b}")
    if sign in ("/", "%") and isinstance(a, int) and isinstance(b, int):
        # C's division truncates towards zero
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if sign == "/" else a - b * quotient
    if sign == "/":
        return a / b
    if sign == "%":
        raise TypeError("not for floating-point numbers")
    return _BINARY[sign](a, b)


_ESCAPES: Final = {"n": "\n", "t": "\t", "v": "\v", "b": "\b", "r": "\r", "f": "\f", "a": "\a", "0": "\0"}


def _literal(tokens: list[Token]) -> Value:
    token = tokens[0]
    text = str(token)
    if token.type == "INTEGER":
        octal = len(text) > 1 and text[0] == "0" and text.isdigit()
        try:
            return int(text, 8 if octal else 0)
        except ValueError:
            raise _IdlError(token, f"{text} is no number") from None
    if token.type == "REAL":
        return float(text.rstrip("fFdDlL"))
    if token.type in ("TRUE", "FALSE"):
        return token.type == "TRUE"
    return "".join(_unescape(str(part).removeprefix("L")[1:-1]) for part in tokens)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    head, _, tail = text.partition("\\")
    return head + _ESCAPES.get(tail[:1], tail[:1]) + _unescape(tail[1:])


def _next(literals: list[tuple[str, int]]) -> int:
    return literals[-1][1] + 1 if literals else 0


def _annotations(node: Node) -> _Annotations:
    found = [child for child in node.children if isinstance(child, Tree) and child.data == "annotation"]
    return _Annotations({str(child.children[0]): child for child in found})


def _argument_name(annotation: Node) -> str:
    """The bare name an annotation was given: @autoid(HASH), @extensibility(FINAL)."""
    names = [token for token in annotation.scan_values(lambda _: True) if token.type == "NAME"]
    return str(names[-1]) if len(names) > 1 else ""


def _tree(node: Token | Node) -> Node:
    assert isinstance(node, Tree)  # the grammar says so
    return node


def _token(node: Token | Node) -> Token:
    assert isinstance(node, Token)
    return node


def _name(node: Token | Node) -> str:
    """An identifier; a leading underscore only escapes keywords (IDL 4.2 §7.2.3.2)."""
    text = str(node)
    return text[1:] if text.startswith("_") and len(text) > 1 else text


def _spelled(node: Node) -> str:
    return "::".join(_name(token) for token in node.children if _token(token).type == "NAME")


def _first_token(node: Node) -> Token | None:
    return next(iter(node.scan_values(lambda _: True)), None)
