"""Rows of a publication as serialized samples."""

from __future__ import annotations

import threading
from dataclasses import replace

import pyarrow as pa

from ..columns.encoding import Encoder, encoder_for
from ..columns.key_columns import KeyColumns
from ..columns.topic_plan import TopicPlan, plan_writing
from ..options import Payload, Settings
from ..transport.errors import UsageError
from ..transport.wire.samples import U8, Samples
from .rows import conformed


class RowEncoder:
    """Encodes the rows of one topic, for any thread."""

    def __init__(self, settings: Settings, plan: TopicPlan) -> None:
        self._settings = settings
        self._plan = plan
        #: Encodes keys; None: the topic has none.
        self.keys = KeyColumns(plan) if plan.keyed else None
        #: By the schema of a batch.
        self._encoders: dict[pa.Schema, Encoder] = {plan.columns: encoder_for(plan)}
        self._lock = threading.Lock()

    def encode(self, batch: pa.RecordBatch) -> tuple[Samples, U8 | None]:
        """The samples of rows, with their key hashes if the topic has a key.

        Raises UsageError for rows with other columns, and EncodeError for a value that does not fit the type.
        """
        with self._lock:
            encode = self._encoders.get(batch.schema.remove_metadata())
            if encode is None:
                batch, encode = self._encoder_of(batch)
            return encode(batch)

    def _encoder_of(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Encoder]:
        """For rows of another schema: the columns in any order, or other members of a given type."""
        plan = self._plan
        if plan.payload is not Payload.CDR:
            lacking = [name for name in plan.columns.names if name not in batch.schema.names]
            if plan.payload is Payload.BINARY and lacking:
                raise UsageError(f"topic {plan.topic!r}: the rows lack the column {', '.join(lacking)}")
            return batch, self._encoders[plan.columns]
        if set(batch.schema.names) == set(plan.columns.names):
            return conformed(batch, plan.columns), self._encoders[plan.columns]
        other = plan_writing(self._settings, batch.schema)
        if other.struct != plan.struct:
            raise UsageError(
                f"topic {plan.topic!r}: the rows have the columns {', '.join(batch.schema.names)}; the publication has "
                f"{', '.join(plan.columns.names)}"
            )
        self._encoders[batch.schema.remove_metadata()] = encode = encoder_for(
            replace(other, representation=plan.representation)
        )
        return batch, encode
