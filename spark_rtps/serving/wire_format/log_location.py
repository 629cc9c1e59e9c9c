"""Whether a folder on this host is the one that another host, or another container of this host, meant.

A host's name proves nothing: containers of one host have different names, and different hosts the same. The kernel's
boot id together with the device and inode of the folder identifies it.
"""

from __future__ import annotations

from pathlib import Path

from ...transport.log.host_clocks import boot_id
from ...transport.value_classes import value


@value
class LogLocation:
    """A log's folder, as the planning process saw it."""

    boot_id: str
    device: int
    inode: int

    @classmethod
    def of_directory(cls, directory: Path) -> LogLocation | None:
        """None: there is no such folder, or it cannot be identified."""
        try:
            found = directory.stat()
            return cls(boot_id(), found.st_dev, found.st_ino)
        except (OSError, ValueError):  # ValueError: the name is not a possible path here
            return None
