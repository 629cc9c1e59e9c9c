"""Functions for Spark's columns: serialized samples to structs, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.types import BinaryType, DataType

from ..columns.serialized import decoded_values, encoded_values, struct_of_text
from ..columns.type_sources import discovered_type
from ..options import AppliesTo, Mode, Settings, parse_options
from ..transport.errors import OptionError
from ..transport.types.arrow import arrow_schema, projected
from ..transport.types.cdr.encoding.encoder import least_representation
from .schema import to_arrow, to_spark
from .spark_versions import older_than

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql._typing import ColumnOrName


def from_cdr(data: ColumnOrName, type: str, options: Mapping[str, str] | None = None) -> Column:
    """A column of serialized samples (BINARY) as a column of structs.

    ``data`` holds payloads with their encapsulation header, as the column ``value`` of ``payload=binary`` does: any
    representation and byte order. ``type`` is a ROS 2 name (``sensor_msgs/msg/Imu``) or the text of an IDL, such as
    :func:`schema_of_cdr` returns. Null stays null::

        raw.select(from_cdr("value", "sensor_msgs/msg/Imu").alias("imu")).select("imu.*")

    ``options``: ``mode``, ``failfast`` by default, which fails the query at a payload that does not decode, or
    ``permissive``, which makes null of it; ``type`` chooses a struct of an IDL that has several; ``columns``,
    ``uint64``, ``enum``, ``bitmask``, ``time``, ``type.extensibility`` and ``type.ros_distribution`` as for the source.

    Raises OptionError, and TypeDefinitionError for what is wrong with the type. Needs PySpark 4.1 or newer.
    """
    given = {"mode": "failfast", **{key.lower(): value for key, value in (options or {}).items()}}
    settings = _settings(given, AppliesTo.READ)
    if settings.mode is Mode.DROPMALFORMED:
        fix = "a function gives a value for each row: use permissive, which gives null, or failfast"
        raise OptionError("mode", "dropmalformed", fix)
    struct = struct_of_text(type, settings)
    schema = arrow_schema(struct, settings.mapping)
    if settings.column_paths:
        schema = projected(schema, settings.column_paths)
    columns = to_spark(schema)
    fields, fails = to_arrow(columns), settings.mode is Mode.FAILFAST

    def decode(values: pa.Array) -> pa.Array:
        return decoded_values(values, struct, fields, fails=fails)

    return _arrow_udf(decode, columns, "from_cdr")(data)


def to_cdr(data: ColumnOrName, type: str, options: Mapping[str, str] | None = None) -> Column:
    """A column of structs as a column of serialized samples (BINARY), with their encapsulation header.

    ``type`` is as for :func:`from_cdr`; the struct's fields are the type's members, in any order. Null stays null.
    ``options``: ``data_representation``, and ``type``, ``type.extensibility`` and ``type.ros_distribution`` as for the
    sink. A value that does not fit its type fails the query.

    Raises OptionError, and TypeDefinitionError for what is wrong with the type. Needs PySpark 4.1 or newer.
    """
    settings = _settings(dict(options or {}), AppliesTo.WRITE)
    struct = struct_of_text(type, settings)
    representation = settings.representation or least_representation(struct)

    def encode(values: pa.Array) -> pa.Array:
        return encoded_values(values, struct, representation)

    return _arrow_udf(encode, BinaryType(), "to_cdr")(data)


def schema_of_cdr(topic: str, options: Mapping[str, str] | None = None) -> str:
    """The type of a topic as IDL, as the topic's peers announce it: keep it beside the table of raw samples.

    It joins the domain for as long as the question takes, at most ``type.discovery_timeout``; ``options`` are those of
    the source that decide how (``domain``, ``interface``, ``peers``, ``type``).

    Raises OptionError with what was seen on the domain, if no peer announces the type.
    """
    from ..transport.types.idl.printer import print_idl

    found = discovered_type(parse_options({**(options or {}), "topic": topic}, AppliesTo.READ))
    if found.struct is None:
        raise OptionError("topic", topic, "its peers announce the name of their type, and not the type")
    return print_idl(found.struct)


def _settings(options: Mapping[str, str], role: AppliesTo) -> Settings:
    return parse_options({**options, "topic": "a column"}, role)


def _arrow_udf(function: Any, result: DataType, name: str) -> Callable[[ColumnOrName], Column]:
    if not hasattr(functions, "arrow_udf"):
        raise older_than("4.1", name, "read the topic with payload=cdr")
    found: Callable[[ColumnOrName], Column] = functions.arrow_udf(function, result)
    return found
