"""Filters the datagrams of a multicast group in the kernel: only those of participants that local readers read.

All samples of a domain may go to its default group. The kernel looks at the GUID prefix in the RTPS header and drops
messages that no local reader would read, this participant's own among them, before they take space in the socket, or
time here.
"""

from __future__ import annotations

import ctypes
import logging
import socket
import struct
from collections.abc import Collection, Iterator
from typing import Final

_log = logging.getLogger(__name__)

_SO_ATTACH_FILTER: Final = 26
#: Instructions of a classic socket filter: code, jump if true, jump if false, operand.
_INSTRUCTION: Final = struct.Struct("=HBBI")
_LOAD_WORD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALL_OF_IT: Final = 0xFFFFFFFF
#: Offset of the GUID prefix: behind the UDP header, of 8 bytes, and the first 8 bytes of the RTPS header.
_PREFIX_AT: Final = 16
#: With more participants than this all messages are taken: the kernel limits the length of a filter.
_PARTICIPANTS_MAX: Final = 256


def listen_to(group: socket.socket, prefixes: Collection[bytes]) -> None:
    """Take only the messages of these participants from now on; datagrams received before stay."""
    taken = prefixes if len(prefixes) <= _PARTICIPANTS_MAX else None
    program = b"".join(_program(taken))
    code = ctypes.create_string_buffer(program)
    filter_ = struct.pack("HL", len(program) // _INSTRUCTION.size, ctypes.addressof(code))
    try:
        group.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)
    except OSError as error:  # the filter only saves work
        _log.info("the kernel refused a filter for a multicast group: %s", error)


def _program(prefixes: Collection[bytes] | None) -> Iterator[bytes]:
    if prefixes is None:
        yield _INSTRUCTION.pack(_RETURN, 0, 0, _ALL_OF_IT)
        return
    for prefix in prefixes:
        words = struct.unpack(">3I", prefix)
        for i, word in enumerate(words):
            yield _INSTRUCTION.pack(_LOAD_WORD, 0, 0, _PREFIX_AT + 4 * i)
            yield _INSTRUCTION.pack(_JUMP_EQUAL, 0, 5 - 2 * i, word)
        yield _INSTRUCTION.pack(_RETURN, 0, 0, _ALL_OF_IT)
    yield _INSTRUCTION.pack(_RETURN, 0, 0, 0)
