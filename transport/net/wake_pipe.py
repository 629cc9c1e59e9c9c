"""A pipe that wakes a thread which waits for the network: it is polled along with the sockets."""

from __future__ import annotations

import contextlib
import os


class WakePipe:
    """A pipe whose ends never block."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """The descriptor that is readable after :meth:`wake`."""
        return self._read

    def wake(self) -> None:
        """Wake the thread; any thread may call this."""
        with contextlib.suppress(OSError):  # the thread is awake, or the pipe is closed
            os.write(self._write, b"\0")

    def clear(self) -> None:
        """Reset the pipe."""
        with contextlib.suppress(OSError):  # the pipe is empty, or closed
            while os.read(self._read, 4096):
                pass

    def close(self) -> None:
        """Close both ends. Their descriptors may soon be reused, so they are cleared first."""
        read, self._read, write, self._write = self._read, -1, self._write, -1
        os.close(read)
        os.close(write)
