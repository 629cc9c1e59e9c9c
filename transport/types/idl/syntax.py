"""Parses words into a syntax tree by the grammar, and explains syntax errors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeAlias

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken

from .tokens import END, IdlError, Word

Node: TypeAlias = "Tree[Token]"

#: Definitions of IDL that cannot become columns.
NOT_SUPPORTED: Final = frozenset(
    {
        "any",
        "fixed",
        "interface",
        "abstract",
        "local",
        "valuetype",
        "custom",
        "eventtype",
        "exception",
        "native",
    }
    | {"component", "home", "porttype", "connector", "typeid", "typeprefix", "import", "Object", "ValueBase"}
)
_REGULAR: Final = ("NAME", "INTEGER", "REAL", "CHARACTER", "TEXT", "ANNOTATION", "POSTFIX", "KEYLIST")
#: Names of kinds of words for messages.
_SPOKEN: Final = {"NAME": "a name", "INTEGER": "a number", "ABSOLUTE": "'::'"}


@cache
def _parser() -> Lark:
    grammar = files(__package__).joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", lexer="basic", maybe_placeholders=False)


@cache
def _kinds() -> dict[str, str]:
    """The kind of each keyword and sign."""
    return {t.pattern.value: t.name for t in _parser().terminals if t.name not in _REGULAR}


@cache
def keywords() -> frozenset[str]:
    """The words that cannot be names, in lower case."""
    return frozenset(text.lower() for text in _kinds() if text.isalpha() or text[-1].isdigit())


def syntax_tree(words: Iterator[Word]) -> Node:
    """The tree of the words, the last of which is END. Raises IdlError for a syntax error."""
    kinds = _kinds()
    parser: Any = _parser().parse_interactive()  # not all of it has types
    tree: Node | None = None
    before: Word | None = None
    for at in _without_annotation_definitions(words):
        if at.type in ("NAME", "SIGN"):
            at.type = kinds.get(at, at.type)
        if at.type in ("BAD", "SIGN"):
            raise IdlError(at, _bad(at))
        try:
            tree = parser.feed_token(at)
        except UnexpectedToken:
            raise _unexpected(at, before, parser.accepts()) from None
        before = at
    assert tree is not None  # the END makes it
    return tree


def _without_annotation_definitions(words: Iterator[Word]) -> Iterator[Word]:
    """The words without ``@annotation Name { ... };``, which has no meaning for a type."""
    for at in words:
        if at.type != "ANNOTATION" or at != "@annotation":
            yield at
            continue
        depth = 0
        for each in words:
            depth += (each == "{") - (each == "}")
            if each == ";" and not depth:
                break
        else:
            raise IdlError(at, "this @annotation has no end: write @annotation Name { ... };")


def _bad(at: Word) -> str:
    if at.type == "BAD":
        return f"this text has no end: write {at[0]} in the same line"
    return f"unexpected character {str(at)!r}"


def _unexpected(at: Word, before: Word | None, expected: set[str]) -> IdlError:
    if at.type == END:
        return IdlError(at, "unexpected end of the text")
    for each in (at, before):
        # fixed is only known by what follows it
        if each is not None and each in NOT_SUPPORTED and (each is at or at == "<"):
            return IdlError(each, f"{each} is not supported: not a data type of a topic")
    if "NAME" in expected and at.type not in _REGULAR and at.lower() in keywords():
        return IdlError(at, f"unexpected {str(at)!r}, which is a keyword: as a name write _{at}")
    values = {kind: text for text, kind in _kinds().items()}
    spoken = [_SPOKEN.get(kind) or repr(values.get(kind, kind.lower())) for kind in sorted(expected)]
    hint = f"; expected {' or '.join(spoken)}" if len(spoken) <= 3 else ""
    return IdlError(at, f"unexpected {str(at)!r}{hint}")


# --- reading the tree -----------------------------------------------------------------------------------


def tree(node: Token | Node) -> Node:
    assert isinstance(node, Tree)  # by the grammar
    return node


def token(node: Token | Node) -> Token:
    assert isinstance(node, Token)
    return node


def trees(node: Node, data: str) -> list[Node]:
    """The children of one kind."""
    return [child for child in node.children if isinstance(child, Tree) and child.data == data]


def names(node: Node) -> list[Token]:
    """The names among the children."""
    return [child for child in node.children if isinstance(child, Token) and child.type == "NAME"]


def identifier(at: Token) -> str:
    """The text of a name; a leading underscore only escapes keywords (IDL 4.2 §7.2.3.2)."""
    return at[1:] if at.startswith("_") and len(at) > 1 else str(at)


def spelled(scoped: Node) -> str:
    return "::".join(identifier(at) for at in names(scoped))


def first_token(node: Node) -> Token | None:
    return next(iter(node.scan_values(lambda _: True)), None)
