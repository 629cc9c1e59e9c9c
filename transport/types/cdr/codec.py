"""A topic type's serialized samples as Arrow record batches, and back."""

from __future__ import annotations

import pyarrow as pa

from ..mapping import DEFAULT_MAPPING, Mapping
from ..model import Struct
from .decoding.decoder import Decoded, Decoder
from .encoding.encoder import Encoder

__all__ = ["Codec", "Decoded"]


class Codec(Decoder, Encoder):
    """Decodes and encodes samples of one type, vectorised over all samples of a call.

    ``arrow_schema`` is what :meth:`decode` gives: any of the type's members and at any depth any fields of theirs,
    in any order, each as an Arrow type that holds all its values (see :mod:`.decoding.targets`); None: as ``mapping``
    has it (:mod:`..arrow`). Only what is wanted is built.

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
        Decoder.__init__(self, struct, arrow_schema, mapping)
        Encoder.__init__(self, struct)
