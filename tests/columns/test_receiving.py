"""The configuration of a receiver, as settings and plan ask for it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from spark_rtps.columns.receiving import receiver_config
from spark_rtps.columns.topic_plan import BINARY_SCHEMA, plan_reading
from spark_rtps.options.settings import parse_options
from spark_rtps.options.spec import AppliesTo

COLUMNS = pa.schema([("x", pa.int32())])


@pytest.mark.parametrize(("given", "recorded"), [(None, True), (True, True), (False, False)])
def test_types_of_writers_are_recorded_where_the_type_is_a_guess(given: bool | None, recorded: bool) -> None:
    settings = parse_options({"topic": "Square", "log.max_bytes": "128MiB"}, AppliesTo.READ)
    plan = plan_reading(settings, COLUMNS)
    config = receiver_config(settings, plan, Path("/logs/1"), records_writer_types=given)
    assert config.records_writer_types is recorded
    assert (config.log_directory, config.topic) == ("/logs/1", "Square")
    assert config.log_max_bytes == 128 << 20 and config.type_name is None


def test_no_types_are_recorded_where_nothing_is_decoded() -> None:
    settings = parse_options({"topic": "Square", "payload": "binary"}, AppliesTo.READ)
    config = receiver_config(settings, plan_reading(settings, BINARY_SCHEMA), Path("/logs/1"))
    assert not config.records_writer_types and config.type is None
