"""Values in ROS 2 interface definitions: constants, and defaults of fields."""

from __future__ import annotations

import re
from typing import Final

from ..errors import TypeDefinitionError
from .model import INTEGER_RANGES, Array, Primitive, PrimitiveKind, Sequence, String, Struct, Type, WString

Value = int | float | str | bool

_WORDS: Final = {"true": True, "1": True, "false": False, "0": False}
_QUOTED: Final = r"""(?:"(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+')"""
#: A value that begins with a quote or a bracket, up to a comment; # may be inside quotes. The rest after an unclosed
#: quote is not a text, and is not searched again.
_DELIMITED: Final = re.compile(rf"""(?:[^#'"]++|{_QUOTED}|['"][^#]*+)*+""")
_ELEMENT: Final = re.compile(rf"""\s*+({_QUOTED}\s*+|(?!['"])[^,]*+)(,|$)""")


def default_note(t: Type, text: str, where: str) -> Value | None:
    """The default that follows a field's name. None without a default, or if it has many values, as IDL allows none."""
    text = _uncommented(text)
    if not text:
        return None
    if isinstance(t, Sequence | Array):
        _check_values(t, text, where)
        return None
    return _value(t, text, where)


def check_value(t: Type, text: str, where: str) -> None:
    """Raise TypeDefinitionError if the text after a constant's ``=`` is not a value of its type."""
    _value(t, _uncommented(text), where)


def _uncommented(text: str) -> str:
    text = text.strip()
    if text[:1] in ("'", '"', "["):
        found = _DELIMITED.match(text)
        return found[0].strip() if found else text
    return text.split("#")[0].strip()


def _check_values(t: Sequence | Array, text: str, where: str) -> None:
    if not (text.startswith("[") and text.endswith("]")):
        raise TypeDefinitionError(f"{where}: default {text} must be in brackets")
    inner = text[1:-1].strip()
    values, at = [], 0
    while at < len(inner):
        found = _ELEMENT.match(inner, at)
        if found is None:
            raise TypeDefinitionError(f"{where}: default {text} is no list of values")
        values.append(_value(t.element, found[1].rstrip(), where))
        at = found.end()
    most = t.length if isinstance(t, Array) else t.bound or len(values)
    if len(values) > most or (isinstance(t, Array) and len(values) != most):
        raise TypeDefinitionError(f"{where}: default {text} has {len(values)} values, not {most}")


def _value(t: Type, text: str, where: str) -> Value:
    if isinstance(t, String | WString):
        return _string(t, text, where)
    if isinstance(t, Struct) or not isinstance(t, Primitive):
        raise TypeDefinitionError(f"{where}: default {text}: messages cannot have one")
    try:
        if t.kind is PrimitiveKind.BOOLEAN:
            return _WORDS[text.lower()]
        if t.kind not in INTEGER_RANGES:
            return float(text)
        value = _integer(text)
    except (KeyError, ValueError):
        raise TypeDefinitionError(f"{where}: {text!r} is no {t.kind.value}") from None
    low, high = INTEGER_RANGES[t.kind]
    if not low <= value <= high:
        raise TypeDefinitionError(f"{where}: {text} is no {t.kind.value}, which is from {low} to {high}")
    return value


def _integer(text: str) -> int:
    """An integer in decimal, also with leading zeros, or with 0x, 0o or 0b."""
    try:
        return int(text)
    except ValueError:
        return int(text, 0)


def _string(t: String | WString, text: str, where: str) -> str:
    """A string with quotes of either kind, or without."""
    if text[:1] in ("'", '"') and len(text) > 1 and text[-1] == text[0]:
        quote, text = text[0], text[1:-1]
        if re.search(rf"(?<!\\){quote}", text):
            raise TypeDefinitionError(f"{where}: a {quote} inside of a string must be written \\{quote}")
        text = text.replace(f"\\{quote}", quote)
    size = len(text.encode()) if isinstance(t, String) else len(text.encode("utf-16-le")) // 2
    if t.bound and size > t.bound:
        raise TypeDefinitionError(f"{where}: {text!r} is longer than {t.bound}")
    return text
