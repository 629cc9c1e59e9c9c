"""The instances of one subscription: their states, and the writers of each (DDS 1.4 §2.2.2.5.1.3).

::

    state                   event                                              next state
    ----------------------  -------------------------------------------------  ----------------------
    (none)                  a sample of the instance arrives                   ALIVE
    ALIVE                   a writer disposes it                               NOT_ALIVE_DISPOSED
    ALIVE                   its last writer unregisters it, or is gone         NOT_ALIVE_NO_WRITERS
    NOT_ALIVE_DISPOSED      a sample of the instance arrives                   ALIVE
    NOT_ALIVE_NO_WRITERS    a sample of the instance arrives                   ALIVE
    NOT_ALIVE_NO_WRITERS    a writer disposes it                               NOT_ALIVE_DISPOSED

A writer belongs to an instance from its first sample or disposal of it until it unregisters the instance or leaves.
Arrays of all samples that arrived since the last time are processed at once; only new instances take a step each.

Without the topic's type, the key hashes that writers send distinguish the instances.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..columns.chunks import Chunk, chunks
from ..columns.sample_columns import (
    ALIVE,
    NOT_ALIVE_DISPOSED,
    NOT_ALIVE_NO_WRITERS,
    select,
)
from ..transport.limits import INSTANCE_WRITERS_MAX, INSTANCES_MAX
from ..transport.log.frame import Frame
from ..transport.protocol.instances import InstanceTable
from ..transport.receiver.instance_keys import InstanceKeys
from ..transport.structure import Guid
from ..transport.types.cdr.codec import Codec
from ..transport.types.model import Struct
from ..transport.wire.samples import (
    DISPOSED,
    ENCAPSULATION_BYTES,
    HAS_KEY_HASH,
    I64,
    KEY_ONLY,
    U8,
    UNREGISTERED,
)

_NEW, _ALIVE, _DISPOSED, _NO_WRITERS = range(4)
_STATES: Final = {_ALIVE: ALIVE, _DISPOSED: NOT_ALIVE_DISPOSED, _NO_WRITERS: NOT_ALIVE_NO_WRITERS}
#: Rows are reused for other instances, serial numbers are not.
_NEW_ROW: Final = np.array([(_NEW, -1)], [("state", "u1"), ("serial", "i8")])
_STATE_CHANGE: Final = DISPOSED | UNREGISTERED

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance of a topic, as a subscription sees it.

    Attributes:
        key: the values of the key columns by name; empty where the topic has no key, None where it cannot be known: the
            type is unknown, and writers send key hashes only.
        key_hash: 16 bytes (RTPS 2.5 §9.6.4.8); zeros where the topic has no key.
        state: ``ALIVE``, ``NOT_ALIVE_DISPOSED`` or ``NOT_ALIVE_NO_WRITERS``.
        writers: GUIDs of the writers of the instance, in order. With ``ownership=exclusive`` those that own it, or did.
    """

    key: Mapping[str, Any] | None
    key_hash: bytes
    state: str
    writers: tuple[str, ...]


class Instances:
    """All known instances, at most INSTANCES_MAX, and their writers, at most INSTANCE_WRITERS_MAX.

    A topic without a key is one instance.
    """

    def __init__(
        self,
        struct: Struct | None,
        *,
        keyed: bool,
        type_of: Callable[[Guid], Struct | None] | None = None,
        limit: int = INSTANCES_MAX,
    ) -> None:
        """``struct`` is the topic's type, None where it is not known; see `InstanceKeys` for ``type_of``."""
        self._keyed = keyed
        self._table = InstanceTable(min(limit, INSTANCES_MAX), _NEW_ROW)
        self._serials = 0
        self._hashes: dict[int, bytes] = {}
        #: Where the key of each instance lies.
        self._keys: dict[int, tuple[pa.RecordBatch, int]] = {}
        #: Which instances each writer writes, by row; as long as the highest of them needs.
        self._writes: dict[Guid, Bools] = {}
        known = struct if struct is not None and struct.is_keyed else None
        self._find_hashes = InstanceKeys(known, type_of)

    def __len__(self) -> int:
        return len(self._table)

    def note_frames(self, frames: list[Frame]) -> list[I64]:
        """Process samples that arrived.

        Returns the instance of each, by frame: (count,) int64, -1 where there is no space for more instances. Numbers
        of
        instances are never reused. Empty where the topic has no key.
        """
        if not self._keyed:
            self._note_one(frames)
            return []
        found: list[I64] = []
        for codec, alike in groupby(frames, lambda frame: self._find_hashes.codec_of(frame.run.writer)):
            for chunk in chunks(alike):
                rows = self._note(chunk, codec)
                for count in chunk.counts.tolist():
                    found.append(rows[:count])
                    rows = rows[count:]
        return _by_frame(found, frames)

    def writer_lost(self, writer: Guid) -> None:
        """The writer has left, or is not alive: it belongs to no instance any more."""
        wrote = self._writes.pop(writer, None)
        if wrote is not None:
            self._without_writers(np.flatnonzero(wrote))

    def all(self) -> list[Instance]:
        """Every known instance, the oldest first."""
        states = self._table.used["state"]
        writers: dict[int, list[str]] = {}
        for guid in sorted(self._writes):
            for row in np.flatnonzero(self._writes[guid]).tolist():
                writers.setdefault(row, []).append(str(guid))
        return [
            Instance(self._key(row), self._hashes[row], _STATES[state], tuple(writers.get(row, ())))
            for row, state in enumerate(states.tolist())
            if state != _NEW
        ]

    # --- inside ---------------------------------------------------------------------------------------

    def _note(self, chunk: Chunk, codec: Codec | None) -> I64:
        """The instance of each sample of a chunk; their states are updated."""
        flags = chunk.flags()
        hashes = self._find_hashes.hashes(chunk.samples, flags, chunk.key_hashes(), codec)
        keys, codes = _distinct(hashes)
        rows = self._table.find(keys)
        firsts = np.empty(len(keys), np.int64)
        firsts[codes[::-1]] = np.arange(chunk.count)[::-1]
        self._learn(chunk, flags, keys, firsts, rows, codec)
        serials = np.where(rows >= 0, self._table.rows["serial"][rows], -1)
        instances = rows[codes]
        known = instances >= 0
        self._change_states(flags[known], instances[known])
        self._change_writers(chunk, flags, instances, known)
        found: I64 = serials[codes]
        return found

    def _note_one(self, frames: list[Frame]) -> None:
        """All samples are of one instance: the last one of each run decides its state."""
        row = self._table.find(np.zeros((1, 16), np.uint8))
        self._hashes[0] = bytes(16)
        states = self._table.rows["state"]
        states[row] = np.maximum(states[row], _ALIVE)
        for frame in frames:
            run = frame.run
            flags = run.flags if run.index is None else int(run.index["flags"][-1])
            leaves = flags & UNREGISTERED != 0
            if flags & _STATE_CHANGE != UNREGISTERED:
                states[row] = _DISPOSED if flags & DISPOSED else _ALIVE
            if run.writer in self._writes or len(self._writes) < INSTANCE_WRITERS_MAX:
                self._writes[run.writer] = np.array([not leaves])
            if leaves:
                self._without_writers(row)

    def _learn(
        self,
        chunk: Chunk,
        flags: npt.NDArray[np.uint32],
        keys: U8,
        firsts: I64,
        rows: I64,
        codec: Codec | None,
    ) -> None:
        """Keep hashes and keys of new instances; ``firsts`` are the first samples of all, (keys,)."""
        fresh = np.flatnonzero((rows >= 0) & (self._table.rows["state"][rows] == _NEW))
        if not len(fresh):
            return
        self._table.rows["serial"][rows[fresh]] = np.arange(self._serials, self._serials + len(fresh))
        self._serials += len(fresh)
        for at in fresh.tolist():
            self._hashes[int(rows[at])] = keys[at].tobytes()
            self._keys.pop(int(rows[at]), None)
        if codec is None:
            return
        firsts = firsts[fresh]
        lengths, of = chunk.samples.all_lengths()[firsts], rows[fresh]
        with_payload = lengths >= ENCAPSULATION_BYTES
        key_only = flags[firsts] & KEY_ONLY != 0
        for which, keys_only in ((with_payload & ~key_only, False), (with_payload & key_only, True)):
            if which.any():
                at = 0
                for part in codec.parts(select(chunk.samples, firsts[which]), keys_only=keys_only):
                    self._keep_keys(part.batch, part.malformed, of[which][at : at + part.count])
                    at += part.count
        bare = ~with_payload & (flags[firsts] & HAS_KEY_HASH != 0)
        if bare.any():
            decoded = codec.decode_key_hashes(np.ascontiguousarray(keys[fresh[bare]]))
            if decoded is not None:
                self._keep_keys(decoded.batch, decoded.malformed, of[bare])

    def _keep_keys(self, keys: pa.RecordBatch, malformed: Bools | None, rows: I64) -> None:
        if malformed is not None:
            rows = rows[~malformed]
        self._keys.update((row, (keys, i)) for i, row in enumerate(rows.tolist()))

    def _change_states(self, flags: npt.NDArray[np.uint32], rows: I64) -> None:
        """The last sample of an instance that does more than unregister it decides its state."""
        states = self._table.rows["state"]
        fresh = states[rows] == _NEW
        states[rows[fresh]] = _ALIVE
        decides = flags & _STATE_CHANGE != UNREGISTERED
        # of equal indices NumPy's assignment keeps the last one
        states[rows[decides]] = np.where(flags[decides] & DISPOSED, _DISPOSED, _ALIVE)

    def _change_writers(
        self, chunk: Chunk, flags: npt.NDArray[np.uint32], instances: I64, known: Bools
    ) -> None:
        """The last sample of a writer for an instance decides whether the writer belongs to it."""
        numbers: dict[Guid, int] = {}
        of_frames = np.array(
            [numbers.setdefault(frame.run.writer, len(numbers)) for frame in chunk.frames], np.int64
        )
        writers = np.repeat(of_frames, chunk.counts) if len(numbers) > 1 else None
        leaves = flags & UNREGISTERED != 0
        for guid, number in numbers.items():
            mine = known if writers is None else known & (writers == number)
            rows = instances[mine]
            if not len(rows):
                continue
            wrote = self._writes.get(guid)
            if wrote is None and len(self._writes) >= INSTANCE_WRITERS_MAX:
                continue
            needed = int(rows.max()) + 1
            if wrote is None or len(wrote) < needed:
                longer = np.zeros(max(needed, len(self._table.rows)), np.bool_)
                if wrote is not None:
                    longer[: len(wrote)] = wrote
                wrote = self._writes[guid] = longer
            wrote[rows] = ~leaves[mine]
        if leaves.any():
            self._without_writers(np.unique(instances[leaves & known]))

    def _without_writers(self, rows: I64) -> None:
        """Update those of these instances that have lost their last writer."""
        alone = np.ones(len(rows), np.bool_)
        for wrote in self._writes.values():
            inside = rows < len(wrote)
            alone[inside] &= ~wrote[rows[inside]]
        rows = rows[alone]
        states = self._table.rows["state"]
        states[rows[states[rows] == _ALIVE]] = _NO_WRITERS
        self._table.release(rows.tolist())

    def _key(self, row: int) -> Mapping[str, Any] | None:
        if not self._keyed:
            return {}
        if row not in self._keys:
            return None
        batch, at = self._keys[row]
        found: dict[str, Any] = batch.slice(at, 1).to_pylist()[0]
        return found


def _distinct(hashes: U8) -> tuple[U8, I64]:
    """The distinct ones of (n, 16) key hashes, in order of appearance, and the index of each hash among them."""
    data = pa.py_buffer(np.ascontiguousarray(hashes))
    encoded = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(hashes), [None, data]
    ).dictionary_encode()
    values = encoded.dictionary
    keys = np.frombuffer(values.buffers()[1], np.uint8, 16 * len(values)).reshape(-1, 16)
    return keys, encoded.indices.to_numpy().astype(np.int64)


def _by_frame(parts: list[I64], frames: list[Frame]) -> list[I64]:
    """Join the parts of long frames, which are cut into several chunks."""
    if len(parts) == len(frames):
        return parts
    found, at = [], iter(parts)
    for frame in frames:
        own, count = [], 0
        while count < frame.run.count:
            own.append(next(at))
            count += len(own[-1])
        found.append(np.concatenate(own))
    return found
