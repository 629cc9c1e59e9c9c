"""A stream log with segments of one page, and what may happen to it, for the tests of `spark-rtps log`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from spark_rtps.cli import app
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import Frame, Item, LogView
from spark_rtps.transport.log.segment import PAGE, segment_path
from spark_rtps.transport.log.stream_log import StreamLog
from tests.log.make_runs import RECEPTION, guid, indexed, uniform

WRITER, OTHER = guid(1), guid(2)


def run(*arguments: object, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["log", *map(str, arguments)])
    assert result.exit_code == exit_code, result.output
    return result


def lines(*arguments: object, exit_code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json", exit_code=exit_code).stdout.splitlines()]


def filled(directory: Path) -> StreamLog:
    """Three segments of one writer, and a frame of another in the fourth; still open for appending."""
    metadata: dict[str, Any] = {"topic": "Square", "type": "ShapeType", "guid_prefix": "01" * 12}
    log = StreamLog.create(directory, max_bytes=64 * PAGE, segment_bytes=PAGE, metadata=metadata)
    while log.position < 3 * PAGE:
        log.append(uniform(WRITER, log.rows + 1, 5, 100), reception=RECEPTION + log.rows)
    log.append(indexed(OTHER, 1, 7), reception=RECEPTION + log.rows)
    return log


def held(log: StreamLog) -> list[Frame]:
    return list(LogView(log.directory).frames(Cursor(log.base), Cursor(log.position)))


def flip(log: StreamLog, position: int) -> None:
    path = segment_path(log.directory, position // PAGE * PAGE)
    raw = bytearray(path.read_bytes())
    raw[position % PAGE] ^= 4
    path.write_bytes(raw)


def meanwhile(patch: pytest.MonkeyPatch, number: int, happens: Callable[[], object]) -> None:
    """Once, when the first that goes through a log has come to this item, something happens to the log."""
    items = LogView.items
    todo = [happens]

    def interrupted(view: LogView, start: Cursor, end: Cursor, *, bodies: bool = True) -> Iterator[Item]:
        for at, item in enumerate(items(view, start, end, bodies=bodies)):
            if at == number and todo:
                todo.pop()()
            yield item

    patch.setattr(LogView, "items", interrupted)
