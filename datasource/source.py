"""The ``rtps`` data source: what Spark sees."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import MutableMapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ..options import AppliesTo, Payload, Settings, parse_options
from ..transport.errors import OptionError, RtpsError, UsageError
from ..transport.log_once import LogOnce
from ..transport.receiver.child import prepare
from ..transport.value_classes import slotted
from . import shipping
from .spark_versions import HAS_ADMISSION_CONTROL, HAS_ARROW_STREAM_SINKS, is_own_of_stream, older_than
from .workers import settle

if TYPE_CHECKING:
    from ..columns.routing import Routing
    from ..columns.type_sources import TopicType
    from .stream_writer import RtpsStreamArrowWriter
    from .writer import RtpsArrowWriter

_log = logging.getLogger("spark_rtps.datasource")

#: What Spark adds to the options of CREATE TABLE only.
_OF_A_TABLE: Final = frozenset({"provider", "owner"})
_VIEW: Final = "CREATE TEMPORARY VIEW name USING rtps OPTIONS (topic 'Square')"
_NO_TABLES: Final = (
    "a table in Spark's catalog cannot be one of rtps: Spark keeps a table's options from Python data sources when the "
    f"table is read; {_VIEW} keeps them"
)
_NO_OPTIONS: Final = (
    '.option("topic", "Square"), or .load("Square"); there are no options, and if this is a table of CREATE TABLE, '
    f"Spark has kept them back: {_VIEW} keeps them"
)
#: Warnings that this process has logged. Spark plans each micro-batch of a sink anew, in a process that it keeps.
_LOGGED: Final = LogOnce(256)


@slotted
class _KnownOptions:
    """What is known of the options: their settings for each role, and the type of the topic."""

    parsed: dict[AppliesTo, Settings] = field(default_factory=dict)
    topic_type: TopicType | None = None


class RtpsDataSource(DataSource):
    """Live DDS topics as DataFrames, and DataFrames as live DDS topics.

    There is nothing to register: with ``spark-rtps`` installed (by pip, or on PYTHONPATH), ``format("rtps")`` works.

    **Read a topic.** The topic's peers announce its type; or an IDL file, a ROS 2 name or your columns give it::

        df = spark.readStream.format("rtps").load("Square")     # color STRING, x INT, y INT, shapesize INT

        df = (spark.readStream.format("rtps")
              .option("type.file", "ShapeType.idl").option("type", "ShapeType").load("Square"))

        df = spark.readStream.format("rtps").option("type", "sensor_msgs/msg/Imu").load("rt/imu")

        df = spark.readStream.format("rtps").schema("id INT, x DOUBLE").load("Positions")

    One query is one DDS reader, in a process of its own beside the driver. What it receives goes to a log on disk under
    ``log.dir`` and stays there until Spark has committed it: a query that restarts from its checkpoint reads exactly
    the ranges that it had planned. A reliable reader acknowledges samples once they are in the log; while the log is
    full (``log.max_bytes``), reliable writers are held back. Tasks on the driver's host read the log where it
    lies; tasks on other hosts fetch their samples from it (``serve.address``).

    With ``receivers``, a query reads receiver services (``spark-rtps receive``) instead, which outlive it and record
    their topics; it joins no DDS network. ``spark.read`` then takes what they have recorded, by time::

        df = (spark.readStream.format("rtps").option("receivers", "cell-1=edge1:7420,cell-2=edge2:7420")
              .option("receiver.token.file", "/etc/spark-rtps/commit.token").load("rt/imu"))

    What they record is in their files, or is what a query asks them for (``receiver.subscribe``).

    With ``recording``, a query reads files instead, MCAP and ROS 2 bags, with the same columns::

        df = spark.read.format("rtps").option("recording", "drives/*.mcap").load("/imu")

    - ``startingOffsets=earliest`` (or ``durability=transient_local``) also takes the history that TRANSIENT_LOCAL
      writers keep.
    - ``maxRowsPerTrigger`` and ``maxBytesPerTrigger`` bound a micro-batch; rows are counted in samples.
    - ``Trigger.AvailableNow`` listens for ``read.timeout`` and then processes what has arrived.
    - ``metadata=true`` adds ``_rtps``: writer, sequence_number, source_timestamp, reception_timestamp and
      instance_state. Disposed and unregistered instances then become rows too (NOT_ALIVE_DISPOSED,
      NOT_ALIVE_NO_WRITERS): their keys are filled if the writer sent them, everything else is null. With
      ``.schema(...)`` the column must be declared there too.
    - ``payload=binary`` gives one row for each sample with its serialized payload, whatever its type.
    - Writers match by the name of the type. With columns alone, or with ``payload=binary``, the first writer that is
      found decides the name and whether there is a key; ``type`` and ``key`` (``keyed``) set them beforehand.
    - A join of a stream with itself is two readers to Spark, and therefore to DDS; a union with itself is one.
    - ``columns=a,b.c`` decodes only those members. ``filter`` is a content filter in DDS's SQL, which is announced to
      writers. ``uint64``, ``enum``, ``bitmask`` and ``time`` choose between two column types.
    - Samples that do not decode are dropped, counted and logged with their writer; ``mode=permissive`` makes rows of
      nulls with the payload in ``_corrupt_record``, ``mode=failfast`` fails.
    - A writer's type may differ as far as XTypes and ``type_consistency.*`` allow; members that it lacks are null.
    - The default reliability is ``reliable``. It does not match best-effort writers. Peers on the topic that do not
      match are named on stderr with the reason.

    **Statuses.** With ``statuses=true``, rows are changes of DDS communication statuses of the sources and sinks on the
    driver's host: time, kind, topic, domain, participant, pid, status, fields, changes, and remote, the peer whom the
    last change was about::

        spark.readStream.format("rtps").option("statuses", True).load()            # of all topics
        spark.readStream.format("rtps").option("statuses", True).load("Square")

    **Read several topics**, by name or by a regular expression; topics that appear later join::

        spark.readStream.format("rtps").option("subscribe", "Square,Circle").load()     # topic STRING, color STRING
        spark.readStream.format("rtps").option("subscribePattern", "rt/.*").option("payload", "binary").load()

    One participant, one receiver and one log have them all. Topics of different types are rows of ``topic``,
    ``type_name``, ``type_hash`` and the payload in ``value``, which ``spark_rtps.functions.from_cdr`` decodes.

    **Read for a moment**, as a batch. Every action listens anew; ``cache()`` what you use twice::

        spark.read.format("rtps").option("read.max_rows", 1000).option("read.timeout", "5s")....load("Square")

    **Write a topic.** The DDS type follows from the columns (``spark-rtps idl`` prints it), or ``type.file`` defines
    it, or ``type`` is a ROS 2 name. Nullable columns become @optional, unless ``nullable=required``::

        df.writeStream.format("rtps").option("checkpointLocation", ...).start("Alerts")
        df.write.format("rtps").mode("append").save("Alerts")

    Without ``topic`` each row goes to the topic that its column ``topic`` names; the option overrides the column.

    Each Python worker keeps one participant and one writer per topic between its tasks. A task ends when all matched
    reliable readers have acknowledged its rows. It fails, naming the readers, if some have not within
    ``acknowledgment_timeout`` or left before they had everything. Delivery is at least once: a retried task writes its
    rows again. Without any reader a task waits (``on_no_reader``, ``connect_timeout``). A history for late joiners
    (``durability=transient_local``) lives as long as the worker process, which Spark ends after a minute of idleness.
    Spark gives workers no time to leave the domain: peers see their writers until ``participant.lease_duration`` has
    passed.

    **QoS.** DDS policies have DDS's names: ``reliability``, ``durability``, ``history.depth``, ``deadline``,
    ``ownership``, ``partition`` and so on. ``qos.profile`` names one of ROS 2's profiles (``sensor_data``, ...), or
    with ``qos.file`` a profile of an XML file of RTI Connext, the OMG or Fast DDS; options that are set explicitly win.
    Options that are valid but probably not intended are named in a warning on the driver's stderr. What a source lost,
    rejected or missed is in the query's progress, as ``sources[i].latestOffset.status``; ``spark-rtps stat`` shows both
    sources and sinks.

    **Batches.** ``batch.enable=true`` sends many samples as one: our readers receive RTI's DATA_BATCH, which is
    acknowledged as one unit, all others receive DATA that share datagrams. ``batch.max_data_bytes``,
    ``batch.max_samples`` and ``batch.max_flush_delay`` bound a batch, ``batch.compression`` helps on slow links, and
    ``turbo_mode=true`` adapts the size of batches. With ``history=keep_last``, samples that others replace in the same
    batch are dropped. ``publish_mode=asynchronous`` sends through a flow controller.

    **Coherent sets.** With ``presentation.coherent_access=true`` on both sides, what a task writes becomes visible
    together when it is complete; what a task wrote before it failed does not. A set is bounded by what readers hold
    back for one writer: more partitions make smaller sets. A source has a whole set in its log at once;
    ``maxRowsPerTrigger`` and ``maxBytesPerTrigger`` may still divide it into several micro-batches.

    Durations are written ``200ms``, ``3s``, ``5min``, ``infinite``; sizes ``64KiB``, ``1MB``; DDS kinds as in ROS 2 or
    as DDS's constants. ``spark-rtps options`` lists all options.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        if {key.lower() for key in options} >= _OF_A_TABLE:
            raise OptionError("provider", "rtps", _NO_TABLES)
        parse_options(options, AppliesTo.BOTH)  # a typo should fail here, not when the query runs
        self._made_in = os.getpid()
        #: As bytes in a copy, until they are looked at: tasks, which are sent the source with each range, do not.
        self._found: _KnownOptions | bytes = _KnownOptions()

    @classmethod
    def name(cls) -> str:
        return "rtps"

    def schema(self) -> StructType:
        from .schema import source_schema

        settings = self._settings(AppliesTo.READ)
        if settings.statuses:
            from .status_reader import status_schema

            return status_schema()
        found = self._known.topic_type = _type_of(settings)  # kept: Spark pickles the source after this
        if settings.topics is not None and found is None and settings.payload is Payload.CDR:
            settings = self._of_several_types(settings)
        return source_schema(settings, found)

    def _of_several_types(self, settings: Settings) -> Settings:
        """The settings for topics whose types differ: their payloads are read, unless that is excluded.

        Raises OptionError.
        """
        if any(name.lower() == "payload" for name in self.options):
            fix = "the topics have different types, which no columns fit: set binary, and decode value by from_cdr"
            raise OptionError("payload", "cdr", fix)
        _log.warning(
            "topics %r: they have different types, so the rows have payloads, as with payload=binary; set that for "
            "columns that do not depend on which writers are there when the query starts",
            settings.topic,
        )
        settings = replace(settings, payload=Payload.BINARY)
        parsed = self._known.parsed
        parsed[AppliesTo.READ] = replace(parsed[AppliesTo.READ], payload=Payload.BINARY)
        parse_options(
            {**self.options, "payload": "binary"}, AppliesTo.READ
        )  # raises for what looks at members
        return settings

    def reader(self, schema: StructType) -> DataSourceReader:
        from .batch_reader import RtpsBatchReader
        from .schema import plan_source

        settings = self._settings(AppliesTo.READ)
        if settings.statuses:
            from .status_reader import StatusBatchReader, check_schema

            check_schema(schema)
            return StatusBatchReader(settings)
        if settings.recording:
            from .recording_reader import RecordingReader

            return RecordingReader(settings, plan_source(settings, schema, self._topic_type))
        if settings.receivers:
            from .receiver_service_batch_reader import ReceiverServiceBatchReader

            return ReceiverServiceBatchReader(settings, plan_source(settings, schema, self._topic_type))
        _warn(settings)
        return RtpsBatchReader(settings, plan_source(settings, schema, self._topic_type))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        try:
            settings = self._settings(AppliesTo.READ)
            if HAS_ADMISSION_CONTROL and is_own_of_stream() and _has_receiver(settings):
                shipping.find_shipped_modules()
                prepare()  # it starts while this process imports, and plans
            from .schema import plan_source

            if settings.statuses:
                from .status_reader import StatusStreamReader, check_schema

                check_schema(schema)
                return StatusStreamReader(settings)
            for name, ending in (
                ("endingOffsets", settings.ending),
                ("endingTimestamp", settings.ending_time),
            ):
                if ending is not None:
                    fix = "applies to spark.read; a stream ends when it is stopped: remove it"
                    raise OptionError(name, None, fix)
            plan = plan_source(settings, schema, self._topic_type)
            if settings.receivers and not HAS_ADMISSION_CONTROL:
                from .receiver_service_stream_reader_4_0 import ReceiverServiceStreamReader40

                return ReceiverServiceStreamReader40(settings, plan)
            if not HAS_ADMISSION_CONTROL:
                if settings.recording:
                    raise older_than("4.2", "a stream of a recording", "read it with spark.read")
                what = "a stream with its own receiver"
                raise older_than("4.2", what, "name receiver services by the option receivers")
        except RtpsError as error:
            return _RefusingReader(error)
        if settings.recording:
            from .recording_stream_reader import RecordingStreamReader

            return RecordingStreamReader(settings, plan)
        if settings.receivers:
            from .receiver_service_stream_reader import ReceiverServiceStreamReader

            return ReceiverServiceStreamReader(settings, plan)
        from .stream_reader import RtpsStreamReader

        return RtpsStreamReader(settings, plan)

    def writer(self, schema: StructType, overwrite: bool) -> RtpsArrowWriter:
        from .schema import plan_sink
        from .writer import RtpsArrowWriter

        settle()  # Spark keeps the process, and plans further writes in it
        if overwrite:
            raise UsageError("what is written to a DDS topic cannot be overwritten: use mode('append')")
        settings = self._settings(AppliesTo.WRITE)
        _warn(settings)
        try:
            return RtpsArrowWriter(_routed(plan_sink(settings, schema)))
        except OptionError as error:
            if self.options or error.option != "topic":
                raise
            raise OptionError("topic", None, f"{error.fix}; {_NO_OPTIONS}") from None

    def streamWriter(self, schema: StructType, overwrite: bool) -> RtpsStreamArrowWriter:  # noqa: N802
        # overwrite means output mode "complete": every micro-batch writes the whole result
        from .schema import plan_sink

        if not HAS_ARROW_STREAM_SINKS:
            fix = "write each micro-batch with foreachBatch: df.write.format('rtps').mode('append')"
            raise older_than("4.1", "writeStream.format('rtps')", fix)
        from .stream_writer import RtpsStreamArrowWriter

        settle()  # each micro-batch is planned in one process that Spark keeps, and committed in another
        settings = self._settings(AppliesTo.WRITE)
        if self._made_in == os.getpid():  # else it is a copy, in the process that commits
            _warn(settings)
        return RtpsStreamArrowWriter(_routed(plan_sink(settings, schema)))

    def _settings(self, role: AppliesTo) -> Settings:
        """The options as settings for one role: parsed at the first use, and pickled with the source from then on."""
        parsed = self._known.parsed
        settings = parsed.get(role)
        if settings is None and not self.options and role is AppliesTo.READ:
            raise OptionError("topic", None, f"name the topic: {_NO_OPTIONS}")
        if settings is None:
            settings = parsed[role] = parse_options(self.options, role)
        if settings.type_file is None:
            return settings
        # where --files puts it differs from process to process
        return replace(settings, type_file=shipping.shipped_file(settings.type_file))

    @property
    def _known(self) -> _KnownOptions:
        if isinstance(self._found, bytes):
            self._found = cast("_KnownOptions", pickle.loads(self._found))
        return self._found

    @property
    def _topic_type(self) -> TopicType | None:
        return self._known.topic_type

    def __getstate__(self) -> dict[str, Any]:
        found = self._found
        return {**self.__dict__, "_found": found if isinstance(found, bytes) else pickle.dumps(found)}

    def __reduce__(self) -> tuple[Any, ...]:
        return shipping.reduce(self)


class Ros2DataSource(RtpsDataSource):
    """The topics of ROS 2: ``format("ros2")`` is ``format("rtps")`` with ``ros=true``.

    ::

        df = spark.readStream.format("ros2").load("/imu")

        alerts.writeStream.format("ros2").option("type", "std_msgs/msg/String").start("/alerts")
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        given = {key.lower(): value for key, value in options.items()}
        super().__init__({**given, "ros": given.get("ros", "true")})

    @classmethod
    def name(cls) -> str:
        return "ros2"


def _type_of(settings: Settings) -> TopicType | None:
    """The type of what is read, where its columns need one; None: it needs none, or the topics have several.

    Raises OptionError if it cannot be found out.
    """
    from ..columns.topic_plan import topic_type
    from ..columns.type_sources import common_type_of_topics, given_type

    if settings.recording:
        from .recording_reader import type_of_recording

        return type_of_recording(settings)
    if settings.receivers and settings.payload is Payload.CDR and given_type(settings) is None:
        from .receiver_service_types import receiver_service_type

        return receiver_service_type(settings)
    found = topic_type(settings)
    if found is None and settings.topics is not None and settings.payload is Payload.CDR:
        return common_type_of_topics(settings)
    return found


def _has_receiver(settings: Settings) -> bool:
    """Whether a stream starts a receiver of its own."""
    return not (settings.statuses or settings.recording or settings.receivers)


class _RefusingReader(DataSourceStreamReader):
    """Raises the error at the first call. If ``streamReader`` raised it, Spark would try to stop a reader that does not
    exist, and report that instead."""

    def __init__(self, error: RtpsError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802
        raise self._error

    def latestOffset(self, *_: object) -> NoReturn:  # noqa: N802
        raise self._error

    def partitions(self, start: object, end: object) -> NoReturn:
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        raise self._error


def _warn(settings: Settings) -> None:
    """Log once what the options probably do not intend."""
    for warning in settings.warnings:
        _say(f"topic {settings.topic!r}: {warning}")


def _routed(routing: Routing) -> Routing:
    if routing.apart and not routing.by_row:
        _say(
            f"topic {routing.settings.topic!r}: the option topic overrides the column topic, which is not written; a "
            "type.file with a member of that name has it written"
        )
    return routing


def _say(sentence: str) -> None:
    if _LOGGED.is_new(sentence):
        _log.warning("%s", sentence)
