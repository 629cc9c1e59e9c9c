"""Reports of readers to a writer: what they acknowledge, request and consume (RTPS 2.5 §8.3.8.1, §8.4.9.2).

Three kinds of reports are counted and dropped: those of readers that are not matched or not reliable, those that were
seen before, and those about numbers that were never sent. No reader can have such numbers: the report is forged, or
meant for an earlier life of the writer, or somebody else misled the reader. A HEARTBEAT answers it and corrects an
honest reader. A reader that reads the publication log on this host may be ahead of what was sent.

The cost of answers is bounded, however much is requested: repairs by :mod:`.readers.repeated_repairs`, HEARTBEATs by
:mod:`.repair.requests`, and answers to measurements to one in ``RTT_ANSWER_MIN``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from ...structure import Guid
from ...wire.status_messages import RttMeasurement, StatusMessage
from ...wire.submessages import AckNack, AckNackBatch, NackFrag
from ..counts import CountFilter
from .publication import UnsentChanges, WriterHistory
from .readers import Acknowledgments, MatchedReaders, Missing, ReaderProxy
from .repair import Requests
from .sending import Sender
from .state import WriterState

#: Nanoseconds between two measurements of one reader that are answered; our readers measure ten times a second.
RTT_ANSWER_MIN: Final = 5_000_000


class Feedback:
    """Passes reports of the reliable readers of one writer to the stages that they concern."""

    def __init__(
        self,
        state: WriterState,
        history: WriterHistory,
        unsent: UnsentChanges,
        readers: MatchedReaders,
        acks: Acknowledgments,
        requests: Requests,
        sender: Sender,
    ) -> None:
        self._state = state
        self._counters = state.counters
        self._history = history
        self._unsent = unsent
        self._positions = unsent.positions
        self._readers = readers
        self._acks = acks
        self._reliable = acks.readers
        self._pacing = acks.pacing
        self._window = acks.window
        self._requests = requests
        self._sender = sender

    # --- reports ---------------------------------------------------------------------------------

    def on_acknack(self, reader: Guid, acknack: AckNack, *, now: int) -> None:
        """A reader acknowledges samples, and requests others."""
        self._state.touch()
        proxy = self._reader(reader)
        if proxy is None or not self._was_sent(proxy, acknack.missing.base - 1, now):
            return
        if self._is_new(proxy.counts.acknack, acknack.count, now):
            self._on_acknack(proxy, acknack.missing, now, final=acknack.final)

    def on_acknack_batch(self, reader: Guid, acknack: AckNackBatch, *, now: int) -> None:
        """A reader acknowledges batches, and requests others."""
        self._state.touch()
        proxy = self._reader(reader)
        if proxy is None or not self._was_sent(proxy, acknack.missing.base - 1, now, batches=True):
            return
        if self._is_new(proxy.counts.acknack_batch, acknack.count, now):
            missing = self._history.held_batches.missing_samples(acknack.missing, proxy.acked)
            self._on_acknack(proxy, missing, now, final=acknack.final)

    def _on_acknack(self, proxy: ReaderProxy, missing: Missing, now: int, *, final: bool) -> None:
        self._counters.acknacks += 1
        self._acks.on_acknack(proxy, missing, now, final=final)
        leaves_group = proxy.is_deaf and proxy.group is not None
        if leaves_group or (proxy.info.multicast and proxy.acknacks_received == 1):
            self._readers.regroup()
        self.progress(now)
        proxy.repairs.requested.add_missing(missing)
        if not missing.is_empty:
            self._counters.nacks_received += 1
            self._lacks(proxy, missing.ranges()[-1][1], now)
        elif not final:
            self._requests.heartbeat(proxy, now)

    def on_nack_frag(self, reader: Guid, nack: NackFrag, *, now: int) -> None:
        """A reader requests fragments of one sample (RTPS 2.5 §8.3.8.10)."""
        self._state.touch()
        proxy = self._reader(reader)
        if proxy is None or not self._was_sent(proxy, nack.sn, now):
            return
        if not self._is_new(proxy.counts.nack_frag, nack.count, now):
            return
        self._counters.nack_frags += 1
        if nack.sn >= 1 and not nack.missing.is_empty:
            proxy.repairs.requested.add_fragments(nack.sn, nack.missing)
            self._lacks(proxy, nack.sn, now)

    def _lacks(self, proxy: ReaderProxy, sn: int, now: int) -> None:
        """The reader has requested samples up to ``sn``."""
        self._acks.on_loss(proxy, sn, now)
        self.expire(now)
        self._requests.made(proxy, now)

    def on_status_message(self, reader: Guid, message: StatusMessage, *, now: int) -> None:
        """A reader of ours reports how far it has consumed, and how many more bytes it can take."""
        self._state.touch()
        proxy = self._reader(reader)
        if proxy is None or not self._was_sent(proxy, message.consumption_sn, now):
            return
        if self._is_new(proxy.counts.status_message, message.count, now):
            self._counters.status_messages_received += 1
            self._acks.on_status(proxy, message, now)
            self.progress(now)

    def on_rtt_measurement(self, reader: Guid, message: RttMeasurement, *, now: int) -> None:
        """Answer a reader that measures the round trip time, or asks whether other readers wait for it."""
        self._state.touch()
        proxy = self._reader(reader)
        if proxy is not None and not message.reply and now >= proxy.measured_at + RTT_ANSWER_MIN:
            proxy.measured_at = now
            reply = replace(message, reply=True, reception_delta=0, others_wait=self._others_wait_for(proxy))
            self._sender.send_to_reader(proxy, reply.encode())

    def on_log_positions(self, readers: Mapping[Guid, int], spies: Iterable[int], *, now: int) -> None:
        """Note how far matched readers on this host, and spies, have read the publication log.

        Such readers are sent nothing that lies in the log. Spies hold the publisher back, and simulate a connection if
        the policy has spies_simulate_connection.
        """
        self._state.touch()
        if self._readers.note_on_host(readers):
            self._pacing.begin_anew()
        window = self._unsent.log_window
        for guid, position in readers.items():
            if (proxy := self._reliable.get(guid)) is not None:
                self._pacing.on_position(proxy, position, window)
        self._unsent.spies = list(spies)
        self._pacing.update()
        self.progress(now)

    # --- effects ---------------------------------------------------------------------------------

    def progress(self, now: int) -> None:
        """Send what acknowledgements, or readers that were given up, have made room for."""
        for proxy in self._acks.take_dropped():
            self._requests.forget_reader(proxy.guid)
            self._sender.heartbeats.send_to((proxy,), now)
        # If the queue is empty and yet sent_sn is behind, an exception came between the two.
        if self._unsent.queue or self._state.sent_sn < self._state.last_sn:
            self._sender.transmit(now)
        self.connect()

    def connect(self) -> None:
        """Note whether the publication is connected: flow control has the readers that it wants, or a spy counts."""
        pacing = self._pacing
        simulated = self._unsent.spies and pacing.policy.spies_simulate_connection
        if simulated or (self._readers.proxies and pacing.is_connected):
            self._positions.connect()
        else:
            self._positions.disconnect()
        self._unsent.conduct()

    def expire(self, now: int) -> None:
        """Drop samples whose LIFESPAN is over: they are neither sent again nor waited for."""
        try:
            if over := self._history.expire(now):
                self._counters.expired_samples += over
                self._window.acknowledge(self._history.first_sn - 1)
        except BaseException:
            self._acks.settle()
            raise

    # --- inside ----------------------------------------------------------------------------------

    def _others_wait_for(self, proxy: ReaderProxy) -> bool:
        """Whether the writer has more, and others that have consumed all they were sent would take it."""
        if not (self._unsent.queue or self._state.blocked_by):
            return False
        others = self._readers.proxies.values()
        return (
            any(not each.reliable for each in others)
            or self._pacing.is_behind(proxy, self._positions.snd_pos)
            or any(spy >= self._positions.snd_pos for spy in self._unsent.spies)
        )

    def _reader(self, guid: Guid) -> ReaderProxy | None:
        proxy = self._reliable.get(guid)
        self._counters.unknown_reader += proxy is None
        return proxy

    def _was_sent(self, proxy: ReaderProxy, last: int, now: int, *, batches: bool = False) -> bool:
        """Whether the number ``last``, of a sample or a batch, was sent; if not, answer the reader with a HEARTBEAT."""
        state = self._state
        if self._unsent.log is not None:
            newest = state.last_batch_sn if batches else state.last_sn
        else:
            newest = state.sent_batch_sn if batches else state.sent_sn
        if last > newest:
            self._counters.unsent_acknowledged += 1
            self._requests.heartbeat(proxy, now)
        return last <= newest

    def _is_new(self, counts: CountFilter, count: int, now: int) -> bool:
        accepted = counts.accept(count, now)
        self._counters.stale_counts += not accepted
        return accepted
