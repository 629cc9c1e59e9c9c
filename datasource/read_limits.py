"""How much a micro-batch may take: Spark's read limits, and those of a query's options."""

from __future__ import annotations

from typing import Final

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from ..options import Settings
from ..transport.errors import UsageError
from .range_calculator import Limits

#: No limit. It differs from the ReadAllAvailable of Trigger.Once, which does not ask for a default.
UNLIMITED: Final = ReadMaxBytes((1 << 63) - 1)


def default_read_limit(settings: Settings) -> ReadLimit:
    """The default limit for Spark. It has no composite limit: with both options, :func:`limits_of` adds the bytes."""
    if settings.max_rows_per_trigger is not None:
        return ReadMaxRows(settings.max_rows_per_trigger)
    if settings.max_bytes_per_trigger is not None:
        return ReadMaxBytes(settings.max_bytes_per_trigger)
    return ReadAllAvailable()


def refuse_once(limit: ReadLimit) -> None:
    """Raise UsageError for Trigger.Once, where :data:`UNLIMITED` is the default: its one micro-batch would be empty."""
    if isinstance(limit, ReadAllAvailable):
        raise UsageError(
            "Trigger.Once takes one micro-batch, which ends before a receiver has received anything: use "
            "Trigger.AvailableNow, which listens for read.timeout"
        )


def limits_of(limit: ReadLimit, settings: Settings) -> Limits:
    """The limits that Spark's read limit stands for."""
    if limit == UNLIMITED:
        return Limits()
    if isinstance(limit, ReadMaxRows):
        return Limits(limit.max_rows, settings.max_bytes_per_trigger)
    if isinstance(limit, ReadMaxBytes):
        return Limits(None, limit.max_bytes)
    return Limits()
