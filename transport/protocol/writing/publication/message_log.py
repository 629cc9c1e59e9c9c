"""What a writer needs of the log that it publishes in; `log.publication_log` is one.

Positions count the bytes of such a log, also where there is none: so the sizes of its frames are here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from ....wire.samples import U8
from .publication_result import PublicationResult

#: A frame begins with a header of so many bytes, at a multiple of so many.
FRAME_HEADER_BYTES: Final = 32
FRAME_ALIGNMENT: Final = 32
#: Of the log of a writer that has none.
TERM_LENGTH: Final = 32 << 20


class Claim(Protocol):
    """Room in the log, to be filled and committed."""

    @property
    def data(self) -> U8: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def is_committed(self) -> bool: ...
    def commit(self) -> object: ...
    def abort(self) -> None: ...


class MessageLog(Protocol):
    """The log, as far as a writer uses it."""

    @property
    def path(self) -> Path | None: ...
    @property
    def token(self) -> int: ...
    @property
    def term_length(self) -> int: ...
    @property
    def max_message_length(self) -> int: ...
    @property
    def max_position(self) -> int: ...
    @property
    def position(self) -> int: ...
    def claim(
        self, length: int, *, limit: int, first_sn: int = 0, count: int = 0, segment: int = 0
    ) -> Claim | PublicationResult: ...
    def unblock(self, start: int, stop: int) -> int: ...
    def clean(self, to: int) -> int: ...
