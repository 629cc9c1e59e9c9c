"""The topic of each row of a sink: the one that the options name, or the one that the row names in a column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from ..options import Payload, Settings
from ..options.ros import RosNames
from ..transport.errors import EncodeError, OptionError
from ..transport.limits import STRING_MAX
from ..transport.value_classes import value
from .topic_plan import TOPIC_COLUMN, TopicPlan, plan_writing
from .type_sources import given_type

#: With ``payload=binary`` rows may also name their types, as rows of a source with several topics do.
TYPE_COLUMN: Final = "type_name"


@value
class Route:
    """A topic, and the type name that its writer announces if rows have one."""

    topic: str
    type_name: str | None = None


@value
class Routing:
    """The topics of a sink's rows, and how they are written; planned on the driver, used in tasks.

    ``settings`` and ``plan`` apply to all rows; with ``by_row`` they have no topic, and are completed for each topic.
    """

    settings: Settings
    plan: TopicPlan
    by_row: bool = False
    types_by_row: bool = False
    #: Columns that are not members of the type.
    apart: tuple[str, ...] = ()

    def parts(self, batch: pa.RecordBatch) -> Iterator[tuple[Route, pa.RecordBatch]]:
        """The rows of a batch grouped by route, each group in order. Raises EncodeError for rows without a topic."""
        rows = batch.drop_columns(list(self.apart)) if self.apart else batch
        if not self.by_row:
            yield Route(self.settings.topic), rows
            return
        names = (TOPIC_COLUMN, TYPE_COLUMN) if self.types_by_row else (TOPIC_COLUMN,)
        encoded = [_named(batch, name).dictionary_encode() for name in names]
        code = np.zeros(batch.num_rows, np.int64)
        for each in encoded:
            code = code * len(each.dictionary) + each.indices.to_numpy(zero_copy_only=False)
        distinct, first = np.unique(code, return_index=True)
        for topic_code, at in zip(distinct.tolist(), first.tolist(), strict=True):
            topic, *type_name = (each[at].as_py() for each in encoded)
            route = Route(self._on_wire(topic), *type_name)
            alike = np.flatnonzero(code == topic_code)
            yield route, rows if len(distinct) == 1 else rows.take(pa.array(alike))

    def _on_wire(self, topic: str) -> str:
        """The name on the wire of a topic that a row names. Raises EncodeError if the name is invalid."""
        node = self.settings.ros
        if node is None:
            return topic
        try:
            return RosNames(node.name, node.namespace, self.settings.ros_remaps).topic(topic)
        except OptionError as error:
            raise EncodeError(f"column {TOPIC_COLUMN!r}: {topic[:32]!r} {error.fix}") from None

    def along(self, route: Route) -> tuple[Settings, TopicPlan]:
        """The settings and the plan for rows of a route."""
        if not self.by_row:
            return self.settings, self.plan
        settings = replace(self.settings, topic=route.topic)
        if route.type_name is not None:
            settings = replace(settings, type_name=route.type_name)
            return settings, replace(self.plan, topic=route.topic, type_name=route.type_name)
        if self.plan.payload is Payload.CDR and settings.type is None and settings.type_file is None:
            return settings, plan_writing(settings, self.plan.columns)  # the type is named after the topic
        return settings, replace(self.plan, topic=route.topic)


def plan_routing(settings: Settings, columns: pa.Schema) -> Routing:
    """The routing of rows with ``columns``. The option ``topic`` overrides the column, as for Spark's Kafka sink.

    Raises OptionError if neither names a topic.
    """
    has_column = TOPIC_COLUMN in columns.names and _is_text(columns.field(TOPIC_COLUMN).type)
    is_member = _is_member(settings)
    if settings.topic:
        apart = (TOPIC_COLUMN,) if has_column and not is_member and settings.payload is Payload.CDR else ()
        return Routing(settings, plan_writing(settings, _without(columns, apart)), apart=apart)
    if not has_column or is_member:
        why = (
            "the type has a member topic, so that the column names no topics"
            if is_member
            else "rows name none"
        )
        fix = f'{why}: name the topic, .option("topic", "Alerts") or .save("Alerts")'
        fix += "" if is_member else f", or give the rows a column {TOPIC_COLUMN} of type STRING"
        raise OptionError("topic", None, fix)
    by_type = settings.payload is Payload.BINARY and settings.type is None and settings.type_name is None
    types_by_row = by_type and TYPE_COLUMN in columns.names and _is_text(columns.field(TYPE_COLUMN).type)
    names = (TOPIC_COLUMN, TYPE_COLUMN) if types_by_row else (TOPIC_COLUMN,)
    planned = replace(settings, type_name=TYPE_COLUMN) if types_by_row else settings
    plan = plan_writing(planned, _without(columns, names))
    return Routing(settings, plan, by_row=True, types_by_row=types_by_row, apart=names)


def _is_member(settings: Settings) -> bool:
    """Whether the type that the options give has a member of the column's name."""
    found = given_type(settings) if settings.payload is Payload.CDR else None
    members = () if found is None or found.struct is None else found.struct.members
    return any(member.name == TOPIC_COLUMN for member in members)


def _without(columns: pa.Schema, names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([field for field in columns if field.name not in names])


def _is_text(t: pa.DataType) -> bool:
    return bool(pa.types.is_string(t) or pa.types.is_large_string(t))


def _named(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column of names. Raises EncodeError for one that is null, empty or too long."""
    column = batch.column(name)
    for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
        fix = (
            "fill it, or set the option topic, which overrides the column"
            if name == TOPIC_COLUMN
            else "fill it"
        )
        raise EncodeError(f"column {name!r}, row {row}: null; {fix}")
    for text in column.unique().to_pylist():
        if not text or "\0" in text or len(text.encode()) >= STRING_MAX:
            fix = f"a name has 1 to {STRING_MAX - 1} bytes of UTF-8, and no NUL"
            raise EncodeError(f"column {name!r}: {text[:32]!r} is no name; {fix}")
    return column
