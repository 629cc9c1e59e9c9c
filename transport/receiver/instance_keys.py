"""The instance of each sample of a run: by the key hash on the wire, else computed from the key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from ..qos import DataRepresentation
from ..types.model import Struct
from ..wire.samples import KEY_ONLY, U8, Run, Samples

if TYPE_CHECKING:
    import pyarrow as pa

    from ..types.cdr.codec import Codec

_CDR2_BE: Final = 0x06
#: Combinations of the values of several key members that are numbered.
_CODES_MAX: Final = 1 << 20


class InstanceKeys:
    """Key hashes of the samples of a keyed topic.

    Without the type, all samples that come without a key hash are one instance.
    """

    def __init__(self, struct: Struct | None) -> None:
        self._codec: Codec | None = None
        if struct is not None:
            # few receivers need the codec, and loading it takes half as long as all else of their start
            import pyarrow as pa

            from ..types.arrow import arrow_schema
            from ..types.cdr.codec import Codec

            columns = pa.schema([arrow_schema(struct).field(m.name) for m in struct.members if m.key])
            self._codec = Codec(struct, arrow_schema=columns)

    def __call__(self, run: Run) -> U8:
        """(count, 16) uint8."""
        return self.hashes(run.samples(), run.sample_flags(), run.key_hashes())

    def hashes(self, samples: Samples, flags: npt.NDArray[np.uint32], sent: U8 | None) -> U8:
        """(count, 16) uint8; ``sent``: the key hashes on the wire, zeros where a sample has none, None: none has."""
        hashes = np.zeros((samples.count, 16), np.uint8) if sent is None else sent
        if self._codec is None:
            return hashes
        lacking = ~hashes.any(axis=1)
        if not lacking.any():
            return hashes
        hashes = hashes.copy()
        key_only = (flags & KEY_ONLY) != 0
        readable = lacking & (samples.all_lengths() > 4)
        for rows, keys_only in ((readable & ~key_only, False), (readable & key_only, True)):
            if rows.any():
                self._fill(hashes, samples, np.flatnonzero(rows), keys_only=keys_only)
        return hashes

    def _fill(self, hashes: U8, samples: Samples, rows: np.ndarray, *, keys_only: bool) -> None:
        assert self._codec is not None
        if len(rows) < samples.count:
            part = Samples.ragged(samples.data, samples.all_offsets()[rows], samples.all_lengths()[rows])
        else:
            part = samples
        xcdr2 = part.payload(0)[1] >= _CDR2_BE
        representation = DataRepresentation.XCDR2 if xcdr2 else DataRepresentation.XCDR1
        for decoded in self._codec.parts(part, keys_only=keys_only):
            known, rows = rows[: decoded.count], rows[decoded.count :]
            if decoded.malformed is not None:  # they are of no instance; whoever decodes them says so
                known = known[~decoded.malformed]
            if len(known):
                hashes[known] = self._hashes_of(decoded.batch, representation)

    def _hashes_of(self, keys: pa.RecordBatch, representation: DataRepresentation) -> U8:
        """The key hash of each row; each distinct key is hashed once, which matters where hashing means MD5."""
        import pyarrow as pa

        assert self._codec is not None
        code = np.zeros(keys.num_rows, np.int64)
        distinct = 1
        for column in keys.columns:
            if not _is_plain(column.type) or column.null_count:
                return self._codec.key_hashes(keys, representation=representation)
            encoded = column.dictionary_encode()
            distinct *= len(encoded.dictionary)
            if distinct > _CODES_MAX:
                return self._codec.key_hashes(keys, representation=representation)
            code = code * len(encoded.dictionary) + encoded.indices.to_numpy()
        first = np.full(distinct, -1, np.int64)
        first[code] = np.arange(len(code))
        there = np.flatnonzero(first >= 0)
        place = np.empty(distinct, np.int64)
        place[there] = np.arange(len(there))
        some = keys.take(pa.array(first[there]))
        return self._codec.key_hashes(some, representation=representation)[place[code]]


def _is_plain(t: pa.DataType) -> bool:
    """Whether equal values of a key are equal bytes, and Arrow finds the distinct ones."""
    from pyarrow import types

    return bool(types.is_integer(t) or types.is_string(t) or types.is_boolean(t))
