"""``spark-rtps idl``: the DDS type that the rows of a DataFrame are written as."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..transport.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def idl(
    schema: Annotated[
        str, typer.Argument(help="A Spark schema: DDL such as 'color string, n bigint', or df.schema.json().")
    ],
    name: Annotated[str, typer.Option("--type", help="Name of the type, such as a::b::Alert.")] = "Row",
    key: Annotated[str, typer.Option("--key", help="Columns that form the key, comma-separated.")] = "",
) -> None:
    """Print the IDL of the DDS type that a DataFrame with this schema is written as.

    Subscribers elsewhere can be compiled against it.
    """
    from ..datasource.schema import plan_sink
    from ..options import AppliesTo, parse_options
    from ..transport.types.idl.printer import print_idl

    given = {"topic": name, "type": name} | ({"key": key} if key else {})
    plan = plan_sink(parse_options(given, AppliesTo.WRITE), spark_schema(schema)).plan
    if plan.struct is None:
        raise UsageError("no type can be derived from these columns")
    typer.echo(print_idl(plan.struct).rstrip("\n"))


def spark_schema(text: str) -> StructType:
    """Read a schema from its JSON form, or from DDL, which only Spark's own parser understands."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        if text.lstrip().startswith("{"):
            found: DataType = StructType.fromJson(_json(text))
        else:
            found = _parse_ddl(text)
    except (PySparkException, KeyError, TypeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(f"{text!r} is not a Spark schema: {reason}") from error
    if not isinstance(found, StructType):
        raise UsageError(f"a schema has named columns, such as 'color string, n bigint'; got {text!r}")
    return found


def _json(text: str) -> dict[str, object]:
    import json

    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def _parse_ddl(text: str) -> DataType:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from ..session import quiet_session

    running = SparkSession.getActiveSession()
    if running is not None:
        return DataType.fromDDL(text)
    spark = quiet_session("spark-rtps idl")
    try:
        return DataType.fromDDL(text)
    finally:
        spark.stop()
