"""How samples that leave together are framed: whole trains of messages, DATA, or one DATA_BATCH."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...qos import Qos
from .batching import PendingBatch
from .changes import batch_change, data_changes, overhead, removed_samples
from .coherent_sets import CoherentSets
from .history import Change
from .matched_readers import MatchedReaders
from .sender import Sender

#: Trains are small parts of the send window.
_TRAINS_WINDOW: Final = 1 << 20


class Framer:
    """Of one writer."""

    def __init__(
        self,
        qos: Qos,
        readers: MatchedReaders,
        sender: Sender,
        sets: CoherentSets,
    ) -> None:
        self._qos = qos
        self._readers = readers
        self._sender = sender
        self._history = sender.history
        self._publication = sender.publication
        self._window = sender.acks.window
        self._sets = sets

    def changes(self, pending: PendingBatch) -> Iterable[Change]:
        """The next samples as changes; none of a batch in which all samples are removed."""
        history, framing, coherent_set = self._history, self._readers.framing, self._sets.begun
        first_sn = history.last_sn + 1
        if self._goes_in_trains(pending):
            return self._publication.trains(
                pending,
                first_sn,
                framing.budget,
                batch_sn=history.last_batch_sn,
                coherent_set=coherent_set,
            )
        broadcast = self._sender.broadcast
        if pending.alone or not broadcast.wants_batches:
            return data_changes(pending, first_sn, framing, history.last_batch_sn, coherent_set)
        removed = removed_samples(pending, self._qos, history.expired_before)
        if removed is not None and removed.all():
            last_sn = first_sn + pending.count - 1
            broadcast.gap(first_sn, last_sn)
            history.note_skipped(first_sn, last_sn)
            return ()
        history.last_batch_sn += 1
        batch_sn = history.last_batch_sn
        return (batch_change(pending, first_sn, framing, batch_sn, coherent_set, removed=removed),)

    def _goes_in_trains(self, pending: PendingBatch) -> bool:
        """Whether they are many and alike, and nothing looks at datagrams, or counts samples, one by one."""
        samples, flags = pending.samples, pending.flags
        if not samples.is_uniform or pending.timestamps is not None or not isinstance(flags, int):
            return False
        keyed = pending.key_hashes is not None
        size = samples.size + overhead(flags, with_key_hash=keyed, in_coherent_set=self._sets.begun != 0)
        budget, sender = self._readers.framing.budget, self._sender
        return (
            size <= budget
            and samples.count * size >= 2 * budget
            and self._window.size is None
            and sender.policy.send_window_bytes >= _TRAINS_WINDOW
            and sender.broadcast.coalesces
            and not sender.broadcast.wants_batches
            and not sender.is_asynchronous
        )
