"""Fragments of large samples as they arrive, and the samples that they complete (:mod:`.ordering.reassembly`).

The invariants are those of :mod:`.reader`.
"""

from __future__ import annotations

from ...limits import FRAGMENTED_SAMPLE_MAX, UDP_PAYLOAD_MAX
from ...wire.fragment_ranges import FragmentRange, ReservedFrames
from ...wire.samples import U8, Run
from ...wire.submessages import DataFrag
from ..policies import ReaderCounters
from .arrivals import Arrivals
from .ordering.delivery import Delivery
from .ordering.writer_proxy import WriterProxy
from .response.responder import Responder


class FragmentArrivals:
    """The fragments from all writers of one reader."""

    __slots__ = ("_arrivals", "_counters", "_delivery", "_reassembly", "_responder", "placed")

    def __init__(
        self,
        counters: ReaderCounters,
        delivery: Delivery,
        arrivals: Arrivals,
        responder: Responder,
    ) -> None:
        #: The last ready samples in the owner's memory; no other samples are ready before them.
        self.placed: Run | None = None
        self._counters = counters
        self._delivery = delivery
        self._reassembly = delivery.reassembly
        self._arrivals = arrivals
        self._responder = responder

    def put_together_at(self, places: ReservedFrames) -> None:
        """Reassemble samples in the owner's memory (``places``), as long as no others become ready before them."""

        def place(nbytes: int, count: int) -> U8 | None:
            ready = self._delivery.ready
            return places(nbytes, count) if not ready or ready[-1] is self.placed else None

        self._reassembly.places = place

    def accept(self, proxy: WriterProxy, frag: DataFrag, timestamp: int, now: int) -> None:
        """Accept fragments of one sample."""
        delivery = self._delivery
        self._counters.fragments += frag.fragments
        if proxy.resting:
            delivery.pass_by(proxy, frag.sn)
            return
        if not proxy.synced:
            if not proxy.reliable and frag.first_fragment > 1:
                return  # its first fragments were sent before the match, and will not come
            self._arrivals.sync(proxy, frag.sn)
        if frag.sn < proxy.expected or frag.sn in proxy.held:
            self._counters.duplicate_fragments += frag.fragments
            return
        if frag.sample_size > min(delivery.sample_size_max, FRAGMENTED_SAMPLE_MAX):
            self._arrivals.pass_oversized(proxy, frag.sn, now)
            return
        completed = self._reassembly.add_fragments(proxy, frag, timestamp, now)
        longest = max(map(len, frag.payloads))
        proxy.stream.datagram = max(proxy.stream.datagram, min(longest, UDP_PAYLOAD_MAX))
        if completed is not None:
            run, in_place = completed
            if in_place and delivery.is_next(proxy, run):
                self.placed = run
            elif in_place:  # the sample may have to wait, and the owner needs the memory
                run = run.copy()
            self._arrivals.accept(proxy, run, now, owned=True)
        elif proxy.reliable and proxy.synced and frag.sn in proxy.fragments:
            self._responder.on_fragment(proxy, frag.sn, now)

    def takes_whole(self, proxy: WriterProxy, range_: FragmentRange) -> bool:
        """Whether a range holds whole samples that are the next ones in order, and no other rule applies."""
        return range_.is_whole and self._delivery.takes_next(proxy, range_.first_sn, range_.nbytes)

    def accept_range(self, proxy: WriterProxy, range_: FragmentRange, now: int) -> None:
        """Accept consecutive fragments, together if the result is the same."""
        if self.takes_whole(proxy, range_):
            self._arrivals.hand_out(proxy, (self._join(range_),), now)
            self._counters.fragments += range_.fragments
            proxy.stream.datagram = max(proxy.stream.datagram, range_.longest)
            return
        if proxy.synced and not range_.is_whole:
            frags = range_.together()
            if self._reassembly.takes_together(proxy, frags):
                if frags.sample_size <= min(self._delivery.sample_size_max, FRAGMENTED_SAMPLE_MAX):
                    self.accept(proxy, frags, range_.timestamp, now)
                    return
        for frag, timestamp in range_.apart():
            self.accept(proxy, frag, timestamp, now)

    def _join(self, range_: FragmentRange) -> Run:
        """Join the whole samples of a range, which is handed out next."""
        place = self._reassembly.place(range_.nbytes, range_.count)
        run = range_.run(place)
        if place is not None:
            self.placed = run
        return run
