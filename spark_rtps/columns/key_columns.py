"""The key of a topic's samples, from rows or from serialized samples; it identifies the instance of each sample."""

from __future__ import annotations

import pyarrow as pa

from ..transport.errors import EncodeError, UsageError
from ..transport.qos import DataRepresentation
from ..transport.types.arrow import arrow_schema
from ..transport.types.cdr.codec import Codec
from ..transport.wire.samples import CDR2_BE, U8, Samples
from .relabelling import relabelled
from .topic_plan import TopicPlan


class KeyColumns:
    """The key columns of one topic. Raises UsageError if it has none."""

    def __init__(self, plan: TopicPlan) -> None:
        struct = plan.struct
        if struct is None or not plan.keyed:
            raise UsageError(f"topic {plan.topic!r} has no key, so it has no instances")
        members = [member.name for member in struct.members if member.key]
        full = arrow_schema(struct)
        self._codec = Codec(struct, arrow_schema=pa.schema([full.field(name) for name in members]))
        self._representation = plan.representation
        columns = {name: plan.columns.field(i) for i, name in enumerate(plan.data.names)}
        #: The columns, under the names that the user's rows have.
        self.schema = pa.schema([columns[name] for name in members])
        self._data = pa.schema([plan.data.field(name) for name in members])

    def encode_keys(self, batch: pa.RecordBatch) -> tuple[Samples, U8]:
        """The serialized keys of rows that have the columns of ``schema``, and their key hashes, (rows, 16).

        Raises EncodeError for a value that its type cannot hold.
        """
        if not self._data.equals(self.schema):
            batch = relabelled(batch, self._data)
        keys = self._codec.encode_keys(batch, representation=self._representation)
        return keys, self._codec.key_hashes(batch, representation=self._representation)

    def hash_of(self, payload: U8) -> U8:
        """The key hash, (16,), of one serialized sample, its encapsulation header included.

        Raises EncodeError if it does not decode.
        """
        decoded = self._codec.decode_samples(Samples.uniform(payload, 1, len(payload)))
        if decoded.malformed is not None and decoded.malformed.any():
            raise EncodeError(f"a serialized sample of {self._codec.struct.name} does not decode")
        xcdr2 = int(payload[1]) >= CDR2_BE
        representation = DataRepresentation.XCDR2 if xcdr2 else DataRepresentation.XCDR1
        key_hash: U8 = self._codec.key_hashes(decoded.batch, representation=representation)[0]
        return key_hash
