"""The interface of the log in which a writer publishes; `log.publication_log` implements it.

Positions count bytes of such a log even if there is none, so the sizes of its frames are defined here.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Final, Protocol

from ....wire.samples import U8

#: Bytes of the header of a frame; frames begin at multiples of FRAME_ALIGNMENT.
FRAME_HEADER_BYTES: Final = 32
FRAME_ALIGNMENT: Final = 32
#: The term length by which a writer without a log counts positions.
TERM_LENGTH: Final = 32 << 20


class PublicationResult(enum.IntEnum):
    """The result of an offer or a claim that failed (Aeron's codes)."""

    #: There is no reader, or no group of them yet.
    NOT_CONNECTED = -1
    #: The next term is not clean yet, or the limit is reached: try again.
    BACK_PRESSURED = -2
    #: A term was full and the next one has begun: try again at once.
    ADMIN_ACTION = -3
    CLOSED = -4
    #: The log has used up its term ids.
    MAX_POSITION_EXCEEDED = -5


class LogClaim(Protocol):
    """A claimed part of the log, to be filled and committed."""

    @property
    def data(self) -> U8:
        """The memory to fill."""

    @property
    def start(self) -> int:
        """Position where the frame begins."""

    @property
    def end(self) -> int:
        """Position where the next frame begins."""

    @property
    def is_committed(self) -> bool:
        """Whether readers of the log may read it."""

    def commit(self) -> object:
        """Make it visible to readers of the log."""

    def abort(self) -> None:
        """Make it padding, which readers of the log skip."""


class MessageLog(Protocol):
    """The log, as far as a writer uses it."""

    @property
    def path(self) -> Path | None:
        """The file that readers on this host map; None: there is none."""

    @property
    def token(self) -> int:
        """Identifies this life of the file."""

    @property
    def term_length(self) -> int:
        """Bytes of a term."""

    @property
    def max_message_length(self) -> int:
        """Bytes that one frame holds, at most."""

    @property
    def max_position(self) -> int:
        """Position at which the term ids are used up."""

    @property
    def position(self) -> int:
        """Position where the next claim begins."""

    def claim(
        self, length: int, *, limit: int, first_sn: int = 0, count: int = 0, segment: int = 0
    ) -> LogClaim | PublicationResult:
        """Claim ``length`` bytes that end before ``limit``."""

    def unblock(self, start: int, stop: int) -> int:
        """Turn abandoned claims in [start, stop) into padding; returns how many there were."""

    def clean(self, to: int) -> int:
        """Zero a piece of the log below ``to``; returns the position up to which it is zeroed."""
