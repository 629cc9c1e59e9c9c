"""Stream logs on disk to which no receiver appends any more."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from ..transport.log.appending import is_appended_to


def remove_stale_logs(root: Path, retention: int, *, now: int) -> list[Path]:
    """Remove logs below ``root`` whose files have not changed for ``retention`` ns; returns them."""
    removed = []
    for directory in root.iterdir():
        try:
            uuid.UUID(directory.name)
            newest = max(
                (f.stat().st_mtime_ns for f in directory.iterdir()), default=directory.stat().st_mtime_ns
            )
            if now - newest > retention and not is_appended_to(directory):
                shutil.rmtree(directory)
                removed.append(directory)
        except (ValueError, OSError):
            continue  # no stream log, or another process removes it
    return removed
