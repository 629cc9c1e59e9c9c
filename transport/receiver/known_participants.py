"""The participants a receiver knows, in a sidecar file of its log: a restarted receiver knows them at once.

The file is only a hint: participants that left are forgotten soon, and a file that cannot be read is ignored.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ..log.small_file import replace_text
from ..protocol.discovery.remote_participant import Announcement

_log = logging.getLogger("spark_rtps.receiver")

_FILE: Final = "participants.json"
_PREFIX_BYTES: Final = 12


def write_known_participants(directory: Path, announcements: Iterable[Announcement]) -> None:
    """Replace the file. If the disk is full, a later restart takes some seconds longer; no samples are lost."""
    entries = [
        [each.prefix.hex(), each.sn, each.payload.hex(), each.source_ip, each.proven_from]
        for each in announcements
    ]
    path = directory / _FILE
    try:
        replace_text(path, json.dumps(entries))
    except OSError as error:
        _log.warning("writing the known participants to %s failed: %s", path, error)


def read_known_participants(directory: Path) -> list[Announcement]:
    """The announcements that were written last; none if there is no such file, or it cannot be read."""
    path = directory / _FILE
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return [_announcement(*entry) for entry in entries]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, RecursionError) as error:
        _log.warning("ignored the known participants in %s: %s", path, error)
        return []


def _announcement(
    prefix: str, sn: Any, payload: str, source_ip: str, proven_from: Iterable[Any] = ()
) -> Announcement:
    """Raises ValueError or TypeError if no participant can have announced this."""
    proven = tuple(str(address) for address in proven_from)
    found = Announcement(bytes.fromhex(prefix), sn, bytes.fromhex(payload), str(source_ip), proven)
    if len(found.prefix) != _PREFIX_BYTES or not found.payload:
        raise ValueError(f"{prefix!r} is not a GUID prefix, or has an empty announcement")
    if not isinstance(sn, int) or not 0 < sn < 1 << 63:
        raise ValueError(f"{sn!r} is not a sequence number")
    return found
