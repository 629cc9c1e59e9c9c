"""The walkthroughs of docs/architecture.md hold: each station is called, and in the order of the document."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.walkthrough_scene import RECEIVER, SPARK, Call, trace_walkthroughs
from tests.support.rows import ROOT

#: By the line above a table: the part of the walkthrough, its thread, and the names of two functions, if any: the
#: stations begin at the last call of the first function that precedes the first call of the second.
PARTS: dict[str, tuple[str, str, str, str]] = {
    "In the receiver process:": ("write", RECEIVER, "Node.do_work", "StreamLog.append"),
    "In the source's process on the driver:": ("plan", SPARK, "", ""),
    "In a task:": ("read", SPARK, "", ""),
    "In a task of a sink:": ("write", SPARK, "", ""),
    "On the sink:": ("sink", SPARK, "", ""),
    "A source's options take the same way to `Settings`, and on from there:": ("start", SPARK, "", ""),
    "And when a writer of the topic is found, in the receiver process:": ("sink", RECEIVER, "", ""),
    "When a query begins:": ("start", SPARK, "", ""),
    "When a micro-batch is done, on the driver:": ("commit", SPARK, "", ""),
    "And in the receiver process:": ("commit", RECEIVER, "Host._keep_house", "StreamLog.trim"),
    "When the query is started again:": ("restart", SPARK, "", ""),
}


def _stations() -> dict[str, list[tuple[set[str], str]]]:
    """By the line above a table, the files and names of its stations."""
    found: dict[str, list[tuple[set[str], str]]] = {}
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for above, table in re.findall(
        r"^(.+)\n\n\| station \| file \| function \|\n\|.*\n((?:\|.*\n)+)", text, re.M
    ):
        rows = [row.strip("|").split(" | ") for row in table.splitlines()]
        found[above] = [
            (set(re.findall(r"\]\(\.\./([\w/]+\.py)\)", files)), name)
            for _, files, names in rows
            for name in re.findall(r"`(\w+)`", names)
        ]
    return found


def _part(calls: list[Call], thread: str, begin: str, reached: str) -> list[tuple[str, str]]:
    found = [(file, name) for by, file, name in calls if by == thread]
    if not begin:
        return found
    names = [name for _, name in found]
    end = names.index(reached)
    return found[end - names[end::-1].index(begin) :]


def _first(calls: list[tuple[str, str]], files: set[str], name: str) -> int | None:
    """Which of the calls is the first of a function, or of a class."""
    return next(
        (i for i, (file, called) in enumerate(calls) if file in files and name in called.split(".")), None
    )


def test_each_walkthrough_calls_its_stations_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stations = _stations()
    assert stations.keys() == PARTS.keys()
    calls = trace_walkthroughs(tmp_path, monkeypatch)
    wrong: list[str] = []
    for above, (part, *where) in PARTS.items():
        gone = _part(calls[part], *where)
        reached = [(name, _first(gone, files, name)) for files, name in stations[above]]
        wrong += [f"{above} {name} is not called" for name, at in reached if at is None]
        called = [(name, at) for name, at in reached if at is not None]
        wrong += [f"{above} {b} is called before {a}" for (a, i), (b, j) in pairwise(called) if j < i]
    assert not wrong, "\n".join(wrong)
