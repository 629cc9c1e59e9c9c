"""The instance of each sample of a run: by the key hash on the wire, else computed from the key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from ..limits import INSTANCES_MAX
from ..qos import DataRepresentation
from ..types.model import Struct
from ..wire.samples import KEY_ONLY, U8, Run, Samples

if TYPE_CHECKING:
    import pyarrow as pa

    from ..types.cdr.codec import Codec

_CDR2_BE: Final = 0x06
#: The last encapsulation of XTypes, D_CDR2 or PL_CDR2 in little endian.
_ENCAPSULATION_MAX: Final = 0x0B
#: Combinations of the values of several key members that are numbered.
_CODES_MAX: Final = 1 << 20


class InstanceKeys:
    """Key hashes of the samples of a keyed topic.

    Without the type, all samples that come without a key hash are one instance.

    A writer takes its key hashes from keys in the XCDR version of its samples (XTypes 1.3 §7.6.8.3.1). Where a key lies
    differently in the two, the first version that is seen counts: samples in the other one get the hashes which they
    would have in that, so that an instance is one, whoever writes it.
    """

    def __init__(self, struct: Struct | None) -> None:
        self._codec: Codec | None = None
        self._is_alike = True
        #: Whether XCDR2 counts; None: no sample has shown which.
        self._xcdr2: bool | None = None
        #: Hashes that were sent in the other version, and what counts in their place.
        self._aliases: dict[bytes, U8] = {}
        if struct is not None:
            # few receivers need the codec, and loading it takes half as long as all else of their start
            import pyarrow as pa

            from ..types.arrow import arrow_schema
            from ..types.cdr.codec import Codec

            columns = pa.schema([arrow_schema(struct).field(m.name) for m in struct.members if m.key])
            self._codec = Codec(struct, arrow_schema=columns)
            self._is_alike = self._codec.keys_are_alike

    def __call__(self, run: Run) -> U8:
        """(count, 16) uint8."""
        return self.hashes(run.samples(), run.sample_flags(), run.key_hashes())

    def hashes(self, samples: Samples, flags: npt.NDArray[np.uint32], sent: U8 | None) -> U8:
        """(count, 16) uint8; ``sent``: the key hashes on the wire, zeros where a sample has none, None: none has."""
        hashes = np.zeros((samples.count, 16), np.uint8) if sent is None else sent
        if self._codec is None:
            return hashes
        wanted = ~hashes.any(axis=1)
        if self._is_alike and not wanted.any():
            return hashes
        readable = samples.all_lengths() > 4
        others = None if self._is_alike else self._others(samples, readable)
        if others is not None and others.any():
            wanted |= others
        elif not wanted.any() and not self._aliases:
            return hashes
        hashes = hashes.copy()
        key_only = (flags & KEY_ONLY) != 0
        wanted &= readable
        for rows, keys_only in ((wanted & ~key_only, False), (wanted & key_only, True)):
            if rows.any():
                self._fill(hashes, samples, np.flatnonzero(rows), keys_only=keys_only)
        if others is not None and sent is not None:
            self._follow_aliases(hashes, sent, others, readable)
        return hashes

    def _others(self, samples: Samples, readable: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which samples have another XCDR version than the one that counts."""
        others = np.zeros(samples.count, np.bool_)
        rows = np.flatnonzero(readable)
        at = samples.all_offsets()[rows]
        identifiers = samples.data[at + 1]
        sound = (samples.data[at] == 0) & (identifiers <= _ENCAPSULATION_MAX)
        xcdr2 = identifiers >= _CDR2_BE
        if self._xcdr2 is None and sound.any():
            self._xcdr2 = bool(xcdr2[np.argmax(sound)])
        others[rows] = sound & (xcdr2 != self._xcdr2)
        return others

    def _follow_aliases(
        self, hashes: U8, sent: U8, others: npt.NDArray[np.bool_], readable: npt.NDArray[np.bool_]
    ) -> None:
        """Learn which hashes mean the same, and give samples that are nothing but a hash the one that counts."""
        differ = np.flatnonzero(others & sent.any(axis=1) & (hashes != sent).any(axis=1))
        if len(differ):
            for before, now in np.unique(np.stack([sent[differ], hashes[differ]], axis=1), axis=0):
                if len(self._aliases) < INSTANCES_MAX:
                    self._aliases[before.tobytes()] = now
        if self._aliases:
            for row in np.flatnonzero(~readable).tolist():
                hashes[row] = self._aliases.get(sent[row].tobytes(), sent[row])

    def _fill(self, hashes: U8, samples: Samples, rows: np.ndarray, *, keys_only: bool) -> None:
        assert self._codec is not None
        if len(rows) < samples.count:
            part = Samples.ragged(samples.data, samples.all_offsets()[rows], samples.all_lengths()[rows])
        else:
            part = samples
        representation = DataRepresentation.XCDR2 if self._xcdr2 else DataRepresentation.XCDR1
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
