"""Key hashes as the commands print them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..transport.wire.samples import Run


def key_hashes(run: Run) -> list[str | None]:
    """The key hash of each sample, which alone identifies the instance where there is no payload; None: it has none."""
    from ..transport.wire.samples import HAS_KEY_HASH

    hashes = run.key_hashes()
    if hashes is None:
        return [None] * run.count
    known = (run.sample_flags() & HAS_KEY_HASH) != 0
    if run.index is None:
        known[:] = True  # in a uniform run every sample has one
    return [h.tobytes().hex() if k else None for h, k in zip(hashes, known, strict=True)]
