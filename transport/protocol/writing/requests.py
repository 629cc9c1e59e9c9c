"""What readers ask for again, and when they are answered (RTPS 2.5 §8.4.9.2).

A request is answered at once, or after min_nack_response_delay with what was asked for meanwhile; while the writer's
data waits for tokens of a flow controller, not before it is gone.
"""

from __future__ import annotations

from collections.abc import Callable

from ...structure import Guid
from ..outgoing import Packer
from ..policies import WriterPolicy
from .heartbeats import Heartbeats
from .reader_proxy import ReaderProxy
from .repairs import Repairs


class Requests:
    """The readers of one writer whose request waits; answers are handed to ``send``."""

    def __init__(
        self, policy: WriterPolicy, repairs: Repairs, heartbeats: Heartbeats, send: Callable[[Packer], None]
    ) -> None:
        self._delay = policy.min_nack_response_delay
        self._repairs = repairs
        self._heartbeats = heartbeats
        self._send = send
        self._asking: dict[Guid, ReaderProxy] = {}

    def made(self, proxy: ReaderProxy, now: int, *, wait: bool) -> None:
        """The reader has asked for something; ``wait``: it is not to be answered yet."""
        if wait:
            proxy.answer_at = now
            self._asking[proxy.guid] = proxy
        elif not self._delay:
            self._answer(proxy, now)
        elif proxy.guid not in self._asking:
            proxy.answer_at = now + self._delay
            self._asking[proxy.guid] = proxy

    def forget(self, reader: Guid) -> None:
        self._asking.pop(reader, None)

    def get_timer(self) -> int | None:
        return min((proxy.answer_at for proxy in self._asking.values()), default=None)

    def handle_timer(self, now: int) -> None:
        for proxy in [proxy for proxy in self._asking.values() if proxy.answer_at <= now]:
            self._answer(proxy, now)

    def _answer(self, proxy: ReaderProxy, now: int) -> None:
        """The repairs, and a HEARTBEAT behind them, so that the reader says at once what it still lacks."""
        self._asking.pop(proxy.guid, None)
        answer = self._repairs.answer(proxy, now)
        if answer.packed or proxy.rejoins_at:
            answer.add(self._heartbeats.to_one(proxy, now))
            self._send(answer)
