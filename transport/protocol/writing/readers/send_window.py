"""The send window: how much a writer has in flight, and how much it may have (``send_window_*``, the watermarks).

Invariants:
* ``samples`` and ``nbytes`` count what was added and is neither acknowledged nor given up: samples exactly, bytes by
  whole changes;
* ``size`` stays between the policy's min and max; None: only bytes are limited;
* ``is_high`` is set at high_watermark samples, and cleared at low_watermark.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from ....structure import INFINITE
from ....wire.samples import Samples
from ...policies import WriterCounters, WriterPolicy
from ..batching import Batcher
from ..changes import Change


class SendWindow:
    """The changes of one writer that are not acknowledged yet."""

    def __init__(self, policy: WriterPolicy, counters: WriterCounters) -> None:
        self.policy = policy
        self.counters = counters
        self.samples = 0
        self.nbytes = 0
        self._bytes_max = self._base = policy.window_bytes
        #: Bytes of the open coherent set; -1 if none is open.
        self._set_bytes = -1
        self.is_high = False
        self._is_full = False
        self._max = policy.max_send_window_size
        self._min = min(policy.min_send_window_size, self._max)
        self.size: int | None = None if self._min == INFINITE else self._min
        self._high = policy.high_watermark
        #: Of each change: its last number, its samples, its bytes, and the sequence numbers per sample. A batch counts
        #: as one sample.
        self._changes: deque[tuple[int, int, int, int]] = deque()
        self._update_at: int | None = None
        self._shrunk_sn = 0
        #: Samples and bytes sent since the last piggyback HEARTBEAT.
        self._unannounced = self._unannounced_bytes = 0
        self._times = policy.heartbeats_per_max_samples

    # --- in flight -------------------------------------------------------------------------------

    def add_change(self, change: Change) -> None:
        """Add a change that readers must acknowledge."""
        count, nbytes = change.units, change.nbytes
        self._changes.append((change.last_sn, count, nbytes, change.count // count))
        if self._set_bytes >= 0:
            self._set_bytes += nbytes
        before, counters = self.samples, self.counters
        self.samples = after = before + count
        self.nbytes += nbytes
        counters.unacknowledged_samples = after
        if after > counters.unacknowledged_samples_peak:
            counters.unacknowledged_samples_peak = after
        if after >= self._high:
            counters.high_watermark_reached += before < self._high
            self.is_high = True
        if self.size is not None and after >= self.size:
            self._fill()

    def settle(self, last_sn: int) -> None:
        """Recount after an exception interrupted a change of the window; changes beyond ``last_sn`` have no number."""
        while self._changes and self._changes[-1][0] > last_sn:
            self._changes.pop()
        self.samples = sum(count for _, count, _, _ in self._changes)
        self.nbytes = sum(nbytes for _, _, nbytes, _ in self._changes)
        self.counters.unacknowledged_samples = self.samples
        self._is_full = False

    def acknowledge(self, acked: int) -> None:
        """Remove everything up to ``acked``."""
        changes = self._changes
        samples = nbytes = 0
        while changes and changes[0][0] <= acked:
            _, count, size, _ = changes.popleft()
            samples, nbytes = samples + count, nbytes + size
        if changes:
            last_sn, count, size, step = changes[0]
            left = min(count, -(-(last_sn - acked) // step))
            changes[0] = (last_sn, left, size, step)
            samples += count - left
        if samples:
            self._fall(samples, nbytes)

    def give_up(self, first_sn: int) -> None:
        """Remove everything from ``first_sn`` on; no change spans that number."""
        changes = self._changes
        samples = nbytes = 0
        while changes and changes[-1][0] >= first_sn:
            _, count, size, _ = changes.pop()
            samples, nbytes = samples + count, nbytes + size
        if samples:
            self._fall(samples, nbytes)

    def _fall(self, samples: int, nbytes: int) -> None:
        before, low = self.samples, self.policy.low_watermark
        self.samples = after = before - samples
        self.nbytes -= nbytes
        self.counters.unacknowledged_samples = after
        self._is_full = False
        self.counters.empty_reached += after == 0
        if after <= low:
            self.counters.low_watermark_reached += before > low
            self.is_high = self._high <= after

    def _fill(self) -> None:
        self.counters.full_reached += not self._is_full
        self._is_full = True

    @property
    def bytes_max(self) -> int:
        """Bytes that may be in flight."""
        return self._bytes_max

    def reaches(self, window: int) -> None:
        """Set the bytes that may be in flight to ``window``, if the policy does not set them.

        ``window`` is 0 if some readers do not report their windows.
        """
        if self.policy.send_window_bytes:
            return
        self._base = max(window, self.policy.window_bytes)
        if self._set_bytes < 0:
            self._bytes_max = self._base

    # --- coherent sets --------------------------------------------------------------------------

    def begin_set(self, bytes_max: int) -> None:
        """Let ``bytes_max`` be in flight, since readers acknowledge no part of a coherent set before its end."""
        self._bytes_max = max(bytes_max, self._base)
        self._set_bytes = 0

    def end_set(self) -> None:
        self._bytes_max, self._set_bytes = self._base, -1

    @property
    def is_full_of_one_set(self) -> bool:
        """The open coherent set alone fills the window."""
        return self._set_bytes >= self.nbytes > 0

    # --- capacity --------------------------------------------------------------------------------

    def fitting(
        self,
        samples: Samples,
        count: int,
        framing: int,
        datagram: int,
        now: int,
        *,
        queued: int = 0,
        batcher: Batcher | None = None,
    ) -> int:
        """How many of the first ``count`` samples may be sent, each with ``framing`` bytes around it.

        ``queued`` bytes wait in the batch in progress of ``batcher``, whose batches count as one sample each.
        """
        capacity = self._capacity(now)
        free = self._bytes_max - self.nbytes - queued
        if batcher is not None and capacity < INFINITE:
            capacity = batcher.fitting(samples, count, max(capacity, 0))
        fitting = self._fitting(samples, count, framing, datagram, capacity, free)
        if fitting < count:
            self._fill()
        return fitting

    def _fitting(
        self, samples: Samples, count: int, framing: int, datagram: int, capacity: int, free: int
    ) -> int:
        if capacity <= 0:
            return 0
        if samples.is_uniform:
            size = samples.size + framing
            fitting = max(free, 0) // size
            fitting_bytes = fitting * size
        else:
            total = np.cumsum(samples.all_lengths()[:count] + framing)
            fitting = int(np.searchsorted(total, free, side="right"))
            fitting_bytes = int(total[fitting - 1]) if fitting else 0
        if fitting < min(count, capacity):
            if not self._changes:
                fitting = max(fitting, 1)  # a sample larger than the window is sent alone
            elif fitting_bytes < min(datagram, self._bytes_max // 4):
                fitting = 0  # no small pieces: wait until a datagram can be filled
        return min(fitting, count, capacity)

    def _capacity(self, now: int) -> int:
        """Samples that fit the window; its size grows after an update period without loss."""
        if self.size is None or self._set_bytes >= 0:
            return INFINITE
        period = self.policy.send_window_update_period
        if self._update_at is None:
            self._update_at = now + period
        elif now >= self._update_at:
            self._update_at = now + period
            grown = max(self.size + 1, self.size * self.policy.send_window_increase_factor // 100)
            self.size = min(grown, self._max)
        return self.size - self.samples

    def on_loss(self, sn: int, last_sn: int, now: int) -> None:
        """A reader lacks ``sn``. All losses among samples in flight at one time shrink the window once."""
        self._update_at = now + self.policy.send_window_update_period
        if self.size is not None and sn > self._shrunk_sn:
            self._shrunk_sn = last_sn
            self.size = max(self.size * self.policy.send_window_decrease_factor // 100, self._min, 1)

    # --- piggyback HEARTBEATs --------------------------------------------------------------------

    @property
    def until_heartbeat(self) -> int:
        """Samples up to and including the one with the next piggyback HEARTBEAT, if the number of samples decides."""
        if not self._times or self.size is None:
            return INFINITE
        return max(1, self.size // self._times - self._unannounced)

    def sent(self, count: int, nbytes: int) -> bool:
        """Note what was sent; returns whether a piggyback HEARTBEAT is due."""
        due = self.size is not None and count >= self.until_heartbeat
        self._unannounced += count
        self._unannounced_bytes += nbytes
        return due or (self._times > 0 and self._unannounced_bytes * self._times >= self._base)

    @property
    def has_unannounced(self) -> bool:
        return self._unannounced > 0

    def announced(self) -> None:
        """A HEARTBEAT was sent to all readers."""
        self._unannounced = self._unannounced_bytes = 0
