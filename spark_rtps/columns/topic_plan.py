"""A topic as Arrow columns: its DDS type, its columns, and how one becomes the other."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ..columns.type_files import listed
from ..columns.type_sources import TopicType, discovered_type, given_type, type_announced_to
from ..options import Mode, Payload, Settings
from ..transport.errors import FilterError, OptionError, UsageError
from ..transport.qos import DataRepresentation, Qos
from ..transport.types.arrow import TIME, arrow_schema, legal_schema, projected, struct_from_arrow
from ..transport.types.cdr.codec import Codec
from ..transport.types.cdr.encoding.encoder import least_representation
from ..transport.types.model import Member as StructMember
from ..transport.types.model import Primitive, PrimitiveKind, Sequence, Struct
from ..transport.value_classes import value

if TYPE_CHECKING:
    from ..transport.net.node import Node

METADATA_COLUMN: Final = "_rtps"
#: What ``log_time=true`` adds to a recording.
LOG_TIME_COLUMN: Final = "log_time"
#: What the option ``event_time`` adds.
EVENT_TIME_COLUMN: Final = "event_time"

#: Fields of the column that ``metadata=true`` adds.
METADATA_SCHEMA: Final = pa.schema(
    [
        ("writer", pa.string()),
        ("sequence_number", pa.int64()),
        ("source_timestamp", TIME),
        ("reception_timestamp", TIME),
        ("instance_state", pa.string()),
    ]
)
METADATA_DDL: Final = (
    "_rtps STRUCT<writer: STRING, sequence_number: BIGINT, source_timestamp: TIMESTAMP, "
    "reception_timestamp: TIMESTAMP, instance_state: STRING>"
)
TOPIC_COLUMN: Final = "topic"
#: Fields about a sample's topic if a source has several topics; :data:`METADATA_COLUMN` then begins with them.
TOPIC_SCHEMA: Final = pa.schema(
    [(TOPIC_COLUMN, pa.string()), ("type_name", pa.string()), ("type_hash", pa.string())]
)
_SAMPLE_FIELDS: Final = (
    *METADATA_SCHEMA,
    pa.field("encapsulation", pa.string()),
    pa.field("key_hash", pa.binary()),
    pa.field("value", pa.binary()),
)
#: Columns of ``payload=binary``: of one topic, and of several.
BINARY_SCHEMA: Final = pa.schema([pa.field(TOPIC_COLUMN, pa.string()), *_SAMPLE_FIELDS])
MANY_BINARY_SCHEMA: Final = pa.schema([*TOPIC_SCHEMA, *_SAMPLE_FIELDS])
#: Topic type of ``payload=arrow``: one sample is one record batch as an Arrow IPC stream.
ARROW_BATCH: Final = Struct(
    "spark_rtps::ArrowBatch", (StructMember("ipc", Sequence(Primitive(PrimitiveKind.BYTE)), 0),)
)


@value
class ContentFilter:
    """DDS SQL over the members of the type, and the values of its parameters %0, %1, ..."""

    expression: str
    parameters: tuple[str, ...]


@value
class TopicPlan:
    """How samples of one topic become columns, and columns samples; planned on the driver, used in tasks.

    ``data`` are the columns with the samples' values, under the members' names. ``columns`` is exactly the schema of
    Spark's rows, with names that IDL may not allow. ``corrupt`` is the column for samples that do not decode, if there
    is one.
    """

    topic: str
    type_name: str
    keyed: bool
    payload: Payload
    struct: Struct | None
    data: pa.Schema
    columns: pa.Schema
    #: Whether ``type_name`` was given. If not, a reader takes the type name, and whether there is a key, from its first
    #: writer.
    named: bool = True
    #: Whether the type is announced to peers; else only its name is.
    announced: bool = True
    #: Whether the type was announced by writers of a log, other writers of which may have announced other types.
    inferred: bool = False
    #: Whether the type may lack fields of ``data``, which are null then.
    lacking: bool = False
    #: Whether there are several topics; ``topic`` is then only a name for messages.
    many: bool = False
    mode: Mode = Mode.DROPMALFORMED
    corrupt: str | None = None
    #: Whether there is a column for when a recording logged each sample.
    has_log_time: bool = False
    #: Path of the member of ``data`` that the column ``event_time`` is derived from; empty: there is no such column.
    event_time: tuple[str, ...] = ()
    filter: ContentFilter | None = None
    #: The representation in which samples are written.
    representation: DataRepresentation = DataRepresentation.XCDR1

    def __hash__(self) -> int:
        # plans are keys of caches that are asked for each range of samples
        return hash((self.topic, self.type_name))

    @property
    def has_metadata(self) -> bool:
        return self.payload is not Payload.BINARY and METADATA_COLUMN in self.columns.names

    @property
    def has_topic(self) -> bool:
        """Whether the topic is a column beside the members of the type."""
        is_apart = self.payload is not Payload.BINARY and TOPIC_COLUMN not in self.data.names
        return self.many and is_apart and TOPIC_COLUMN in self.columns.names


def topic_type(settings: Settings, node: Node | None = None) -> TopicType | None:
    """The topic's type for a reader whose user gave no schema: from the options, else from the topic's peers.

    ``node`` is the participant that asks the peers, with ``resolve_types``; None: a temporary participant.

    Returns None if only a type name is needed. Raises OptionError, which describes what is on the domain, if no peer
    announces the type.
    """
    if settings.payload is Payload.ARROW:
        return None
    given = given_type(settings)
    if settings.topics is not None:
        return given
    if given is None and (settings.payload is Payload.CDR or _looks_into_payloads(settings)):
        return discovered_type(settings) if node is None else type_announced_to(node, settings)
    return given


def _looks_into_payloads(settings: Settings) -> bool:
    """Whether a QoS policy needs the members of the type, although the source does not."""
    forced = settings.qos.type_consistency.force_type_validation
    return not _is_named(settings) and (settings.qos.reports_instances or forced)


def _is_named(settings: Settings) -> bool:
    return bool(settings.type_name or settings.type)


def schema_to_read(settings: Settings, found: TopicType | None) -> pa.Schema:
    """The columns of a source without a schema. Raises OptionError if they cannot be determined."""
    if settings.payload is Payload.BINARY:
        return binary_schema(settings)
    if settings.payload is Payload.ARROW:
        raise OptionError(
            "payload", "arrow", "the batches' columns are not known; give them with .schema(...)"
        )
    if found is None or found.struct is None:
        raise OptionError("type.file", None, "give the topic's type, or the columns with .schema(...)")
    schema = arrow_schema(found.struct, settings.mapping)
    if settings.column_paths:
        try:
            schema = projected(schema, settings.column_paths)
        except UsageError as error:
            raise OptionError("columns", ",".join(settings.column_paths), str(error)) from None
    if settings.mode is Mode.PERMISSIVE:
        if settings.corrupt_record in schema.names:
            raise OptionError(
                "columnNameOfCorruptRecord", settings.corrupt_record, "the type has such a member"
            )
        schema = schema.append(pa.field(settings.corrupt_record, pa.binary()))
    if settings.event_time:
        if EVENT_TIME_COLUMN in schema.names:
            raise OptionError(
                "event_time", ".".join(settings.event_time), "the type has a member of that name"
            )
        schema = schema.append(pa.field(EVENT_TIME_COLUMN, TIME))
    many = settings.topics is not None
    if settings.metadata:
        fields = [*(TOPIC_SCHEMA if many else ()), *METADATA_SCHEMA]
        schema = schema.append(pa.field(METADATA_COLUMN, pa.struct(fields)))
    if settings.log_time:
        if LOG_TIME_COLUMN in schema.names:
            fix = "the type has such a member; use metadata=true, and _rtps.reception_timestamp"
            raise OptionError("log_time", "true", fix)
        schema = schema.append(pa.field(LOG_TIME_COLUMN, TIME))
    if many and TOPIC_COLUMN not in schema.names:
        return pa.schema([TOPIC_SCHEMA.field(TOPIC_COLUMN), *schema])
    if many and not settings.metadata:
        fix = f"the type has a member {TOPIC_COLUMN}; set true, and {METADATA_COLUMN}.{TOPIC_COLUMN} names the topic"
        raise OptionError("metadata", "false", fix)
    return schema


def binary_schema(settings: Settings) -> pa.Schema:
    """The columns of ``payload=binary``."""
    return BINARY_SCHEMA if settings.topics is None else MANY_BINARY_SCHEMA


def plan_reading(settings: Settings, columns: pa.Schema, found: TopicType | None = None) -> TopicPlan:
    """The plan of a source that delivers exactly ``columns``; ``found`` is the result of :func:`topic_type`."""
    if settings.payload is Payload.BINARY:
        if not columns.equals(binary_schema(settings)):
            raise OptionError("payload", "binary", "has a schema of its own; leave out .schema(...)")
        found = found or given_type(settings)
        keyed = settings.keyed if found is None else found.keyed
        named = found is not None or _is_named(settings)
        name = _name_of_opaque(settings, found) if named else _identifier(settings.topic)
        struct = None if found is None else found.struct
        return TopicPlan(
            settings.topic,
            name,
            keyed,
            settings.payload,
            struct,
            columns,
            columns,
            named=named,
            many=settings.topics is not None,
        )
    apart = {METADATA_COLUMN, settings.corrupt_record}
    if settings.topics is not None:
        apart |= _topic_apart(settings, columns, found)
    if settings.log_time:
        apart.add(LOG_TIME_COLUMN)
        if LOG_TIME_COLUMN not in columns.names or columns.field(LOG_TIME_COLUMN).type != TIME:
            raise OptionError("log_time", "true", "add the column to .schema(...) too: log_time TIMESTAMP")
    if settings.event_time:
        apart.add(EVENT_TIME_COLUMN)
    data = pa.schema([field for field in columns if field.name not in apart])
    if METADATA_COLUMN in columns.names:
        _check_metadata_column(columns.field(METADATA_COLUMN).type, many=settings.topics is not None)
    elif settings.metadata:
        raise OptionError("metadata", "true", f"add the column to .schema(...) too: {METADATA_DDL}")
    if settings.payload is Payload.ARROW:
        found = TopicType(settings.type_name or ARROW_BATCH.name, False, ARROW_BATCH)
    else:
        found = found or given_type(settings)
    announced, named = found is not None and found.certain, True
    if found is None or found.struct is None:
        if not data.names:
            fix = (
                f".schema(...) has none of the type's members, only {listed(columns.names)}: add some; or leave it "
                "out, and the type is asked of peers; or give the type"
            )
            raise OptionError("type.file", None, fix)
        struct = derived(settings, data, optional=False)
        data = legal_schema(data)
        found = TopicType(settings.type_name or struct.name, struct.is_keyed, struct)
        named = _is_named(settings)
    assert found.struct is not None
    if settings.payload is Payload.CDR:
        Codec(found.struct, arrow_schema=data)  # reports now which column does not fit
    return TopicPlan(
        settings.topic,
        found.type_name,
        found.keyed,
        settings.payload,
        found.struct,
        data,
        columns,
        named=named,
        # a type derived from columns, or from IDL without extensibility, is a guess at the type of the writers
        announced=announced,
        inferred=found.inferred,
        many=settings.topics is not None,
        mode=settings.mode,
        corrupt=_corrupt_column(settings, columns),
        has_log_time=settings.log_time,
        event_time=_event_time(settings, columns, data),
        filter=_content_filter(settings, found.struct),
    )


def _topic_apart(settings: Settings, columns: pa.Schema, found: TopicType | None) -> set[str]:
    """The column with the topics' names, if there is one. A member of that name stays a member."""
    found = found or given_type(settings)
    if found is not None and found.struct is not None:
        if any(member.name == TOPIC_COLUMN for member in found.struct.members):
            return set()
    if TOPIC_COLUMN in columns.names and columns.field(TOPIC_COLUMN) != TOPIC_SCHEMA.field(TOPIC_COLUMN):
        fix = f"in .schema(...) the column {TOPIC_COLUMN} names the topics: declare it as STRING"
        raise OptionError("subscribe", settings.topic, fix)
    return {TOPIC_COLUMN}


def _corrupt_column(settings: Settings, columns: pa.Schema) -> str | None:
    name = settings.corrupt_record
    if name not in columns.names:
        return None
    field = columns.field(name)
    if field.nullable and (pa.types.is_binary(field.type) or pa.types.is_string(field.type)):
        return name
    fix = "the column must be a nullable BINARY, for the payload, or STRING, for the reason"
    raise OptionError("columnNameOfCorruptRecord", name, fix)


def _event_time(settings: Settings, columns: pa.Schema, data: pa.Schema) -> tuple[str, ...]:
    """The path of the member that the column ``event_time`` is derived from. Raises OptionError if it is not a time."""
    path, text = settings.event_time, ".".join(settings.event_time)
    if not path:
        return ()
    if EVENT_TIME_COLUMN not in columns.names or columns.field(EVENT_TIME_COLUMN).type != TIME:
        raise OptionError("event_time", text, "declare the column in .schema(...) too: event_time TIMESTAMP")
    t: pa.DataType = pa.struct(list(data))
    for name in path:
        if not pa.types.is_struct(t) or t.get_field_index(name) < 0:
            raise OptionError("event_time", text, f"there is no member {name!r} among the columns")
        t = t.field(name).type
    if t != TIME and not (pa.types.is_struct(t) and {"sec", "nanosec"} <= {field.name for field in t}):
        raise OptionError(
            "event_time", text, "is not a time; name one, such as header.stamp of a ROS 2 message"
        )
    return path


def _content_filter(settings: Settings, struct: Struct) -> ContentFilter | None:
    if settings.filter is None:
        return None
    from ..transport.types.filter.content_filter import parse_filter

    try:
        parse_filter(settings.filter, settings.filter_parameters, struct)
    except FilterError as error:
        raise OptionError("filter", settings.filter, str(error)) from None
    return ContentFilter(settings.filter, settings.filter_parameters)


def schema_to_write(settings: Settings) -> pa.Schema:
    """The columns of a writer without a schema: all members of the type. Raises OptionError if no type is given."""
    if settings.payload is Payload.BINARY:
        return pa.schema([("value", pa.binary())])
    if settings.payload is Payload.ARROW:
        return pa.schema([])  # each sample has its own
    found = given_type(settings)
    if found is None or found.struct is None:
        raise OptionError(
            "type.file", None, "give the topic's type, a ROS 2 name in type, or the schema of the rows"
        )
    return arrow_schema(found.struct, settings.mapping)


def plan_writing(settings: Settings, columns: pa.Schema) -> TopicPlan:
    """Plan for a sink of rows with ``columns``."""
    found = given_type(settings)
    if settings.payload is Payload.BINARY:
        if "value" not in columns.names or not pa.types.is_binary(columns.field("value").type):
            raise OptionError("payload", "binary", "needs a BINARY column `value` with serialized payloads")
        if settings.keyed or (found is not None and found.keyed):
            raise OptionError(
                "payload", "binary", "a keyed topic cannot be written without its columns; use payload=cdr"
            )
        name = _name_of_opaque(settings, found)
        return TopicPlan(
            settings.topic,
            name,
            False,
            settings.payload,
            None if found is None else found.struct,
            columns,
            columns,
            representation=settings.representation or DataRepresentation.XCDR1,
        )
    data = columns
    if settings.payload is Payload.ARROW:
        struct = ARROW_BATCH
    elif found is not None and found.struct is not None:
        struct = found.struct
        _check_columns(columns, struct, settings)
    else:
        data = legal_schema(columns)
        struct = derived(settings, columns, optional=settings.nullable_is_optional)
    representation = settings.representation or least_representation(struct)
    if settings.payload is Payload.CDR:
        Codec(struct).uniform_size(representation)  # reports now what cannot be written
    return TopicPlan(
        settings.topic,
        settings.type_name or (found.type_name if found is not None else struct.name),
        struct.is_keyed,
        settings.payload,
        struct,
        data,
        columns,
        announced=found is None or found.certain,
        representation=representation,
    )


# --- types ----------------------------------------------------------------------------------------


def derived(settings: Settings, columns: pa.Schema, *, optional: bool) -> Struct:
    """The struct derived from columns, with legal names: called ``type``, by default as the topic; keys by ``key``."""
    legal = legal_schema(columns)
    members = dict(zip(columns.names, legal.names, strict=True))
    keys = tuple(members.get(key, key) for key in settings.key)
    for key, member in zip(settings.key, keys, strict=True):
        if member not in legal.names:
            raise OptionError("key", key, f"is no column; columns are {listed(columns.names)}")
    name = _identifier(settings.type or settings.topic)
    return struct_from_arrow(legal, name, key=keys, optional=optional)


def _identifier(name: str) -> str:
    """The nearest scoped name of IDL: rt_chatter for ``rt/chatter``, T1rt::chatter for ``1rt::chatter``."""
    parts = [re.sub(r"[^A-Za-z0-9_]", "_", part) for part in name.split("::")]
    return "::".join(f"T{part}" if not part or part[0].isdigit() else part for part in parts)


def _name_of_opaque(settings: Settings, found: TopicType | None) -> str:
    name = settings.type_name or (found.type_name if found is not None else settings.type)
    if name is None:
        raise OptionError("type", None, "payload=binary needs the name of the topic's type")
    return name


def _check_columns(columns: pa.Schema, struct: Struct, settings: Settings) -> None:
    members = [member.name for member in struct.members]
    strange = [name for name in columns.names if name not in members]
    lacking = [m.name for m in struct.members if m.name not in columns.names and not m.optional]
    if strange:
        raise UsageError(
            f"topic {settings.topic!r}: {struct.name} has no member {listed(strange)}; members are "
            f"{listed(members)}"
        )
    if lacking:
        raise UsageError(
            f"topic {settings.topic!r}: {struct.name} needs also {listed(lacking)}; add the column"
        )


def _check_metadata_column(t: pa.DataType, *, many: bool) -> None:
    known = {field.name: field.type for field in (*METADATA_SCHEMA, *(TOPIC_SCHEMA if many else ()))}
    if pa.types.is_struct(t):
        fields = [t.field(i) for i in range(t.num_fields)]
        if all(field.nullable and known.get(field.name) == field.type for field in fields):
            return
    raise OptionError(
        "metadata", "true", f"the column must be declared as {METADATA_DDL}, or with fewer fields"
    )


# --- what endpoints announce beside their topic ----------------------------------------------------


def announced_type(settings: Settings, plan: TopicPlan) -> Struct | None:
    """The type that is announced to peers; None: only its name is announced."""
    return plan.struct if plan.announced and settings.announces_type else None


def endpoint_qos(settings: Settings, plan: TopicPlan) -> Qos:
    """The QoS of a reader or writer: with ``ros=true`` its USER_DATA has the hash of its type, unless it has another
    content."""
    if settings.ros is None or settings.qos.user_data or plan.struct is None:
        return settings.qos
    from ..transport.types.ros_hash import user_data_of

    return replace(settings.qos, user_data=user_data_of(plan.struct))
