"""Chooses how samples are framed: as GSO buffers of whole messages, as DATA, or as one DATA_BATCH."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from ....qos import HistoryKind
from ....wire.samples import DISPOSED, FILTERED, NO_TIMESTAMP, UNREGISTERED
from ..batching import PendingBatch
from ..changes import Change, batch_change, data_changes, overhead, removed_samples
from ..publication import UnsentChanges, WriterHistory
from ..readers import MatchedReaders, Pacing, SendWindow
from ..sending import Broadcast
from ..state import WriterState

#: Least send window, in bytes, for GSO buffers, which are to be small parts of it.
_GSO_WINDOW: Final = 1 << 20
#: Samples whose last fragments share a datagram are sent whole: at most this fraction of a reader's window.
_GROUPS_IN_WINDOW: Final = 4


class Framer:
    """Numbers and frames the samples of one writer; ``broadcast`` knows the forms that its readers take."""

    def __init__(
        self,
        state: WriterState,
        history: WriterHistory,
        unsent: UnsentChanges,
        readers: MatchedReaders,
        window: SendWindow,
        pacing: Pacing,
        broadcast: Broadcast,
    ) -> None:
        self._state = state
        self._history = history
        self._gso_framer = unsent.gso_framer
        self._readers = readers
        self._window = window
        self._pacing = pacing
        self._broadcast = broadcast

    def together(self, pending: PendingBatch) -> list[PendingBatch]:
        """The same samples in pieces for :meth:`changes`: uniform batches stay together if none of them needs
        processing of its own."""
        if not pending.per_batch:
            return [pending]
        if not self._broadcast.wants_batches:
            return [replace(pending, per_batch=0)]
        qos, expired = self._state.qos, self._history.lifespan.expired_before
        is_whole = (qos.history is not HistoryKind.KEEP_LAST or qos.history_depth >= pending.per_batch) and (
            NO_TIMESTAMP in (expired, pending.timestamp) or pending.timestamp > expired
        )
        if is_whole and self._takes_gso and not self._broadcast.wants_other_forms:
            return [pending]
        return pending.apart()

    def changes(self, pending: PendingBatch) -> Iterable[Change]:
        """The next samples (:meth:`together`) as changes; none for a batch of which all samples are removed."""
        state, framing = self._state, self._readers.framing
        first_sn, coherent_set = state.last_sn + 1, state.set_begun
        if self._takes_together(pending):
            if self._goes_by_gso(pending):
                return self._gso_framer.gso_messages_of(
                    pending,
                    first_sn,
                    framing.budget,
                    batch_sn=state.last_batch_sn,
                    coherent_set=coherent_set,
                )
            if self._goes_by_gso_fragments(pending):
                return self._gso_framer.gso_fragments_of(
                    pending,
                    first_sn,
                    framing,
                    batch_sn=state.last_batch_sn,
                    group_bytes=self._group_bytes(),
                )
        if pending.per_batch:
            batch_sn = state.last_batch_sn + 1
            return self._gso_framer.gso_batches_of(
                pending, first_sn, batch_sn, framing, coherent_set=coherent_set
            )
        if pending.alone or not self._broadcast.wants_batches:
            return data_changes(pending, first_sn, framing, state.last_batch_sn, coherent_set)
        removed = removed_samples(pending, state.qos, self._history.lifespan.expired_before)
        if removed is not None and removed.all():
            return self._skip(first_sn, first_sn + pending.count - 1)
        batch_sn = state.last_batch_sn + 1
        return (batch_change(pending, first_sn, framing, batch_sn, coherent_set, removed=removed),)

    def _skip(self, first_sn: int, last_sn: int) -> Iterator[Change]:
        """Skip the next numbers, and announce a GAP. The numbers are assigned before any reader can learn of them."""
        self._history.skipped.skip_numbers(first_sn, last_sn)
        self._state.last_sn = last_sn
        self._broadcast.gap(first_sn, last_sn)
        yield from ()

    def _takes_together(self, pending: PendingBatch) -> bool:
        """Whether the samples are uniform, and no datagram or sample needs processing of its own."""
        return (
            pending.samples.is_uniform
            and pending.timestamps is None
            and isinstance(pending.flags, int)
            and self._takes_gso
            and not self._broadcast.wants_batches
            and not self._broadcast.compresses_data
        )

    def _goes_by_gso(self, pending: PendingBatch) -> bool:
        """Whether samples that are taken together each fit a datagram, and fill two datagrams at least."""
        budget, size = self._readers.framing.budget, self._framed_size(pending)
        return size <= budget and pending.samples.count * size >= 2 * budget and self._broadcast.coalesces

    def _goes_by_gso_fragments(self, pending: PendingBatch) -> bool:
        """Whether samples that are taken together are too large for a datagram, and need no inline QoS."""
        return (
            self._framed_size(pending) > self._readers.framing.budget
            and not int(pending.flags) & (DISPOSED | UNREGISTERED | FILTERED)
            and pending.key_hashes is None
            and not self._state.set_begun
            and self._gso_framer.takes_gso_fragments
        )

    def _group_bytes(self) -> int:
        """Bytes of samples whose last fragments may share a datagram: a small part of every reader's window.

        0 if some readers are not ours, because others reassemble few samples at a time: Cyclone DDS 16, or 4 of a
        best-effort writer; a best-effort reader of Fast DDS one. A best-effort reader that loses such a datagram loses
        all samples in it.
        """
        return self._pacing.least_window(len(self._readers.proxies)) // _GROUPS_IN_WINDOW

    def _framed_size(self, pending: PendingBatch) -> int:
        """Bytes of the DATA of each of the uniform samples."""
        keyed, in_set = pending.key_hashes is not None, self._state.set_begun != 0
        around = overhead(int(pending.flags), with_key_hash=keyed, in_coherent_set=in_set)
        return pending.samples.size + around

    @property
    def _takes_gso(self) -> bool:
        """Whether a GSO buffer is a small part of what may be in flight."""
        state = self._state
        return (
            self._window.size is None
            and state.policy.window_bytes >= _GSO_WINDOW
            and not state.is_asynchronous
        )
