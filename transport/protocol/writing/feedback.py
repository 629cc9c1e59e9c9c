"""What readers tell a writer: acknowledged, requested, consumed; and what follows (RTPS 2.5 §8.3.8.1, §8.4.9.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...structure import Guid
from ...wire.status_messages import RttMeasurement, StatusMessage
from ...wire.submessages import AckNack, AckNackBatch, NackFrag
from ..counts import CountFilter
from .reader_proxy import Missing, ReaderProxy
from .requests import Requests
from .sender import Sender


class Feedback:
    """Of the reliable readers of one writer; ``readers`` are all that are matched."""

    def __init__(
        self,
        readers: Mapping[Guid, ReaderProxy],
        requests: Requests,
        sender: Sender,
    ) -> None:
        self._readers = readers
        self._requests = requests
        self._sender = sender
        self._counters = sender.counters
        self._history = sender.history
        self._publication = sender.publication
        self._acks = sender.acks

    # --- what they say ---------------------------------------------------------------------------

    def on_acknack(self, reader: Guid, acknack: AckNack, now: int) -> None:
        proxy = self._reader(reader)
        if proxy is not None and self._is_new(proxy.acknacks, acknack.count, now):
            self._on_acknack(proxy, acknack.missing, now, final=acknack.final)

    def on_acknack_batch(self, reader: Guid, acknack: AckNackBatch, now: int) -> None:
        proxy = self._reader(reader)
        if proxy is not None and self._is_new(proxy.batch_acknacks, acknack.count, now):
            missing = self._history.samples_of(acknack.missing, proxy.acked)
            self._on_acknack(proxy, missing, now, final=acknack.final)

    def _on_acknack(self, proxy: ReaderProxy, missing: Missing, now: int, *, final: bool) -> None:
        self._counters.acknacks += 1
        self._acks.on_acknack(proxy, missing, now, final=final)
        self.progress(now)
        proxy.requested.add(missing)
        if not missing.is_empty:
            self._counters.nacks_received += 1
            self._lacks(proxy, missing.ranges()[-1][1], now)
        elif not final:
            self._sender.heartbeat((proxy,), now)

    def on_nack_frag(self, reader: Guid, nack: NackFrag, now: int) -> None:
        proxy = self._reader(reader)
        if proxy is None or not self._is_new(proxy.nack_frags, nack.count, now):
            return
        self._counters.nack_frags += 1
        if 1 <= nack.sn <= self._history.last_sn and not nack.missing.is_empty:
            proxy.requested.add_fragments(nack.sn, nack.missing)
            self._lacks(proxy, nack.sn, now)

    def _lacks(self, proxy: ReaderProxy, sn: int, now: int) -> None:
        """It has asked for something, up to ``sn``."""
        self._acks.on_loss(proxy, sn, now)
        self.expire(now)
        self._requests.made(proxy, now, wait=self._sender.is_congested)

    def on_status_message(self, reader: Guid, message: StatusMessage, now: int) -> None:
        proxy = self._reader(reader)
        if proxy is not None and self._is_new(proxy.statuses, message.count, now):
            self._counters.status_messages_received += 1
            self._acks.on_status(proxy, message, now)
            self.progress(now)

    def on_rtt_measurement(self, reader: Guid, message: RttMeasurement) -> None:
        if (proxy := self._reader(reader)) is not None and not message.reply:
            self._sender.answer(proxy, replace(message, reply=True, reception_delta=0).encode())

    def on_log_positions(self, readers: Mapping[Guid, int], spies: Iterable[int], now: int) -> None:
        window = self._publication.positions.term_window
        for guid, position in readers.items():
            if (proxy := self._readers.get(guid)) is not None:
                self._acks.pacing.on_position(proxy, position, window)
        self._publication.spies = list(spies)
        self._acks.pacing.update()
        self.progress(now)

    # --- what follows ----------------------------------------------------------------------------

    def progress(self, now: int) -> None:
        """Acknowledgements, or their absence, may let more be sent."""
        for proxy in self._acks.take_dropped():
            self._requests.forget(proxy.guid)
            self._sender.heartbeat((proxy,), now)
        if self._publication.unsent:
            self._sender.transmit(now)
        self.connect()

    def connect(self) -> None:
        """See who is there: readers as flow control wants them, or spies."""
        pacing, positions = self._acks.pacing, self._publication.positions
        simulated = self._publication.spies and pacing.policy.spies_simulate_connection
        if simulated or (self._readers and pacing.is_connected):
            positions.connect()
        else:
            positions.disconnect()
        self._publication.conduct()

    def expire(self, now: int) -> None:
        """Nobody is sent again, or waited for to have, what has outlived its LIFESPAN."""
        if over := self._history.expire(now):
            self._counters.expired_samples += over
            self._acks.window.acknowledge(self._history.first_sn - 1)

    # --- inside ----------------------------------------------------------------------------------

    def _reader(self, guid: Guid) -> ReaderProxy | None:
        proxy = self._acks.readers.get(guid)
        self._counters.unknown_reader += proxy is None
        return proxy

    def _is_new(self, counts: CountFilter, count: int, now: int) -> bool:
        accepted = counts.accept(count, now)
        self._counters.stale_counts += not accepted
        return accepted
