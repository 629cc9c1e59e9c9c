"""What the kernel holds for the readers of one participant, shared by the writers that follow their windows."""

from __future__ import annotations

from typing import Final

#: The window of a writer that is one of many, or of a socket whose buffer is small or unknown.
_LEAST: Final = 4 << 20


class ReceiveRoom:
    """``nbytes``: of the receive buffer of the socket for samples; 0: unknown.

    Half of it is for what is on its way: what the kernel counts for a datagram is more than its bytes.
    """

    __slots__ = ("_half", "streams")

    def __init__(self, nbytes: int = 0) -> None:
        self._half = nbytes // 2
        #: Writers that follow a window.
        self.streams = 0

    @property
    def share(self) -> int:
        """Bytes that one writer may have on its way."""
        return max(self._half // max(self.streams, 1), _LEAST)
