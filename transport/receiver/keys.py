"""Which instance each sample of a run is of: by its key hash, or by its key where none was sent."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from ..qos import DataRepresentation
from ..types.arrow import arrow_schema
from ..types.cdr.codec import Codec
from ..types.model import Struct
from ..wire.samples import KEY_ONLY, U8, Run, Samples

_CDR2_BE: Final = 0x06


class InstanceKeys:
    """Key hashes of the samples of a keyed topic.

    Without its type, what has no key hash of its own is all one instance.
    """

    def __init__(self, struct: Struct | None) -> None:
        self._codec: Codec | None = None
        if struct is not None:
            columns = pa.schema([arrow_schema(struct).field(m.name) for m in struct.members if m.key])
            self._codec = Codec(struct, arrow_schema=columns)

    def __call__(self, run: Run) -> U8:
        """(count, 16) uint8."""
        sent = run.key_hashes()
        hashes = np.zeros((run.count, 16), np.uint8) if sent is None else sent
        if self._codec is None:
            return hashes
        lacking = ~hashes.any(axis=1)
        if not lacking.any():
            return hashes
        hashes = hashes.copy()
        key_only = (run.sample_flags() & KEY_ONLY) != 0
        samples = run.samples()
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
                hashes[known] = self._codec.key_hashes(decoded.batch, representation=representation)
