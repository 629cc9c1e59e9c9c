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
from .offsets import LogOffset
from .receiver_services import ReceiverService

_TRUSTED_MAX: Final = 16


class OffsetPlacement:
    """Asks each receiver once about an offset that was not made of its log itself."""

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
        #: ReservedFrames that need no look: they were made of the log itself.
        self._trusted: dict[str, set[LogOffset]] = {}

    def place(self, name: str, place: LogOffset, tail: LogTail) -> Cursor:
        """Where the samples behind a place begin; LogLostError for what is no place of the log."""
        is_held = tail.base <= place.cursor.position and place.cursor <= Cursor(tail.position)
        if is_held and place in self._trusted.get(name, ()):
            return place.cursor
        return self.locate(name, place)

    def locate(self, name: str, place: LogOffset) -> Cursor:
        """The same as the receiver tells now."""
        client = self._receivers[name].client
        try:
            found = client.place(place.log, place.cursor)
        except LogLostError as error:
            end = Cursor(client.tail(place.log).position)
            if self._fails_on_data_loss or place.cursor <= end:
                raise
            found = MisplacedOffset(str(error), LOG_LOST, end)
        if isinstance(found, Cursor):
            return self.trust(name, LogOffset(place.log, found)).cursor
        if self._fails_on_data_loss:
            raise LogLostError(f"receiver {name}: {found.what}", position=place.cursor.position)
        self._say(
            f"receiver {name}: {found.what}; going on at {describe_cursor(found.place)} because failOnDataLoss=false"
        )
        return self.trust(name, LogOffset(place.log, found.place)).cursor

    def on_another_log(self, name: str, place: LogOffset, log: str, tail: LogTail) -> LogOffset:
        what = f"receiver {name} has the log {log} now, but the offset is of the log {place.log}"
        if self._fails_on_data_loss:
            raise LogLostError(f"{what}. Samples may be lost", position=place.cursor.position)
        self._say(f"{what}; going on at its beginning because failOnDataLoss=false")
        return self.trust(name, LogOffset(log, Cursor(tail.base)))

    def trust(self, name: str, place: LogOffset) -> LogOffset:
        """This place is right."""
        known = self._trusted.setdefault(name, set())
        if len(known) >= _TRUSTED_MAX:
            known.clear()
        known.add(place)
        return place
