"""GSO buffers of DATA_BATCHes: whole messages of one form, one batch each, laid out in one pass.

Bytes that are the same in all batches are written by strided assignment, the others as columns, so that a GSO buffer
costs about as much as one batch. :func:`.batch.frame_batch` frames other batches, byte for byte as here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..value_classes import value
from .batch import BatchBlock, sample_infos, uniform_payloads, words_before_infos
from .runs import Words
from .samples import U8, Samples

#: Words of a DATA_BATCH before its inline QoS: batchSN and firstSN, high word first.
_BATCH_SN: Final = 4
_FIRST_SN: Final = 6


@value
class GsoBatches:
    """Whole messages, end to end, of one DATA_BATCH with ``per_batch`` uniform samples each; never mutated.

    Each message has ``segment`` bytes, of which the first ``head`` are headers.
    """

    batch_sn: int
    first_sn: int
    batches: int
    data: U8
    per_batch: int
    head: int
    #: The offset of the first sample info in a message, and the stride between infos.
    info_start: int
    info_stride: int

    @property
    def count(self) -> int:
        return self.batches * self.per_batch

    @property
    def last_sn(self) -> int:
        return self.first_sn + self.count - 1

    @property
    def last_batch_sn(self) -> int:
        return self.batch_sn + self.batches - 1

    @property
    def segment(self) -> int:
        """Bytes of a message."""
        return self.data.nbytes // self.batches

    def index(self, sn: int) -> int:
        """The index of the batch that holds ``sn``, from 0."""
        return (sn - self.first_sn) // self.per_batch

    def part(self, first: int, stop: int) -> GsoBatches:
        """The batches [first, stop), from 0; a view."""
        segment = self.segment
        return GsoBatches(
            self.batch_sn + first,
            self.first_sn + first * self.per_batch,
            stop - first,
            self.data[first * segment : stop * segment],
            self.per_batch,
            self.head,
            self.info_start,
            self.info_stride,
        )

    def block(self, i: int) -> BatchBlock:
        """The DATA_BATCH of batch ``i``, from 0; a view."""
        start, segment = i * self.segment, self.segment
        return BatchBlock(
            self.batch_sn + i,
            self.first_sn + i * self.per_batch,
            self.per_batch,
            self.data[start + self.head : start + segment],
            self.info_start - self.head,
            self.info_stride,
        )


@value
class GsoBatchFramer:
    """Samples to be sent in batches of ``per_batch`` each, with all bytes that these have in common.

    Made by :func:`gso_batch_framer`.
    """

    per_batch: int
    #: A message as words, except for its numbers, its sample infos and its payloads.
    template: Words
    #: Offsets of the submessage, the sample infos and the payloads in a message, in words.
    submessage: int
    infos_at: int
    payloads_at: int
    #: (samples, words) of each sample; for the sample infos one row if all are the same.
    infos: Words
    payloads: Words

    @property
    def segment(self) -> int:
        """Bytes of a message."""
        return self.template.nbytes

    def frame(self, out: U8, batch: int, batches: int, *, batch_sn: int, first_sn: int) -> GsoBatches:
        """Frame ``batches`` batches, from index ``batch`` on, into ``out``, which has ``batches * segment`` bytes.

        ``batch_sn`` and ``first_sn`` are the numbers of the first of them.
        """
        per = self.per_batch
        words = out.view(np.uint32).reshape(batches, -1)
        words[:, : self.infos_at] = self.template[: self.infos_at]
        _numbers(words, self.submessage + _BATCH_SN, batch_sn, 1)
        _numbers(words, self.submessage + _FIRST_SN, first_sn, per)
        rows = slice(batch * per, (batch + batches) * per)
        infos_to = self.payloads_at - 1
        width = self.infos.shape[1]
        infos = words[:, self.infos_at : infos_to].reshape(batches, per, width)
        infos[:] = self.infos if len(self.infos) == 1 else self.infos[rows].reshape(batches, per, width)
        words[:, infos_to] = self.template[infos_to]
        if width := self.payloads.shape[1]:
            payloads = words[:, self.payloads_at :].reshape(batches, per, width)
            payloads[:] = self.payloads[rows].reshape(batches, per, width)
        return GsoBatches(
            batch_sn,
            first_sn,
            batches,
            out,
            per,
            4 * self.submessage,
            4 * self.infos_at,
            4 * self.infos.shape[1],
        )


def gso_batch_framer(
    headers: bytes,
    samples: Samples,
    per_batch: int,
    writer_id: bytes,
    *,
    flags: int,
    key_hashes: U8 | None,
    coherent_set: int,
) -> GsoBatchFramer:
    """Prepare uniform samples of one encapsulation for :meth:`BatchGsoFramer.frame`; ``headers`` begin each message.

    The other parameters are as in :func:`.batch.frame_batch`, which also raises the error for a batch that is too long.
    """
    encapsulation, length, padding, payloads = uniform_payloads(samples, flags)
    alike = isinstance(padding, int) and key_hashes is None
    infos = sample_infos(1 if alike else samples.count, padding, length, flags, key_hashes)
    infos_size = per_batch * infos.shape[1]
    head = words_before_infos(
        writer_id, per_batch, infos_size, per_batch * payloads.shape[1], coherent_set=coherent_set
    )
    submessage = len(headers) // 4
    infos_at = submessage + len(head)
    payloads_at = infos_at + infos_size + 1
    template = np.empty(payloads_at + per_batch * payloads.shape[1], np.uint32)
    template[:submessage] = np.frombuffer(headers, np.uint32)
    template[submessage:infos_at] = head
    template[payloads_at - 1] = encapsulation
    return GsoBatchFramer(per_batch, template, submessage, infos_at, payloads_at, infos, payloads)


def _numbers(words: Words, at: int, first: int, step: int) -> None:
    """Write sequence numbers from ``first`` on, one in each row."""
    if len(words) == 1:
        words[0, at], words[0, at + 1] = first >> 32, first & 0xFFFF_FFFF
        return
    numbers = np.arange(first, first + len(words) * step, step, dtype=np.int64)
    words[:, at] = numbers >> 32
    words[:, at + 1] = numbers & 0xFFFF_FFFF
