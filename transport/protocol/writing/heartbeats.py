"""HEARTBEATs and HEARTBEAT_BATCHes of one writer: what they say of its history (RTPS 2.5 §8.3.8.6)."""

from __future__ import annotations

from ...structure import ENTITYID_UNKNOWN
from ...wire.submessages import Heartbeat, HeartbeatBatch
from ..counts import next_count
from ..policies import WriterCounters
from .batch_content import DATA
from .history import WriterHistory
from .reader_proxy import ReaderProxy


class Heartbeats:
    """Makes them, numbered; who is sent one, and when, is the :mod:`.writer`'s."""

    def __init__(self, writer_id: bytes, history: WriterHistory, counters: WriterCounters) -> None:
        self._writer_id = writer_id
        self._history = history
        self._counters = counters
        self._count = 0
        #: Whether the next ones also say that the writer lives.
        self.asserts_liveliness = False

    def next(self, now: int) -> int:
        """The count of one more; the forms of one HEARTBEAT have the same."""
        self._count = next_count(self._count, now)
        self._counters.heartbeats_sent += 1
        return self._count

    def to_all(self, form: str, count: int, last_sn: int | None = None) -> bytes:
        """To all readers of a form; ``last_sn``: where others are packed behind it."""
        return self._encode(ENTITYID_UNKNOWN, form, count, 1, last_sn)

    def to_one(self, proxy: ReaderProxy, now: int) -> bytes:
        """To one reader, which begins where it joined, and has lost nothing that others still lack."""
        return self._encode(proxy.guid.entity, proxy.form, self.next(now), proxy.first_relevant, None)

    def _encode(self, reader_id: bytes, form: str, count: int, first_sn: int, last_sn: int | None) -> bytes:
        history, me, liveliness = self._history, self._writer_id, self.asserts_liveliness
        last = history.sent_sn if last_sn is None else last_sn
        first = min(max(history.first_announced, first_sn), last + 1)
        if form == DATA:
            return Heartbeat(reader_id, me, first, last, count, liveliness=liveliness).encode()
        batches = history.first_batch_sn(first), history.sent_batch_sn
        return HeartbeatBatch(reader_id, me, *batches, first, last, count, liveliness=liveliness).encode()
