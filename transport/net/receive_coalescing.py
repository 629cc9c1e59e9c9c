"""ReceiveCoalescing: after datagrams the duty cycle waits a little, so that the next drain finds many.

Where others want the processor, a nap ends late. Then it pays off to be there more seldom, and for more: a process that
was away finds its code and its data in no cache, and each answer is work for the writer.
"""

from __future__ import annotations

from typing import Final

from .sockets import BURST_BYTES, CONTENDED_BURST_BYTES

#: After several small datagrams, of fewer bytes on average.
_SMALL_NS: Final = 200_000
_SMALL_BYTES: Final = 4_096
#: After several others, if the kernel holds so much of what comes meanwhile, and less than so much was waiting.
_LARGE_NS: Final = 400_000
_ROOM: Final = 8 << 20
_BYTES: Final = BURST_BYTES * 3 // 4
#: Sleeps that end later than this on average do so because the processors are busy. A sleep is then this many times
#: as long as they are late, up to a bound, and no longer than it takes until this many more bytes are there.
_LATE_NS: Final = 500_000
_TIMES_LATE: Final = 8
_CONTENDED_NS: Final = 14_000_000
_CONTENDED_BYTES: Final = CONTENDED_BURST_BYTES * 3 // 4


class ReceiveCoalescing:
    """How long to nap, by what was received and by how late the naps before ended. Times are nanoseconds."""

    def __init__(self) -> None:
        self._late = 0
        self._before = 0

    def after(self, received: int, nbytes: int, *, room: int, now: int) -> int:
        """How long to nap after so many datagrams, at least one, of so many bytes together; 0: not at all.

        ``room``: bytes that the kernel holds of what is received meanwhile.
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
        """What the next drain of large datagrams may gather: more where others want the processors."""
        return CONTENDED_BURST_BYTES if self._is_contended else BURST_BYTES

    def woke(self, late: int) -> None:
        """A nap ended so much later than it should have."""
        self._late += (late - self._late) // 4

    @property
    def _is_contended(self) -> bool:
        return self._late > _LATE_NS
