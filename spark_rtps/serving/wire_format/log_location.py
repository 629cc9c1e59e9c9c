"""Whether a folder on this host is the one that was meant on another one, or in another container of this one.

A host's name proves nothing: containers of one host have different ones, and different hosts the same. What does is the
kernel's boot id, with the device and the inode of the folder.
"""

from __future__ import annotations

from pathlib import Path

from ...transport.log.host_clocks import boot_id
from ...transport.value_classes import value


@value
class LogLocation:
    """A log's folder, as the process that planned to read it saw it."""

    boot_id: str
    device: int
    inode: int

    @classmethod
    def of_directory(cls, directory: Path) -> LogLocation | None:
        """None: there is no such folder, or it cannot be told from others."""
        try:
            found = directory.stat()
            return cls(boot_id(), found.st_dev, found.st_ino)
        except (OSError, ValueError):  # ValueError: another host names what can be no folder
            return None
