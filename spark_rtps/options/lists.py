"""Lists of names as texts of options: separated by commas, or JSON arrays where a name has a comma or is empty."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

#: What is between commas, where texts in quotes may have commas of their own.
_QUOTED: Final = re.compile(r"(?:'[^']*'|[^,])+")


def list_text(names: Iterable[str]) -> str:
    """The text that :func:`names_of` takes for these names."""
    found = list(names)
    plain = ",".join(found)
    is_plain = all(names_of(plain, is_quoted=quoted) == tuple(found) for quoted in (False, True))
    return plain if is_plain else json.dumps(found, ensure_ascii=False)


def names_of(text: str, *, is_quoted: bool = False) -> tuple[str, ...]:
    """The names in a text. Between commas, spaces around names do not count, nor do names that are empty.

    ``is_quoted``: a comma between single quotes divides nothing.
    """
    if text.startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None  # [ab]* is a pattern
        if isinstance(found, list) and all(isinstance(name, str) for name in found):
            return tuple(found)
    parts = _QUOTED.findall(text) if is_quoted else text.split(",")
    return tuple(part for part in (part.strip() for part in parts) if part)
