"""Commits of a query to receiver services: the positions of its consumer group."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from ..transport.errors import LogLostError, RangeServerError
from .offsets import Offset
from .receiver_services import ReceiverService, at_once

#: Pause after a commit to a receiver failed.
_COMMIT_SECONDS: Final = 1.0
#: How often an unchanged offset is committed again. A group that commits nothing is removed after some time, and it may
#: have been deleted, or lost with the disk.
_RENEW_SECONDS: Final = 30.0


class GroupCommits:
    """Commits a group's offsets, each to its receiver, and repeats them from time to time."""

    def __init__(self, receivers: Mapping[str, ReceiverService], say: Callable[[str], None]) -> None:
        self._receivers = receivers
        self._say = say
        #: The offsets committed last, and until when the same offset need not be committed again, or any after a
        #: failure
        #: (monotonic, s).
        self._committed: dict[str, Offset] = {}
        self._renew_at: dict[str, float] = {}
        self._commit_again: dict[str, float] = {}

    def unreported(self, log_offsets: Mapping[str, Offset]) -> dict[str, Offset]:
        """The offsets that their receivers do not have yet."""
        now = time.monotonic()
        return {
            name: log_offset
            for name, log_offset in log_offsets.items()
            if (self._committed.get(name) != log_offset or now >= self._renew_at.get(name, 0.0))
            and now >= self._commit_again.get(name, 0.0)
        }

    def commit(self, group: str, log_offsets: Mapping[str, Offset]) -> None:
        """Commit the group's offsets; a log that waits for groups trims only what they have all committed."""
        unreported = self.unreported(log_offsets)

        def tell(name: str) -> None:
            log_offset = unreported[name]
            try:
                self._receivers[name].client.commit_offset(log_offset.log, group, log_offset.cursor)
            except RangeServerError as error:
                self._commit_again[name] = time.monotonic() + _COMMIT_SECONDS
                self._say(f"receiver {name}: {error}; the next commit repeats the offset")
                return
            except LogLostError as error:
                self._say(f"receiver {name}: {error}; the next commit repeats the offset")
            self._committed[name] = log_offset
            self._renew_at[name] = time.monotonic() + _RENEW_SECONDS

        at_once(tell, list(unreported))
