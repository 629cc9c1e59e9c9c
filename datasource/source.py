"""The ``rtps`` data source: what Spark sees."""

from __future__ import annotations

import logging
import os
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ..transport.errors import RtpsError, UsageError
from . import shipping
from .options import AppliesTo, Settings, parse_options

if TYPE_CHECKING:
    from .batch_reader import RtpsBatchReader
    from .type_sources import TopicType
    from .writer import RtpsArrowWriter, RtpsStreamArrowWriter

_log = logging.getLogger("spark_rtps.datasource")

#: What this process has warned of. Spark plans each micro-batch of a sink anew, in a process that it keeps.
_SAID: Final[set[str]] = set()


class RtpsDataSource(DataSource):
    """Live DDS topics as DataFrames, and DataFrames as live DDS topics.

    Nothing to register: with ``spark-rtps`` installed (pip, or on PYTHONPATH), ``format("rtps")`` works.

    **Read a topic**. Its peers tell its type; or an IDL file, a ROS 2 name or your columns do::

        df = spark.readStream.format("rtps").load("Square")     # color STRING, x INT, y INT, shapesize INT

        df = (spark.readStream.format("rtps")
              .option("type.file", "ShapeType.idl").option("type", "ShapeType").load("Square"))

        df = spark.readStream.format("rtps").option("type", "sensor_msgs/msg/Imu").load("rt/imu")

        df = spark.readStream.format("rtps").schema("id INT, x DOUBLE").load("Positions")

    One query is one DDS reader, in a process of its own beside the driver. What it receives goes to a log on
    disk under ``log.dir``, and stays there until Spark has committed it: restarted from its checkpoint, a
    query reads exactly what it had planned. A reliable reader acknowledges what is in the log; when the log
    is full (``log.max_bytes``) reliable writers are held back.

    - ``startingOffsets=earliest`` (or ``durability=transient_local``) also takes the history that
      TRANSIENT_LOCAL writers keep.
    - ``maxRowsPerTrigger`` and ``maxBytesPerTrigger`` bound a micro-batch; rows are counted in samples.
    - ``Trigger.AvailableNow`` listens for ``read.timeout`` and then processes what came by then.
    - ``metadata=true`` adds ``_rtps``: writer, sequence_number, source_timestamp, reception_timestamp and
      instance_state. Only then do disposed and unregistered instances make rows (NOT_ALIVE_DISPOSED,
      NOT_ALIVE_NO_WRITERS): their keys are filled where the writer sent them, everything else is null. With
      ``.schema(...)`` the column must be declared there too.
    - ``payload=binary`` gives one row a sample with its serialized payload, whatever its type.
    - Writers match by the name of the type. With columns alone, or ``payload=binary``, the first writer that is found
      says it, and whether there is a key; ``type`` and ``key`` (``keyed``) say them beforehand.
    - A join of a stream with itself is two readers to Spark, thus to DDS; a union with itself is one.
    - ``columns=a,b.c`` decodes only those members. ``filter`` is a content filter in DDS's SQL, which writers that
      filter are told. ``uint64``, ``enum``, ``bitmask`` and ``time`` choose between two column types.
    - Samples that do not decode are dropped, counted and warned about with their writer; ``mode=permissive`` makes rows
      of nulls with the payload in ``_corrupt_record``, ``mode=failfast`` fails.
    - A writer's type may differ as far as XTypes allows, and ``type_consistency.*``; members it lacks are null.
    - The default reliability is ``reliable``. It does not match best-effort writers; whoever is on the topic
      but does not match is named on stderr with the reason.

    **Read a moment of it**, as a batch. Every action listens anew; ``cache()`` what you use twice::

        spark.read.format("rtps").option("read.max_rows", 1000).option("read.timeout", "5s")....load("Square")

    **Write a topic**. The columns make the DDS type (``spark-rtps idl`` prints it), or ``type.file`` has it, or
    ``type`` is a ROS 2 name. Nullable columns become @optional, unless ``nullable=required``::

        df.writeStream.format("rtps").option("checkpointLocation", ...).start("Alerts")
        df.write.format("rtps").mode("append").save("Alerts")

    Each Python worker keeps one participant and one writer per topic between its tasks. A task ends when all
    matched reliable readers have acknowledged its rows, or fails and says who has not
    (``acknowledgment_timeout``), or that readers left before they had all. Delivery is at least once: a
    retried task writes its rows again. Without any reader a task waits (``on_no_reader``,
    ``connect_timeout``). A history for late joiners
    (``durability=transient_local``) lives as long as the worker process, which Spark ends after a minute of
    idleness. Spark lets workers end without a goodbye: peers see their writers until
    ``participant.lease_duration`` is over.

    **QoS.** DDS policies have DDS's names: ``reliability``, ``durability``, ``history.depth``, ``deadline``,
    ``ownership``, ``partition`` and so on. ``qos.profile`` names one of ROS 2's profiles (``sensor_data``, ...), or
    with ``qos.file`` one of an XML file of RTI Connext, the OMG or Fast DDS; what is set by itself wins. What can be
    but is hardly meant is warned of on the driver's stderr. What a source lost, rejected or missed is in the query's
    progress, as ``sources[i].latestOffset.status``, and ``spark-rtps stat`` shows both sources and sinks.

    **Batches.** ``batch.enable=true`` sends many samples as one: our readers get RTI's DATA_BATCH, which is
    acknowledged as one unit, all others get DATA that share datagrams. ``batch.max_data_bytes``,
    ``batch.max_samples`` and ``batch.max_flush_delay`` bound a batch, ``batch.compression`` helps on slow links, and
    ``turbo_mode=true`` sizes batches by itself. With ``history=keep_last`` samples that others replace in the same
    batch are dropped. ``publish_mode=asynchronous`` sends through a flow controller.

    **Coherent sets.** With ``presentation.coherent_access=true`` on both sides what a task writes becomes visible
    together when it is complete; what a task wrote before it failed does not. A set has a bound, about what readers
    hold back for one writer: more partitions make smaller sets. A source has a whole set in its log at once;
    ``maxRowsPerTrigger`` and ``maxBytesPerTrigger`` may still cut it into several micro-batches.

    Durations are written ``200ms``, ``3s``, ``5min``, ``infinite``; sizes ``64KiB``, ``1MB``; DDS kinds as in
    ROS 2 or as DDS's constants. ``spark-rtps options`` lists all options.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        parse_options(options, AppliesTo.BOTH)  # a typo should fail here, not when the query runs
        self._made_in = os.getpid()
        self._topic_type: TopicType | None = None

    @classmethod
    def name(cls) -> str:
        return "rtps"

    def schema(self) -> StructType:
        from .schema import source_schema, topic_type

        settings = parse_options(self.options, AppliesTo.READ)
        self._topic_type = topic_type(settings)  # kept: Spark pickles the source after this
        return source_schema(settings, self._topic_type)

    def reader(self, schema: StructType) -> RtpsBatchReader:
        from .batch_reader import RtpsBatchReader
        from .schema import plan_reading

        settings = parse_options(self.options, AppliesTo.READ)
        _warn(settings)
        return RtpsBatchReader(settings, plan_reading(settings, schema, self._topic_type))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from .schema import plan_reading
        from .stream_reader import RtpsStreamReader

        try:
            settings = parse_options(self.options, AppliesTo.READ)
            plan = plan_reading(settings, schema, self._topic_type)
        except RtpsError as error:
            return _RefusingReader(error)
        return RtpsStreamReader(settings, plan)

    def writer(self, schema: StructType, overwrite: bool) -> RtpsArrowWriter:
        from .schema import plan_writing
        from .writer import RtpsArrowWriter

        if overwrite:
            raise UsageError("what is written to a DDS topic cannot be overwritten: use mode('append')")
        settings = parse_options(self.options, AppliesTo.WRITE)
        _warn(settings)
        return RtpsArrowWriter(settings, plan_writing(settings, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RtpsStreamArrowWriter:  # noqa: N802
        # overwrite means output mode "complete": every micro-batch writes the whole result
        from .schema import plan_writing
        from .writer import RtpsStreamArrowWriter

        settings = parse_options(self.options, AppliesTo.WRITE)
        if self._made_in == os.getpid():  # else it is a copy, in the process that commits
            _warn(settings)
        return RtpsStreamArrowWriter(settings, plan_writing(settings, schema))

    def __reduce__(self) -> tuple[Any, ...]:
        return shipping.reduce(self)


class _RefusingReader(DataSourceStreamReader):
    """Raises what is wrong at the first call. Were it raised by ``streamReader``, Spark 4.2 would stop the reader that
    it does not have, and tell of that."""

    def __init__(self, error: RtpsError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802
        raise self._error

    def latestOffset(self, start: object, limit: object) -> NoReturn:  # noqa: N802
        raise self._error

    def partitions(self, start: object, end: object) -> NoReturn:
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        raise self._error


def _warn(settings: Settings) -> None:
    """Say what the options are hardly meant to say, once."""
    for warning in settings.warnings:
        sentence = f"topic {settings.topic!r}: {warning}"
        if sentence not in _SAID:
            _SAID.add(sentence)
            _log.warning("%s", sentence)
