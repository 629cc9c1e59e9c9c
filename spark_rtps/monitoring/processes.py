"""Whether the process still runs that wrote a file with its process id."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ..transport.log.owner_lock import is_held

#: Fields of /proc/<pid>/stat behind the process's name (proc(5)): its state, and when it began.
_STATE, _START = 0, 19
_ENDED: Final = (b"Z", b"X")


def process_start(pid: int) -> int | None:
    """When a process began, in clock ticks since the machine booted; None if it is not running."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()
    return None if fields[_STATE] in _ENDED else int(fields[_START])


def goes_on(path: Path, pid: int, start: int) -> bool:
    """Whether the process still runs that wrote the file at ``path``, and whose id and start are in the file's name.

    Where containers share the folder but not their processes, only the lock of the file shows that.
    """
    return process_start(pid) == start or is_held(path)
