"""What a topic is to Spark: its DDS type, its columns, and how the two belong together."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from ..transport.errors import OptionError, UsageError
from ..transport.qos import DataRepresentation
from ..transport.types.arrow import arrow_schema, struct_from_arrow
from ..transport.types.cdr.codec import Codec
from ..transport.types.model import Member as StructMember
from ..transport.types.model import Primitive, PrimitiveKind, Sequence, Struct
from .options import Mode, Payload, Settings

METADATA_COLUMN: Final = "_rtps"

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
#: Fields of the column that ``metadata=true`` adds.
METADATA_SCHEMA: Final = pa.schema(
    [
        ("writer", pa.string()),
        ("sequence_number", pa.int64()),
        ("source_timestamp", _TIMESTAMP),
        ("reception_timestamp", _TIMESTAMP),
        ("instance_state", pa.string()),
    ]
)
METADATA_DDL: Final = (
    "_rtps STRUCT<writer: STRING, sequence_number: BIGINT, source_timestamp: TIMESTAMP, "
    "reception_timestamp: TIMESTAMP, instance_state: STRING>"
)
#: Columns of ``payload=binary``.
BINARY_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        *METADATA_SCHEMA,
        ("encapsulation", pa.string()),
        ("key_hash", pa.binary()),
        ("value", pa.binary()),
    ]
)
#: Topic type of ``payload=arrow``: one sample is one record batch as an Arrow IPC stream.
ARROW_BATCH: Final = Struct(
    "spark_rtps::ArrowBatch", (StructMember("ipc", Sequence(Primitive(PrimitiveKind.BYTE)), 0),)
)


@dataclass(frozen=True, slots=True)
class ContentFilter:
    """DDS SQL over the type's members, and what its %0, %1, ... stand for."""

    expression: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """How samples and columns of one topic become each other; planned on the driver, used in tasks.

    ``data`` are the columns that hold the samples' values, under the members' names; ``columns`` is exactly what Spark
    wants or gives. ``corrupt`` is the column for samples that do not decode, if there is one.
    """

    topic: str
    type_name: str
    keyed: bool
    payload: Payload
    struct: Struct | None
    data: pa.Schema
    columns: pa.Schema
    #: Whether peers are told the type, and not its name alone.
    announced: bool = True
    mode: Mode = Mode.DROPMALFORMED
    corrupt: str | None = None
    filter: ContentFilter | None = None
    #: What is written.
    representation: DataRepresentation = DataRepresentation.XCDR1

    @property
    def has_metadata(self) -> bool:
        return self.payload is not Payload.BINARY and METADATA_COLUMN in self.columns.names


def source_schema(settings: Settings) -> StructType:
    """The schema of a source whose user gave none."""
    if settings.payload is Payload.BINARY:
        return to_spark(BINARY_SCHEMA)
    if settings.payload is Payload.ARROW:
        raise OptionError(
            "payload", "arrow", "the batches' columns are not known; give them with .schema(...)"
        )
    struct = idl_struct(settings)
    if struct is None:
        fix = "give the IDL file that defines the topic's type, or the columns with .schema(...)"
        raise OptionError("type.file", None, fix)
    columns = to_spark(arrow_schema(struct))
    if settings.metadata:
        columns.add(METADATA_COLUMN, to_spark(METADATA_SCHEMA))
    return columns


def plan_reading(settings: Settings, schema: StructType) -> TopicPlan:
    """Plan for a source that Spark expects to deliver ``schema``."""
    columns = to_arrow(schema)
    if settings.payload is Payload.BINARY:
        if not columns.equals(BINARY_SCHEMA):
            raise OptionError("payload", "binary", "has a schema of its own; leave out .schema(...)")
        struct = idl_struct(settings)
        keyed = settings.keyed if struct is None else struct.is_keyed
        return TopicPlan(
            settings.topic, _name_of_opaque(settings, struct), keyed, settings.payload, None, columns, columns
        )
    data = pa.schema([field for field in columns if field.name != METADATA_COLUMN])
    if METADATA_COLUMN in columns.names:
        _check_metadata_column(columns.field(METADATA_COLUMN).type)
    elif settings.metadata:
        raise OptionError("metadata", "true", f"add the column to .schema(...) too: {METADATA_DDL}")
    struct = (
        ARROW_BATCH if settings.payload is Payload.ARROW else idl_struct(settings) or derived(settings, data)
    )
    if settings.payload is Payload.CDR:
        Codec(struct, arrow_schema=data)  # says now which column does not fit
    return TopicPlan(
        settings.topic,
        settings.type_name or struct.name,
        struct.is_keyed,
        settings.payload,
        struct,
        data,
        columns,
    )


def plan_writing(settings: Settings, schema: StructType) -> TopicPlan:
    """Plan for a sink that Spark gives rows of ``schema``."""
    columns = to_arrow(schema)
    if settings.payload is Payload.BINARY:
        if "value" not in columns.names or not pa.types.is_binary(columns.field("value").type):
            raise OptionError("payload", "binary", "needs a BINARY column `value` with serialized payloads")
        struct = idl_struct(settings)
        if settings.keyed or (struct is not None and struct.is_keyed):
            raise OptionError(
                "payload", "binary", "a keyed topic cannot be written without its columns; use payload=cdr"
            )
        name = _name_of_opaque(settings, struct)
        return TopicPlan(settings.topic, name, False, settings.payload, None, columns, columns)
    if settings.payload is Payload.ARROW:
        struct = ARROW_BATCH
    else:
        struct = idl_struct(settings) or derived(settings, columns)
        _check_columns(columns, struct, settings)
        Codec(struct).uniform_size(settings.representation)  # says now what cannot be written
    return TopicPlan(
        settings.topic,
        settings.type_name or struct.name,
        struct.is_keyed,
        settings.payload,
        struct,
        columns,
        columns,
    )


# --- types ----------------------------------------------------------------------------------------


def idl_struct(settings: Settings) -> Struct | None:
    """The struct that ``type.file`` and ``type`` name; None without ``type.file``."""
    if settings.type_file is None:
        return None
    from ..transport.types.idl.parser import parse_idl  # tasks need no parser

    path = _find_file(settings.type_file)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError("type.file", settings.type_file, f"cannot be read: {error}") from None
    found = parse_idl(text, str(path), extensibility=settings.type_extensibility)
    structs = {name: t for name, t in found.items() if isinstance(t, Struct)}
    wanted = settings.type
    if wanted is None:
        if len(structs) != 1:
            raise OptionError("type", None, f"{path.name} defines {_list(structs)}; name one")
        return next(iter(structs.values()))
    names = [n for n in structs if n == wanted] or [n for n in structs if n.endswith(f"::{wanted}")]
    if len(names) == 1:
        return structs[names[0]]
    if names:
        raise OptionError("type", wanted, f"may be {_list(names)}; give the qualified name")
    near = difflib.get_close_matches(wanted, structs, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise OptionError("type", wanted, f"is no struct of {path.name}, which defines {_list(structs)}{hint}")


def derived(settings: Settings, columns: pa.Schema) -> Struct:
    """The struct that columns make; named by ``type``, else after the topic; keys by ``key``."""
    struct = struct_from_arrow(columns, _identifier(settings.type or settings.topic))
    for key in settings.key:
        if struct.member(key) is None:
            raise OptionError("key", key, f"is no column; columns are {_list(columns.names)}")
    return replace(struct, members=tuple(replace(m, key=m.name in settings.key) for m in struct.members))


def _identifier(name: str) -> str:
    """The nearest scoped name of IDL: ``rt/chatter`` is rt_chatter, ``1rt::chatter`` T1rt::chatter."""
    parts = [re.sub(r"[^A-Za-z0-9_]", "_", part) for part in name.split("::")]
    return "::".join(f"T{part}" if not part or part[0].isdigit() else part for part in parts)


def _name_of_opaque(settings: Settings, struct: Struct | None) -> str:
    name = settings.type_name or (struct.name if struct is not None else settings.type)
    if name is None:
        raise OptionError("type", None, "payload=binary needs the name of the topic's type")
    return name


def _find_file(name: str) -> Path:
    """A path, or a file shipped with ``--files``."""
    path = Path(name.removeprefix("file://")).expanduser()
    if path.exists() or path.is_absolute():
        return path
    try:
        from pyspark.core.files import SparkFiles

        shipped = Path(SparkFiles.get(name))
    except (ImportError, AttributeError, AssertionError):  # no Spark in this process
        return path
    return shipped if shipped.exists() else path


def _check_columns(columns: pa.Schema, struct: Struct, settings: Settings) -> None:
    members = [member.name for member in struct.members]
    strange = [name for name in columns.names if name not in members]
    lacking = [m.name for m in struct.members if m.name not in columns.names and not m.optional]
    if strange:
        raise UsageError(
            f"topic {settings.topic!r}: {struct.name} has no member {_list(strange)}; members are "
            f"{_list(members)}"
        )
    if lacking:
        raise UsageError(
            f"topic {settings.topic!r}: {struct.name} needs also {_list(lacking)}; add the column"
        )


def _check_metadata_column(t: pa.DataType) -> None:
    known = {field.name: field.type for field in METADATA_SCHEMA}
    if pa.types.is_struct(t):
        fields = [t.field(i) for i in range(t.num_fields)]
        if all(field.nullable and known.get(field.name) == field.type for field in fields):
            return
    raise OptionError(
        "metadata", "true", f"the column must be declared as {METADATA_DDL}, or with fewer fields"
    )


def _list(names: object) -> str:
    return ", ".join(repr(name) for name in cast("list[str]", names)) or "nothing"


# --- Spark and Arrow --------------------------------------------------------------------------------


def to_arrow(schema: StructType) -> pa.Schema:
    """Exactly the Arrow schema that Spark expects of, and gives to, a Python data source."""
    return to_arrow_schema(schema, timezone="UTC")


def to_spark(schema: pa.Schema) -> StructType:
    spark = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return StructType([StructField(f.name, f.dataType, f.nullable) for f in spark.fields])
