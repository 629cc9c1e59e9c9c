"""What a change holds: samples in the form in which they are kept and sent. Each form is a :class:`Content`::

    DataContent           DATA, as much as a datagram holds
    GsoMessageContent   whole messages of DATA that leave together
    LargeContent          one sample that travels as DATA_FRAGs
    GsoFragmentContent  whole messages of DATA_FRAGs that leave together
    BatchContent          one DATA_BATCH
    GsoBatchContent     whole messages of one DATA_BATCH each that leave together

Where a form is in the publication log, its ``data`` views the log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Protocol

from ....wire.framing import DataBlock
from ....wire.samples import I64, U8
from ...outgoing import Buffer
from .large_sample import LargeSample
from .stream_packer import StreamPacker


class Resending(Protocol):
    """An answer to one reader, as far as contents use it: see `repair.repairs.Answer`."""

    @property
    def form(self) -> str:
        """The form in which the reader is sent batches."""

    @property
    def reader_id(self) -> bytes:
        """The reader's entity id."""

    @property
    def fits(self) -> int:
        """Bytes of submessages that a datagram to the reader holds."""

    def may_add(self, nbytes: int) -> bool:
        """Whether the bounds of the answer let in that many bytes, or one sample whatever its size."""

    def resend_batch(self, data: Buffer, timestamp: int, first_sn: int, last_sn: int) -> None:
        """Add a whole DATA_BATCH."""

    def resend_block(self, block: DataBlock, timestamp: int, first: int, last: int) -> bool:
        """Add DATA; False where bounds were reached before ``last``."""

    def resend_large(self, large: LargeSample, timestamp: int, sn: int) -> bool:
        """Add the fragments of one sample; False where bounds were reached before the last one."""

    def announce_gap(self, first: int, last: int) -> None:
        """Add a GAP."""


class Content(ABC):
    """One form. The defaults are those of samples that are in no batch, and leave in no train."""

    __slots__ = ()

    #: It is DATA that can be sent in parts.
    sends_in_parts: ClassVar[bool] = False
    #: It is DATA, of which single samples can be kept: :meth:`rows`.
    has_rows: ClassVar[bool] = False
    #: A part of it can be a change by itself.
    can_be_cut: ClassVar[bool] = True
    #: How many batches it is, and the number of the last one; 0: it is none.
    batches: int = 0
    last_batch_sn: int = 0
    #: Samples that are marked as removed.
    removed: int = 0

    # --- in memory -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def data(self) -> U8:
        """All bytes, as they lie in the publication log."""

    @data.setter
    @abstractmethod
    def data(self, data: U8) -> None:
        """The same bytes lie there from now on."""

    @abstractmethod
    def nbytes_of(self, first: int, last: int) -> int:
        """Bytes of the samples first..last."""

    def own(self) -> None:
        """Copy what the caller may use again, where it lies in no log."""
        return

    def head_in_log(self, writer_id: bytes, sn: int) -> bytes:
        """What comes before ``data`` in the log, so that it can be read there."""
        return b""

    # --- on the wire -----------------------------------------------------------------------------

    @abstractmethod
    def pack(self, packer: StreamPacker, first: int, last: int, timestamp: int) -> None:
        """Pack the samples first..last for all readers of a stream; what cannot be sent in parts as a whole."""

    @abstractmethod
    def resend(self, answer: Resending, first: int, last: int, timestamp: int) -> bool:
        """Send the samples first..last again to one reader; False where bounds were reached before ``last``."""

    @abstractmethod
    def in_fragments(self, sn: int, timestamp: int, fits: int) -> tuple[LargeSample, int] | None:
        """The sample ``sn``, and its timestamp, in fragments of at most ``fits`` bytes; None: it travels in one piece,
        or is removed."""

    # --- trains ----------------------------------------------------------------------------------

    def fitting_messages(self, nbytes: int, at_least: int) -> tuple[int, int]:
        """Samples and bytes of the first messages that fit ``nbytes``, of ``at_least`` so many, be they more than there
        are; (0, 0): none, or it cannot be divided."""
        return 0, 0

    def part(self, first: int, last: int) -> Content:
        """The whole messages of a train that have a sample of first..last; a view."""
        return self

    def compact(self, first: int, last: int) -> Content:
        """The samples first..last, of batches whole ones, in memory of their own."""
        return self

    def rows(self, first: int, last: int) -> tuple[U8, I64]:
        """The DATA submessages first..last end to end, and how long each is."""
        raise NotImplementedError(f"{type(self).__name__} does not hold DATA submessages")

    # --- what is no longer kept ------------------------------------------------------------------

    def newest(self, timestamp: int) -> int:
        """The last sample's timestamp; ``timestamp`` is the first one's."""
        return timestamp

    def expire(self, over: int) -> int:
        """Mark the samples with that timestamp, or an older one, as removed; returns how many that were."""
        return 0

    def remove_range(self, first: int, last: int) -> bool | None:
        """Mark samples as removed: whether others are left. None: they are to be cut off instead."""
        return None

    # --- batches ---------------------------------------------------------------------------------

    def apart(self) -> Iterator[tuple[int, int, Content]]:
        """Each batch of a train by itself, with its first and last sample."""
        yield from ()

    def splits_batch(self, sn: int) -> bool:
        """Whether what begins at ``sn`` would part a batch of a train."""
        return False

    def end_of_batch(self, sn: int) -> int:
        """The last sample of the batch that holds ``sn``; ``sn`` itself outside of batches."""
        return sn

    def first_batch_from(self, sn: int) -> int:
        """The first batch of a train that begins at ``sn`` or behind it; 0: there is none."""
        return 0

    def span_of(self, first_batch: int, last_batch: int) -> tuple[int, int] | None:
        """The samples of those batches, as far as they are here; None: the first one is not."""
        return None
