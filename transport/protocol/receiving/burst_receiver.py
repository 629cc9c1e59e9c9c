"""The receiver of bursts: processes many datagrams of one layout at once (`wire.datagrams`, `wire.large_datagrams`).

This is the hot path of a participant. Other datagrams are left to the message receiver, which parses one message at a
time. Both use one router, which decides on trust and destinations: the result equals processing each datagram alone.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ...errors import DropReason
from ...limits import UDP_PAYLOAD_MAX
from ...wire.batch import DATA_BATCH
from ...wire.batch_ranges import BatchRange
from ...wire.batch_scan import BYTES_PER_WORK
from ...wire.datagrams import DATAGRAMS_MIN, scan_datagrams
from ...wire.fragment_ranges import FragmentRange
from ...wire.large_datagrams import LargeBatches, LargeMessages, LargeRun, are_large, scan_large
from ...wire.message import HEADER_SIZE
from ...wire.samples import U8, Run
from ...wire.submessages import Data
from ..discovery.remote_participant import RemoteParticipant
from ..reading.reader import StatefulReader
from .message_receiver import Span
from .message_work import BYTES_PER_WORK_CLEARED, RUNS_WORK, WORK, WORK_FRAGMENTS
from .router import Router


class BurstReceiver:
    """Processes bursts; ``router`` hands their contents to the endpoints.

    A datagram larger than ``message_size_max`` is dropped, and ``on_oversized`` is called with its sender and size.
    ``remotes`` and ``drops`` belong to the participant.
    """

    def __init__(
        self,
        router: Router,
        remotes: Mapping[bytes, RemoteParticipant],
        drops: Counter[DropReason],
    ) -> None:
        self.message_size_max = UDP_PAYLOAD_MAX
        self.on_oversized: Callable[[str, int], None] | None = None
        self._router = router
        self._remotes = remotes
        self._drops = drops

    def receive_runs(self, data: U8, spans: Sequence[Span], *, now: int) -> Iterator[Span | None]:
        """Process the datagrams that can be processed together. Yields each other datagram in its turn, for
        `MessageReceiver.receive`, and None after some work, so that the caller can give way to other work."""
        router = self._router
        if self.message_size_max < UDP_PAYLOAD_MAX:
            spans = [span for span in spans if self._admits(data, span)]
        if are_large(spans):
            yield from self._receive_large(data, spans, now)
            return
        if len(spans) < DATAGRAMS_MIN:
            yield from spans
            return
        starts, stops, sources = zip(*spans, strict=True)
        numbers = {source: number for number, source in enumerate(set(sources))}
        found = scan_datagrams(
            data,
            np.array(starts, np.int64),
            np.array(stops, np.int64),
            None if len(numbers) == 1 else np.array([numbers[source] for source in sources], np.int64),
            router.unread.passes_over,
        )
        rest, handed = found.rest, 0
        #: The position of each run, and of its HEARTBEATs, which are processed after everything before them.
        turns = [(each.first, -1, i) for i, each in enumerate(found.runs)]
        turns += [(behind, at, i) for i, each in enumerate(found.runs) for behind, at in each.heartbeats]
        turns.sort()
        trusted: set[int] = set()
        pause = router.work + RUNS_WORK
        for position, heartbeat_at, i in turns:
            before = bisect(rest, position, handed)
            yield from (spans[each] for each in rest[handed:before])
            handed = before
            first, run, _ = found.runs[i]
            if heartbeat_at >= 0:
                if i in trusted:
                    router.on_heartbeat_at(data, heartbeat_at, run.writer.prefix, now)
                continue
            if router.work > pause:
                yield None
                pause = router.work + RUNS_WORK
            if isinstance(run, BatchRange):
                if not self._hand_batches(run, sources[first], now):
                    yield from spans[first : first + run.batches]
                continue
            if not router.is_trusted(run.writer.prefix, sources[first], run.count, now):
                continue
            trusted.add(i)
            if isinstance(run, Run):
                router.on_run(run, now)
            else:
                router.unread.drop(run.writer, run.count)
                router.work += WORK[Data.KIND]
        yield from (spans[i] for i in rest[handed:])

    def _receive_large(
        self, data: U8, spans: Sequence[Span], now: int, *, joins_heartbeats: bool = True
    ) -> Iterator[Span | None]:
        """As :meth:`receive_runs`, in large datagrams."""
        router = self._router
        handed = 0
        pause = router.work + RUNS_WORK
        for each in scan_large(data, spans, joins_heartbeats=joins_heartbeats):
            yield from spans[handed : each.first]
            handed = each.stop
            if router.work > pause:
                yield None
                pause = router.work + RUNS_WORK
            source_ip = spans[each.first][2]
            if isinstance(each, LargeRun):
                if router.is_trusted(each.run.writer.prefix, source_ip, each.run.count, now):
                    router.on_run(each.run, now)
            elif isinstance(each, LargeMessages):
                if not self._hand_runs(each.runs, source_ip, now):
                    handed = each.first
            elif isinstance(each, LargeBatches):
                if not self._hand_batches(each.range_, source_ip, now):
                    handed = each.first
            elif each.is_divided and not self._takes(each.equal_ranges):
                these = spans[each.first : each.stop]
                yield from self._receive_large(data, these, now, joins_heartbeats=False)
            elif not self._hand_fragments(each.equal_ranges, source_ip, now):
                handed = each.first
            else:
                for heartbeat_at in each.heartbeats:
                    router.on_heartbeat_at(data, heartbeat_at, each.equal_ranges[0].writer.prefix, now)
        yield from spans[handed:]

    def _takes(self, equal_ranges: list[FragmentRange]) -> bool:
        """Whether all readers of a writer accept these fragments unchanged."""
        if len(equal_ranges) > 1:
            return False
        readers = self._router.addressed(equal_ranges[0].writer, equal_ranges[0].reader_id)
        return all(reader.takes(equal_ranges[0]) for reader in readers)

    def _hand_fragments(self, equal_ranges: list[FragmentRange], source_ip: str, now: int) -> bool:
        router = self._router

        def take(reader: StatefulReader) -> None:
            before = reader.delivery.reassembly.budget.taken
            for range_ in equal_ranges:
                reader.on_fragment_range(range_, now=now)
            router.work += (reader.delivery.reassembly.budget.taken - before) // BYTES_PER_WORK_CLEARED

        work = WORK_FRAGMENTS * sum(each.submessages for each in equal_ranges)
        return self._hand(equal_ranges[0], work, take, source_ip, now)

    def _hand_batches(self, range_: BatchRange, source_ip: str, now: int) -> bool:
        router = self._router

        def take(reader: StatefulReader) -> None:
            if not reader.on_batch_range(range_, now=now):
                router.work += WORK[DATA_BATCH] * range_.batches

        work = WORK[DATA_BATCH] + range_.nbytes // BYTES_PER_WORK
        return self._hand(range_, work, take, source_ip, now)

    def _hand_runs(self, runs: list[Run], source_ip: str, now: int) -> bool:
        work = len(runs) * (WORK[Data.KIND] + runs[0].nbytes // BYTES_PER_WORK)
        return self._hand(runs[0], work, lambda reader: reader.on_runs(runs, now=now), source_ip, now)

    def _hand(
        self,
        of: FragmentRange | BatchRange | Run,
        work: int,
        take: Callable[[StatefulReader], None],
        source_ip: str,
        now: int,
    ) -> bool:
        """Hand samples that were parsed together, at a cost of ``work``, to the readers of their writer. False: no
        reader of ours reads the writer, or the sender is not trusted."""
        router = self._router
        readers = router.readers_if_trusted(of.writer, of.reader_id, source_ip, now)
        if not readers:
            return False
        router.work += work
        router.on_alive(of.writer, now)
        router.hand(readers, take)
        return True

    def _admits(self, data: U8, span: Span) -> bool:
        start, stop, source_ip = span
        size = stop - start
        if size <= self.message_size_max:
            return True
        self._drops[DropReason.MESSAGE_TOO_LARGE] += 1
        if self.on_oversized is not None:
            prefix = data[start + 8 : start + HEADER_SIZE].tobytes()
            remote = self._remotes.get(prefix)
            known = () if remote is None else remote.addresses
            self.on_oversized(f"{source_ip or ', '.join(sorted(known)) or 'unknown'} ({prefix.hex()})", size)
        return False
