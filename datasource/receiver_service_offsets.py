"""Where the samples behind the offsets of a checkpoint begin, in the logs of receiver services."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..monitoring.decoding_report import LOG_LOST
from ..serving.wire_format.misplaced_offset import MisplacedOffset
from ..serving.wire_format.receiver_service import LogTail
from ..transport.errors import LogLostError
from ..transport.log.frame import Cursor
from .offset_checks import describe_cursor
from .offsets import Offset
from .receiver_services import ReceiverService

_TRUSTED_MAX: Final = 16


class OffsetPlacement:
    """Asks each receiver once about an offset that was not derived from its log."""

    def __init__(
        self,
        receivers: Mapping[str, ReceiverService],
        say: Callable[[str], None],
        *,
        fails_on_data_loss: bool,
    ) -> None:
        self._receivers = receivers
        self._say = say
        self._fails_on_data_loss = fails_on_data_loss
        #: Offsets that need no check: they were derived from the log itself.
        self._trusted: dict[str, set[Offset]] = {}

    def place(self, name: str, log_offset: Offset, tail: LogTail) -> Cursor:
        """Where the samples behind an offset begin. Raises LogLostError for an offset that the log does not have."""
        is_held = tail.base <= log_offset.cursor.position and log_offset.cursor <= Cursor(tail.position)
        if is_held and log_offset in self._trusted.get(name, ()):
            return log_offset.cursor
        return self.locate(name, log_offset)

    def locate(self, name: str, log_offset: Offset) -> Cursor:
        """The same, asking the receiver."""
        client = self._receivers[name].client
        try:
            found = client.place(log_offset.log, log_offset.cursor)
        except LogLostError as error:
            end = Cursor(client.tail(log_offset.log).position)
            if self._fails_on_data_loss or log_offset.cursor <= end:
                raise
            found = MisplacedOffset(str(error), LOG_LOST, end)
        if isinstance(found, Cursor):
            return self.trust(name, Offset(log_offset.log, found)).cursor
        if self._fails_on_data_loss:
            raise LogLostError(f"receiver {name}: {found.what}", position=log_offset.cursor.position)
        self._say(
            f"receiver {name}: {found.what}; continuing at {describe_cursor(found.place)} because failOnDataLoss=false"
        )
        return self.trust(name, Offset(log_offset.log, found.place)).cursor

    def on_another_log(self, name: str, log_offset: Offset, log: str, tail: LogTail) -> Offset:
        what = f"receiver {name} has the log {log} now, but the offset is of the log {log_offset.log}"
        if self._fails_on_data_loss:
            raise LogLostError(f"{what}. Samples may be lost", position=log_offset.cursor.position)
        self._say(f"{what}; continuing at its beginning because failOnDataLoss=false")
        return self.trust(name, Offset(log, Cursor(tail.base)))

    def trust(self, name: str, log_offset: Offset) -> Offset:
        """Record that this offset is right."""
        known = self._trusted.setdefault(name, set())
        if len(known) >= _TRUSTED_MAX:
            known.clear()
        known.add(log_offset)
        return log_offset
