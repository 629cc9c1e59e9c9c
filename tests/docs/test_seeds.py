"""The page about the five documents: the options, the code and the tests that it names exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from spark_rtps.options.table import BY_KEY
from tests.docs.document_links import ROOT
from tests.support.rows import each_of

PAGE: Final = ROOT / "docs" / "seeds.md"
#: How many statements the five documents make.
STATEMENTS_MIN: Final = 220
_ROW: Final = re.compile(r"^\| ([BRILF]\d+) \| (.*?) \| (.*?) \| (.*?) \|(.*?)\|$", re.MULTILINE)
_CODE: Final = re.compile(r"`([^`]+)`")
_CODE_ROOTS: Final = ("spark_rtps", "spark_rtps/transport", "transport", ".")


class Row(NamedTuple):
    """One statement of the page."""

    number: str
    statement: str
    where: str
    tests: str
    deviation: str


ROWS: Final = [Row(*match.groups()) for match in _ROW.finditer(PAGE.read_text(encoding="utf-8"))]


@cache
def names_in(path: Path) -> frozenset[str]:
    """What a file defines, at any depth: classes and functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def find(place: str, roots: tuple[str, ...]) -> str:
    """Why ``file::name`` is nowhere below the roots; "" if it is."""
    file, _, name = place.partition("::")
    paths = [ROOT / root / file for root in roots]
    found = next((path for path in paths if path.is_file()), None)
    if found is None:
        return f"there is no file {file}"
    return "" if name in names_in(found) else f"{file} has no {name}"


def test_every_statement_has_a_row() -> None:
    numbers = [row.number for row in ROWS]
    assert len(numbers) == len(set(numbers)) >= STATEMENTS_MIN
    assert len(re.findall(r"^\| [A-Z]\d+ ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) == len(ROWS)


@each_of(ROWS, name=lambda row: row.number)
def test_options_code_and_tests_of_a_row_exist(row: Row) -> None:
    missing = [
        find(name, _CODE_ROOTS) if "::" in name else "" if name in BY_KEY else f"no option {name}"
        for name in _CODE.findall(row.where)
    ]
    missing += [find(name, ("tests",)) for name in _CODE.findall(row.tests)]
    assert not any(missing), [each for each in missing if each]


@each_of(ROWS, name=lambda row: row.number)
def test_a_row_shows_what_it_states_or_says_why_not(row: Row) -> None:
    assert row.statement.endswith(".")
    assert _CODE.findall(row.tests) or row.deviation.strip()
