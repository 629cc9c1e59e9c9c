"""What leaves a writer: published changes as far as flow control lets them, HEARTBEATs, answers (Aeron's sender).

Invariant: nothing that waits in ``publication.unsent`` is told of by a HEARTBEAT, or sent again.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...structure import INFINITE
from ...wire.framing import Block
from ..outgoing import Outgoing, Packer, union_of
from ..policies import WriterCounters, WriterPolicy
from .acknowledgments import Acknowledgments
from .broadcast import Broadcast
from .heartbeats import Heartbeats
from .history import Change, WriterHistory
from .publication import Publication
from .reader_proxy import ReaderProxy


class Sender:
    """The sending side of one writer."""

    def __init__(
        self,
        policy: WriterPolicy,
        counters: WriterCounters,
        history: WriterHistory,
        publication: Publication,
        acks: Acknowledgments,
        broadcast: Broadcast,
        heartbeats: Heartbeats,
        message_size: int,
    ) -> None:
        self.policy = policy
        self.counters = counters
        self.broadcast = broadcast
        #: Whether what is sent waits for tokens of a flow controller, and how many bytes do.
        self.is_asynchronous = False
        self.backlog = 0
        #: First and last number of the newest coherent set: it is sent whole, for nothing of it is consumed before.
        self.newest_set = (1, 0)
        self.history = history
        self.publication = publication
        self._positions = publication.positions
        self.acks = acks
        self._window = acks.window
        #: Readers that have to acknowledge what is written.
        self._active = acks.activity.active
        self._heartbeats = heartbeats
        self._message_size = message_size
        #: The last limit that stopped it.
        self._met = -1
        self._out: list[Outgoing] = []

    @property
    def is_congested(self) -> bool:
        """What is sent now would wait, and be asked for again meanwhile: no HEARTBEATs then, and no repairs."""
        return self.is_asynchronous and self.backlog > 0

    # --- what is published -----------------------------------------------------------------------

    def published(self, change: Change) -> None:
        """It is to be sent."""
        if self.acks.keeps:
            self.history.append(change)
        if self._active:
            self._window.add(change)
        self.history.last_sn = change.last_sn
        self.counters.written_bytes += change.nbytes

    def transmit(self, now: int) -> None:
        """Send what is published, as far as it may go."""
        publication, pacing = self.publication, self.acks.pacing
        unsent = publication.unsent
        while unsent and not unsent[0].is_claimed:
            change = unsent[0]
            if change.position > pacing.limit and not self._is_in_newest_set(change):
                # What is larger than the whole window goes alone.
                alone = pacing.has_consumed(self._positions.snd_pos)
                if not publication.divide(pacing.limit, at_least=alone) and not alone:
                    self._note_limit(pacing.limit)
                    break
                change = unsent[0]
            publication.sent(change)
            self.acks.schedule.sent(now)
            if not self.history.is_over(change):
                self._send(change, now)
        publication.settle()
        publication.conduct()
        self._positions.on_limit(self._limit_to_show())

    def _note_limit(self, limit: int) -> None:
        """There is more to send; each limit is counted once."""
        if limit != self._met:
            self._met = limit
            self._positions.back_pressured()
            self.counters.flow_control_limits += 1

    def _limit_to_show(self) -> int:
        """``snd_lmt``; without status messages it is what the send window lets in."""
        limit = self.acks.pacing.limit
        if limit < INFINITE:
            return limit
        free = self.policy.send_window_bytes - self._window.nbytes if self._active else 0
        return self._positions.pub_pos + max(0, free)

    def _is_in_newest_set(self, change: Change) -> bool:
        first, last = self.newest_set
        return first <= change.first_sn <= last

    def _send(self, change: Change, now: int) -> None:
        """Queue a change's first and only sending to all; HEARTBEATs ride along where they are due."""
        if not self.broadcast.has_readers:
            return
        if self.is_asynchronous:
            self.backlog += change.nbytes
        if not isinstance(change.content, Block):
            self.broadcast.samples(change, change.first_sn, change.last_sn)
            self._sent(change.units, change.nbytes, change.last_sn, now)
            return
        first = change.first_sn
        while first <= change.last_sn:
            last = min(change.last_sn, first + self._window.until_heartbeat - 1)
            self.broadcast.samples(change, first, last)
            nbytes = change.content.end_of(last) - change.content.end_of(first - 1)
            self._sent(last - first + 1, nbytes, last, now)
            first = last + 1

    def _sent(self, count: int, nbytes: int, last_sn: int, now: int) -> None:
        if self._window.sent(count, nbytes) and self.acks.readers:
            self.piggyback(now, last_sn)

    # --- heartbeats ------------------------------------------------------------------------------

    def piggyback(self, now: int, last_sn: int | None = None) -> None:
        """A HEARTBEAT to all readers, behind the data queued so far."""
        count = self._heartbeats.next(now)
        self.broadcast.heartbeat(lambda form: self._heartbeats.to_all(form, count, last_sn))
        self._window.announced()
        self.acks.schedule.all_told(self.history.sent_sn, now)

    def request_acknowledgment(self, now: int) -> None:
        """Ask every reader that is behind to acknowledge, now."""
        if self.acks.schedule.waiting:
            self.piggyback(now)

    def heartbeat(self, readers: Iterable[ReaderProxy], now: int) -> None:
        """One HEARTBEAT to those readers."""
        due = list(readers)
        if len(due) == 1:
            packer = Packer(self._message_size, due[0].info.destinations, due[0].guid.prefix)
            packer.add(self._heartbeats.to_one(due[0], now))
            self.queue(packer)
        elif due:
            count = self._heartbeats.next(now)
            for form in dict.fromkeys(proxy.form for proxy in due):
                destinations = [proxy.info.destinations for proxy in due if proxy.form == form]
                packer = Packer(self._message_size, union_of(destinations), None)
                packer.add(self._heartbeats.to_all(form, count))
                self.queue(packer)

    def assert_liveliness(self, now: int) -> None:
        """Tell all readers that this MANUAL_BY_TOPIC writer lives, by a HEARTBEAT (RTPS 2.5 §8.3.8.6)."""
        self._heartbeats.asserts_liveliness = True
        self.piggyback(now)
        self._heartbeats.asserts_liveliness = False

    # --- out -------------------------------------------------------------------------------------

    def answer(self, proxy: ReaderProxy, submessage: bytes) -> None:
        """Say something to one reader."""
        packer = Packer(self._message_size, proxy.info.destinations, proxy.guid.prefix)
        packer.add(submessage)
        self.queue(packer)

    def queue(self, packer: Packer) -> None:
        """To be sent with the rest."""
        if packer.destinations:
            self._out += packer.packed

    def outgoing(self) -> list[Outgoing]:
        """What to send now."""
        out, self._out = self._out, []
        self.publication.handed_over()
        return out + self.broadcast.take()
