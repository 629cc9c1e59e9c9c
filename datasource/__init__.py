"""All that knows Spark: options, schema, offsets, partitions, readers and writers of ``format("rtps")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..spark_python import require_pyspark

if TYPE_CHECKING:
    from .source import RtpsDataSource

__all__ = ["RtpsDataSource"]


def __getattr__(name: str) -> object:
    # lazy: most of this package is used without PySpark
    if name == "RtpsDataSource":
        require_pyspark()
        from .source import RtpsDataSource

        return RtpsDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
