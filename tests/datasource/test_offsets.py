"""Offsets: JSON that Spark compares as text, versioned."""

import json
from typing import Any

import pytest

from spark_rtps.datasource.offsets import Offset
from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.log.frame import Cursor

LOG = "0b9e3c7e-6f5e-4b5e-9d0a-3f1f6d0c2a11"


@pytest.mark.parametrize("cursor", [Cursor(0), Cursor(4096), Cursor(4096, 17)])
def test_round_trip(cursor: Cursor) -> None:
    offset = Offset(LOG, cursor)
    text = json.dumps(offset.to_json())
    assert Offset.from_json(json.loads(text)) == offset
    assert json.dumps(Offset.from_json(json.loads(text)).to_json()) == text


def test_text_is_stable() -> None:
    text = json.dumps(Offset(LOG, Cursor(32, 3)).to_json())
    assert text == f'{{"v": 1, "receivers": {{"embedded": {{"log": "{LOG}", "position": 32, "row": 3}}}}}}'


def test_newer_version() -> None:
    with pytest.raises(UsageError, match="offset of version 2; this spark-rtps reads version 1"):
        Offset.from_json({"v": 2, "receivers": {}})


@pytest.mark.parametrize(
    "raw",
    [
        {"v": 1},
        {"v": 1, "receivers": {}},
        {"v": 1, "receivers": {"embedded": {"log": "../../etc", "position": 1}}},
        {"v": 1, "receivers": {"embedded": {"log": LOG, "position": "1"}}},
        {"v": 1, "receivers": {"embedded": {"log": LOG, "position": 1, "row": "2"}}},
        {"v": 1, "receivers": {"embedded": 5}},
        {"v": 1, "receivers": {"embedded": {"log": LOG, "position": True}}},
        {"v": 1, "receivers": {"embedded": {"log": LOG, "position": -32}}},
        {"v": 1, "receivers": {"embedded": {"log": LOG, "position": 1 << 63}}},
        {"v": 1, "receivers": {"embedded": {"log": LOG, "position": 32, "row": -1}}},
        {"v": 1, "receivers": {"embedded": {"log": LOG, "position": 32, "row": 1 << 63}}},
        [],
        "offset",
        None,
    ],
)
def test_foreign_offsets_are_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no offset of the rtps source"):
        Offset.from_json(raw)
