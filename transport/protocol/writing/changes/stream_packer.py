"""The open datagrams of one stream, which goes to all readers that accept one form of batches."""

from __future__ import annotations

from typing import Final

from ....structure import ENTITYID_UNKNOWN
from ....value_classes import slotted
from ....wire.framing import DataBlock
from ....wire.numbers import SequenceNumberSet
from ....wire.submessages import Gap
from ...outgoing import HEARTBEAT_ROOM, Packer

#: Forms of a batch on the wire; any other form is the name of a codec.
DATA: Final = "data"
BATCH: Final = "batch"


@slotted
class StreamPacker(Packer):
    """Packs submessages for all readers of a ``form``; with ``coalesces``, samples share datagrams where they fit."""

    writer_id: bytes = ENTITYID_UNKNOWN
    form: str = DATA
    coalesces: bool = True

    def add_block(self, block: DataBlock, first: int, last: int, timestamp: int) -> None:
        """Pack the DATA first..last of a block."""
        if self.coalesces:
            self.add_submessage(block.slice(first, last), timestamp, reserve=HEARTBEAT_ROOM)
            return
        for sn in range(first, last + 1):
            self.begin_datagram()
            self.add_submessage(block.slice(sn, sn), timestamp, reserve=HEARTBEAT_ROOM)

    def add_gap(self, first: int, last: int) -> None:
        """Pack a GAP: first..last will never come."""
        gap = Gap(ENTITYID_UNKNOWN, self.writer_id, first, SequenceNumberSet(last + 1))
        self.add_submessage(gap.encode(), reserve=HEARTBEAT_ROOM)
