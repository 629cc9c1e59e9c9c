"""A topic type's serialized samples as Arrow record batches, and back."""

from __future__ import annotations

import pyarrow as pa

from ...qos import DataRepresentation
from ...wire.samples import Samples
from ..mapping import DEFAULT_MAPPING, Mapping
from ..model import Struct
from .decoder import Decoded, Decoder
from .encoder import Encoder
from .lanes import U8

__all__ = ["Codec", "Decoded"]


class Codec:
    """Decodes and encodes samples of one type, vectorised over all samples of a call.

    ``arrow_schema`` is what :meth:`decode` gives: any of the type's members and at any depth any fields of theirs,
    in any order, each as an Arrow type that holds all its values (see :mod:`.targets`); None: as ``mapping`` has it
    (:mod:`..arrow`). Only what is wanted is built.

    A sample is malformed if a value of it does not lie inside the payload, wanted or not: lengths, string ends,
    member headers and discriminators are always checked. Bytes that are no value of their type (of an enum, of UTF-8)
    are found only in what is wanted.

    Raises TypeDefinitionError for a type that has no columns, UsageError for a schema that is not its.
    """

    def __init__(
        self,
        struct: Struct,
        *,
        arrow_schema: pa.Schema | None = None,
        mapping: Mapping = DEFAULT_MAPPING,
    ) -> None:
        self.struct = struct
        self._decoder = Decoder(struct, arrow_schema, mapping)
        self._encoder = Encoder(struct)

    @property
    def arrow_schema(self) -> pa.Schema:
        """What :meth:`decode` gives."""
        return self._decoder.arrow_schema

    def decode(self, samples: Samples, *, keys_only: bool = False) -> Decoded:
        """The samples as columns; ``keys_only``: payloads hold the serialized key, other columns are null.

        Never raises for what a payload holds, and reads nothing outside of it.
        """
        return self._decoder.decode(samples, keys_only=keys_only)

    def decode_key_hashes(self, hashes: U8) -> Decoded | None:
        """What key hashes, (rows, 16), tell of the samples they are of; columns outside the key are null.

        None if they do not tell: if they are MD5 digests, or if the key may lie in them in two ways, for
        nothing says which XCDR version the writer took them from (XTypes 1.3 §7.6.8.3.1).
        """
        return self._decoder.decode_key_hashes(hashes)

    def encode(
        self,
        batch: pa.RecordBatch,
        *,
        representation: DataRepresentation = DataRepresentation.XCDR1,
        big_endian: bool = False,
    ) -> Samples:
        """Serialize a batch, one sample a row; columns are found by name.

        Raises EncodeError naming column and row of a value that does not fit its member.
        """
        return self._encoder.encode(batch, representation=representation, big_endian=big_endian)

    def encode_keys(
        self,
        batch: pa.RecordBatch,
        *,
        representation: DataRepresentation = DataRepresentation.XCDR1,
        big_endian: bool = False,
    ) -> Samples:
        """Serialize the keys only (as for a dispose); only key columns are needed."""
        return self._encoder.encode_keys(batch, representation=representation, big_endian=big_endian)

    def key_hashes(
        self, batch: pa.RecordBatch, *, representation: DataRepresentation = DataRepresentation.XCDR1
    ) -> U8:
        """Key hashes, (rows, 16) uint8: the big-endian key if it never exceeds 16 bytes, else its MD5
        (RTPS 2.5 §9.6.4.8)."""
        return self._encoder.key_hashes(batch, representation=representation)

    def uniform_size(self, representation: DataRepresentation = DataRepresentation.XCDR1) -> int | None:
        """Bytes of every sample, encapsulation header and padding included; None if they differ."""
        return self._encoder.uniform_size(representation)
