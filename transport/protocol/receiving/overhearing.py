"""Messages between others, made such that a participant which only listens takes them for its own.

What travels from a writer to a reader is addressed: by INFO_DST to a participant, and by the reader id in each
submessage to a reader. Both become "unknown" here, which means everyone (RTPS 2.5 §8.3.8.8, §8.3.8.2). What readers
answer is turned into padding. A GAP that is addressed to one reader says what is irrelevant to that one only, perhaps
because it came late: it is set apart, for when nothing else has explained the hole.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...errors import DecodeError
from ...structure import ENTITYID_UNKNOWN, is_builtin
from ...wire.batch import ACKNACK_BATCH, DATA_BATCH, HEARTBEAT_BATCH
from ...wire.info import InfoDestination
from ...wire.message import HEADER_SIZE, SUBMESSAGE_HEADER_SIZE, header_at, iter_submessages
from ...wire.submessages import AckNack, Data, DataFrag, Gap, Heartbeat, HeartbeatFrag, NackFrag

_PAD: Final = 0x01
_ANSWERS: Final = frozenset({AckNack.KIND, NackFrag.KIND, ACKNACK_BATCH})
#: Where a submessage has the reader id, behind its header.
_READER_AT: Final = {
    Data.KIND: 4,
    DataFrag.KIND: 4,
    DATA_BATCH: 4,
    Heartbeat.KIND: 0,
    HeartbeatFrag.KIND: 0,
    HEARTBEAT_BATCH: 0,
    Gap.KIND: 0,
}
#: Where it has the writer id, further on.
_WRITER_BEHIND: Final = 4
_NOBODY: Final = bytes(12)


class CapturedMessage(NamedTuple):
    """What is in a message.

    ``is_discovery``: it has to do with discovery; ``is_farewell``: an endpoint, or a participant, is disposed by it.
    ``gaps``: a message of the GAPs that are set apart.
    """

    is_discovery: bool
    is_farewell: bool
    gaps: bytes | None


def parse_captured(message: bytearray) -> CapturedMessage:
    """Change a message in place. What cannot be read is left for the participant to drop."""
    view = memoryview(message)
    gaps: list[bytes] = []
    is_discovery = is_farewell = False
    try:
        header_at(view, 0, len(view))
        for kind, flags, body, end in iter_submessages(view):
            if kind == InfoDestination.KIND and end - body >= len(_NOBODY):
                view[body : body + len(_NOBODY)] = _NOBODY
            elif kind in _ANSWERS:
                view[body - SUBMESSAGE_HEADER_SIZE] = _PAD
            elif (reader := _READER_AT.get(kind)) is not None and end - body >= reader + 8:
                reader += body
                writer = reader + _WRITER_BEHIND
                is_addressed = view[reader : reader + 4] != ENTITYID_UNKNOWN
                view[reader : reader + 4] = ENTITYID_UNKNOWN
                if is_builtin(bytes(view[writer : writer + 4])):
                    is_discovery = True
                    is_farewell |= kind == Data.KIND and not flags & Data.FLAG_D
                elif kind == Gap.KIND and is_addressed:
                    begin = body - SUBMESSAGE_HEADER_SIZE
                    gaps.append(bytes(view[begin:end]))
                    view[begin] = _PAD
    except DecodeError:
        pass  # of the rest nothing can be found
    gap_message = b"".join((view[:HEADER_SIZE], *gaps)) if gaps else None
    return CapturedMessage(is_discovery, is_farewell, gap_message)
