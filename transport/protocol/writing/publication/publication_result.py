"""What an offer or a claim answers that was not taken."""

from __future__ import annotations

import enum


class PublicationResult(enum.IntEnum):
    """What an offer or a claim answers instead of a position (Aeron's codes)."""

    #: There is no reader, or no group of them yet.
    NOT_CONNECTED = -1
    #: No room is clean, or the limit is reached: try again.
    BACK_PRESSURED = -2
    #: A term was full and the next one has begun: try again at once.
    ADMIN_ACTION = -3
    CLOSED = -4
    #: The log has used up its term ids.
    MAX_POSITION_EXCEEDED = -5
