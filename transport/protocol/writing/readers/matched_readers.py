"""The readers matched with a writer, and how samples for all of them are framed (RTPS 2.5 §8.4.9.1).

Invariants: a datagram to all readers is no larger than each of them accepts; a datagram that is packed already goes to
the readers that it was packed for.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Protocol

from ....structure import Guid
from ...endpoint_info import ReaderInfo
from ...outgoing import DATAGRAM_ROOM
from ...policies import BatchWire
from ..changes import BATCH, DATA, Framing, fragment_size_for
from ..state import WriterState
from .reader_proxy import ReaderProxy


class Redirect(Protocol):
    """See `Broadcast.redirect`."""

    def __call__(
        self, readers: Iterable[ReaderProxy], message_size: int, *, all_of_them: bool = True
    ) -> None: ...


class MatchedReaders:
    """The readers of one writer."""

    def __init__(
        self,
        state: WriterState,
        redirect: Redirect,
    ) -> None:
        """``redirect`` gets the readers to send to, and the largest datagram in bytes that all of them accept."""
        self.proxies: dict[Guid, ReaderProxy] = {}
        self._state = state
        self._qos = state.qos
        self._batch = state.batch
        self._first_sn = state.last_sn + 1
        self._send_to = redirect
        #: Bytes of a datagram that every reader accepts.
        self._size = 0
        self._redirect()

    def add_reader(self, info: ReaderInfo) -> ReaderProxy:
        """Match a reader, and decide at which number it begins."""
        reliable = self._is_reliable(info)
        sent_sn = self._state.sent_sn
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
        self._take_in(min(self._size, info.message_size_max))
        return proxy

    def update(self, info: ReaderInfo) -> bool:
        """Take what discovery announces of a reader; False if it is not matched yet, or must be matched again."""
        proxy = self.proxies.get(info.guid)
        if (
            proxy is None
            or proxy.reliable != self._is_reliable(info)
            or proxy.positive_acks != self._has_positive_acks(info)
        ):
            return False
        proxy.info, proxy.best_form = info, self._form_for(info)
        proxy.form, proxy.group = proxy.best_form, None
        self._redirect()
        return True

    def remove_reader(self, reader: Guid) -> ReaderProxy | None:
        proxy = self.proxies.pop(reader, None)
        if proxy is not None and proxy.info.message_size_max <= self._size:
            self._redirect()
        elif proxy is not None:
            self._take_in(self._size)
        return proxy

    @property
    def mistake_keys(self) -> bool:
        """Whether some reader mistakes a short serialized key for the key hash."""
        return any(proxy.info.mistakes_keys for proxy in self.proxies.values())

    def regroup(self) -> None:
        """Have group or unicast chosen again for all readers."""
        self._send_to(self.proxies.values(), self._size)

    def note_on_host(self, readers: Container[Guid]) -> bool:
        """Note which readers read the publication log on this host; returns whether that changed."""
        changed = [each for each in self.proxies.values() if each.is_on_host != (each.guid in readers)]
        for each in changed:
            each.is_on_host = not each.is_on_host
        if changed:
            self._redirect()
        return bool(changed)

    def address_one(self, proxy: ReaderProxy) -> None:
        """Send to one reader alone from now on."""
        size = min(self._state.message_size, proxy.info.message_size_max)
        self._send_to((proxy,), size, all_of_them=False)

    def address_all(self) -> None:
        """Send to all readers again from now on."""
        self.regroup()

    def _redirect(self) -> None:
        """Compute the datagram size anew: the matched readers, or the sizes they accept, changed."""
        sizes = (proxy.info.message_size_max for proxy in self.proxies.values())
        self._take_in(min([self._state.message_size, *sizes]))

    def _take_in(self, size: int) -> None:
        """The matched readers changed, and all accept datagrams of this size."""
        if size != self._size:
            self._size, budget = size, size - DATAGRAM_ROOM
            #: How samples are framed so that every reader accepts them.
            self.framing = Framing(self._state.guid.entity, budget, fragment_size_for(budget), self._batch)
        self._send_to(self.proxies.values(), size)

    def _is_reliable(self, info: ReaderInfo) -> bool:
        return self._qos.is_reliable and info.reliable

    def _has_positive_acks(self, info: ReaderInfo) -> bool:
        return not (self._state.policy.disable_positive_acks or info.no_positive_acks)

    def _form_for(self, info: ReaderInfo) -> str:
        """The form in which a reader gets batches."""
        if not (self._batch.batches and info.batches) or self._batch.wire is BatchWire.DATA:
            return DATA
        codec = self._batch.compression.value
        return codec if codec in info.codecs else BATCH
