"""Datagrams of samples outside of batches, compressed for readers that know the codec."""

from __future__ import annotations

from typing import Final

from ....value_classes import value
from ....wire.compressed import compress, compress_series
from ....wire.submessages import Data, DataFrag, InfoTimestamp
from ...outgoing import Outgoing
from ...policies import BatchPolicy, Compression

_IN_SERIES: Final = (Data.KIND, InfoTimestamp.KIND)


@value
class Compressor:
    """What a writer's samples are compressed with."""

    codec: str
    level: int | None
    #: Samples of fewer bytes stay as they are.
    threshold: int

    @classmethod
    def of(cls, policy: BatchPolicy) -> Compressor | None:
        """None: the writer does not compress them."""
        if policy.data_compression is Compression.NONE:
            return None
        return cls(policy.data_compression.value, policy.compression_level, policy.compression_threshold)

    def compressed(self, outgoing: Outgoing) -> Outgoing:
        """The same datagram; the samples that it begins with are one COMPRESSED submessage if that is smaller."""
        if outgoing.segment:  # whole messages from the publication log, which go as they are
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
