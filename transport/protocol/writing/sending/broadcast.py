"""First sendings: datagrams to all readers of a writer, in the form that each reader accepts.

There is one stream of datagrams for each form that a matched reader accepts: DATA, which all readers read, DATA_BATCH
for readers that announce that they read it, and compressed DATA_BATCH for readers that know the codec. Each stream has
all changes in order. Readers on this host that read the publication log have streams of their own, without the changes
that lie in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ....structure import Locator
from ....value_classes import value
from ....wire.compressed import compress, compress_series
from ....wire.submessages import Data, DataFrag, InfoTimestamp
from ...outgoing import Outgoing
from ...policies import BatchPolicy, Compression
from ..changes import BATCH, DATA, Change, StreamPacker
from ..readers import ReaderProxy, destinations_of, regroup

#: Form, and whether its readers read the publication log.
_Stream = tuple[str, bool]
#: Submessages that are compressed together.
_IN_SERIES: Final = (Data.KIND, InfoTimestamp.KIND)


@value
class Compressor:
    """The codec with which a writer compresses samples."""

    codec: str
    level: int | None
    #: Samples of fewer bytes are not compressed.
    threshold: int

    @classmethod
    def for_policy(cls, policy: BatchPolicy) -> Compressor | None:
        """The compressor that a policy asks for; None if it asks for none."""
        if policy.data_compression is Compression.NONE:
            return None
        return cls(policy.data_compression.value, policy.compression_level, policy.compression_threshold)

    def compressed(self, outgoing: Outgoing) -> Outgoing:
        """The datagram with its leading samples in one COMPRESSED submessage, or unchanged if that is not smaller."""
        if outgoing.segment:  # whole messages from the publication log, which are sent unchanged
            return outgoing
        buffers = outgoing.submessages
        if buffers[0][0] == DataFrag.KIND:
            count = 2  # its head, and its payload
        else:
            count = next((i for i, each in enumerate(buffers) if each[0] not in _IN_SERIES), len(buffers))
        samples = b"".join(map(bytes, buffers[:count]))
        if not samples or len(samples) < self.threshold:
            return outgoing
        pack = compress if buffers[0][0] == DataFrag.KIND else compress_series
        packed = pack(samples, self.codec, self.level)
        if packed is None:
            return outgoing
        return Outgoing(
            outgoing.destinations,
            outgoing.dest_prefix,
            outgoing.timestamp,
            [packed, *buffers[count:]],
            shareable=False,
        )


class Broadcast:
    """The open datagrams to all readers; with ``coalescing``, samples share datagrams where they fit.

    ``compressor`` compresses samples outside of batches, where all readers of a stream of DATA know its codec.
    """

    def __init__(
        self, writer_id: bytes, message_size: int, *, coalescing: bool, compressor: Compressor | None = None
    ) -> None:
        self.message_size = message_size
        self._compressor = compressor
        #: Whether all readers of a stream know the compressor's codec; cleared when the readers change.
        self._is_known: dict[_Stream, bool] = {}
        self._writer_id = writer_id
        self.coalesces = coalescing
        self._readers: Iterable[ReaderProxy] = ()
        #: Destinations of each stream; None after the readers changed, until something is sent.
        self._known_destinations: dict[_Stream, tuple[Locator, ...]] | None = None
        self._goes_to_all = True
        self._is_multicast = False
        self._open: dict[_Stream, StreamPacker] = {}
        self._closed: list[Outgoing] = []

    @property
    def _destinations(self) -> dict[_Stream, tuple[Locator, ...]]:
        known = self._known_destinations
        if known is None:
            if self._goes_to_all:
                self._is_multicast = regroup(self._readers)
            streams: dict[_Stream, list[ReaderProxy]] = {}
            for proxy in self._readers:
                streams.setdefault((proxy.form, proxy.is_on_host), []).append(proxy)
            known = {stream: destinations_of(readers) for stream, readers in streams.items()}
            self._known_destinations = known
        return known

    @property
    def reaches_groups(self) -> bool:
        """Whether some readers get samples by a multicast group."""
        return bool(self._destinations) and self._is_multicast

    @property
    def has_readers(self) -> bool:
        return bool(self._destinations)

    @property
    def wants_batches(self) -> bool:
        """Whether some reader accepts more than DATA."""
        return any(form != DATA for form, _ in self._destinations)

    @property
    def wants_other_forms(self) -> bool:
        """Whether some reader needs another form than uncompressed batches."""
        return any(form != BATCH for form, _ in self._destinations)

    def redirect(
        self, readers: Iterable[ReaderProxy], message_size: int, *, all_of_them: bool = True
    ) -> None:
        """Send to these readers from now on. Datagrams that are already packed go to the readers they were packed for.

        ``all_of_them``: these are all matched readers, not some of them. ``readers`` may be a view; it is read only
        when something is sent, so a call costs the same for any number of readers.
        """
        self._close()
        self.message_size = message_size
        self._readers, self._known_destinations = readers, None
        self._goes_to_all = all_of_them
        self._is_known.clear()

    def samples(self, change: Change, first: int, last: int) -> None:
        """Pack the samples first..last of a change; a batch is packed as a whole."""
        for stream in self._destinations:
            if stream[1] and change.start >= 0:
                continue
            change.content.pack(self._packer(stream), first, last, change.timestamp)

    def gap(self, first: int, last: int) -> None:
        """Announce to all readers, by a GAP, that first..last will never come."""
        for stream in self._destinations:
            self._packer(stream).add_gap(first, last)

    def heartbeat(self, encode: Callable[[str], bytes]) -> None:
        """Pack a HEARTBEAT behind the packed submessages; ``encode`` makes it for each form."""
        for stream in self._destinations:
            self._packer(stream).add_submessage(encode(stream[0]))

    def take_datagrams(self) -> list[Outgoing]:
        """The datagrams since the last call."""
        self._close()
        taken, self._closed = self._closed, []
        return taken

    def _close(self) -> None:
        for stream, packer in self._open.items():
            if not packer.destinations:
                continue
            if self._compressor is not None and self._compresses(stream):
                self._closed += map(self._compressor.compressed, packer.packed)
            else:
                self._closed += packer.packed
        self._open.clear()

    @property
    def compresses_data(self) -> bool:
        """Whether samples outside of batches leave compressed to some readers."""
        return self._compressor is not None and any(map(self._compresses, self._destinations))

    def _compresses(self, stream: _Stream) -> bool:
        if self._compressor is None or stream[0] != DATA:
            return False
        known = self._is_known.get(stream)
        if known is None:
            codec = self._compressor.codec
            readers = [each for each in self._readers if (each.form, each.is_on_host) == stream]
            known = self._is_known[stream] = all(codec in each.info.codecs for each in readers)
        return known

    def _packer(self, stream: _Stream) -> StreamPacker:
        packer = self._open.get(stream)
        if packer is None:
            form = stream[0]
            packer = self._open[stream] = StreamPacker(
                self.message_size,
                self._destinations[stream],
                None,
                shareable=self.coalesces and form == DATA,
                writer_id=self._writer_id,
                form=form,
                coalesces=self.coalesces,
            )
        return packer
