"""Fragmented samples are assembled in the log: it holds the same as if they were assembled before."""

from __future__ import annotations

import errno
import os
import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.receiver import writer_types
from spark_rtps.transport.receiver.log_appender import LogAppender
from spark_rtps.transport.receiver.writer_types import WriterTypes
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.samples import Run
from spark_rtps.transport.wire.submessages import Data, DataFrag
from tests.log.make_runs import guid, read, samples, single, uniform
from tests.protocol.burst_scene import ENTITY, SECOND, WRITERS, End
from tests.protocol.large_streams import ANY, FRAGMENT, Stream, arriving, gso_buffer, message, payload
from tests.support.campaigns import seeds

SEGMENT = 1 << 18
Samples = dict[Guid, list[tuple[int, int, bytes]]]


class Receiving:
    """The first of two readers, which delivers to a log."""

    def __init__(
        self, directory: Path, *, in_places: bool, segment: int = SEGMENT, segments: int = 64
    ) -> None:
        self.end = End()
        self.log = StreamLog.create(
            directory, max_bytes=segments * segment, segment_bytes=segment, metadata={}
        )
        everything = SimpleNamespace(accept=lambda run, *, reception, now: run)
        shown = SimpleNamespace(show_log=lambda log: None)
        self.appender = LogAppender(self.log, cast(Any, everything), cast(Any, shown), None, None, hints={})
        self.reader = self.appender.reader = self.end.readers[0]
        self.in_place = 0
        if in_places:
            self.reader.fragments.put_together_at(self._place)
        self.end.on_drained = self._deliver

    def _place(self, nbytes: int, count: int) -> Any:
        return self.appender.place(nbytes, count)

    def _deliver(self, number: int, runs: list[Run]) -> None:
        if number == 0 and runs:
            self.in_place += bool(self.log.places) and self.log.places.hold(runs)
            self.appender.deliver(self.reader, runs)
            self.reader.window = self.appender.room()

    def held(self) -> Samples:
        """By writer, what is in the log."""
        found: Samples = defaultdict(list)
        for frame in LogView(self.log.directory).frames(Cursor(self.log.base), Cursor(self.log.position)):
            run, stamps = frame.run, frame.run.timestamps()
            for i, sn in enumerate(run.sequence_numbers().tolist()):
                found[run.writer].append((sn, int(stamps[i]), bytes(run.samples().payload(i))))
        return found


class BothReceiving(Receiving):
    """Both readers deliver to one log, as those of several topics do."""

    def __init__(self, directory: Path, *, in_places: bool) -> None:
        super().__init__(directory, in_places=in_places)
        first = self.appender
        second = LogAppender(self.log, first._cache, first._shown, None, None, hints={})
        second.reader = self.end.readers[1]
        self.appenders = (first, second)
        if in_places:
            second.reader.fragments.put_together_at(second.place)

    def _deliver(self, number: int, runs: list[Run]) -> None:
        if runs:
            reader, appender = self.end.readers[number], self.appenders[number]
            appender.deliver(reader, runs)
            reader.window = appender.room()


def take_in(ends: list[End], datagrams: list[tuple[bytes, str]], chance: random.Random) -> None:
    at, now = 0, SECOND
    while at < len(datagrams):
        count = chance.choice((1, 2, 5, 16))
        for end in ends:
            end.take_in(datagrams[at : at + count], now=now)
        at, now = at + count, now + 1_000_000


@pytest.mark.parametrize("seed", seeds(80))
def test_the_log_holds_the_same(seed: int, tmp_path: Path) -> None:
    placed = Receiving(tmp_path / "placed", in_places=True)
    plain = Receiving(tmp_path / "plain", in_places=False)
    take_in([placed.end, plain.end], arriving(seed), random.Random(seed))
    assert placed.held() == plain.held()
    assert placed.end.state() == plain.end.state()


def test_two_readers_put_samples_together_in_one_log(tmp_path: Path) -> None:
    """What one of them has begun there makes room for what the other one has complete."""
    both = 0
    for seed in range(40):
        placed = BothReceiving(tmp_path / f"placed{seed}", in_places=True)
        plain = BothReceiving(tmp_path / f"plain{seed}", in_places=False)
        take_in([placed.end, plain.end], arriving(seed), random.Random(seed))
        held = placed.held()
        both += any(len(found) > len(set(found)) for found in held.values())
        assert held == plain.held(), seed
    assert both > 20, "both have delivered"


@pytest.mark.parametrize("seed", seeds(20))
def test_the_log_holds_the_same_where_room_is_scarce(seed: int, tmp_path: Path) -> None:
    placed = Receiving(tmp_path / "placed", in_places=True, segments=4)
    stream, sent = Stream(WRITERS[0], random.Random(seed)), []
    chance = random.Random(seed)
    for sn in range(1, 40):
        size = chance.choice((FRAGMENT + 300, FRAGMENT * 9 + 1))
        sent += [(each, "10.0.0.1") for each in stream.fragments(sn, size, SECOND)]
    for at in range(0, len(sent), 5):
        placed.end.take_in(sent[at : at + 5], now=SECOND)
        placed.appender.commit_position(placed.reader, placed.log.position if chance.random() < 0.5 else 0)
    whole = placed.held()[WRITERS[0]]
    assert whole and all(each[2] == payload(WRITERS[0], each[0], len(each[2])) for each in whole)
    assert [each[0] for each in whole] == list(range(whole[0][0], whole[-1][0] + 1))


def test_samples_that_come_in_order_are_not_copied(tmp_path: Path) -> None:
    """The comparison above would hold if nothing was ever put together in the log."""
    placed = Receiving(tmp_path / "log", in_places=True, segment=1 << 21)
    stream, size = Stream(WRITERS[0], random.Random(1)), FRAGMENT * 9 + 1
    placed.end.take_in([(each, "") for each in stream.fragments(1, size, SECOND)], now=SECOND)
    sent = [(each, "") for sn in range(2, 12) for each in stream.fragments(sn, size, SECOND)]
    for at in range(0, len(sent), 7):  # most bursts end one sample and begin the next
        placed.end.take_in(sent[at : at + 7], now=SECOND)
    assert placed.in_place >= 8
    assert placed.held()[WRITERS[0]] == [(sn, SECOND, payload(WRITERS[0], sn, size)) for sn in range(1, 12)]


def test_whole_samples_of_a_burst_are_assembled_in_the_log(tmp_path: Path) -> None:
    placed = Receiving(tmp_path / "log", in_places=True, segment=1 << 21)
    size, expected = FRAGMENT * 2 + 101, []
    for first_sn in range(1, 60, 6):  # some find no room in their segment
        stamps = [SECOND + first_sn] * 6
        sent = gso_buffer(WRITERS[0], first_sn, 6, size, stamps)
        placed.end.take_in([(each, "") for each in sent], now=SECOND)
        expected += [
            (sn, SECOND + first_sn, payload(WRITERS[0], sn, size)) for sn in range(first_sn, first_sn + 6)
        ]
    assert placed.in_place >= 7
    assert [each[::2] for each in placed.held()[WRITERS[0]]] == [each[::2] for each in expected]


def test_a_sample_being_assembled_is_not_overwritten_by_another(tmp_path: Path) -> None:
    """A sample of another writer is complete while one is being put together in the log."""
    placed = Receiving(tmp_path / "log", in_places=True)
    one, other = (Stream(writer, random.Random(1)) for writer in (WRITERS[0], WRITERS[2]))
    size = FRAGMENT * 6
    placed.end.take_in([(each, "") for each in one.fragments(1, size, SECOND)], now=SECOND)
    begun = [(each, "") for each in one.fragments(2, size, SECOND)]
    placed.end.take_in(begun[:3], now=SECOND)
    assert placed.log.places
    placed.end.take_in([(each, "") for each in other.fragments(1, size, SECOND)], now=SECOND)
    placed.end.take_in(begun[3:], now=SECOND)
    assert placed.held() == {
        WRITERS[0]: [(sn, SECOND, payload(WRITERS[0], sn, size)) for sn in (1, 2)],
        WRITERS[2]: [(1, SECOND, payload(WRITERS[2], 1, size))],
    }


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_complete_sample_without_capacity_leaves_its_frame(pieces: int, tmp_path: Path) -> None:
    """It waits until the window opens, and meanwhile something else is appended."""
    placed = Receiving(tmp_path / "log", in_places=True)
    one, size = Stream(WRITERS[0], random.Random(1)), FRAGMENT * 2
    placed.end.take_in([(each, "") for each in one.fragments(1, size, SECOND)], now=SECOND)
    whole = payload(WRITERS[0], 2, size)
    placed.reader.window = 10_000
    for first in range(1, 3, 3 - pieces):
        count = 3 - pieces
        some = whole[(first - 1) * FRAGMENT : (first - 1 + count) * FRAGMENT]
        frag = DataFrag(ANY, ENTITY, 2, first, count, FRAGMENT, size, some)
        placed.end.take_in([(message(WRITERS[0], SECOND, frag.encode()), "")], now=SECOND)
    small = message(WRITERS[2], SECOND, Data(ANY, ENTITY, 1, payload(WRITERS[2], 1, 8_000)).encode())
    placed.end.take_in([(small, "")], now=SECOND)
    assert placed.log.rows == 2
    placed.reader.window = 1 << 20
    placed.end.take_in([], now=SECOND)
    assert placed.held() == {
        WRITERS[0]: [(sn, SECOND, payload(WRITERS[0], sn, size)) for sn in (1, 2)],
        WRITERS[2]: [(1, SECOND, payload(WRITERS[2], 1, 8_000))],
    }


def test_samples_in_reserved_frames_wait_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is appended as what was received elsewhere is, and what is being put together behind it makes room."""
    placed = Receiving(tmp_path / "log", in_places=True)
    appender, log, vacated = placed.appender, placed.log, list[bool]()
    appender._writer_types = WriterTypes(log.directory, lambda _: None)
    reader = cast(
        Any, SimpleNamespace(hold_acknowledgments=False, vacate=lambda: vacated.append(bool(log.places)))
    )
    appender.reader = reader
    appender.deliver(reader, [uniform(guid(2), 1, 3)])
    runs = []
    for sn, size in ((4, 1_000), (5, 2_000)):
        run, place = single(guid(1), sn, size), appender.place(size)
        assert place is not None
        place[:] = run.data
        runs.append(replace(run, data=place))
    expected = [each for run in runs for each in samples(run)]
    assert appender.place(3_000) is not None

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(writer_types, "_write", refuse)  # the line of this writer
        appender.deliver(reader, runs)
        assert reader.hold_acknowledgments and log.rows == 3
    appender.commit_position(reader, 0)
    assert not reader.hold_acknowledgments and vacated == [True]
    assert read(log.directory, 0, log.position)[3:] == expected


def test_a_log_with_places_takes_nothing_else(tmp_path: Path) -> None:
    with StreamLog.create(tmp_path / "log", max_bytes=1 << 20, segment_bytes=SEGMENT, metadata={}) as log:
        assert log.place(100) is None  # there is no segment yet
        first = uniform(guid(1), 1, 3)
        log.append(first, reception=0)
        places = [log.place(1_000), log.place(2_000)]
        assert log.place(SEGMENT) is None
        runs = [single(guid(1), 4, 1_000), single(guid(1), 5, 2_000)]
        for place, run in zip(places, runs, strict=True):
            assert place is not None
            place[:] = run.data
        placed = [replace(run, data=place) for run, place in zip(runs, places, strict=True)]
        for wrong in (runs[0], placed[1]):
            with pytest.raises(UsageError, match="places"):
                log.append(cast(Run, wrong), reception=0)  # type: ignore[redundant-cast]
        for run in placed:
            assert log.append(cast(Run, run), reception=0)  # type: ignore[redundant-cast]
        log.append(uniform(guid(1), 6, 2), reception=0)
        expected = [first, *runs, uniform(guid(1), 6, 2)]
        assert read(log.directory, 0, log.position) == [each for run in expected for each in samples(run)]


def test_a_reserved_frame_is_no_frame_after_a_crash(tmp_path: Path) -> None:
    log = StreamLog.create(tmp_path / "log", max_bytes=1 << 20, segment_bytes=SEGMENT, metadata={})
    run = uniform(guid(1), 1, 3)
    log.append(run, reception=0)
    place = log.place(10_000)
    assert place is not None
    place[:] = np.random.default_rng(1).integers(0, 256, 10_000, dtype=np.uint8)
    position = log.position
    log._lock, lock = None, log._lock  # killed
    assert lock is not None
    os.close(lock)
    with StreamLog.open(tmp_path / "log") as again:
        assert (again.position, again.damage) == (position, [])
        again.append(uniform(guid(1), 4, 3), reception=0)
        found = read(again.directory, 0, again.position)
        assert found == samples(run) + samples(uniform(guid(1), 4, 3))
