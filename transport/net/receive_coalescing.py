"""Receive coalescing: after a burst the duty cycle sleeps briefly so that the next read returns more datagrams.

Under CPU contention a sleep ends late. Then it pays off to poll less often and to read more each time: a process that
was off the CPU finds its code and its data in no cache, and each answer is work for the writer.
"""

from __future__ import annotations

from typing import Final

from .sockets import BURST_BYTES, CONTENDED_BURST_BYTES

#: After several small datagrams, of fewer bytes on average.
_SMALL_NS: Final = 200_000
_SMALL_BYTES: Final = 4_096
#: After several larger datagrams, if the kernel's buffer has this much space, and fewer than this many bytes were
#: waiting.
_LARGE_NS: Final = 400_000
_ROOM: Final = 8 << 20
_BYTES: Final = BURST_BYTES * 3 // 4
#: Sleeps that end later than this on average do so because the processors are busy. A sleep is then this many times as
#: long as they are late, up to a bound, and no longer than this many further bytes take to arrive.
_LATE_NS: Final = 500_000
_TIMES_LATE: Final = 8
_CONTENDED_NS: Final = 14_000_000
_CONTENDED_BYTES: Final = CONTENDED_BURST_BYTES * 3 // 4


class ReceiveCoalescing:
    """How long to sleep after a burst, by its size and by how late the sleeps before ended. Times are nanoseconds."""

    def __init__(self) -> None:
        self._late = 0
        self._before = 0

    def after(self, received: int, nbytes: int, *, room: int, now: int) -> int:
        """How long to sleep after a burst of ``received`` datagrams, at least one, with ``nbytes`` in all; 0: not at
        all.

        ``room``: bytes of the kernel's buffer for datagrams that arrive meanwhile.
        """
        took, self._before = now - self._before, now
        if nbytes < received * _SMALL_BYTES:
            return _SMALL_NS if received > 1 else 0
        if room < _ROOM:
            return 0
        if self._is_contended:
            expected = min(_CONTENDED_BYTES, room // 4)
            return min(_TIMES_LATE * self._late, _CONTENDED_NS, took * expected // nbytes)
        return _LARGE_NS if received > 1 and nbytes < _BYTES else 0

    @property
    def burst_bytes(self) -> int:
        """Limit of the next burst of large datagrams: higher under CPU contention."""
        return CONTENDED_BURST_BYTES if self._is_contended else BURST_BYTES

    def woke(self, late: int) -> None:
        """Record by how many nanoseconds a sleep ended late."""
        self._late += (late - self._late) // 4

    @property
    def _is_contended(self) -> bool:
        return self._late > _LATE_NS
