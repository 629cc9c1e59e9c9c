"""What a writer has written: its history, the changes that are not sent yet, and the publication log."""

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
