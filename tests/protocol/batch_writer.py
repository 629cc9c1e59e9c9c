"""A scripted writer of DATA_BATCH for the lossy link: simple, and strict about what readers tell it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spark_rtps.transport.protocol.endpoint_info import ReaderInfo
from spark_rtps.transport.protocol.outgoing import Outgoing
from spark_rtps.transport.qos import Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid, Locator
from spark_rtps.transport.wire.batch import BatchBlock, frame_batch
from spark_rtps.transport.wire.framing import frame
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import AckNack, AckNackBatch, HeartbeatBatch, NackFrag

_PERIOD = 30_000_000


@dataclass(slots=True)
class _Change:
    """A batch, or a sample outside of any (``batch_sn`` 0)."""

    first_sn: int
    last_sn: int
    data: np.ndarray
    batch_sn: int = 0


@dataclass(slots=True)
class BatchWriter:
    """Keeps everything; sends each change once, HEARTBEAT_BATCHes until all is acknowledged, and what is
    requested. Acknowledged is what ACKNACKs say, and what ACKNACK_BATCHes say of whole batches."""

    guid: Guid
    qos: Qos = field(default_factory=lambda: Qos(reliability=ReliabilityKind.RELIABLE))
    changes: list[_Change] = field(default_factory=list)
    last_sn: int = 0
    last_batch_sn: int = 0
    #: Sequence numbers above it are not acknowledged, by reader.
    acked: dict[Guid, int] = field(default_factory=dict)
    batch_acknacks: int = 0
    plain_acknacks: int = 0
    repaired: int = 0
    _where: dict[Guid, tuple[Locator, ...]] = field(default_factory=dict)
    _new: list[_Change] = field(default_factory=list)
    _repairs: dict[Guid, dict[int, _Change]] = field(default_factory=dict)
    _heartbeat_at: int | None = None
    _beat: bool = False
    _count: int = 0

    # --- what the test writes ---------------------------------------------------------------------

    def write_batch(self, count: int, *, coherent_set: int = 0) -> BatchBlock:
        self.last_batch_sn += 1
        block = frame_batch(
            self._samples(count),
            self.guid.entity,
            self.last_batch_sn,
            self.last_sn + 1,
            coherent_set=coherent_set,
        )
        self._add(_Change(block.first_sn, block.last_sn, block.data, block.batch_sn))
        return block

    def write_alone(self) -> None:
        (block,) = frame(self._samples(1), self.guid.entity, self.last_sn + 1, budget=60_000)
        self._add(_Change(block.first_sn, block.first_sn, block.data))

    def end_set(self, marker: np.ndarray) -> None:
        self._add(_Change(self.last_sn + 1, self.last_sn + 1, marker))

    def _samples(self, count: int) -> Samples:
        rows = np.zeros((count, 12), np.uint8)
        rows[:, 1] = 1
        numbers = np.arange(self.last_sn + 1, self.last_sn + 1 + count, dtype="<u4")
        rows[:, 4:8] = numbers.view(np.uint8).reshape(count, 4)
        return Samples.uniform(rows.reshape(-1), count, 12)

    def _add(self, change: _Change) -> None:
        self.changes.append(change)
        self._new.append(change)
        self.last_sn = change.last_sn
        if self._heartbeat_at is None:
            self._heartbeat_at = 0

    # --- what the link calls ----------------------------------------------------------------------

    def match_reader(self, info: ReaderInfo, *, now: int) -> None:
        self._where[info.guid] = info.destinations
        if info.reliable:
            self.acked[info.guid] = 0
            self._heartbeat_at = now

    @property
    def feedback(self) -> BatchWriter:
        """What readers report comes in here, too."""
        return self

    @property
    def is_acknowledged(self) -> bool:
        return all(acked >= self.last_sn for acked in self.acked.values())

    def on_acknack(self, reader: Guid, acknack: AckNack, *, now: int) -> None:
        self.plain_acknacks += 1
        self._acknowledge(reader, acknack.missing.base - 1)
        for first, last in acknack.missing.ranges():
            for change in self.changes:
                if change.first_sn <= last and change.last_sn >= first:
                    self._repairs.setdefault(reader, {})[change.first_sn] = change
        if not acknack.final and acknack.missing.is_empty:
            self._beat = True

    def on_acknack_batch(self, reader: Guid, acknack: AckNackBatch, *, now: int) -> None:
        self.batch_acknacks += 1
        below = [c.last_sn for c in self.changes if 0 < c.batch_sn < acknack.missing.base]
        self._acknowledge(reader, max(below, default=0))
        wanted = set(acknack.missing.numbers())
        assert max(wanted, default=0) <= self.last_batch_sn
        for change in self.changes:
            if change.batch_sn in wanted:
                self._repairs.setdefault(reader, {})[change.first_sn] = change

    def on_nack_frag(self, reader: Guid, nack: NackFrag, *, now: int) -> None:
        raise AssertionError("nothing here is fragmented")

    def _acknowledge(self, reader: Guid, sn: int) -> None:
        assert sn <= self.last_sn
        self.acked[reader] = max(self.acked[reader], sn)

    def get_timer(self) -> int | None:
        return self._heartbeat_at

    def handle_timer(self, now: int) -> None:
        self._beat = not self.is_acknowledged or not self._count
        self._heartbeat_at = None if self.is_acknowledged else now + _PERIOD

    def outgoing(self) -> list[Outgoing]:
        everybody = tuple(locator for where in self._where.values() for locator in where)
        out = [Outgoing(everybody, None, 0, [change.data]) for change in self._new]
        for reader, repairs in self._repairs.items():
            for change in repairs.values():
                self.repaired += 1
                out.append(Outgoing(self._where[reader], reader.prefix, 0, [change.data]))
        self._beat |= bool(self._repairs)
        if self._beat and self.acked:
            self._count += 1
            heartbeat = HeartbeatBatch(
                bytes(4), self.guid.entity, 1, self.last_batch_sn, 1, self.last_sn, self._count
            )
            out.append(Outgoing(everybody, None, None, [heartbeat.encode()]))
        self._new, self._repairs, self._beat = [], {}, False
        return out
