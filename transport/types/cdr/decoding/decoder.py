"""Serialized samples of one type as Arrow record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....errors import TooManySamplesError, TypeDefinitionError
from ....limits import UNKNOWN_ENCAPSULATIONS_MAX
from ....value_classes import value
from ....wire.samples import Samples
from ...keys import key_holder, key_struct, undelimited_key
from ...mapping import Mapping
from ...model import Extensibility, Struct, Union, traverse, without_aliases
from ..cursors import HEADER, I64, U8, Budget, Cursors, Mask, Position, Words, agreed, anywhere
from ..layout import Rules, is_alike_in_xcdr
from ..table import Table
from .compiler import compile_struct
from .leaves import leaves
from .members import MutableRecordDecoder
from .records import RecordDecoder
from .targets import readable_schema

# Encapsulation identifiers (XTypes 1.3 table 60): XCDR version and encoding of the outermost struct. The odd
# ones are little-endian.
_FORMATS: Final = {
    0x0000: (1, Extensibility.FINAL),  # CDR
    0x0002: (1, Extensibility.MUTABLE),  # PL_CDR
    0x0006: (2, Extensibility.FINAL),  # PLAIN_CDR2
    0x0008: (2, Extensibility.APPENDABLE),  # DELIMITED_CDR2
    0x000A: (2, Extensibility.MUTABLE),  # PL_CDR2
}
#: Encapsulation identifiers of the serialized keys that Cyclone DDS 0.10 writes without DHEADERs.
_UNDELIMITED: Final = (0x0006, 0x0008)
_PADDING_MAX: Final = 3
_TOO_LARGE: Final = "it would become more than a row can hold"

#: For each sample the code of the reason why it is malformed; 0: it is not.
Codes: TypeAlias = npt.NDArray[np.int32]


@value
class Decoded:
    """``batch`` holds the well-formed samples, in order; ``malformed`` marks the others, (count,) bool.

    ``codes``, (count,), and ``words`` have the reasons; see :meth:`reason`.
    """

    batch: pa.RecordBatch
    malformed: Mask | None
    codes: Codes | None = None
    words: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of samples, malformed ones included."""
        return self.batch.num_rows if self.malformed is None else len(self.malformed)

    def reason(self, i: int) -> str:
        """Why sample i is malformed; "" if it is not."""
        code = 0 if self.codes is None else int(self.codes[i])
        return self.words[code - 1] if code else ""


_T = TypeVar("_T")
_R = TypeVar("_R")


def in_parts(samples: _T, decode: Callable[[_T], _R], halves: Callable[[_T], Iterable[_T]]) -> Iterator[_R]:
    """Decode all samples at once or, after a TooManySamplesError, halves of them, recursively. Yields the results."""
    try:
        whole = [decode(samples)]
    except TooManySamplesError:
        whole = []
    # not inside the except clause: the error's traceback would keep the partial result alive
    yield from whole
    if not whole:
        for half in halves(samples):
            yield from in_parts(half, decode, halves)


def _halves(samples: Samples) -> Iterable[Samples]:
    middle = samples.count // 2
    return samples.take_range(0, middle), samples.take_range(middle, samples.count)


class Decoder:
    """Decodes samples of one type, vectorised over all samples of a call; see :class:`~..codec.Codec`."""

    def __init__(
        self, struct: Struct, arrow_schema: pa.Schema | None, mapping: Mapping, *, lacking: bool = False
    ) -> None:
        bare = without_aliases(struct)
        assert isinstance(bare, Struct)
        _check(bare)
        self.struct = bare
        #: The schema of decoded batches.
        self.arrow_schema = readable_schema(bare, arrow_schema, mapping, lacking=lacking)
        self._target = pa.struct(list(self.arrow_schema))
        self._leaves = leaves(bare, self._target)
        self._decoders: dict[tuple[int, Extensibility, bool], RecordDecoder | MutableRecordDecoder] = {}
        self._key_struct = key_struct(bare)
        self._key_holder = key_holder(bare)

    def parts(self, samples: Samples, *, keys_only: bool = False) -> Iterator[Decoded]:
        """The samples in order as :meth:`decode_samples` returns them, in as many parts as memory requires."""
        return in_parts(samples, lambda part: self.decode_samples(part, keys_only=keys_only), _halves)

    def decode_samples(self, samples: Samples, *, keys_only: bool = False) -> Decoded:
        """The samples as columns. ``keys_only``: payloads contain the serialized key; other columns are null.

        Nothing outside the payloads is read. Raises TooManySamplesError if the samples expand so much that fewer of
        them must be decoded at once, but never for a single sample. No payload raises any other error.
        """
        words = Words()
        if keys_only and self._key_struct is None:
            return self._none(samples, words, "the type has no key")
        try:
            return self._decode(samples, keys_only, words)
        except TooManySamplesError:
            if samples.count > 1:
                raise
        return self._none(samples, words, _TOO_LARGE)

    def _decode(self, samples: Samples, keys_only: bool, words: Words) -> Decoded:
        budget = Budget(samples)
        budget.charge(samples.count * self._leaves)
        groups = list(_by_encapsulation(samples))
        if len(groups) == 1 and groups[0][1] is None:
            batch, codes = self._decode_alike(samples, groups[0][0], keys_only, words, budget)
            return _decoded(batch, codes, words)
        batches, rows = [], []
        codes = _unknown(samples, words)
        for encapsulation, index in groups:
            assert index is not None
            part = Samples.ragged(samples.data, samples.all_offsets()[index], samples.all_lengths()[index])
            batch, why = self._decode_alike(part, encapsulation, keys_only, words, budget)
            codes[index] = 0 if why is None else why
            batches.append(batch)
            rows.append(index if why is None else index[why == 0])
        if not batches:
            return _decoded(self._empty(), codes, words)
        order = np.argsort(np.concatenate(rows), kind="stable")
        table = pa.Table.from_batches(batches).combine_chunks().take(pa.array(order)).combine_chunks()
        whole = table.to_batches()[0] if table.num_rows else self._empty()
        return _decoded(whole, codes, words)

    def _decode_alike(
        self, samples: Samples, encapsulation: int, keys_only: bool, words: Words, budget: Budget
    ) -> tuple[pa.RecordBatch, Codes | None]:
        """Decode samples of one encapsulation, none of which is shorter than the encapsulation header."""
        node = self._decoder(encapsulation & ~1, keys_only)
        if node is None:
            return self._empty(), _unknown(samples, words)
        order = "<" if encapsulation & 1 else ">"
        batch, codes = self._decode_cursors(node, _cursors(samples, order, words, budget))
        if keys_only and codes is not None and encapsulation & ~1 in _UNDELIMITED and self._undelimited_keys:
            return self._with_undelimited(samples, order, batch, codes, words)
        return batch, codes

    def _with_undelimited(
        self, samples: Samples, order: str, batch: pa.RecordBatch, codes: Codes, words: Words
    ) -> tuple[pa.RecordBatch, Codes]:
        """Read malformed serialized keys in the form of Cyclone DDS 0.10: without the DHEADERs that XTypes 1.3
        §7.4.3.5.3 puts before appendable structs.

        The form with DHEADERs is tried first, because a key without them is hardly ever valid in it: a key of fixed
        size is too short by the DHEADERs, and the first characters of a string are a length beyond the payload. A key
        without DHEADERs has to end at the end of the payload, except for padding.
        """
        node = self._undelimited_keys
        assert node is not None
        malformed = np.flatnonzero(codes)
        offsets, lengths = samples.all_offsets()[malformed], samples.all_lengths()[malformed]
        others = Samples.ragged(samples.data, offsets, lengths)
        cursors = _cursors(others, order, words, Budget(others))
        end = node.skip_values(cursors, 0)
        cursors.fail(cursors.limit - end > _PADDING_MAX, "longer than a serialized key")
        read = ~cursors.bad
        if not read.any():
            return batch, codes
        more, why = self._decode_cursors(node, cursors.good())
        rows = malformed[read] if why is None else malformed[read][why == 0]
        well = np.flatnonzero(codes == 0)
        codes[rows] = 0
        order_of_rows = np.argsort(np.concatenate((well, rows)), kind="stable")
        table = pa.Table.from_batches([batch, more]).combine_chunks().take(pa.array(order_of_rows))
        whole = table.combine_chunks().to_batches()
        return (whole[0] if whole else self._empty()), codes

    @cached_property
    def _undelimited_keys(self) -> RecordDecoder | MutableRecordDecoder | None:
        """The node that reads serialized keys without DHEADERs; None: the key has none, or the form is unknown."""
        struct = undelimited_key(self.struct)
        return None if struct is None else compile_struct(Rules(2), struct, self._target, modulus=8)

    def _decode_cursors(
        self, node: RecordDecoder | MutableRecordDecoder, cursors: Cursors
    ) -> tuple[pa.RecordBatch, Codes | None]:
        if node.is_open_ended:
            # the padding that the header announces belongs to no member
            cursors.limit = cursors.limit - agreed(cursors.read_numbers("u1", -1) & 3)
        cursors.found = {}
        node.skip_values(cursors, 0)
        codes = None
        if cursors.any_bad:
            codes = cursors.marks.why
            cursors = cursors.good()
            if not len(cursors):
                return self._empty(), codes
        cursors.budget = None
        arrays, _ = node.decode_members(cursors, 0)
        if not cursors.marks.any_wrong:
            return self._batch(arrays, len(cursors)), codes
        right = ~cursors.marks.wrong
        if codes is None:
            codes = cursors.marks.why
        else:
            codes[codes == 0] = cursors.marks.why
        keep = pa.array(right)
        arrays = {name: array.filter(keep) for name, array in arrays.items()}
        return self._batch(arrays, int(right.sum())), codes

    def _decoder(self, encapsulation: int, keys_only: bool) -> RecordDecoder | MutableRecordDecoder | None:
        found = _FORMATS.get(encapsulation)
        if found is None:
            return None
        version, extensibility = found
        key = (version, extensibility, keys_only)
        node = self._decoders.get(key)
        if node is None:
            struct = self._key_struct if keys_only else self.struct
            assert struct is not None
            # The header determines the encoding of the outermost struct, whatever its definition here is.
            declared = struct.extensibility
            node = self._decoders[key] = compile_struct(
                Rules(version),
                replace(struct, extensibility=extensibility),
                self._target,
                modulus=8,
                open_ended=declared is Extensibility.APPENDABLE,
                complete=declared is Extensibility.FINAL,
            )
        return node

    def decode_key_hashes(self, hashes: U8) -> Decoded | None:
        """The key columns of key hashes, (rows, 16), that contain the key; columns outside the key are null.

        None if hashes do not contain the key: if they are MD5 digests, or if the key has different bytes in the two
        XCDR versions, because nothing indicates which one the writer used (XTypes 1.3 §7.6.8.3.1).
        """
        node = self._of_key_hashes
        if node is None:
            return None
        rows = len(hashes)
        if not rows:
            return Decoded(self._empty(), None)
        data = np.zeros((rows, HEADER + 16), np.uint8)
        data[:, HEADER:] = hashes
        samples = Samples.uniform(data.reshape(-1), rows, HEADER + 16)
        words = Words()
        cursors = _cursors(samples, ">", words, Budget(samples))
        return _decoded(*self._decode_cursors(node, cursors), words)

    @property
    def keys_are_alike(self) -> bool:
        """Whether keys, and their hashes, are known to be the same bytes in both XCDR versions."""
        return self._key_holder is None or is_alike_in_xcdr(self._key_holder)

    @cached_property
    def _of_key_hashes(self) -> RecordDecoder | MutableRecordDecoder | None:
        """The node that reads keys from key hashes that contain the key itself."""
        holder = self._key_holder
        if holder is None or not self.keys_are_alike:
            return None
        greatest = Rules(1).greatest_size(holder)
        if greatest is None or greatest > 16:
            return None
        return compile_struct(Rules(1), holder, self._target, modulus=8)

    def _batch(self, arrays: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
        columns = [
            arrays[field.name] if field.name in arrays else pa.nulls(rows, field.type)
            for field in self.arrow_schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)

    def _empty(self) -> pa.RecordBatch:
        return _empty_batch(self.arrow_schema)

    def _none(self, samples: Samples, words: Words, reason: str) -> Decoded:
        return _decoded(self._empty(), np.full(samples.count, words.code(reason), np.int32), words)


def _decoded(batch: pa.RecordBatch, codes: Codes | None, words: Words) -> Decoded:
    malformed = None if codes is None else codes != 0
    if malformed is None or not malformed.any():
        return Decoded(batch, None)
    return Decoded(batch, malformed, codes, words.all())


def _cursors(samples: Samples, order: str, words: Words, budget: Budget) -> Cursors:
    count = samples.count
    if samples.is_uniform:
        start, stride = samples.start + HEADER, samples.stride
        limit: Position = samples.size - HEADER
    else:
        starts, limit = samples.all_offsets() + HEADER, agreed(samples.all_lengths() - HEADER)
        steps = starts[1:] - starts[:-1]
        start, stride = int(starts[0]), 1 if not len(steps) else int(steps[0])
        # mostly consecutive samples of the log
        if stride <= 0 or bool((steps != stride).any()):
            return Cursors(samples.data, starts, limit, order, budget=budget, words=words)
    return Cursors.strided(samples.data, count, start, stride, limit, order, budget, words)


def _ids(samples: Samples) -> tuple[npt.NDArray[Any], I64 | None]:
    """The encapsulation ids, and the samples that are long enough for one (None: all)."""
    if samples.is_uniform:
        if samples.size < HEADER:
            return np.empty(0, ">u2"), np.empty(0, np.int64)
        return Table(samples.data, samples.count, samples.start, samples.stride, ">").column("u2", 0), None
    offsets, lengths = samples.all_offsets(), samples.all_lengths()
    long = None if (lengths >= HEADER).all() else np.flatnonzero(lengths >= HEADER)
    return anywhere(samples.data, ">u2")[offsets if long is None else offsets[long]], long


def _by_encapsulation(samples: Samples) -> Iterable[tuple[int, I64 | None]]:
    """Each encapsulation id and the samples that have it (None: all). Samples too short for one are left out."""
    if samples.count == 0:
        return
    ids, long = _ids(samples)
    if long is None and (ids == ids[0]).all():
        yield int(ids[0]), None
        return
    # only known ids: a peer can send thousands of others
    for encapsulation in (number | order for number in _FORMATS for order in (0, 1)):
        index = np.flatnonzero(ids == encapsulation)
        if len(index):
            yield encapsulation, index if long is None else long[index]


def _unknown(samples: Samples, words: Words) -> Codes:
    """The reason codes for samples, all of which have an unknown encapsulation."""
    codes = np.full(samples.count, words.code("shorter than an encapsulation header"), np.int32)
    if samples.count:
        ids, long = _ids(samples)
        codes[slice(None) if long is None else long] = words.code("unknown encapsulation")
        for number in np.unique(ids)[:UNKNOWN_ENCAPSULATIONS_MAX].tolist():
            index = np.flatnonzero(ids == number)
            reason = f"unknown encapsulation 0x{number:04x}"
            codes[index if long is None else long[index]] = words.code(reason)
    return codes


def _empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _check(struct: Struct) -> None:
    for t in traverse(struct):
        if isinstance(t, Struct) and not t.members:
            raise TypeDefinitionError(f"{t.name}: a struct without members cannot be read or written")
        if isinstance(t, Struct | Union):
            members = t.members if isinstance(t, Struct) else t.cases
            if len({member.id for member in members}) < len(members):
                raise TypeDefinitionError(f"{t.name}: two members have the same id")
