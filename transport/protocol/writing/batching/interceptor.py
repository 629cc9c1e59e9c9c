"""Interceptors: user code decides about each sample before it is queued for a batch (Ice's BatchRequestInterceptor).

The interceptor is called once for each request, in the order of writing, by the thread that writes::

    state      event                              then
    ASKED      enqueue                            QUEUED
    ASKED      drop                               DROPPED, which is counted
    ASKED      the interceptor returns            HELD
    ASKED      the interceptor raises             VOID: the sample is not taken
    HELD       enqueue                            QUEUED
    HELD       drop                               DROPPED, which is counted
    HELD       another flush, or a bound reached  QUEUED
    HELD       the writer is given up             VOID

Invariants: a sample becomes queued, dropped or void once; held samples have memory of their own, and are bounded.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from ....errors import UsageError
from ....structure import Guid
from ....value_classes import value
from ....wire.samples import DISPOSED, KEY_ONLY, U8, UNREGISTERED, Samples
from ...policies import WriterCounters
from .batch_queue import Queue

#: Samples, and their bytes, that an interceptor may hold back; beyond that, all held samples are queued.
HELD_MAX: Final = 4_096
HELD_BYTES_MAX: Final = 1 << 20


class _State(enum.Enum):
    ASKED = enum.auto()
    HELD = enum.auto()
    QUEUED = enum.auto()
    DROPPED = enum.auto()
    VOID = enum.auto()


class _Batches(Protocol):
    """The batcher, as far as requests use it."""

    queue: Queue

    def enqueue(self, request: BatchRequest) -> None: ...
    def flush_intercepted(self) -> None: ...


@value
class Interceptor:
    """``decide`` is called with each request; ``row`` decodes one sample, if the type is known."""

    decide: Callable[[BatchRequest], object]
    topic: str = ""
    row: Callable[[Samples], Mapping[str, Any]] | None = None


class BatchRequest:
    """A sample that is about to be queued for a batch, as an interceptor sees it.

    The interceptor calls :meth:`enqueue`, :meth:`hold` or :meth:`drop`. Before or after that it calls :meth:`flush` if
    the batch in progress is to be sent. If it calls none of them, the sample is held. Requests belong to the thread
    that writes: use them only within calls of the interceptor, in their own call or in later ones.
    """

    __slots__ = ("_gate", "_state", "flags", "key_hashes", "samples", "timestamp")

    def __init__(self, gate: Gate, samples: Samples, timestamp: int, flags: int, key_hash: U8 | None) -> None:
        self._gate = gate
        #: One sample, and its key hash, (1, 16), as the batch takes them.
        self.samples = samples
        self.key_hashes = key_hash
        self._state = _State.ASKED
        self.timestamp = timestamp
        self.flags = flags

    # --- the sample -----------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._gate.interceptor.topic

    @property
    def writer(self) -> Guid:
        """GUID of the DDS writer."""
        return self._gate.writer

    @property
    def size(self) -> int:
        """Bytes of the serialized sample."""
        return self.samples.size

    @property
    def queued_samples(self) -> int:
        """Samples in the batch in progress now."""
        return self._gate.batches.queue.count

    @property
    def queued_bytes(self) -> int:
        """Serialized bytes of these samples."""
        return self._gate.batches.queue.nbytes

    @property
    def held_samples(self) -> int:
        """Samples that are held back now."""
        return len(self._gate.held)

    @property
    def key(self) -> bytes | None:
        """The key hash of the sample's instance, 16 bytes; None if the topic has no key."""
        return None if self.key_hashes is None else self.key_hashes.tobytes()

    @property
    def is_dispose(self) -> bool:
        """Whether the sample ends an instance (dispose, or unregister)."""
        return bool(self.flags & (DISPOSED | UNREGISTERED))

    @property
    def payload(self) -> bytes:
        """The serialized sample, with its encapsulation header."""
        return bytes(self.samples.payload(0))

    def row(self) -> Mapping[str, Any] | None:
        """The sample's columns by name, decoded by this call.

        None if the type is not known, and for a sample that has only its key.
        """
        decode = self._gate.interceptor.row
        return None if decode is None or self.flags & KEY_ONLY else decode(self.samples)

    # --- decisions ------------------------------------------------------------------------------------

    def enqueue(self) -> None:
        """Queue the sample at the end of the batch in progress."""
        self._leave(_State.QUEUED)
        self._gate.batches.enqueue(self)

    def hold(self) -> None:
        """Hold the sample back until a later call of the interceptor decides about it.

        Any other flush of the writer, such as the end of a task, first queues all held samples in the order of writing.
        So does a write that exceeds the bound for held samples.
        """
        self._expect_asked()
        self._state = _State.HELD

    def drop(self) -> None:
        """Never send the sample; the counter ``dropped_by_interceptor`` counts it."""
        self._leave(_State.DROPPED)
        self._gate.counters.dropped_by_interceptor += 1

    def flush(self) -> None:
        """Send the batch in progress: all samples that are queued, without those that are held."""
        self._gate.batches.flush_intercepted()

    # --- for the gate and the queue -------------------------------------------------------------------

    @property
    def is_undecided(self) -> bool:
        """Whether the sample is asked about or held: not queued, dropped or void."""
        return self._state in (_State.ASKED, _State.HELD)

    def keep(self) -> None:
        """Hold the sample, with memory of its own."""
        self._state = _State.HELD
        start, size = self.samples.start, self.samples.size
        self.samples = replace(self.samples, data=self.samples.data[start : start + size].copy(), start=0)
        self.key_hashes = None if self.key_hashes is None else self.key_hashes.copy()

    def void(self) -> None:
        """Make the request unusable."""
        self._state = _State.VOID

    def _leave(self, state: _State) -> None:
        if not self._gate.let_go(self):
            self._expect_asked()
        self._state = state

    def _expect_asked(self) -> None:
        if not self.is_undecided:
            state = self._state.name.lower()
            raise UsageError(f"topic {self.topic!r}: this sample is already {state}: decide once about each")


class Gate:
    """Calls an interceptor for each sample of one writer, and keeps the samples that it holds back."""

    def __init__(
        self, interceptor: Interceptor, batches: _Batches, *, writer: Guid, counters: WriterCounters
    ) -> None:
        self.interceptor = interceptor
        self.batches = batches
        self.writer = writer
        self.counters = counters
        #: Held samples, in the order of writing.
        self.held: list[BatchRequest] = []
        #: Serialized bytes of held samples.
        self.held_bytes = 0

    def ask(self, samples: Samples, timestamp: int, flags: int, key_hash: U8 | None) -> None:
        """Have the interceptor decide about one sample. Its exceptions are raised with a note."""
        request = BatchRequest(self, samples, timestamp, flags, key_hash)
        try:
            self.interceptor.decide(request)
        except BaseException as error:
            if request.is_undecided:
                request.void()
            error.add_note(f"raised by the batch interceptor, at a sample of {request.size} bytes")
            raise
        if request.is_undecided:
            request.keep()
            self.held.append(request)
            self.held_bytes += request.size
            if len(self.held) > HELD_MAX or self.held_bytes > HELD_BYTES_MAX:
                self.release()

    def let_go(self, request: BatchRequest) -> bool:
        """Remove a decided request from the held ones; returns False if it was not held."""
        if request not in self.held:
            return False
        self.held.remove(request)
        self.held_bytes -= request.size
        return True

    def release(self) -> None:
        """Queue all held samples."""
        for request in list(self.held):
            request.enqueue()

    def discard(self) -> None:
        """Forget all held samples."""
        for request in self.held:
            request.void()
        self.held.clear()
        self.held_bytes = 0
