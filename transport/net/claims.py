"""A sample written in its place in the publication log, from any thread (Aeron's tryClaim)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ..protocol.writing.claims import SampleClaim
from ..protocol.writing.writer import StatefulWriter
from ..wire.samples import U8


class BufferClaim:
    """Room for one serialized sample: fill ``data``, from its encapsulation header on, then :meth:`commit`.

    As a context manager it commits at the end, or gives up if there was an exception. Until then nothing that is
    written behind it leaves; after the unblock time-out it is given up.
    """

    def __init__(
        self, claim: SampleClaim, writer: StatefulWriter, lock: threading.RLock, flush: Callable[[], object]
    ) -> None:
        self._claim = claim
        self._writer = writer
        self._lock = lock
        self._flush = flush

    @property
    def data(self) -> U8:
        return self._claim.data

    @property
    def position(self) -> int:
        """Where what comes behind it begins."""
        return self._claim.position

    def commit(self) -> bool:
        """The sample is complete. False: it took too long, and was given up."""
        with self._lock:
            committed = self._writer.commit(self._claim, now=time.monotonic_ns())
            self._flush()
        return committed

    def abort(self) -> None:
        """There will be no such sample."""
        with self._lock:
            self._writer.abort(self._claim, now=time.monotonic_ns())
            self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()
