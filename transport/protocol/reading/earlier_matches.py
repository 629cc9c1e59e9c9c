"""Where a reader goes on with the writers that it, or an earlier life of it, was matched with before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ...limits import ENDPOINTS_PER_PARTICIPANT_MAX
from ...structure import Guid
from .ordering.sequence_jumps import Pass
from .ordering.writer_proxy import WriterProxy


class EarlierMatch(NamedTuple):
    """What the last match with a writer left behind."""

    #: The last sequence number that was taken; None: the writer was not matched before.
    last_sn: int | None
    #: The writer knew the reader under another GUID.
    moved: bool
    passes: list[Pass]


class EarlierMatches:
    """The earlier matches with writers that are not matched now."""

    __slots__ = ("_last_sns", "_moved_from", "_passes")

    def __init__(self, last_sns: Mapping[Guid, int] | None, moved_from: Collection[Guid]) -> None:
        self._last_sns: dict[Guid, int] = dict(last_sns or {})
        self._moved_from = set(moved_from)
        self._passes: dict[Guid, list[Pass]] = {}

    def take(self, writer: Guid) -> EarlierMatch:
        """The writer is matched."""
        last_sn = self._last_sns.pop(writer, None)
        moved = last_sn is not None and writer in self._moved_from
        self._moved_from.discard(writer)
        return EarlierMatch(last_sn, moved, self._passes.pop(writer, []))

    def keep(self, proxy: WriterProxy, *, begins_anew: bool) -> None:
        """The writer is gone; ``begins_anew``: nothing it does after this has to do with what it did before."""
        writer = proxy.guid
        if proxy.missed_until >= proxy.expected:  # it was not heard
            self._moved_from.add(writer)
        if begins_anew or not proxy.synced:
            return
        self._last_sns[writer] = proxy.expected - 1
        if proxy.jumps.passes:
            self._passes[writer] = proxy.jumps.passes
        if len(self._last_sns) > ENDPOINTS_PER_PARTICIPANT_MAX:
            oldest = next(iter(self._last_sns))
            del self._last_sns[oldest]
            self._passes.pop(oldest, None)
