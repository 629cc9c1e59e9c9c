"""PARTITION: which names of a reader and a writer match (DDS 1.4 §2.2.3.13)."""

from __future__ import annotations


def partitions_match(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Whether two PARTITION policies have a name in common; either side may use POSIX wildcards."""
    names_a, names_b = a or ("",), b or ("",)
    for x in names_a:
        for y in names_b:
            if _is_pattern(x) != _is_pattern(y):
                if _match(x, y):
                    return True
            elif x == y and not _is_pattern(x):  # a pattern never matches a pattern
                return True
    return False


def _is_pattern(name: str) -> bool:
    return any(c in name for c in "*?[")


def _match(x: str, y: str) -> bool:
    return glob_matches(x, y) if _is_pattern(x) else glob_matches(y, x)


def glob_matches(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern with ``*``, ``?`` and ``[...]``, by the rules of `fnmatch.fnmatchcase`.

    `fnmatch` compiles a regular expression first, which takes seconds for the patterns that one announcement can hold;
    this function reads a pattern only as far as the name reaches.
    """
    p = i = mark = 0
    star = -1
    while i < len(name):
        if p < len(pattern) and pattern[p] == "*":
            star, mark = p, i
            p += 1
        elif p < len(pattern) and (behind := _behind_one(pattern, p, name[i])):
            p, i = behind, i + 1
        elif star < 0:
            return False
        else:  # the last star takes one more
            mark += 1
            p, i = star + 1, mark
    return not pattern[p:].strip("*")


def _behind_one(pattern: str, p: int, character: str) -> int:
    """The index in the pattern behind the item at ``p`` if that item matches the character; else 0."""
    if pattern[p] == "[":
        first = p + 2 if pattern[p + 1 : p + 2] == "!" else p + 1
        end = pattern.find("]", first + 1)
        if end >= 0:
            negated = first == p + 2
            return end + 1 if _is_among(character, pattern[first:end]) is not negated else 0
    return p + 1 if pattern[p] in ("?", character) else 0


def _is_among(character: str, members: str) -> bool:
    """Whether a character is one of those between brackets, or in a range of them."""
    k = 0
    while k < len(members):
        if members[k + 1 : k + 2] == "-" and k + 2 < len(members):
            if members[k] <= character <= members[k + 2]:
                return True
            k += 3
        elif members[k] == character:
            return True
        else:
            k += 1
    return False
