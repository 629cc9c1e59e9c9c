"""What a query has consumed, as it tells receiver services: the positions of its consumer group."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from ..transport.errors import LogLostError, RangeServerError
from .offsets import LogOffset
from .receiver_services import ReceiverService, at_once

#: How long a receiver is left alone that could not be told how far the query is.
_COMMIT_SECONDS: Final = 1.0
#: How often a receiver is told of a place again that stays the same. A group that commits nothing is removed after some
#: time, and it may have been deleted, or lost with the disk.
_RENEW_SECONDS: Final = 30.0


class GroupCommits:
    """Commits a group's places, each to its receiver, and again from time to time."""

    def __init__(self, receivers: Mapping[str, ReceiverService], say: Callable[[str], None]) -> None:
        self._receivers = receivers
        self._say = say
        #: The places that the receivers were told last, and until when they need not be told of the same place again,
        #: or of any after they could not be told (monotonic, s).
        self._committed: dict[str, LogOffset] = {}
        self._renew_at: dict[str, float] = {}
        self._commit_again: dict[str, float] = {}

    def unreported(self, places: Mapping[str, LogOffset]) -> dict[str, LogOffset]:
        """Those that their receivers do not know yet to be consumed."""
        now = time.monotonic()
        return {
            name: place
            for name, place in places.items()
            if (self._committed.get(name) != place or now >= self._renew_at.get(name, 0.0))
            and now >= self._commit_again.get(name, 0.0)
        }

    def commit(self, group: str, places: Mapping[str, LogOffset]) -> None:
        """Tell receivers how far the group is, which it keeps from being trimmed where the log waits for groups."""
        unreported = self.unreported(places)

        def tell(name: str) -> None:
            place = unreported[name]
            try:
                self._receivers[name].client.commit_offset(place.log, group, place.cursor)
            except RangeServerError as error:
                self._commit_again[name] = time.monotonic() + _COMMIT_SECONDS
                self._say(f"receiver {name}: {error}; it is told how far the query is with the next commit")
                return
            except LogLostError as error:
                self._say(f"receiver {name}: {error}; it is told how far the query is with the next commit")
            self._committed[name] = place
            self._renew_at[name] = time.monotonic() + _RENEW_SECONDS

        at_once(tell, list(unreported))
