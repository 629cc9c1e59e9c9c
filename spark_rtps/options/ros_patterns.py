"""Translates patterns of ROS 2 topic names to patterns of names on the wire.

On the wire the name follows a prefix. The translation therefore finds each position in a pattern at which a name may
begin: behind an opening parenthesis or a bar, if nothing lies before it. A name that begins with a slash there is
absolute; any other name is relative to the namespace.
"""

from __future__ import annotations

import re
from typing import Final

#: The opening of a group: one that consumes characters, or one that only looks around.
_GROUP: Final = re.compile(r"\((?:\?(?:P<\w+>|[aiLmsux]*(?:-[imsx]+)?:|>))?(?!\?)")
_LOOK: Final = re.compile(r"\(\?(?:[=!]|<[=!]|#)")
_ANCHOR: Final = re.compile(r"\^|\\A")
_FLAGS: Final = re.compile(r"\(\?[aiLmsux]+\)")
_SLASH: Final = re.compile(r"\\?/|\[/\]")
#: The beginning of a translated pattern.
_TRANSLATED: Final = re.compile(r"(?:\(\?[aiLmsux]+\))?rt(?:/|\(\?:)")


def wire_pattern(pattern: str, here: str) -> str:
    """The pattern of names on the wire; ``here`` is the namespace, with a slash at its end.

    A pattern that begins with ``rt/`` is returned unchanged, so that translating twice changes nothing.
    """
    if _TRANSLATED.match(pattern):
        return pattern
    flags = _FLAGS.match(pattern)
    before = flags[0] if flags else ""
    try:
        found = _PatternNames(pattern[len(before) :])
    except RecursionError:
        return pattern  # no regular expression is nested so deeply
    escaped = re.escape(here)
    if all(found.are_on_wire):
        return f"{before}{found.text}"
    if all(found.are_absolute):
        body = found.text
        return f"{before}rt(?:{body})" if "|" in body or not body.startswith("/") else f"{before}rt{body}"
    if not any(found.are_absolute):
        body = found.text
        return f"{before}rt{escaped}(?:{body})" if "|" in body else f"{before}rt{escaped}{body}"
    return f"{before}rt(?:{found.all_absolute(escaped)})"


class _PatternNames:
    """Finds the positions at which names begin in a pattern. ``text`` is the pattern without anchors there, which are
    needless because whole names match."""

    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self._starts: list[int] = []
        self._alternatives(0)

    @property
    def are_absolute(self) -> list[bool]:
        return [self._is_slash(at) for at in self._starts]

    @property
    def are_on_wire(self) -> list[bool]:
        return [self.text.startswith("rt/", at) for at in self._starts]

    def all_absolute(self, here: str) -> str:
        """The pattern with the namespace before each name that is relative."""
        text = self.text
        for at, is_absolute in reversed(list(zip(self._starts, self.are_absolute, strict=True))):
            if not is_absolute:
                text = f"{text[:at]}{here}{text[at:]}"
        return text

    def _alternatives(self, at: int) -> int:
        """Record the names that begin in the alternatives from ``at`` on. Returns the end of the alternatives."""
        while True:
            at = self._alternative(at)
            if at >= len(self.text) or self.text[at] != "|":
                return at
            at += 1

    def _alternative(self, at: int) -> int:
        if anchor := _ANCHOR.match(self.text, at):
            self.text = self.text[:at] + self.text[anchor.end() :]
        behind = at
        while _LOOK.match(self.text, behind):
            behind = self._behind(behind)
        group = _GROUP.match(self.text, behind)
        if group is None or behind > at:
            self._starts.append(behind if self._is_slash(behind) else at)
            return self._behind_all(behind)
        known = len(self._starts)
        end = self._alternatives(group.end())
        inside = self._starts[known:]
        if not any(self._is_slash(start) or self.text.startswith("rt/", start) for start in inside):
            # they are all relative: so is what the group begins, whatever follows it
            self._starts[known:] = [at]
        return self._behind_all(end + 1)

    def _is_slash(self, at: int) -> bool:
        return _SLASH.match(self.text, at) is not None

    def _behind_all(self, at: int) -> int:
        """The end of the alternative."""
        while at < len(self.text) and self.text[at] not in "|)":
            at = self._behind(at)
        return at

    def _behind(self, at: int) -> int:
        """The end of a character, an escape, a class or a group."""
        text = self.text
        if text[at] == "\\":
            return at + 2
        if text[at] == "[":
            at += 2 if text[at + 1 : at + 2] == "^" else 1
            at += text[at : at + 1] == "]"
            while at < len(text) and text[at] != "]":
                at += 2 if text[at] == "\\" else 1
            return at + 1
        if text[at] == "(":
            at += 1
            while at < len(text) and text[at] != ")":
                at = self._behind(at)
            return at + 1
        return at + 1
