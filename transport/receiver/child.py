"""The receiver's process before it has its configuration.

It needs a third of a second to import its modules. A caller that knows early that it will need a receiver starts the
process then.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

#: numpy's library would start a thread for each core, and a receiver never calls it.
_ONE_THREAD: Final = "OPENBLAS_NUM_THREADS"
#: The process that waits for the next receiver, and the PYTHONPATH that it has.
_PREPARED: Final[list[tuple[subprocess.Popen[bytes], str]]] = []


def prepare() -> None:
    """Start the process that the next receiver uses. If it is never used, it ends with this process."""
    if not _PREPARED:
        _PREPARED.append((_spawn(), _path()))


def take() -> subprocess.Popen[bytes]:
    """A process that waits for its configuration on the first line of its standard input."""
    while _PREPARED:
        child, path = _PREPARED.pop()
        if child.poll() is None and path == _path():
            return child
        discard(child)
    return _spawn()


def discard(child: subprocess.Popen[bytes]) -> None:
    """Make sure that the child has ended, and close our ends of its pipes."""
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                pass  # the child has ended: nobody reads what was not flushed


def _spawn() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", f"{__package__}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={_ONE_THREAD: "1", **os.environ, "PYTHONPATH": _path()},
        # Ctrl-C at a terminal goes to the whole group: the driver ends us, not the terminal.
        start_new_session=True,
    )


def _path() -> str:
    return os.pathsep.join(p for p in sys.path if p)
