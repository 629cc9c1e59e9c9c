"""What a writer has written: the history it is kept in, what is still to be sent, the log it lies in."""

from .history import WriterHistory
from .message_log import (
    FRAME_ALIGNMENT,
    FRAME_HEADER_BYTES,
    TERM_LENGTH,
    LogClaim,
    MessageLog,
    PublicationResult,
)
from .positions import PublicationPositions, SequencePositions
from .unsent_changes import PLACE_BYTES, UnsentChanges

__all__ = [
    "LogClaim",
    "FRAME_ALIGNMENT",
    "FRAME_HEADER_BYTES",
    "MessageLog",
    "PLACE_BYTES",
    "PublicationPositions",
    "PublicationResult",
    "SequencePositions",
    "TERM_LENGTH",
    "UnsentChanges",
    "WriterHistory",
]
