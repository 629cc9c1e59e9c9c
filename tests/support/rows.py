"""One test over many rows: rules about source text and tables. Its failure names every row that breaks the rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

Row = TypeVar("Row")

ROOT = Path(__file__).parents[2]


def each_of(
    rows: Iterable[Row], name: Callable[[Row], object] = str
) -> Callable[[Callable[[Row], None]], Callable[[], None]]:
    """Makes one test of a check that is asked about each row; ``name`` is how a failure calls a row.

    A table without rows is a mistake.
    """
    asked = list(rows)
    assert asked, "there is no row"

    def of(check: Callable[[Row], None]) -> Callable[[], None]:
        def test() -> None:
            found: list[tuple[Row, BaseException]] = []
            for row in asked:
                try:
                    check(row)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever fails is reported
                    found.append((row, error))
            if found:
                offenders = "\n".join(f"{name(row)}: {type(error).__name__}: {error}" for row, error in found)
                raise AssertionError(f"{len(found)} of {len(asked)} rows:\n{offenders}") from found[0][1]

        test.__name__, test.__qualname__ = check.__name__, check.__qualname__
        test.__module__, test.__doc__ = check.__module__, check.__doc__
        return test

    return of


def place_of(path: Path) -> str:
    """A file as its path in this checkout."""
    return str(path.relative_to(ROOT))
