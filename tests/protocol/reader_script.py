"""A stateful reader and one writer's submessages, step by step in virtual time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np

from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.outgoing import Outgoing
from spark_rtps.transport.protocol.policies import ReaderPolicy
from spark_rtps.transport.protocol.reading.ordering.writer_proxy import WriterProxy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.qos import DurabilityKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid, Locator
from spark_rtps.transport.wire.batch import Batch
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.samples import Run
from spark_rtps.transport.wire.submessages import (
    DataFrag,
    Gap,
    Heartbeat,
    HeartbeatBatch,
    decode_submessage,
)

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE)
LASTING = replace(RELIABLE, durability=DurabilityKind.TRANSIENT_LOCAL)
ME = Guid(b"r" * 12, b"\0\0\2\4")
IT = Guid(b"w" * 12, b"\0\0\1\3")
WHERE = (Locator("10.0.0.1", 7411),)
ANY = bytes(4)
POLICY = ReaderPolicy()
MS = 1_000_000


def submessages(out: list[Outgoing]) -> list[object]:
    found = []
    for each in out:
        assert each.destinations == WHERE
        assert each.dest_prefix == IT.prefix
        for raw in each.submessages:
            view = memoryview(bytes(raw))
            found.append(decode_submessage(view[0], view[1], view[4:]))
    return found  # type: ignore[return-value]


def samples(first: int, last: int, size: int) -> Run:
    count = last + 1 - first
    rows = np.zeros((count, size), np.uint8)
    rows[:, -1] = np.arange(first, first + count) & 0xFF
    return Run(IT, first, count, rows.reshape(-1), size, 24, size - 24)


class Script:
    """A reader with one writer, driven step by step."""

    def __init__(
        self,
        qos: Qos = RELIABLE,
        *,
        reliable: bool = True,
        transient_local: bool = False,
        resume: dict[Guid, int] | None = None,
        moved_from: Iterable[Guid] = (),
        policy: ReaderPolicy = POLICY,
        random: Random | None = None,
        no_positive_acks: bool = False,
        status_messages: bool = False,
        preemptive_base: int = 1,
        filters: bool = False,
    ) -> None:
        self.reader = StatefulReader(
            ME, qos, resume=resume, moved_from=set(moved_from), policy=policy, random=random
        )
        self.now, self.count = 1_000 * MS, 0
        self._runs: list[Run] = []
        info = WriterInfo(
            IT,
            WHERE,
            (),
            reliable,
            transient_local,
            no_positive_acks,
            preemptive_base,
            filters,
            status_messages=status_messages,
        )
        self.reader.match_writer(info, now=self.now)

    @property
    def proxy(self) -> WriterProxy:
        return self.reader.writers[IT]

    def data(self, first: int, last: int | None = None, size: int = 32, *, of: int = 0) -> Script:
        """Samples; ``of``: the coherent set they are of."""
        run = samples(first, last or first, size)
        run.coherent_set = of
        self.reader.on_run(run, now=self.now)
        run.data[:] = 0xEE  # the receive buffer is used again, but not before take()
        return self

    def end_of_set(self, sn: int) -> Script:
        """The empty DATA that ends a coherent set."""
        run = Run(IT, sn, 1, np.zeros(32, np.uint8), 32, 32, 0, coherent_set=-1)
        self.reader.on_run(run, now=self.now)
        return self

    def batch(
        self, number: int, first: int, last: int, *, without: Iterable[int] = (), size: int = 32, of: int = 0
    ) -> Script:
        """Batch ``number`` of the samples first..last, but for those it leaves out."""
        runs = []
        for before, after in pairwise([first - 1, *without, last + 1]):
            if before + 1 < after:
                run = samples(before + 1, after - 1, size)
                run.batch_sn, run.coherent_set = number, of
                runs.append(run)
        self.reader.on_batch(Batch(number, first, last, runs, 0, ANY, IT), now=self.now)
        return self

    def heartbeat_batch(
        self, batches: tuple[int, int], first: int, last: int, *, final: bool = False
    ) -> Script:
        self.count += 1
        heartbeat = HeartbeatBatch(ANY, IT.entity, *batches, first, last, self.count, final)
        self.reader.on_heartbeat_batch(IT, heartbeat, now=self.now)
        return self

    def heartbeat(
        self, first: int, last: int, *, final: bool = False, count: int | None = None, to: bytes = ANY
    ) -> Script:
        self.count = self.count + 1 if count is None else count
        self.reader.on_heartbeat(IT, Heartbeat(to, IT.entity, first, last, self.count, final), now=self.now)
        return self

    def gap(self, start: int, base: int, *numbers: int) -> Script:
        irrelevant = SequenceNumberSet.from_numbers(base, numbers)
        self.reader.on_gap(IT, Gap(ANY, IT.entity, start, irrelevant), now=self.now)
        return self

    def frag(self, sn: int, number: int, *, size: int = 100, total: int = 1000, count: int = 1) -> Script:
        payload = bytes([number & 0xFF]) * min(size * count, total - (number - 1) * size)
        frag = DataFrag(ANY, IT.entity, sn, number, count, size, total, payload)
        self.reader.on_data_frag(IT, frag, 0, now=self.now)
        return self

    def sleep(self, ns: int) -> Script:
        stop = self.now + ns
        while (at := self.reader.get_timer()) is not None and at <= stop:
            self.now = max(self.now, at)
            self.reader.handle_timer(self.now)
            if self.reader.get_timer() == at:
                raise AssertionError("a timer that does not move")
        self.now = stop
        return self

    def output(self) -> list[object]:
        """What the reader says to an owner that takes what there is before."""
        self._runs += self.reader.take_runs()
        return submessages(self.reader.outgoing())

    def taken(self) -> list[int]:
        """Sequence numbers taken since the last call."""
        runs, self._runs = self._runs + self.reader.take_runs(), []
        return [sn for run in runs for sn in range(run.first_sn, run.last_sn + 1)]


def started(**options: object) -> Script:
    script = Script(**options)
    script.heartbeat(1, 0)
    script.output()
    return script
