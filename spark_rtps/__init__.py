"""Live DDS topics as Spark DataFrames, and DataFrames as live DDS topics.

After installing it, ``spark.readStream.format("rtps")`` and ``df.writeStream.format("rtps")`` just work. This
package holds the public names; they are loaded when first used, so that importing
``spark_rtps.transport`` does not import PySpark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .datasource.source import RtpsDataSource
    from .transport.errors import (
        AcknowledgmentError,
        EncodeError,
        LogError,
        LogFullError,
        LogLostError,
        NoReaderError,
        OptionError,
        RtpsError,
        TransportError,
        TypeDefinitionError,
        UsageError,
    )

__version__ = "0.1.0"

__all__ = [
    "RtpsDataSource",
    "RtpsError",
    "UsageError",
    "OptionError",
    "TypeDefinitionError",
    "EncodeError",
    "TransportError",
    "NoReaderError",
    "AcknowledgmentError",
    "LogError",
    "LogFullError",
    "LogLostError",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = ".datasource.source" if name == "RtpsDataSource" else ".transport.errors"
    return getattr(importlib.import_module(room, __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
