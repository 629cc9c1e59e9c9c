"""HEARTBEATs and HEARTBEAT_BATCHes of one writer: what they announce of its history (RTPS 2.5 §8.3.8.6)."""

from __future__ import annotations

from ....structure import ENTITYID_UNKNOWN
from ....wire.submessages import Heartbeat, HeartbeatBatch
from ...counts import next_count
from ..changes import DATA
from ..publication import WriterHistory
from ..readers import ReaderProxy
from ..state import WriterState


class Heartbeats:
    """Encodes them and counts them; :mod:`..readers` decides which reader is sent one, and when."""

    def __init__(self, state: WriterState, history: WriterHistory) -> None:
        self._state = state
        self._writer_id = state.guid.entity
        self._history = history
        self._count = 0
        #: Whether the next ones also assert that the writer lives.
        self.asserts_liveliness = False

    def next(self, now: int) -> int:
        """The count of the next HEARTBEAT; all its forms have the same."""
        self._count = next_count(self._count, now)
        self._state.counters.heartbeats_sent += 1
        return self._count

    def to_all(self, form: str, count: int, last_sn: int | None = None) -> bytes:
        """To all readers of a form; ``last_sn``: where others are packed behind it."""
        return self._encode(ENTITYID_UNKNOWN, form, count, 1, last_sn)

    def to_one(self, proxy: ReaderProxy, now: int) -> bytes:
        """To one reader, which begins where it joined, and has lost nothing that others still lack."""
        return self._encode(proxy.guid.entity, proxy.form, self.next(now), proxy.first_relevant, None)

    def _encode(self, reader_id: bytes, form: str, count: int, first_sn: int, last_sn: int | None) -> bytes:
        state, history, me = self._state, self._history, self._writer_id
        liveliness = self.asserts_liveliness
        last = state.sent_sn if last_sn is None else last_sn
        first = min(max(history.first_announced, first_sn), last + 1)
        if form == DATA:
            return Heartbeat(reader_id, me, first, last, count, liveliness=liveliness).encode()
        # What waits to be sent may have outlived its LIFESPAN already: the history then begins behind what is sent.
        last_batch = state.sent_batch_sn
        first_batch = min(history.first_batch_sn(first), last_batch + 1)
        return HeartbeatBatch(
            reader_id, me, first_batch, last_batch, first, last, count, liveliness=liveliness
        ).encode()
