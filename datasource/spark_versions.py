"""The capabilities of PySpark's versions, and the error where one lacks what is needed.

4.0 has batches, and streams that do not know where a micro-batch begins; 4.1 adds Arrow batches for streaming sinks;
4.2 passes a stream where a micro-batch begins, and how much it may take (admission control).
"""

from __future__ import annotations

import inspect
import sys
from importlib.util import find_spec
from typing import Any, Final

import pyspark
from pyspark.sql import datasource
from pyspark.sql.pandas.types import to_arrow_schema

from ..transport.errors import UsageError

_STREAMING_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
HAS_ADMISSION_CONTROL: Final = find_spec("pyspark.sql.streaming.datasource") is not None
HAS_ARROW_STREAM_SINKS: Final = hasattr(datasource, "DataSourceStreamArrowWriter")
#: Arguments of ``to_arrow_schema`` and ``to_arrow_type``; without the one of newer versions, times are in UTC.
TIMESTAMPS_IN_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def older_than(needed: str, what: str, fix: str) -> UsageError:
    """The error for a feature of newer versions."""
    return UsageError(
        f"{what} needs PySpark {needed} or newer, and this is {pyspark.__version__}; upgrade it, or {fix}"
    )


def is_own_of_stream() -> bool:
    """Whether this process is the one that Spark keeps for a stream's source; in doubt it is not."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == _STREAMING_RUNNER
