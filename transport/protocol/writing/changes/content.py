"""The content of a change: samples in the form in which they are kept and sent. Each form is a :class:`Content`::

    DataContent         DATA, as much as a datagram holds
    GsoMessageContent   a GSO buffer: whole messages of DATA that are sent by one call
    LargeContent        one sample that travels as DATA_FRAGs
    GsoFragmentContent  a GSO buffer of whole messages of DATA_FRAGs
    BatchContent        one DATA_BATCH
    GsoBatchContent     a GSO buffer of whole messages with one DATA_BATCH each

If the content lies in the publication log, its ``data`` is a view of the log.
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
    """An answer to one reader, as far as contents use it; `repair.repairs.RepairDatagrams` implements it."""

    @property
    def form(self) -> str:
        """The form in which the reader gets batches."""

    @property
    def reader_id(self) -> bytes:
        """The reader's entity id."""

    @property
    def fits(self) -> int:
        """Bytes of submessages that a datagram to the reader holds."""

    def may_add(self, nbytes: int) -> bool:
        """Whether the answer may hold that many bytes more, or one sample of any size."""

    def resend_batch(self, data: Buffer, timestamp: int, first_sn: int, last_sn: int) -> None:
        """Add a whole DATA_BATCH."""

    def resend_block(self, block: DataBlock, timestamp: int, first: int, last: int) -> bool:
        """Add DATA; returns False if the bounds were reached before ``last``."""

    def resend_large(self, large: LargeSample, timestamp: int, sn: int) -> bool:
        """Add the fragments of one sample; returns False if the bounds were reached before the last one."""

    def announce_gap(self, first: int, last: int) -> None:
        """Add a GAP."""


class Content(ABC):
    """One form of content. The defaults are those of samples outside of batches and GSO buffers."""

    __slots__ = ()

    #: Whether it is DATA that can be sent in parts.
    sends_in_parts: ClassVar[bool] = False
    #: Whether it is DATA of which single samples can be kept: :meth:`rows`.
    has_rows: ClassVar[bool] = False
    #: Whether a part of it can be a change by itself.
    can_be_cut: ClassVar[bool] = True
    #: How many batches it holds, and the number of the last one; both are 0 outside of batches.
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
        """Use this copy of the same bytes from now on."""

    @abstractmethod
    def nbytes_of(self, first: int, last: int) -> int:
        """Bytes of the samples first..last."""

    def own(self) -> None:
        """Copy bytes that are the caller's memory and do not lie in a log."""
        return

    def head_in_log(self, writer_id: bytes, sn: int) -> bytes:
        """The bytes that precede ``data`` in the log, so that readers of the log can read it."""
        return b""

    # --- on the wire -----------------------------------------------------------------------------

    @abstractmethod
    def pack(self, packer: StreamPacker, first: int, last: int, timestamp: int) -> None:
        """Pack the samples first..last for all readers of a stream; content without ``sends_in_parts`` as a whole."""

    @abstractmethod
    def resend(self, answer: Resending, first: int, last: int, timestamp: int) -> bool:
        """Send the samples first..last again to one reader; returns False if bounds were reached before ``last``."""

    @abstractmethod
    def in_fragments(self, sn: int, timestamp: int, fits: int) -> tuple[LargeSample, int] | None:
        """The sample ``sn`` in fragments of at most ``fits`` bytes, and its timestamp.

        None if the sample fits without fragments, or is removed.
        """

    # --- GSO buffers -----------------------------------------------------------------------------

    def fitting_messages(self, nbytes: int, at_least: int) -> tuple[int, int]:
        """Samples and bytes of the first messages that fit ``nbytes``, or of the first ``at_least`` messages if those
        are more; the result may exceed the content. (0, 0) if no message fits, or the content cannot be divided."""
        return 0, 0

    def part(self, first: int, last: int) -> Content:
        """The whole messages of a GSO buffer that hold a sample of first..last; a view."""
        return self

    def compact(self, first: int, last: int) -> Content:
        """The samples first..last, or whole batches that hold them, in memory of their own."""
        return self

    def rows(self, first: int, last: int) -> tuple[U8, I64]:
        """The DATA submessages first..last end to end, and the length of each."""
        raise NotImplementedError(f"{type(self).__name__} does not hold DATA submessages")

    # --- removal ---------------------------------------------------------------------------------

    def newest(self, timestamp: int) -> int:
        """The last sample's timestamp; ``timestamp`` is the first one's."""
        return timestamp

    def expire(self, over: int) -> int:
        """Mark the samples with timestamp ``over`` or an older one as removed; returns how many there were."""
        return 0

    def remove_range(self, first: int, last: int) -> bool | None:
        """Mark samples as removed; returns whether others are left. None: the caller must cut them off instead."""
        return None

    # --- batches ---------------------------------------------------------------------------------

    def apart(self) -> Iterator[tuple[int, int, Content]]:
        """Each batch of a GSO buffer by itself, with its first and last number."""
        yield from ()

    def splits_batch(self, sn: int) -> bool:
        """Whether a cut before ``sn`` would split a batch of a GSO buffer."""
        return False

    def end_of_batch(self, sn: int) -> int:
        """The last number of the batch that holds ``sn``; ``sn`` itself outside of batches."""
        return sn

    def first_batch_from(self, sn: int) -> int:
        """The first batch of a GSO buffer that begins at ``sn`` or later; 0 if there is none."""
        return 0

    def span_of(self, first_batch: int, last_batch: int) -> tuple[int, int] | None:
        """First and last number of these batches, as far as they are here; None if the first batch is not here."""
        return None
