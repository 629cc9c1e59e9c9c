"""A sample that is serialized directly into the publication log, from any thread (Aeron's tryClaim)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ..errors import UsageError
from ..protocol.writing.intake import SampleClaim
from ..protocol.writing.writer import StatefulWriter
from ..wire.samples import U8


class BufferClaim:
    """Space for one serialized sample: fill ``data``, from its encapsulation header on, then :meth:`commit`.

    On a keyed topic set ``key_hash`` before the commit.

    As a context manager it commits at the end, or aborts after an exception. Until then nothing that is written behind
    it is sent; after the unblock time-out it is aborted.
    """

    def __init__(
        self, claim: SampleClaim, writer: StatefulWriter, lock: threading.RLock, flush: Callable[[], object]
    ) -> None:
        self._claim = claim
        self._writer = writer
        self._lock = lock
        self._flush = flush
        #: The instance of a sample of a keyed topic: 16 uint8.
        self.key_hash: U8 | None = None

    @property
    def data(self) -> U8:
        return self._claim.data

    @property
    def position(self) -> int:
        """The position behind the sample."""
        return self._claim.position

    def commit(self) -> bool:
        """Commit the complete sample. False: it was aborted, because it took too long or the writer was closed.

        Raises UsageError for a sample of a keyed topic without a key hash; it can still be committed, or aborted.
        """
        with self._lock:
            if self._claim.key_hash is not None:
                if self.key_hash is None:
                    raise UsageError("a sample of a keyed topic needs its key_hash before it is committed")
                self._claim.key_hash[0] = self.key_hash
            committed = self._writer.claims.commit_claim(self._claim, now=time.monotonic_ns())
            self._flush()
        return committed

    def abort(self) -> None:
        """Discard the sample."""
        with self._lock:
            self._writer.claims.abort(self._claim, now=time.monotonic_ns())
            self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        committed = False
        try:
            if kind is None:
                self.commit()
                committed = True
        finally:
            if not committed:
                self.abort()
