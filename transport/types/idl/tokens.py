"""Splits IDL text into words, each with its position in its file."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from typing import Final

from lark import Token

from ...errors import TypeDefinitionError

#: Quantifiers are possessive where a text may be long, so that matching neither backtracks nor keeps state for it.
_WORDS: Final = re.compile(
    r"""
      (?P<NEWLINE>\n)
    | (?P<SPACE>[^\S\n]+)
    | (?P<CHARACTER>L?'(?:\\.[0-9A-Fa-f]*|[^'\\\n])')
    | (?P<TEXT>L?"(?:[^"\\\n]++|\\.)*+")
    | (?P<NAME>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<COMMENT>//(?:\\\r?\n|[^\n])*+|/\*.*?\*/)
    | (?P<BAD>/\*|['"][^\n]*)
    | (?P<ANNOTATION>@\s*[A-Za-z_]\w*(?:::\w+)*)
    | (?P<REAL>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdDlL]?|\d+[eE][+-]?\d+[fFdDlL]?)
    | (?P<INTEGER>0[xX][0-9A-Fa-f]+|\d+)
    | (?P<DIRECTIVE>\#(?:
          [^\n"/\\]++ | "(?:\\\r?\n|\\.|[^"\\\n])*+"? | //(?:\\\r?\n|[^\n])*+ | /\*.*?\*/ | \\\r?\n | (?!/\*)[^\n]
      )*+)
    | (?P<SIGN>::|<<|&&|\|\||[=!<>]=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
#: The kind of the word that ends a text, as lark has it.
END: Final = "$END"
_NAME_CHARACTERS: Final = string.ascii_letters + string.digits + "_"
_COMMENTS: Final = re.compile(r'("(?:\\.|[^"\\])*+"?)|\\\r?\n|/\*.*?\*/|//(?:\\\r?\n|[^\n])*+', re.DOTALL)


class Word(Token):
    """A token with its file."""

    __slots__ = ("file",)
    file: str
    line: int
    column: int


def word(kind: str, text: str, file: str, line: int, column: int) -> Word:
    made = Word(kind, text, line=line, column=column)
    made.file = file
    return made


class IdlError(TypeDefinitionError):
    """An error at a word of the text."""

    def __init__(self, at: Token | None, message: str) -> None:
        #: Where the word is from; None: unknown.
        self.at = at
        place = f"{getattr(at, 'file', '<idl>')}:{at.line}:{at.column}: " if at is not None else ""
        super().__init__(place + message)


def place_of(at: Token) -> str:
    return f"{getattr(at, 'file', '<idl>')}:{at.line}:{at.column}"


def words_of(text: str, file: str) -> Iterator[Word]:
    """The words of a text: those of the grammar, and DIRECTIVE, COMMENT (one that begins with ``//@``), SIGN (several
    kinds, which the grammar distinguishes), BAD (a quote that is never closed, with the rest of its line) and END.
    Raises IdlError for a comment that is never closed.
    """
    line, line_start = 1, 0
    first = True
    for match in _WORDS.finditer(text):
        kind = str(match.lastgroup)
        if kind == "NEWLINE":
            line, line_start, first = line + 1, match.end(), True
            continue
        if kind == "SPACE":
            continue
        found = match.group()
        if kind != "COMMENT" or found.startswith("//@"):
            at = word(kind, found, file, line, match.start() - line_start + 1)
            if found == "/*":  # nothing after it is a word
                raise IdlError(at, "this comment has no end: write */")
            if kind == "DIRECTIVE" and not first:
                raise IdlError(at, "# is only allowed at the beginning of a line")
            yield at
        first = first and kind == "COMMENT"
        if "\n" in found:
            line += found.count("\n")
            line_start = match.start() + found.rindex("\n") + 1
    lines = text.splitlines() or [""]
    yield word(END, "", file, len(lines), len(lines[-1]) + 1)


def directive_of(at: Word) -> tuple[str, str]:
    """The name of a directive and its rest, without comments and continued lines."""
    text = _COMMENTS.sub(lambda match: match[1] or " ", at[1:]).strip()
    name = text[: len(text) - len(text.lstrip(_NAME_CHARACTERS))]
    return name, text[len(name) :].strip()


def words_at(at: Word, text: str) -> list[Word]:
    """The words of a text that is part of a directive or replaces a word; all have the position of ``at``."""
    return [
        word(each.type, str(each), at.file, at.line, at.column)
        for each in words_of(text, at.file)
        if each.type != END
    ]
