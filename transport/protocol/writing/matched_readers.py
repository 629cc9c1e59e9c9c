"""The readers matched with a writer, and what they make of what all are sent (RTPS 2.5 §8.4.9.1).

Invariants: datagrams to all fit what the smallest reader takes; what is packed already goes to those it was packed for.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from ...qos import Qos
from ...structure import Guid
from ..endpoint_info import ReaderInfo
from ..outgoing import DATAGRAM_ROOM
from ..policies import BatchPolicy, BatchWire
from .batch_content import BATCH, DATA
from .changes import Framing
from .large_sample import fragment_size_for
from .reader_proxy import ReaderProxy
from .sender import Sender


class MatchedReaders:
    """The readers of one writer, whose datagrams have ``message_size`` bytes at most."""

    def __init__(
        self,
        writer: Guid,
        qos: Qos,
        batch: BatchPolicy,
        sender: Sender,
        message_size: int,
    ) -> None:
        self.proxies: dict[Guid, ReaderProxy] = {}
        self._writer = writer
        self._qos = qos
        self._policy = sender.policy
        self._batch = batch
        self._history = sender.history
        self._first_sn = sender.history.last_sn + 1
        self._broadcast = sender.broadcast
        self._message_size = message_size
        self._redirect()

    def add(self, info: ReaderInfo) -> ReaderProxy:
        """A reader is matched: where it begins is decided here."""
        reliable = self._is_reliable(info)
        sent_sn = self._history.sent_sn
        wants_history = reliable and info.transient_local and self._qos.is_transient_local
        proxy = ReaderProxy(
            info,
            reliable=reliable,
            first_relevant=self._first_sn if wants_history else sent_sn + 1,
            joined_sn=sent_sn,
            positive_acks=self._has_positive_acks(info),
            form=self._form_for(info),
        )
        self.proxies[info.guid] = proxy
        self._redirect()
        return proxy

    def update(self, info: ReaderInfo) -> bool:
        """What is told of a reader anew; False: it is none of these, or has to be matched again."""
        proxy = self.proxies.get(info.guid)
        if (
            proxy is None
            or proxy.reliable != self._is_reliable(info)
            or proxy.positive_acks != self._has_positive_acks(info)
        ):
            return False
        proxy.info, proxy.form = info, self._form_for(info)
        self._redirect()
        return True

    def remove(self, reader: Guid) -> ReaderProxy | None:
        proxy = self.proxies.pop(reader, None)
        if proxy is not None:
            self._redirect()
        return proxy

    def note_on_host(self, readers: Container[Guid]) -> bool:
        """Which of them read the publication log on this host; whether that changed."""
        changed = [each for each in self.proxies.values() if each.is_on_host != (each.guid in readers)]
        for each in changed:
            each.is_on_host = not each.is_on_host
        if changed:
            self._redirect()
        return bool(changed)

    def address_one(self, proxy: ReaderProxy) -> None:
        """What is sent from now on is for one alone."""
        self._address((proxy,))

    def address_all(self) -> None:
        """What is sent from now on is for all again."""
        self._address(self.proxies.values())

    def _redirect(self) -> None:
        """Who is matched, or how, changed."""
        self._address(self.proxies.values())
        budget = self._broadcast.message_size - DATAGRAM_ROOM
        #: What every one of them takes.
        self.framing = Framing(self._writer.entity, budget, fragment_size_for(budget), self._batch)

    def _address(self, proxies: Iterable[ReaderProxy]) -> None:
        sizes = [proxy.info.message_size_max for proxy in proxies]
        self._broadcast.redirect(proxies, min([self._message_size, *sizes]))

    def _is_reliable(self, info: ReaderInfo) -> bool:
        return self._qos.is_reliable and info.reliable

    def _has_positive_acks(self, info: ReaderInfo) -> bool:
        return not (self._policy.disable_positive_acks or info.no_positive_acks)

    def _form_for(self, info: ReaderInfo) -> str:
        """How a reader is sent batches."""
        if not (self._batch.batches and info.batches) or self._batch.wire is BatchWire.DATA:
            return DATA
        codec = self._batch.compression.value
        return codec if codec in info.codecs else BATCH
