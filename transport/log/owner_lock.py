"""The owner of a publication log: the process that holds the lock of its file.

A process id is ambiguous where processes of several PID namespaces, such as containers, share ``/dev/shm``; and the id
of a killed process lasts until its parent collects it. The kernel releases a lock when its process ends, however it
ends, and shows it in every namespace.

The lock is one of an open file description (fcntl(2)), so that this process can map and unmap the file without losing
it, and it is independent of the ``flock`` of :mod:`.subscriber_slots`. A child that this process forks closes its copy:
the lock does not outlast the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import weakref
from pathlib import Path
from typing import Final

#: ``struct flock``: type, whence, start, length and process. The lock is on the first byte.
_FLOCK: Final = struct.Struct("hhqqi4x")


def _flock(kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 1, 0)


class OwnerLock:
    """The lock of a file, held from :meth:`take` until :meth:`release`, or until this process ends."""

    _held: Final[weakref.WeakSet[OwnerLock]] = weakref.WeakSet()

    def __init__(self, fd: int) -> None:
        """For :meth:`hold`."""
        self._fd = fd

    @classmethod
    def hold(cls, path: Path) -> OwnerLock | None:
        """Hold the lock of a file that no other process knows yet; None if the system has no such locks."""
        try:
            fd = os.open(path, os.O_RDWR)
        except OSError:
            return None
        lock = cls(fd)
        cls._held.add(lock)
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK))
        except OSError:
            lock.release()
            return None
        return lock

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        fd, self._fd = self._fd, -1
        self._held.discard(self)
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)

    def __del__(self) -> None:
        self.release()

    @classmethod
    def forget_locks(cls) -> None:
        """In a forked child: the locks belong to its parent."""
        for lock in list(cls._held):
            lock.release()


def is_held(path: Path) -> bool:
    """Whether a process holds the lock of a file; True also if that cannot be determined now."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK))
    except OSError:
        return True
    finally:
        os.close(fd)
    kind: int = _FLOCK.unpack(found)[0]
    return kind != fcntl.F_UNLCK


os.register_at_fork(after_in_child=OwnerLock.forget_locks)
