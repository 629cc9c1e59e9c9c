"""The instance of each sample of a run: by the key hash on the wire, otherwise computed from the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from ..errors import EncodeError, TypeDefinitionError
from ..limits import INSTANCES_MAX, TYPED_WRITERS_MAX
from ..qos import DataRepresentation
from ..structure import Guid
from ..types.model import Struct
from ..wire.samples import CDR2_BE, KEY_ONLY, U8, Run, Samples

if TYPE_CHECKING:
    import pyarrow as pa

    from ..types.cdr.codec import Codec

#: The last encapsulation of XTypes, D_CDR2 or PL_CDR2 in little endian.
_ENCAPSULATION_MAX: Final = 0x0B
#: Largest number of combinations of the values of several key members that get a code.
_CODES_MAX: Final = 1 << 20


class InstanceKeys:
    """Key hashes of the samples of a keyed topic.

    Without the type, all samples that come without a key hash are one instance. ``type_of`` gives the type that a
    writer announced, None if it announced none: the position of the key follows the writer's type, which may differ
    from the reader's, such as a type that is derived from columns.

    A writer computes its key hashes from keys in the XCDR version of its samples (XTypes 1.3 §7.6.8.3.1). If the key
    has another position in the other version, the first version that is seen counts: samples in the other version get
    the hashes which they would have in the first, so that an instance has one hash, whichever writer sends it.
    """

    def __init__(self, struct: Struct | None, type_of: Callable[[Guid], Struct | None] | None = None) -> None:
        self._struct = struct
        self._type_of = type_of
        self._codec: Codec | None = None if struct is None else _codec_of_keys(struct)
        #: For each writer that announced another type: that type, and the codec of its keys.
        self._codecs: dict[Guid, tuple[Struct, Codec | None]] = {}
        #: Whether the hashes are those of XCDR2; None: no sample has shown which.
        self._xcdr2: bool | None = None
        #: Hashes that were sent in the other version, and the hashes that replace them.
        self._aliases: dict[bytes, U8] = {}

    def __call__(self, run: Run) -> U8:
        """(count, 16) uint8."""
        return self.hashes(run.samples(), run.sample_flags(), run.key_hashes(), self.codec_of(run.writer))

    def codec_of(self, writer: Guid) -> Codec | None:
        """The codec of the keys in a writer's samples; None: their position is not known."""
        written = None if self._type_of is None else self._type_of(writer)
        if written is None or written is self._struct:
            return self._codec
        known = self._codecs.get(writer)
        if known is None or known[0] is not written:
            alike = next((each for each in self._codecs.values() if each[0] == written), None)
            if alike is None:
                same = written == self._struct or not written.is_keyed
                alike = written, self._codec if same else self._written(written)
            if known is None and len(self._codecs) >= TYPED_WRITERS_MAX:
                return alike[1]
            known = self._codecs[writer] = written, alike[1]
        return known[1]

    def _written(self, written: Struct) -> Codec | None:
        try:
            return _codec_of_keys(written)
        except TypeDefinitionError:  # no columns can be made of it: the decoder of the samples reports that
            return self._codec

    def hashes(
        self, samples: Samples, flags: npt.NDArray[np.uint32], sent: U8 | None, codec: Codec | None
    ) -> U8:
        """(count, 16) uint8 for samples of writers with one type; ``codec`` is the result of :meth:`codec_of`.

        ``sent``: the key hashes on the wire, zeros for a sample without one; None: no sample has one.
        """
        hashes = np.zeros((samples.count, 16), np.uint8) if sent is None else sent
        if codec is None:
            return hashes
        is_alike = codec.keys_are_alike
        wanted = ~hashes.any(axis=1)
        if is_alike and not wanted.any():
            return hashes
        readable = samples.all_lengths() > 4
        others = None if is_alike else self._others(samples, readable)
        if others is not None and others.any():
            wanted |= others
        elif not wanted.any() and not self._aliases:
            return hashes
        hashes = hashes.copy()
        key_only = (flags & KEY_ONLY) != 0
        wanted &= readable
        for rows, keys_only in ((wanted & ~key_only, False), (wanted & key_only, True)):
            if rows.any():
                self._fill(hashes, samples, np.flatnonzero(rows), codec, keys_only=keys_only)
        if others is not None and sent is not None:
            self._follow_aliases(hashes, sent, others, readable)
        return hashes

    def _others(self, samples: Samples, readable: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which samples have the XCDR version whose hashes do not count."""
        others = np.zeros(samples.count, np.bool_)
        rows = np.flatnonzero(readable)
        at = samples.all_offsets()[rows]
        identifiers = samples.data[at + 1]
        sound = (samples.data[at] == 0) & (identifiers <= _ENCAPSULATION_MAX)
        xcdr2 = identifiers >= CDR2_BE
        if self._xcdr2 is None and sound.any():
            self._xcdr2 = bool(xcdr2[np.argmax(sound)])
        others[rows] = sound & (xcdr2 != self._xcdr2)
        return others

    def _follow_aliases(
        self, hashes: U8, sent: U8, others: npt.NDArray[np.bool_], readable: npt.NDArray[np.bool_]
    ) -> None:
        """Learn which hashes mean the same instance, and replace the hash of samples that consist of a hash only."""
        differ = np.flatnonzero(others & sent.any(axis=1) & (hashes != sent).any(axis=1))
        if len(differ):
            for before, now in np.unique(np.stack([sent[differ], hashes[differ]], axis=1), axis=0):
                if len(self._aliases) < INSTANCES_MAX:
                    self._aliases[before.tobytes()] = now
        if self._aliases:
            for row in np.flatnonzero(~readable).tolist():
                hashes[row] = self._aliases.get(sent[row].tobytes(), sent[row])

    def _fill(self, hashes: U8, samples: Samples, rows: np.ndarray, codec: Codec, *, keys_only: bool) -> None:
        if len(rows) < samples.count:
            part = Samples.ragged(samples.data, samples.all_offsets()[rows], samples.all_lengths()[rows])
        else:
            part = samples
        representation = DataRepresentation.XCDR2 if self._xcdr2 else DataRepresentation.XCDR1
        for decoded in codec.parts(part, keys_only=keys_only):
            known, rows = rows[: decoded.count], rows[decoded.count :]
            if (
                decoded.malformed is not None
            ):  # they belong to no instance; the decoder of the samples reports them
                known = known[~decoded.malformed]
            if len(known):
                hashes[known] = _hashes_of(codec, decoded.batch, representation)


def _codec_of_keys(struct: Struct) -> Codec:
    # Few receivers need the codec, and loading it takes half as long as the rest of their start.
    import pyarrow as pa

    from ..types.arrow import arrow_schema
    from ..types.cdr.codec import Codec

    schema = arrow_schema(struct)
    columns = pa.schema([schema.field(member.name) for member in struct.members if member.key])
    return Codec(struct, arrow_schema=columns)


def _hashes_of(codec: Codec, keys: pa.RecordBatch, representation: DataRepresentation) -> U8:
    """The key hash of each row; each distinct key is hashed once, which matters where hashing means MD5."""
    import pyarrow as pa

    code = np.zeros(keys.num_rows, np.int64)
    distinct = 1
    for column in keys.columns:
        if not _is_plain(column.type) or column.null_count:
            return _known_hashes(codec, keys, representation)
        encoded = column.dictionary_encode()
        distinct *= len(encoded.dictionary)
        if distinct > _CODES_MAX:
            return _known_hashes(codec, keys, representation)
        code = code * len(encoded.dictionary) + encoded.indices.to_numpy()
    first = np.full(distinct, -1, np.int64)
    first[code] = np.arange(len(code))
    there = np.flatnonzero(first >= 0)
    place = np.empty(distinct, np.int64)
    place[there] = np.arange(len(there))
    some = keys.take(pa.array(first[there]))
    return _known_hashes(codec, some, representation)[place[code]]


def _known_hashes(codec: Codec, keys: pa.RecordBatch, representation: DataRepresentation) -> U8:
    """The key hash of each row; zeros, which mean no instance, for a key that our type does not allow: a peer's key may
    be longer than a bound, or lack a member."""
    import pyarrow as pa

    hashes, rows = np.zeros((keys.num_rows, 16), np.uint8), np.arange(keys.num_rows)
    while len(rows):
        try:
            hashes[rows] = codec.key_hashes(keys, representation=representation)
            break
        except EncodeError as error:
            if not error.rows:
                raise
            keep = np.ones(len(rows), np.bool_)
            keep[list(error.rows)] = False
            rows, keys = rows[keep], keys.filter(pa.array(keep))
    return hashes


def _is_plain(t: pa.DataType) -> bool:
    """Whether equal values of a key are equal bytes, and Arrow finds the distinct ones."""
    from pyarrow import types

    return bool(types.is_integer(t) or types.is_string(t) or types.is_boolean(t))
