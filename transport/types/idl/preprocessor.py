"""The preprocessor: ``#include``, ``#define``, ``#if`` and others, and annotations in comments."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Final

from ...errors import TypeDefinitionError
from ...limits import IDL_EXPANSION_MAX, IDL_WORDS_MAX
from .conditions import holds
from .tokens import END, IdlError, Word, directive_of, word, words_at, words_of

_INCLUDE: Final = re.compile(r'"([^"]+)"|<([^>]+)>')
_DEFINE: Final = re.compile(r"([A-Za-z_]\w*)(\(?)(.*)", re.DOTALL)
_IN_COMMENT: Final = re.compile(r"@([\w-]+)(?:[ \t]+(\w+))?")
#: Annotations in comments that matter for columns; RTI and OpenSplice write them after the member.
_POSTFIX: Final = ("key", "optional", "id", "extensibility", "mustunderstand")

Include = Callable[[str], str]


def preprocess(
    text: str, file: str, include: Include | None, note: Callable[[Word, str], None]
) -> Iterator[Word]:
    """The words of a text and of all files that it includes; ``note`` is called for everything ignored.

    A file is read once, even without guards. Raises IdlError.
    """
    return _Preprocessor(include, note).words(text, file, "")


class _Branch:
    """An open ``#if``: whether its current branch is active, and whether any of its branches has been."""

    def __init__(self, at: Word, enclosing: bool, active: bool) -> None:
        self.at = at
        self.enclosing = enclosing
        self.active = enclosing and active
        self.taken = active
        self.has_else = False


class _Preprocessor:
    def __init__(self, include: Include | None, note: Callable[[Word, str], None]) -> None:
        self.include = include
        self.note = note
        #: The replacement text of each macro; None for a macro with parameters.
        self.macros: dict[str, str | None] = {}
        self.open: list[str] = []
        self.read: set[str] = set()
        self.count = 0
        self.expansion = 0

    def counted(self, at: Word) -> Word:
        self.count += 1
        if self.count > IDL_WORDS_MAX:
            raise IdlError(at, f"the text has more than {IDL_WORDS_MAX} words")
        return at

    def words(self, text: str, file: str, folder: str) -> Iterator[Word]:
        branches: list[_Branch] = []
        self.open.append(file)
        last: Word | None = None
        for each in words_of(text, file):
            active = not branches or branches[-1].active
            if each.type == END:
                if branches:
                    raise IdlError(branches[-1].at, "this #if has no #endif")
                if len(self.open) == 1:
                    yield each
            elif each.type == "DIRECTIVE":
                if not self.branch(each, branches) and active:
                    yield from self.directive(each, folder)
            elif not active:
                pass
            elif each.type == "COMMENT":
                yield from self.comment(each, last)
            elif each in self.macros and each.type == "NAME":
                yield from self.expanded(each, frozenset())
                last = each
            else:
                yield self.counted(each)
                last = each
        self.open.pop()

    # --- conditions

    def branch(self, at: Word, branches: list[_Branch]) -> bool:
        """Handle a directive if it is a condition. Returns whether it is."""
        name, rest = directive_of(at)
        enclosing = not branches or branches[-1].active
        if name in ("ifdef", "ifndef"):
            if not rest.isidentifier():
                raise IdlError(at, f"#{name} needs one name")
            branches.append(_Branch(at, enclosing, (rest in self.macros) == (name == "ifdef")))
        elif name == "if":
            branches.append(_Branch(at, enclosing, enclosing and self.holds(at, rest)))
        elif name in ("elif", "else", "endif"):
            if not branches:
                raise IdlError(at, f"#{name} needs an #if before it")
            branch = branches[-1]
            if name == "endif":
                branches.pop()
                return True
            if branch.has_else:
                raise IdlError(at, f"#{name} must not follow #else")
            branch.has_else = name == "else"
            wanted = branch.enclosing and not branch.taken
            branch.active = wanted and (name == "else" or self.holds(at, rest))
            branch.taken = branch.taken or branch.active
        else:
            return False
        return True

    def holds(self, at: Word, text: str) -> bool:
        words: list[Word] = []
        for each in words_at(at, text):
            # what is asked to be defined is a name still
            asked = words and (words[-1] == "defined" or words[-2:] == ["defined", "("])
            expand = each.type == "NAME" and each in self.macros and not asked
            words += self.expanded(each, frozenset()) if expand else [each]
        return holds(at, words, self.macros)

    # --- macros and files

    def expanded(self, at: Word, hidden: frozenset[str]) -> Iterator[Word]:
        """The words that replace a macro's name, all with the position of the name."""
        text = self.macros[at]
        if text is None:
            raise IdlError(at, f"the macro {at} has parameters, which is not supported: write out its text")
        # macros that double each other stand for any text, or for none after any time
        self.expansion += 1 + len(text)
        if self.expansion > IDL_EXPANSION_MAX:
            raise IdlError(at, f"macros expand to more than {IDL_EXPANSION_MAX} characters")
        hidden |= {str(at)}
        for each in words_at(at, text):
            if each.type == "NAME" and each in self.macros and each not in hidden:
                yield from self.expanded(each, hidden)
            else:
                yield self.counted(each)

    def directive(self, at: Word, folder: str) -> Iterator[Word]:
        name, rest = directive_of(at)
        if name == "include":
            yield from self.included(at, rest, folder)
        elif name == "define":
            found = _DEFINE.match(rest)
            if found is None:
                raise IdlError(at, "#define needs a name")
            self.macros[found[1]] = None if found[2] else found[3]
        elif name == "undef":
            self.macros.pop(rest, None)
        elif name == "pragma":
            words = rest.split()
            if words[:1] == ["keylist"]:
                yield word("KEYLIST", " ".join(words[1:]), at.file, at.line, at.column)
        elif name == "error":
            raise IdlError(at, f"#error {rest}")
        elif name and name not in ("line", "warning", "ident") and not name.isdigit():
            raise IdlError(at, f"#{name} is not supported: leave it out")

    def included(self, at: Word, rest: str, folder: str) -> Iterator[Word]:
        found = _INCLUDE.fullmatch(rest)
        if found is None:
            raise IdlError(at, 'write #include "name.idl" or #include <name.idl>')
        if self.include is None:
            self.note(at, f"#include {rest} is ignored: there is no place to look for it")
            return
        neighbour = posixpath.normpath(posixpath.join(folder, found[1] or found[2]))
        plain = posixpath.normpath(found[1] or found[2])
        names = dict.fromkeys([neighbour, plain] if found[1] else [plain, neighbour])
        reasons = []
        for name in names:
            if name in self.read:
                return
            try:
                text = self.include(name)
            except (TypeDefinitionError, OSError, LookupError, UnicodeDecodeError) as error:
                reasons.append(str(error) or type(error).__name__)
                continue
            # its guard may well end a circle
            if self.open.count(name) > 1:
                circle = " > ".join([*self.open[self.open.index(name) :], name])
                raise IdlError(at, f"{name} includes itself: {circle}")
            yield from self.words(text, name, posixpath.dirname(name))
            self.read.add(name)
            return
        raise IdlError(at, f"{next(iter(names))} cannot be included: {reasons[0]}")

    # --- comments

    def comment(self, at: Word, before: Word | None) -> Iterator[Word]:
        """``long x; //@key``: an annotation of the member that has just ended."""
        for found in _IN_COMMENT.finditer(at):
            name = found[1].lower().replace("_", "")
            if name not in _POSTFIX:
                self.note(at, f"//@{found[1]} is ignored")
            elif before != ";" or before.line != at.line:
                raise IdlError(
                    at, f"//@{name} comes after a ';' in the same line: write @{name} before the member"
                )
            else:
                yield word("POSTFIX", f"@{name}", at.file, at.line, at.column)
                yield from words_at(at, f"({found[2]})" if found[2] else "")
