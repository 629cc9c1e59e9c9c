"""``transport`` names no option: it raises facts, and what to set against them is written beside the options.

Looked at are the strings and comments of its source. Options share words with DDS (``deadline``), and with fields of
transport's own classes (``max_batches``, ``user_data``), so a bare word proves nothing. What gives an option away is a
dot or a capital in its name, a setting (``deadline=infinite``), or the way of Spark to give columns.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_rtps import transport
from spark_rtps.options.table import OPTIONS
from tests.support.rows import each_of

TRANSPORT = Path(transport.__file__).parent
#: Dotted and camelCase names stand for options alone.
TELLING = [spec.name for spec in OPTIONS if "." in spec.name or spec.name != spec.name.lower()]
WORDS = [spec.name for spec in OPTIONS if spec.name not in TELLING]
NAMED = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, sorted(TELLING, key=len, reverse=True)))})(?!\w)")
SET = re.compile(rf"(?<![\w.])({'|'.join(WORDS)})=[a-z]")
SPARK = re.compile(r"\.schema\(\.\.\.")
#: An example of Python in a docstring is no setting.
CALL = re.compile(r"\w+\([^()]*=[^()]*\)")
_TEXTS = {
    tokenize.STRING,
    tokenize.COMMENT,
    getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING),
}


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Strings and comments, with their lines; not the expressions inside an f-string."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _TEXTS:
            text = token.string
            if (
                token.type == tokenize.STRING
                and "f" in text[: len(text) - len(text.lstrip("rRbBfFuU"))].lower()
            ):
                text = re.sub(r"\{[^{}]*\}", "", text)
            yield token.start[0], text


def options_named(source: str) -> list[tuple[int, str]]:
    """Lines and options that strings and comments name."""
    found = []
    for line, text in texts(source):
        for pattern in (NAMED, SET, SPARK):
            found += [(line, match[0]) for match in pattern.finditer(CALL.sub("", text))]
    return found


@each_of(sorted(TRANSPORT.rglob("*.py")), name=lambda path: str(path.relative_to(TRANSPORT)))
def test_no_option_is_named(path: Path) -> None:
    assert options_named(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        '"set log.max_bytes"',
        "# see failOnDataLoss",
        'f"{x}: set deadline=infinite"',
        '"""Give the columns with .schema(...)."""',
    ],
)
def test_option_names_in_code_are_found(source: str) -> None:
    assert options_named(source)


@pytest.mark.parametrize(
    "source", ['"deadline"', 'f"{log.max_bytes}"', "log.max_bytes = 3", "# the deadline of a writer"]
)
def test_code_without_options_is_accepted(source: str) -> None:
    assert not options_named(source)
