"""The GUID under which a receiver joins its domain: that of its log, or a new one if it moved (:mod:`.addresses`)."""

from __future__ import annotations

import errno
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..errors import LogError, reason
from ..log.host_clocks import Clocks
from ..log.small_file import replace_text
from ..log.stream_log import StreamLog
from ..net.node import Node
from ..net.node_config import NodeConfig, new_guid_prefix
from .addresses import Addresses, read_addresses, reserved_ports, write_addresses
from .config import ReceiverConfig
from .known_participants import read_known_participants

_log = logging.getLogger("spark_rtps.receiver")

#: The number of starts of a receiver on its log: each start has the same GUID, and peers may know an earlier one.
_INCARNATION_FILE: Final = "incarnation"
#: Larger incarnations leave no sequence numbers for the announcements.
_INCARNATION_MAX: Final = 1 << 32


def join_domain(config: ReceiverConfig, log: StreamLog) -> tuple[Node, Addresses]:
    """The node of a receiver, and its addresses.

    Raises TransportError, or LogError if the log's new GUID cannot be written.
    """
    directory = Path(config.log_directory)
    earlier = read_addresses(directory)
    given = replace(
        config.node,
        guid_prefix=bytes.fromhex(str(log.metadata["guid_prefix"])),
        incarnation=next_incarnation(directory),
        participant_index=None if earlier is None else earlier.participant_index,
        reserved_ports=reserved_ports(directory, now=Clocks.read_now()),
    )
    node = _open(given, directory)
    try:
        here = _addresses(node)
        if earlier is not None:
            gone = earlier.locators - here.locators
            # Killed with a new GUID in the log and none of its addresses here: writers never discovered it, or
            # elsewhere.
            is_moved = bool(gone) or earlier.guid_prefix not in (b"", given.guid_prefix)
            if is_moved:
                node.abandon()
                prefix = new_guid_prefix()
                log.amend(guid_prefix=prefix.hex())
                node = _open(
                    replace(given, guid_prefix=prefix, participant_index=here.participant_index), directory
                )
                here = _addresses(node)
                _warn_of_move(config.topic, gone or earlier.locators, here)
            here.follow(earlier, log.writers, moved=is_moved)
    except BaseException:
        node.abandon()
        raise
    write_addresses(directory, here)
    return node, here


def _open(given: NodeConfig, directory: Path) -> Node:
    return Node.open(given, recalled=read_known_participants(directory))


def _addresses(node: Node) -> Addresses:
    sockets = node.sockets
    locators = (*sockets.metatraffic_unicast, *sockets.default_unicast)
    config = node.config
    return Addresses.from_locators(
        sockets.participant_index, locators, config.lease_duration, config.guid_prefix or b""
    )


def _warn_of_move(topic: str, gone: frozenset[str], here: Addresses) -> None:
    _log.warning(
        "topic %r: the receiver was reached at %s before and is at %s now, where peers do not look for it: it takes a "
        "new GUID, and counts what it missed of the writers that it knows",
        topic,
        ", ".join(sorted(gone)),
        ", ".join(sorted(here.locators)),
    )


def next_incarnation(directory: Path) -> int:
    """Return 0 for the first start, and one more for each later start.

    Raises LogError for a number that is there and cannot be read now: peers would take a lower one for old news.
    """
    path = directory / _INCARNATION_FILE
    try:
        number = int(path.read_text(encoding="ascii")) + 1
        if not 0 < number < _INCARNATION_MAX:
            raise ValueError(f"{number - 1} is not a number of starts")
    except FileNotFoundError:
        number = 0
    except OSError as error:
        raise LogError(f"cannot read {path}: {reason(error)}", path=path) from error
    except ValueError as error:
        _log.warning("ignored the number of starts in %s: %s", path, error)
        number = 0
    try:
        _write_incarnation(path, str(number))
    except OSError as error:
        _log.warning("writing the number of starts to %s failed: %s", path, error)
    return number


def _write_incarnation(path: Path, text: str) -> None:
    """Replace the file, or where the disk has no room for another one, its text."""
    try:
        replace_text(path, text, durable=True)  # a power failure must not bring an earlier number back
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            os.ftruncate(fd, os.pwrite(fd, text.encode(), 0))
        finally:
            os.close(fd)
