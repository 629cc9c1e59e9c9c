"""The participants a receiver knows, in a file beside its log: started again on it, it knows them at once.

It is no more than a hint, and never older than they are: who is gone is forgotten soon, and what cannot be read is
not there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ..log.small_file import replace_text
from ..protocol.discovery.spdp import Announcement

_log = logging.getLogger("spark_rtps.receiver")

_FILE: Final = "participants.json"
_PREFIX_BYTES: Final = 12


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
        return [_announcement(*entry) for entry in entries]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, RecursionError) as error:
        _log.warning("%s is ignored: %s", path, error)
        return []


def _announcement(prefix: str, sn: Any, payload: str, source_ip: str) -> Announcement:
    """Raises ValueError or TypeError for what no participant announces."""
    found = Announcement(bytes.fromhex(prefix), sn, bytes.fromhex(payload), str(source_ip))
    if len(found.prefix) != _PREFIX_BYTES or not found.payload:
        raise ValueError(f"{prefix!r} is no GUID prefix, or has announced nothing")
    if not isinstance(sn, int) or not 0 < sn < 1 << 63:
        raise ValueError(f"{sn!r} is no sequence number")
    return found
