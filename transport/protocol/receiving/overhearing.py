"""Rewrites captured messages between other participants, so that a participant which only listens accepts them.

Messages from a writer to a reader are addressed: by INFO_DST to a participant, and by the reader id in each submessage
to a reader. Both become "unknown" here, which means all (RTPS 2.5 §8.3.8.8, §8.3.8.2). The answers of readers become
padding. A GAP for one reader names numbers that are irrelevant to that reader only, perhaps because it joined late: it
is kept apart, and used if nothing else has filled the hole.
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
#: The offset of the reader id, behind the header of a submessage.
_READER_AT: Final = {
    Data.KIND: 4,
    DataFrag.KIND: 4,
    DATA_BATCH: 4,
    Heartbeat.KIND: 0,
    HeartbeatFrag.KIND: 0,
    HEARTBEAT_BATCH: 0,
    Gap.KIND: 0,
}
#: The offset of the writer id, behind the header of a submessage.
_WRITER_BEHIND: Final = 4
_NOBODY: Final = bytes(12)


class CapturedMessage(NamedTuple):
    """The contents of a captured message.

    ``is_discovery``: it belongs to discovery; ``is_farewell``: it disposes an endpoint or a participant. ``gaps``: a
    message with the GAPs that are kept apart.
    """

    is_discovery: bool
    is_farewell: bool
    gaps: bytes | None


def parse_captured(message: bytearray) -> CapturedMessage:
    """Rewrite a message in place. Unreadable parts are left for the participant to drop."""
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
        pass  # the rest of the message cannot be parsed
    gap_message = b"".join((view[:HEADER_SIZE], *gaps)) if gaps else None
    return CapturedMessage(is_discovery, is_farewell, gap_message)
