"""Live DDS topics as Spark DataFrames, and DataFrames as live DDS topics.

After installing it, ``spark.readStream.format("rtps")`` and ``df.writeStream.format("rtps")`` just work. This
package holds the public names; they are loaded when first used, so that importing
``spark_rtps.transport`` does not import PySpark.
"""

from __future__ import annotations

from .spark_python import prepare_spark, require_pyspark, too_new

TYPE_CHECKING = False  # not from typing, for the reason that spark_python gives
if TYPE_CHECKING:
    from .api.flushing import flush, flush_async
    from .api.instances import Instance
    from .api.interception import set_batch_interceptor
    from .api.participant import Participant
    from .api.publication import Publication
    from .api.statuses import StatusChange
    from .api.subscription import Subscription
    from .datasource.source import Ros2DataSource, RtpsDataSource
    from .transport.errors import (
        AcknowledgmentError,
        EncodeError,
        LogError,
        LogFullError,
        LogLostError,
        MalformedSampleError,
        NoReaderError,
        NoWriterError,
        OptionError,
        PySparkVersionError,
        RecordingError,
        RtpsError,
        TransportError,
        TypeDefinitionError,
        UnknownTypeError,
        UsageError,
    )
    from .transport.protocol.writing.batching import BatchRequest
    from .transport.protocol.writing.publication import PublicationResult

__version__ = "0.1.0"

__all__ = [
    "Participant",
    "Subscription",
    "Publication",
    "PublicationResult",
    "Instance",
    "StatusChange",
    "BatchRequest",
    "set_batch_interceptor",
    "flush",
    "flush_async",
    "RtpsDataSource",
    "Ros2DataSource",
    "RtpsError",
    "UsageError",
    "OptionError",
    "PySparkVersionError",
    "TypeDefinitionError",
    "UnknownTypeError",
    "MalformedSampleError",
    "EncodeError",
    "TransportError",
    "NoReaderError",
    "NoWriterError",
    "RecordingError",
    "AcknowledgmentError",
    "LogError",
    "LogFullError",
    "LogLostError",
]

#: Where a name comes from; errors from transport.errors.
_ROOMS = {
    "Participant": ".api.participant",
    "Subscription": ".api.subscription",
    "Publication": ".api.publication",
    "PublicationResult": ".transport.protocol.writing.publication",
    "Instance": ".api.instances",
    "BatchRequest": ".transport.protocol.writing.batching",
    "set_batch_interceptor": ".api.interception",
    "flush": ".api.flushing",
    "flush_async": ".api.flushing",
    "StatusChange": ".api.statuses",
    "RtpsDataSource": ".datasource.source",
    "Ros2DataSource": ".datasource.source",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    room = _ROOMS.get(name, ".transport.errors")
    if _ROOMS.get(name) == ".datasource.source":
        require_pyspark()
    try:
        return getattr(importlib.import_module(room, __name__), name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "pyspark":
            raise too_new(error) from error
        raise


def __dir__() -> list[str]:
    return [*globals(), *__all__]


prepare_spark()
