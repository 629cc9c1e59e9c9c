"""Where a reader resumes with writers that were matched before, also before a restart of the reader."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ...limits import ENDPOINTS_PER_PARTICIPANT_MAX
from ...structure import Guid
from ..policies import LossCause
from .ordering.writer_proxy import WriterProxy


class EarlierMatch(NamedTuple):
    """The state that the last match with a writer left."""

    #: The last sequence number that was taken.
    last_sn: int
    #: The cause of loss for samples that the writer has sent since then.
    away: LossCause
    #: Samples missing up to this number were counted as lost when the match ended.
    announced_until: int = 0


class EarlierMatches:
    """The earlier matches with writers that are not matched now."""

    __slots__ = ("_left",)

    def __init__(self, last_sns: Mapping[Guid, int] | None, moved_from: Collection[Guid]) -> None:
        """``last_sns``: taken before a restart of the reader; ``moved_from``: writers that knew it under another
        GUID."""
        self._left: dict[Guid, EarlierMatch] = {}
        for writer, last_sn in (last_sns or {}).items():
            cause = LossCause.MOVED if writer in moved_from else LossCause.STOPPED
            self._left[writer] = EarlierMatch(last_sn, cause)

    def take_match(self, writer: Guid) -> EarlierMatch | None:
        """Return and forget the earlier match with a writer that is matched now; None: there was none."""
        return self._left.pop(writer, None)

    def keep(self, proxy: WriterProxy) -> None:
        """Keep the state of a writer that is gone, but may come back."""
        if not proxy.synced:
            return
        was_received = proxy.away is None or proxy.away_until < proxy.expected
        cause = LossCause.OUT_OF_REACH if was_received or proxy.away is None else proxy.away
        self._left[proxy.guid] = EarlierMatch(
            proxy.expected - 1, cause, proxy.announced if proxy.reliable else 0
        )
        if len(self._left) > ENDPOINTS_PER_PARTICIPANT_MAX:
            del self._left[next(iter(self._left))]
