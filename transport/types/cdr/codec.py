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

    ``arrow_schema`` is the schema of decoded batches: any members of the type and any of their fields at any
    depth, in any order, each as an Arrow type that holds all its values (see :mod:`.decoding.targets`). None: the
    schema that ``mapping`` selects (:mod:`..arrow`). Only the columns of the schema are built. ``lacking``: the
    type may lack fields of the schema, at any depth; these are null.

    A sample is malformed if one of its values does not lie inside the payload, whether or not it is in the schema:
    lengths, string ends, member headers and discriminators are always checked. Bytes that are not a value of their type
    (of an enum, of UTF-8) are found only in the columns of the schema.

    Raises TypeDefinitionError for a type that has no columns, UsageError for a schema that does not fit the type.
    """

    def __init__(
        self,
        struct: Struct,
        *,
        arrow_schema: pa.Schema | None = None,
        mapping: Mapping = DEFAULT_MAPPING,
        lacking: bool = False,
    ) -> None:
        Decoder.__init__(self, struct, arrow_schema, mapping, lacking=lacking)
        Encoder.__init__(self, struct)
