"""The readers whose requests for repairs wait, and when they are answered (RTPS 2.5 §8.4.9.2).

The state machine of each reader (:mod:`..readers.reader_repairs`) decides when it is answered. Readers of a multicast
group that request the same are answered together (:mod:`.shared_requests`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....structure import Guid
from ...outgoing import Packer
from ..readers import ReaderProxy
from ..sending import Heartbeats
from ..state import WriterState
from .repairs import Repairs
from .shared_requests import SharedRequests


class Requests:
    """The readers of one writer whose requests wait; answers are passed to ``send``."""

    def __init__(
        self,
        state: WriterState,
        readers: Mapping[Guid, ReaderProxy],
        repairs: Repairs,
        heartbeats: Heartbeats,
        send: Callable[[Packer], None],
    ) -> None:
        """``readers`` are all matched readers."""
        self._state = state
        self._delay = state.policy.min_nack_response_delay
        self._readers = readers
        self._shared = SharedRequests(state.policy)
        self._repairs = repairs
        self._heartbeats = heartbeats
        self._send = send
        self._asking: dict[Guid, ReaderProxy] = {}

    def made(self, proxy: ReaderProxy, now: int) -> None:
        """The reader has requested something."""
        alone, congested = proxy.group is None, self._state.is_congested
        if proxy.repairs.asks(now, delay=self._delay, congested=congested, alone=alone):
            self._answer(proxy, now)
        else:
            self._asking[proxy.guid] = proxy

    def heartbeat(self, proxy: ReaderProxy, now: int) -> None:
        """The reader asks for a HEARTBEAT and nothing else."""
        if not proxy.repairs.asks_heartbeat(now):
            self._asking[proxy.guid] = proxy
            return
        packer = Packer(self._state.message_size, proxy.info.destinations, proxy.guid.prefix)
        packer.add_submessage(self._heartbeats.to_one(proxy, now))
        self._send(packer)

    def forget_reader(self, reader: Guid) -> None:
        """The reader left, or rejoins."""
        if (proxy := self._asking.pop(reader, None)) is not None:
            proxy.repairs.gone()

    def get_timer(self) -> int | None:
        return min((proxy.repairs.due_at for proxy in self._asking.values()), default=None)

    def handle_timer(self, now: int) -> None:
        due = [proxy for proxy in self._asking.values() if proxy.repairs.due_at <= now]
        for group in self._shared.shared(self._readers.values(), due, now):
            answer = self._repairs.answer_requests(group, now)
            if answer.packed:
                answer.add_submessage(self._heartbeats.to_all(group.form, self._heartbeats.next(now)))
                self._send(answer)
        for proxy in due:
            self._answer(proxy, now)

    def _answer(self, proxy: ReaderProxy, now: int) -> None:
        """Send the repairs with a HEARTBEAT behind them, so that the reader reports at once what it still lacks."""
        self._asking.pop(proxy.guid, None)
        answer = self._repairs.answer_requests(proxy, now)
        owed = proxy.repairs.take_heartbeat(now)
        if answer.packed or proxy.rejoins_at or owed:
            answer.add_submessage(self._heartbeats.to_one(proxy, now))
            self._send(answer)
            proxy.repairs.wants_heartbeat = False
        elif proxy.repairs.wants_heartbeat:
            proxy.repairs.asks_heartbeat(now)
            self._asking[proxy.guid] = proxy
