"""Whether a query's checkpoint is one that Spark made for it and removes at its end.

Spark does not tell a source where the checkpoint is. A temporary one is a folder ``temporary-<uuid>`` in the JVM's
temporary directory, and the offsets that Spark writes there before it asks for a batch's partitions name the log.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_NAMES: Final = "temporary-*/offsets"
#: A JVM with its own temporary directory is at most this far above the process.
_ANCESTORS_MAX: Final = 6
_TMPDIR: Final = b"-Djava.io.tmpdir="
#: Folders that are searched; the newest first.
_FOLDERS_MAX: Final = 1_000


def find_temporary_checkpoint(log: str) -> Path | None:
    """The temporary checkpoint whose offsets name this log; None: there is none on this host."""
    name = log.encode()
    for root in dict.fromkeys(_roots()):
        try:
            folders = sorted(root.glob(_NAMES), key=lambda each: each.stat().st_mtime_ns, reverse=True)
        except OSError:
            continue  # one of them was removed meanwhile; the caller asks again
        for offsets in folders[:_FOLDERS_MAX]:
            try:
                if any(name in each.read_bytes() for each in offsets.iterdir() if each.name.isdecimal()):
                    return offsets.parent
            except OSError:
                continue
    return None


def _roots() -> Iterator[Path]:
    """The temporary directories in which the JVM may make checkpoints."""
    pid = os.getppid()
    for _ in range(_ANCESTORS_MAX):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            break
        for word in words:
            if word.startswith(_TMPDIR):
                yield Path(os.fsdecode(word.removeprefix(_TMPDIR)))
        pid = int(fields[1])
    yield Path("/tmp")  # Java's own default, whatever TMPDIR says
    yield Path(tempfile.gettempdir())
