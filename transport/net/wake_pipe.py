"""A pipe that wakes a thread which waits for the network: it is polled along with the sockets."""

from __future__ import annotations

import contextlib
import os


class WakePipe:
    """Neither end ever blocks."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """What is readable once somebody called :meth:`wake`."""
        return self._read

    def wake(self) -> None:
        """Any thread may call this."""
        with contextlib.suppress(OSError):  # it is awake, or closed
            os.write(self._write, b"\0")

    def clear(self) -> None:
        """Forget that it was woken."""
        with contextlib.suppress(OSError):  # it is empty, or closed
            while os.read(self._read, 4096):
                pass

    def close(self) -> None:
        """Give both ends back. Their numbers may soon be somebody else's, so they are forgotten first."""
        read, self._read, write, self._write = self._read, -1, self._write, -1
        os.close(read)
        os.close(write)
