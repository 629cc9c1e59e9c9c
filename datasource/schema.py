"""Schemas of Spark and of Arrow: what Spark expects of a Python data source, and the columns of a topic."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from ..columns.routing import Routing, plan_routing
from ..columns.topic_plan import TopicPlan, plan_reading, schema_to_read
from ..columns.type_sources import TopicType
from ..options import Settings
from ..transport.errors import TypeDefinitionError
from .spark_versions import TIMESTAMPS_IN_UTC


def source_schema(settings: Settings, found: TopicType | None) -> StructType:
    """The schema of a source without one; raises early whatever would fail when it is read."""
    schema = to_spark(schema_to_read(settings, found))
    plan_source(settings, schema, found)
    return schema


def plan_source(settings: Settings, schema: StructType, found: TopicType | None = None) -> TopicPlan:
    """Plan for a source that delivers ``schema`` to Spark; ``found`` is the result of :func:`topic_type`."""
    return plan_reading(settings, to_arrow(schema), found)


def plan_sink(settings: Settings, schema: StructType) -> Routing:
    """Plan for a sink that gets rows of ``schema`` from Spark."""
    return plan_routing(settings, to_arrow(schema))


def to_arrow(schema: StructType) -> pa.Schema:
    """The exact Arrow schema that Spark expects from, and passes to, a Python data source.

    Raises TypeDefinitionError naming a column that Spark has no Arrow type for.
    """
    for field in schema:
        for path, t in _leaves(field.dataType, field.name):
            if isinstance(t, VariantType) or not _has_arrow_type(t):
                fix = f"{t.simpleString().upper()} has no DDS type; cast it, or leave it out"
                raise TypeDefinitionError(f"column {path!r}: {fix}")
    return to_arrow_schema(schema, **TIMESTAMPS_IN_UTC)


def _leaves(t: DataType, path: str) -> Iterator[tuple[str, DataType]]:
    """The types that contain no other types, and their paths."""
    if isinstance(t, StructType):
        for field in t:
            yield from _leaves(field.dataType, f"{path}.{field.name}")
    elif isinstance(t, ArrayType):
        yield from _leaves(t.elementType, f"{path}[]")
    elif isinstance(t, MapType):
        yield from _leaves(t.keyType, f"{path}[].key")
        yield from _leaves(t.valueType, f"{path}[].value")
    else:
        yield path, t


def _has_arrow_type(t: DataType) -> bool:
    """Whether Spark has an Arrow type for it. It has one for VARIANT, a struct of two binaries."""
    try:
        to_arrow_type(t, **TIMESTAMPS_IN_UTC)
    except PySparkTypeError:
        return False
    return True


def to_spark(schema: pa.Schema) -> StructType:
    spark = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return StructType([StructField(f.name, f.dataType, f.nullable) for f in spark.fields])
