"""The addresses at which a receiver was reached when it last ran, in a sidecar file of its log.

Peers keep sending to the locators at which they found a participant first. Other locators that they receive under the
same GUID change nothing (Cyclone DDS merges only USER_DATA), and peers may use any locator that was announced. So a
receiver asks for its old ports again, and keeps its GUID only while every locator that it announced is still its own.
Otherwise it has *moved*: it takes a new GUID prefix, under which peers discover it again, and its log continues. The
reader counts as missed what the log's writers sent in between and do not send again.

A participant that starts while a receiver is down leaves that receiver's ports alone, for as long as its peers wait for
it: each receiver reads these files of the logs beside its own, and every other participant those of the logs that it
knows.

The file also records how far each writer was known when the receiver moved, until a sample of that writer is in the
log: a receiver which is killed again before that still counts as moved, and counts nothing twice.
"""

from __future__ import annotations

import json
import logging
import stat
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from ..errors import reason
from ..limits import WRITERS_MAX
from ..log.host_clocks import Clocks
from ..log.last_use import IN_USE_NS, age
from ..log.small_file import replace_text
from ..net.node_config import NodeConfig
from ..structure import GUID_BYTES, INFINITE, Guid, Locator
from ..value_classes import slotted

_log = logging.getLogger("spark_rtps.receiver")

_FILE: Final = "addresses.json"
#: Errors of a file that :func:`write_addresses` did not write.
_UNREADABLE: Final = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


@slotted
class Addresses:
    """The announced locators, and the writers which knew the receiver under another GUID."""

    participant_index: int
    locators: frozenset[str]
    #: The last sequence number of each writer that was received, or counted as missed.
    moved_from: dict[Guid, int] = field(default_factory=dict)
    #: How long peers wait for a receiver that is down, in ns; 0: they do not, since it disposed its participant.
    lease_duration: int = 0
    #: The GUID prefix under which the locators were announced; empty: not recorded.
    guid_prefix: bytes = b""

    @classmethod
    def from_locators(
        cls,
        participant_index: int,
        locators: Iterable[Locator],
        lease_duration: int = 0,
        guid_prefix: bytes = b"",
    ) -> Addresses:
        named = frozenset(f"{each.address}:{each.port}" for each in locators)
        return cls(participant_index, named, lease_duration=lease_duration, guid_prefix=guid_prefix)

    @property
    def ports(self) -> set[int]:
        return {
            int(port) for _, _, port in (each.rpartition(":") for each in self.locators) if port.isdecimal()
        }

    def follow(self, earlier: Addresses, writers: Mapping[Guid, int], *, moved: bool) -> None:
        """Continue from ``earlier`` with a log that has these ``writers``, each up to a sequence number."""
        known = earlier.moved_from
        if moved:
            self.moved_from = {guid: max(sn, known.get(guid, 0)) for guid, sn in writers.items()}
        else:
            self.moved_from = {guid: sn for guid, sn in known.items() if writers.get(guid, 0) <= sn}


def read_addresses(directory: Path) -> Addresses | None:
    """The addresses of the last receiver of the log in ``directory``; None if they are not recorded."""
    path = directory / _FILE
    try:
        return _read(path)
    except FileNotFoundError:
        return None
    except _UNREADABLE as error:
        _log.warning("ignored the receiver's addresses in %s: %s", path, error)
        return None


def reserved_ports(directory: Path, *, now: Clocks) -> tuple[int, ...]:
    """The ports of receivers whose logs lie beside ``directory``, and whose peers may wait for them.

    A receiver notes while it runs that its log is in use (:func:`~..log.last_use.note_in_use`).
    """
    return _reserved(directory.parent, now, but=directory)


def with_reserved_ports(config: NodeConfig, root: Path) -> NodeConfig:
    """``config`` for a participant that is not a receiver: it leaves alone the ports of receivers whose logs lie in
    ``root``, as :func:`reserved_ports` has them."""
    return replace(config, reserved_ports=_reserved(root, Clocks.read_now()))


def _reserved(root: Path, now: Clocks, *, but: Path | None = None) -> tuple[int, ...]:
    found: set[int] = set()
    for path in root.glob(f"*/{_FILE}"):
        if path.parent == but:
            continue
        try:
            dated = path.stat()
            if not stat.S_ISREG(dated.st_mode):
                continue  # opening a pipe would block
            addresses = _read(path)
            lease = addresses.lease_duration
            if lease and age(path.parent, dated.st_mtime_ns, now) <= lease + IN_USE_NS:
                found |= addresses.ports
        except _UNREADABLE:
            continue  # the log's own receiver warns of it
    return tuple(sorted(found))


def write_addresses(directory: Path, addresses: Addresses) -> None:
    """Replace the file. If the disk is full, the next receiver assumes that it is where the last one was."""
    stored = {
        "participant_index": addresses.participant_index,
        "locators": sorted(addresses.locators),
        "moved_from": {guid.to_bytes().hex(): sn for guid, sn in addresses.moved_from.items()},
        "lease_duration": addresses.lease_duration,
        "guid_prefix": addresses.guid_prefix.hex(),
    }
    path = directory / _FILE
    try:
        replace_text(path, json.dumps(stored))
    except OSError as error:
        _log.warning("writing the receiver's addresses to %s failed: %s", path, reason(error))


def _read(path: Path) -> Addresses:
    """Raises one of _UNREADABLE."""
    return _addresses(json.loads(path.read_text(encoding="utf-8")))


def _addresses(stored: dict[str, Any]) -> Addresses:
    """Raises ValueError, TypeError, LookupError, AttributeError or ArithmeticError for content that no receiver
    writes."""
    moved_from = {_guid(raw): int(sn) for raw, sn in stored["moved_from"].items()}
    if len(moved_from) > WRITERS_MAX:
        raise ValueError(f"it names {len(moved_from)} writers")
    if not all(0 <= sn < INFINITE for sn in moved_from.values()):
        raise ValueError("it has sequence numbers out of range")
    locators, lease_duration = (
        frozenset(map(str, stored["locators"])),
        int(stored.get("lease_duration", 0)),
    )
    prefix = bytes.fromhex(stored.get("guid_prefix", ""))
    return Addresses(int(stored["participant_index"]), locators, moved_from, lease_duration, prefix)


def _guid(raw: str) -> Guid:
    found = bytes.fromhex(raw)
    if len(found) != GUID_BYTES:
        raise ValueError(f"{raw!r} is not a GUID")
    return Guid.from_bytes(found)
