"""Queries of receiver services with PySpark 4.0 and 4.1, in the orders in which these call them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_rtps.datasource.receiver_service_stream_reader_4_0 import ReceiverServiceStreamReader40
from spark_rtps.datasource.schema import plan_source
from tests.datasource.receiver_service_scene import ReceiverServices, ids, settings_of
from tests.datasource.stream_reader_scene import ALL, COLUMNS


def reader_of(services: ReceiverServices, **options: object) -> ReceiverServiceStreamReader40:
    settings = settings_of(**options)
    return ReceiverServiceStreamReader40(settings, plan_source(settings, COLUMNS), make=services.connect)


def end_of(reader: ReceiverServiceStreamReader40) -> dict[str, Any]:
    return json.loads(json.dumps(reader.latestOffset()))  # type: ignore[no-any-return]


def rows(reader: ReceiverServiceStreamReader40, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return sorted(ids(reader, reader.partitions(start, end)))


def test_a_new_query_is_asked_for_an_end_first(services: ReceiverServices) -> None:
    services.a.receive(0, 5)
    reader = reader_of(services, startingOffsets="earliest", maxRowsPerTrigger=2)
    one = end_of(reader)
    assert rows(reader, reader.initialOffset(), one) == [0, 1]
    two = end_of(reader)
    assert rows(reader, one, two) == [2, 3]
    three = end_of(reader)
    assert rows(reader, two, three) == [4]
    assert end_of(reader) == three


def test_limits_hold_after_a_restart(services: ReceiverServices) -> None:
    services.a.receive(0, 6)
    reader = reader_of(services, startingOffsets="earliest", maxRowsPerTrigger=2)
    zero, one, two = reader.initialOffset(), end_of(reader), end_of(reader)
    again = reader_of(services, startingOffsets="earliest", maxRowsPerTrigger=2)
    assert rows(again, two, two) == []  # Spark tells the last end so
    assert rows(again, one, two) == [2, 3]  # was not committed
    assert rows(again, two, end_of(again)) == [4, 5]
    assert zero["group"] == end_of(again)["group"]


def test_available_now_after_a_restart_asks_for_an_end_before_it_repeats_a_batch(
    services: ReceiverServices,
) -> None:
    services.a.receive(0, 2)
    reader = reader_of(services, startingOffsets="earliest")
    zero, one = reader.initialOffset(), end_of(reader)
    services.a.receive(2, 2)
    again = reader_of(services, startingOffsets="earliest")
    assert rows(again, one, one) == []
    two = end_of(again)
    assert rows(again, zero, one) == [0, 1]
    assert rows(again, one, two) == [2, 3]
    assert end_of(again) == two


@pytest.mark.parametrize("version", ["4.0", "4.3"])
def test_the_first_batch_is_repeated_from_where_it_began(services: ReceiverServices, version: str) -> None:
    make = {"4.0": lambda: reader_of(services), "4.3": services.reader}[version]
    first = make()  # type: ignore[operator]
    zero = first.initialOffset()
    services.a.receive(0, 2)
    one = end_of(first) if version == "4.0" else first.latestOffset(zero, ALL)
    services.a.receive(2, 1)
    again = make()  # type: ignore[operator]
    assert rows(again, one, one) == []
    assert again.initialOffset() == zero
    assert rows(again, zero, one) == [0, 1]
    two = end_of(again) if version == "4.0" else again.latestOffset(one, ALL)
    assert rows(again, one, two) == [2]
    assert "since" in one
    assert "since" not in two
