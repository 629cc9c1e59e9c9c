"""A change: the sequence numbers of samples, and their content in one of its forms (:mod:`.content`).

A change that is cut down to a small part is copied out of its block, so at most four times the live bytes are held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ....value_classes import slotted
from .content import Content

_COMPACT_BELOW: Final = 4


@slotted
class Change:
    """Samples first_sn..last_sn as they are sent, with their common source timestamp.

    Only :class:`~..publication.UnsentChanges` moves the content, into its log and out of it.
    """

    first_sn: int
    last_sn: int
    timestamp: int
    content: Content
    #: The number of the last batch up to and including this change; 0 if there is none.
    batch_sn: int = 0
    #: Position in the publication log where its frame begins, -1 if it is not there; and where the next frame begins.
    start: int = -1
    position: int = 0
    #: It is claimed, and not committed yet (:mod:`..intake.sample_claims`).
    is_claimed: bool = False

    @property
    def count(self) -> int:
        return self.last_sn - self.first_sn + 1

    @property
    def live(self) -> int:
        """Samples that are not removed."""
        return self.last_sn - self.first_sn + 1 - self.content.removed

    @property
    def newest(self) -> int:
        """The last sample's timestamp."""
        return self.content.newest(self.timestamp)

    @property
    def units(self) -> int:
        """How many units the send window counts: samples, or batches, since a batch is acknowledged as one."""
        return self.content.batches or self.last_sn - self.first_sn + 1

    @property
    def batches(self) -> int:
        """How many batches hold the samples; 0 outside of batches."""
        return self.content.batches

    @property
    def nbytes(self) -> int:
        return self.content.nbytes_of(self.first_sn, self.last_sn)

    def apart(self) -> Iterator[Change]:
        """Each batch of a GSO buffer as a change by itself."""
        for first_sn, last_sn, content in self.content.apart():
            yield replace(
                self, first_sn=first_sn, last_sn=last_sn, content=content, batch_sn=content.last_batch_sn
            )

    def part(self, first: int, last: int) -> Change:
        """The whole messages of a GSO buffer that hold first..last; a view."""
        return self._with(self.content.part(first, last), first, last)

    def _with(self, content: Content, first: int, last: int) -> Change:
        batch_sn = content.last_batch_sn or self.batch_sn
        return replace(self, first_sn=first, last_sn=last, content=content, batch_sn=batch_sn)

    def cut(self, first: int, last: int) -> Change:
        """The part first..last, with memory of its own if it is small; of a GSO buffer of batches, whole batches."""
        whole = self.content
        if not whole.can_be_cut or (first == self.first_sn and last == self.last_sn):
            return self
        part = self._with(whole.part(first, last) if whole.batches else whole, first, last)
        if part.nbytes * _COMPACT_BELOW < whole.data.nbytes:
            part.content, part.start = whole.compact(first, last), -1
        return part

    def without(self, first: int, last: int) -> list[Change]:
        """What is left without first..last: nothing, this change with samples marked as removed, or parts of it."""
        if first <= self.first_sn and self.last_sn <= last:
            return []
        if (some_left := self.content.remove_range(first, last)) is not None:
            return [self] if some_left else []
        parts = []
        if self.first_sn < first:
            parts.append(self.cut(self.first_sn, first - 1))
        if self.last_sn > last:
            parts.append(self.cut(last + 1, self.last_sn))
        return parts
