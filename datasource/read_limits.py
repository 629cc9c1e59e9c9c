"""How much a micro-batch may take: Spark's read limits, and those that the options of a query come to."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from ..options import Settings
from .range_calculator import Limits


def default_read_limit(settings: Settings) -> ReadLimit:
    """What Spark is told. It has no composite limit: with both options, :func:`limits_of` adds the one in bytes."""
    if settings.max_rows_per_trigger is not None:
        return ReadMaxRows(settings.max_rows_per_trigger)
    if settings.max_bytes_per_trigger is not None:
        return ReadMaxBytes(settings.max_bytes_per_trigger)
    return ReadAllAvailable()


def limits_of(limit: ReadLimit, settings: Settings) -> Limits:
    """What Spark's limit comes to."""
    if isinstance(limit, ReadMaxRows):
        return Limits(limit.max_rows, settings.max_bytes_per_trigger)
    if isinstance(limit, ReadMaxBytes):
        return Limits(None, limit.max_bytes)
    return Limits()
