"""The participants a receiver knows, in a file beside its log: started again on it, it knows them at once.

It is no more than a hint, and never older than they are: who is gone is forgotten soon, and what cannot be read is
not there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..log.small_file import replace_text
from ..protocol.discovery.spdp import Announcement

_log = logging.getLogger("spark_rtps.receiver")

_FILE: Final = "participants.json"


def write_known_participants(directory: Path, announcements: Iterable[Announcement]) -> None:
    """Replace the file; a disk that takes no more costs a later restart some seconds, no samples."""
    entries = [[each.prefix.hex(), each.sn, each.payload.hex(), each.source_ip] for each in announcements]
    path = directory / _FILE
    try:
        replace_text(path, json.dumps(entries))
    except OSError as error:
        _log.warning("%s is not written: %s", path, error)


def read_known_participants(directory: Path) -> list[Announcement]:
    """What was written last; nothing when there is no such file, or none that can be read."""
    path = directory / _FILE
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return [
            Announcement(bytes.fromhex(prefix), int(sn), bytes.fromhex(payload), str(source_ip))
            for prefix, sn, payload, source_ip in entries
        ]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        _log.warning("%s is ignored: %s", path, error)
        return []
