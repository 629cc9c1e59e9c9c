"""Reading in place: cursors, advance, split, and a reader beside an appender."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.commands.log_reading import items, one_log
from spark_rtps.serving.wire_format.misplaced_offset import find_misplacement
from spark_rtps.transport.errors import LogDamagedError, LogError, LogLostError, UsageError
from spark_rtps.transport.log import segment
from spark_rtps.transport.log.checkpoint import read_checkpoint
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.damage import Damage
from spark_rtps.transport.log.frame import HEADER_BYTES, Cursor, Frame, PadFrame, align
from spark_rtps.transport.log.frame_scan import FrameHeader, SegmentFrames
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.segment import read_metadata
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.log.verification import verify
from spark_rtps.transport.wire.samples import SAMPLE_INDEX, Run
from tests.log.make_runs import Sample, all_samples, guid, indexed, read, samples, single, uniform
from tests.support.child_environment import child_environment
from tests.support.refusals import OPENING, Refusal

W1, W2 = guid(1), guid(2)
PAGE = segment.PAGE


class Filled:
    """A closed log of 12 frames over several segments, and the cursor before each of its samples."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.samples: list[Sample] = []
        self.cursors: list[Cursor] = []
        with StreamLog.create(directory, max_bytes=32 * PAGE, segment_bytes=PAGE, metadata={}) as log:
            for number in range(12):
                make = (uniform, indexed)[number % 2]
                run = make(W1, len(self.samples) + 1, 3 + number % 4, 120 + 40 * number)
                log.append(run, reception=number)
                self.samples += samples(run)
            self.tail = log.position
            frames = list(LogView(directory).frames(Cursor(0), Cursor(self.tail)))
        self.starts = [Cursor(frame.position) for frame in frames]
        self.ends = [frame.position + frame.length for frame in frames]
        self.cursors = [Cursor(frame.position, row) for frame in frames for row in range(frame.run.count)]
        self.bytes = [frame.length / frame.run.count for frame in frames for _ in range(frame.run.count)]
        self.view = LogView(directory)

    def row(self, cursor: Cursor) -> int:
        """How many samples lie before a cursor."""
        return sum(other < cursor for other in self.cursors)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return Filled(tmp_path_factory.mktemp("view") / "log")


def test_every_range_of_cursors(filled: Filled) -> None:
    ends = [*filled.cursors, Cursor(filled.tail)]
    for i, start in enumerate(ends):
        for j in range(i, len(ends), 3):
            frames = list(filled.view.frames(start, ends[j]))
            assert all_samples(frames) == filled.samples[i:j]
            assert [frame.rows_before for frame in frames] == [frame.run.first_sn - 1 for frame in frames]


def test_a_cursor_behind_a_frames_last_row_is_the_next_frame(filled: Filled) -> None:
    first = next(filled.view.frames(Cursor(0), Cursor(filled.tail)))
    behind = Cursor(0, first.run.count)
    assert read(filled.directory, behind, filled.tail) == filled.samples[first.run.count :]
    assert read(filled.directory, 0, behind) == filled.samples[: first.run.count]
    assert filled.row(filled.view.advance(behind, max_rows=1, tail=filled.tail)) == first.run.count + 1


def test_lost_positions_are_reported(filled: Filled, tmp_path: Path) -> None:
    view = filled.view
    with pytest.raises(LogLostError, match=r"position \d+ is not \(yet\) in the log"):
        list(view.frames(Cursor(0), Cursor(filled.tail + 32)))
    with pytest.raises(LogLostError, match=r"not \(yet\) in the log in .*, which holds segments \[0, "):
        view.frames(Cursor(1 << 40), Cursor((1 << 40) + 32))
    with pytest.raises(LogLostError):
        list(view.frames(Cursor(8), Cursor(filled.tail)))  # no frame starts there
    with pytest.raises(LogLostError):
        list(view.frames(Cursor(32), Cursor(filled.tail)))
    with pytest.raises(LogLostError, match="no frame ends at position 32"):
        list(view.frames(Cursor(0), Cursor(32)))
    with pytest.raises(UsageError, match="no row 99"):
        list(view.frames(Cursor(0), Cursor(0, 99)))
    for start, end in ((5, 0), (4, 0)), ((-1, 0), (4, 0)), ((0, -1), (4, 0)):
        with pytest.raises(UsageError, match="no range"):
            view.frames(Cursor(*start), Cursor(*end))
    with pytest.raises(LogError, match="there is no stream log"):
        LogView(tmp_path).frames(Cursor(0), Cursor(32))
    StreamLog.create(tmp_path / "log", max_bytes=32 * PAGE, metadata={}).close()
    with pytest.raises(LogLostError, match="which holds nothing"):
        LogView(tmp_path / "log").frames(Cursor(0), Cursor(32))
    assert list(LogView(tmp_path / "log").frames(Cursor(0), Cursor(0))) == []


def test_items_are_frames_and_what_lies_between_them(filled: Filled) -> None:
    ends = [*filled.cursors, Cursor(filled.tail)]
    for i, start in enumerate(ends[::3]):
        for end in ends[3 * i :: 7]:
            for bodies in (False, True):
                items = list(filled.view.items(start, end, bodies=bodies))
                frames = [item for item in items if isinstance(item, Frame)]
                assert all_samples(frames) == all_samples(filled.view.frames(start, end))
                assert all(isinstance(item, (Frame, PadFrame)) for item in items)
                assert [item.stop for item in items[:-1]] == [item.position for item in items[1:]]
    whole = list(filled.view.items(Cursor(0), Cursor(filled.tail)))
    assert any(isinstance(item, PadFrame) for item in whole) and whole[-1].stop == filled.tail
    inside = Cursor(whole[2].position + 32)
    assert [item.position for item in filled.view.items(Cursor(0), inside)] == [
        item.position for item in whole[:3]
    ]
    with pytest.raises(LogLostError, match=r"not \(yet\) in the log"):
        filled.view.items(Cursor(0), Cursor(filled.tail + 32))


def test_a_payload_never_passes_for_a_frame(tmp_path: Path) -> None:
    with StreamLog.create(tmp_path / "log", max_bytes=8 * PAGE, segment_bytes=PAGE, metadata={}) as log:
        log.append(single(W1, 1), reception=0)
        at = log.position
        frame = next(log.directory.glob("*.segment")).read_bytes()[:at]
        header = at + HEADER_BYTES + SAMPLE_INDEX.itemsize
        inside = align(header)
        payload = np.frombuffer(bytes(inside - header) + frame, np.uint8)
        log.append(Run.single(W1, 2, payload), reception=0)
        assert inside + len(frame) == log.position
        with pytest.raises(LogLostError):
            read(log.directory, inside, log.position)


# --- advance --------------------------------------------------------------------------------------


def test_advance_by_rows(filled: Filled) -> None:
    rows = len(filled.samples)
    for i, start in enumerate(filled.cursors):
        for limit in (0, 1, 2, 5, 17, rows):
            end = filled.view.advance(start, max_rows=limit, tail=filled.tail)
            assert filled.row(end) == min(rows, i + max(1, limit))
            assert len(read(filled.directory, start, end)) == filled.row(end) - i


def test_advance_by_bytes(filled: Filled) -> None:
    for i, start in enumerate(filled.cursors):
        for limit in (0, 100, 1000, 5000, 1 << 40):
            end = filled.view.advance(start, max_bytes=limit, tail=filled.tail)
            row = filled.row(end)
            taken = sum(filled.bytes[i:row])
            assert row == i + 1 or (row > i and taken <= limit)
            # a pad's bytes count as well
            assert row == len(filled.bytes) or taken + filled.bytes[row] > limit - PAGE
    for end, start in zip(filled.ends, filled.starts, strict=True):  # type: ignore[assignment]
        cut = filled.view.advance(start, max_bytes=end - start.position, tail=filled.tail)  # type: ignore[operator]
        assert filled.row(cut) == filled.row(Cursor(end))


def test_advance_by_both_and_to_the_tail(filled: Filled) -> None:
    view, tail = filled.view, filled.tail
    assert view.advance(Cursor(0), tail=tail) == Cursor(tail)
    assert view.advance(Cursor(tail), max_rows=1, tail=tail) == Cursor(tail)
    assert view.advance(Cursor(tail), tail=tail) == Cursor(tail)
    one = view.advance(Cursor(0), max_rows=1, max_bytes=1 << 40, tail=tail)
    assert one == Cursor(0, 1)
    assert view.advance(one, max_rows=1 << 40, max_bytes=1, tail=tail) == Cursor(0, 2)


def test_advance_over_nothing_but_a_pad(tmp_path: Path) -> None:
    with StreamLog.create(tmp_path / "log", max_bytes=8 * PAGE, segment_bytes=PAGE, metadata={}) as log:
        log.append(single(W1, 1, 2 * PAGE), reception=0)
        start = Cursor(0, 1)
        view = LogView(log.directory)
        assert view.advance(start, max_rows=5, tail=log.position) == Cursor(log.position)
        assert list(view.frames(start, Cursor(log.position))) == []
        log.append(single(W1, 2), reception=0)
        end = view.advance(start, max_bytes=1, tail=log.position)
        assert [sample.sn for sample in read(log.directory, start, end)] == [2]


def test_batches_of_limited_rows_cover_all(filled: Filled) -> None:
    got, cursor = [], Cursor(0)
    while cursor.position < filled.tail:
        end = filled.view.advance(cursor, max_rows=4, max_bytes=900, tail=filled.tail)
        assert end > cursor
        got += read(filled.directory, cursor, end)
        cursor = end
    assert got == filled.samples


# --- split ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 2, 3, 5, 8, 1000])
def test_split_covers_the_range(filled: Filled, pieces: int) -> None:
    for i, start in enumerate(filled.cursors[::5]):
        for end in (Cursor(filled.tail), filled.cursors[-2], start):
            ranges = filled.view.split(start, end, pieces)
            assert len(ranges) <= pieces
            assert [s for low, high in ranges for s in read(filled.directory, low, high)] == filled.samples[
                5 * i : filled.row(end)
            ]
            assert all(low < high for low, high in ranges)


def test_split_makes_about_equal_pieces(tmp_path: Path) -> None:
    with StreamLog.create(tmp_path / "log", max_bytes=64 * PAGE, segment_bytes=8 * PAGE, metadata={}) as log:
        for sn in range(1, 301):
            log.append(single(W1, sn, 100), reception=0)
        ranges = LogView(log.directory).split(Cursor(0), Cursor(log.position), 4)
        assert [len(read(log.directory, *r)) for r in ranges] == pytest.approx([75] * 4, abs=3)
        assert all(cursor.row == 0 for r in ranges for cursor in r)
        ranges = LogView(log.directory).split(Cursor(0), Cursor(log.position), 1)
        assert ranges == [(Cursor(0), Cursor(log.position))]


def test_a_long_frame_is_split_by_rows(tmp_path: Path) -> None:
    with StreamLog.create(tmp_path / "log", max_bytes=64 * PAGE, segment_bytes=8 * PAGE, metadata={}) as log:
        log.append(uniform(W1, 1, 300), reception=0)
        view = LogView(log.directory)
        ranges = view.split(Cursor(0), Cursor(log.position), 3)
        assert [len(all_samples(view.frames(*r))) for r in ranges] == [99, 100, 101]
        ranges = view.split(Cursor(0, 50), Cursor(0, 250), 2)
        assert [len(all_samples(view.frames(*r))) for r in ranges] == [99, 101]
        with pytest.raises(UsageError, match="0 pieces"):
            view.split(Cursor(0), Cursor(log.position), 0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_cut_of_any_batch(filled: Filled, data: st.DataObject) -> None:
    ends = [*filled.cursors, Cursor(filled.tail)]
    i = data.draw(st.integers(0, len(ends) - 1))
    j = data.draw(st.integers(i, len(ends) - 1))
    pieces = data.draw(st.integers(1, 20))
    got = [
        sample
        for low, high in filled.view.split(ends[i], ends[j], pieces)
        for sample in all_samples(filled.view.frames(low, high))
    ]
    assert got == filled.samples[i:j]


def test_a_view_that_copies_has_the_same_frames_and_shares_no_memory(filled: Filled) -> None:
    end = Cursor(filled.tail)
    for start in filled.cursors:
        copied = list(LogView.copying(filled.directory).frames(start, end))
        assert all_samples(copied) == all_samples(filled.view.frames(start, end))
    view = LogView.copying(filled.directory)
    mapped = [frame.run.data for frame in filled.view.frames(Cursor(0), end)]
    for frame in view.frames(Cursor(0), end):
        assert not any(np.shares_memory(frame.run.data, data) for data in mapped)


def test_a_view_that_copies_follows_an_appender(tmp_path: Path) -> None:
    with StreamLog.create(tmp_path / "log", max_bytes=32 * PAGE, segment_bytes=PAGE, metadata={}) as log:
        view, at, found = LogView.copying(log.directory), Cursor(0), list[Sample]()
        for sn in range(1, 60):
            assert log.append(single(W1, sn, 300), reception=0)
            end = Cursor(log.position)
            found += all_samples(view.frames(at, end))
            at = end
        assert [sample.sn for sample in found] == list(range(1, 60))


# --- in front of what was trimmed ---


@pytest.mark.parametrize(
    "life", ["same", "resumed", "killed while it trims", "overwritten while it is mapped"]
)
def test_a_reader_of_a_whole_trimmed_segment_has_lost_nothing(tmp_path: Path, life: str) -> None:
    """Such a reader stands where the segment's last frame ends, in front of its PAD."""
    directory = tmp_path / "log"
    log = StreamLog.create(directory, max_bytes=16 * PAGE, segment_bytes=4 * PAGE, metadata={})
    assert log.append(single(W1, 1, 9_000), reception=0)
    done = Cursor(log.position)
    for sn in (2, 3):
        assert log.append(single(W1, sn, 9_000), reception=0)
    view = LogView(directory)
    if life.startswith("overwritten"):
        assert view.is_frame(done.position)  # it is mapped now
    if life == "resumed":
        log.close()
        log = StreamLog.open(directory)
    first = directory / f"{0:020d}.segment"
    content = first.read_bytes()
    log.trim(4 * PAGE)
    if life == "killed while it trims":
        first.write_bytes(content)
        log.close()
        log = StreamLog.open(directory)
        assert not first.exists()
    for sn in (4, 5):
        assert log.append(single(W1, sn, 9_000), reception=0)
    end = Cursor(log.position)
    assert find_misplacement(view, done, base=view.base, tail=end) is None
    assert [sample.sn for sample in all_samples(view.frames(done, end))] == [2, 3, 4, 5]
    one = view.advance(done, max_rows=1, tail=end.position)
    assert [sample.sn for sample in read(directory, done, one)] == [2]
    assert [sample.sn for low, high in view.split(done, end, 3) for sample in read(directory, low, high)] == [
        *range(2, 6)
    ]
    assert verify(view).is_sound and verify(view).base == log.base
    before = Cursor(0)
    with pytest.raises(LogLostError, match="no longer in the log"):
        all_samples(view.frames(before, end))
    found = find_misplacement(view, before, base=view.base, tail=end)
    assert found is not None and found.place == done
    log.close()
    if life == "same":  # the next segment is lost, which is none of the PAD
        (directory / f"{4 * PAGE:020d}.segment").unlink()
        with pytest.raises(LogDamagedError, match=f"at position {4 * PAGE}"):
            all_samples(LogView(directory).frames(done, end))


def test_a_reader_at_the_end_loses_nothing_when_descriptors_run_out_during_a_trim(
    tmp_path: Path,
) -> None:
    number, refused = 0, 1
    while refused:
        number += 1
        directory = tmp_path / str(number)
        with StreamLog.create(directory, max_bytes=16 * PAGE, segment_bytes=4 * PAGE, metadata={}) as log:
            assert log.append(single(W1, 1, 9_000), reception=0)
            done = Cursor(log.position)
            assert log.append(single(W1, 2, 9_000), reception=0)
        with StreamLog.open(directory) as log:  # which does not know where the PAD begins
            refusal, refused = Refusal(OPENING, number, errno.EMFILE), 0
            with refusal.armed():
                try:
                    log.trim(4 * PAGE)
                except LogError:
                    refused = 1
            log.trim(4 * PAGE)
            assert log.base == done.position, number
    assert number > 2


def test_a_log_of_a_version_without_the_start_of_its_segments_is_read(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with StreamLog.create(directory, max_bytes=16 * PAGE, segment_bytes=PAGE, metadata={}) as log:
        for sn in range(1, 40):
            log.append(single(W1, sn, 200), reception=0)
        end = log.position
    seed = read_metadata(directory).seed
    known = read_checkpoint(directory, seed)
    raw = bytearray((directory / "writers").read_bytes())
    half = (len(raw) - PAGE) // 2
    fields = struct.pack("<qqqqqI16sq", 99, 0, known.position, known.end, known.rows, 1, W1.to_bytes(), 39)
    old = struct.pack("<4sI", b"wSN2", zlib.crc32(fields, seed)) + fields
    raw[half : half + len(old)] = old
    (directory / "writers").write_bytes(raw)
    assert read_checkpoint(directory, seed) == replace(known, serial=99)
    with StreamLog.open(directory) as log:
        assert (log.position, log.rows, log.writers) == (end, 39, {W1: 39}) and not log.damage


# --- beside an appender ---------------------------------------------------------------------------


def test_a_trimmed_segment_stays_readable_while_it_is_mapped(tmp_path: Path) -> None:
    with StreamLog.create(tmp_path / "log", max_bytes=16 * PAGE, segment_bytes=PAGE, metadata={}) as log:
        for sn in range(1, 40):
            log.append(single(W1, sn, 200), reception=0)
        view = LogView(log.directory)
        frames = view.frames(Cursor(0), Cursor(log.position))
        held = [next(frames), next(frames)]
        log.trim(log.position)
        assert [sample.sn for sample in all_samples(held)] == [1, 2]
        assert [sample.sn for sample in samples(next(frames).run)] == [3]
        with pytest.raises(LogLostError, match="no longer in the log"):
            list(frames)
        with pytest.raises(LogLostError, match="no longer in the log"):
            LogView(log.directory).frames(Cursor(0), Cursor(log.position))


READ_ALONG = """
import os, sys
from pathlib import Path
from tests.log.make_runs import payload, samples
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.damage import Damage
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
directory, rows = Path(sys.argv[1]), int(sys.argv[2])
counters = Counters.open(directory / "counters")
position, consumer = counters.counter("log.position"), counters.counter("log.consumer")
view, cursor, seen = LogView(directory), Cursor(0), 0
print("ready", flush=True)
while seen < rows:
    tail = position.get()
    end = view.advance(cursor, max_rows=500, tail=tail)
    for low, high in view.split(cursor, end, 3):
        for frame in view.frames(low, high):
            assert frame.rows_before == seen, (frame, seen)
            for sample in samples(frame.run):
                seen += 1
                assert sample.sn == seen
                assert sample.payload == payload(sample.writer, seen, len(sample.payload))
    if end == cursor:
        os.sched_yield()
    cursor = end
    consumer.set(cursor.position)
print(seen)
"""


def test_a_reader_process_reads_while_an_appender_trims(tmp_path: Path) -> None:
    directory, rows = tmp_path / "log", 20_000
    refused = 0
    with StreamLog.create(directory, max_bytes=64 * PAGE, segment_bytes=8 * PAGE, metadata={}) as log:
        counters = Counters.create(directory / "counters")
        position, consumer = counters.counter("log.position"), counters.counter("log.consumer")
        with subprocess.Popen(
            [sys.executable, "-c", READ_ALONG, str(directory), str(rows)],
            stdout=subprocess.PIPE,
            env=child_environment(),
        ) as reader:
            assert reader.stdout is not None and reader.stdout.readline() == b"ready\n"
            while log.rows < rows:
                count = min(1 + log.rows % 37, rows - log.rows)
                run = (uniform, indexed)[count % 2](W1, log.rows + 1, count, 40)
                while not log.append(run, reception=0):
                    refused += 1
                    log.trim(consumer.get())
                    assert reader.poll() is None
                position.set(log.position)
            assert int(reader.stdout.readline()) == rows
        assert reader.returncode == 0
        assert refused > 0 and log.base > 0


# --- what was damaged on disk ---------------------------------------------------------------------


def damaged(directory: Path, at: int, value: int) -> LogView:
    """A log whose first frame has another number in its header."""
    Filled(directory)
    path = segment.segment_path(directory, 0)
    raw = bytearray(path.read_bytes())
    raw[at : at + 4] = value.to_bytes(4, "little", signed=True)
    path.write_bytes(raw)
    return LogView(directory)


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 97), (0, PAGE + 1), (0, (1 << 31) - 1), (24, 0), (24, 1 << 20), (24, -1), (28, 1 << 20), (28, -1)],
    ids=["short", "beyond its segment", "long", "none", "many", "most", "wide", "widest"],
)
def test_a_header_that_cannot_be(tmp_path: Path, at: int, value: int) -> None:
    view = damaged(tmp_path / "log", at, value)
    start, end = Cursor(0), Cursor(PAGE)
    with pytest.raises(LogDamagedError, match="is damaged at position 0: 3 samples are lost") as raised:
        list(view.frames(start, end))
    second = raised.value.stop
    assert second is not None and 0 < second < PAGE
    assert view.advance(start, max_rows=2, tail=PAGE) == Cursor(second, 2)
    found: list[Damage] = []
    frames = [frame for piece in view.split(start, end, 4) for frame in view.frames(*piece, found.append)]
    assert (frames[0].run.first_sn, frames[0].rows_before) == (4, 3)
    assert all_samples(frames) == all_samples(view.frames(Cursor(second), end))
    assert found == [Damage(view.directory, 0, second, 3)]


@pytest.mark.parametrize("size", [8, 31, 32, PAGE - 32])
def test_a_segment_that_is_cut(tmp_path: Path, size: int) -> None:
    directory = tmp_path / "log"
    filled = Filled(directory)
    os.truncate(segment.segment_path(directory, 0), size)
    found: list[Damage] = []
    view = LogView(directory)
    got = all_samples(view.frames(Cursor(0), Cursor(filled.tail), found.append))
    (damage,) = found
    assert damage.stop == PAGE and damage.rows is not None
    lost = [row for row, cursor in enumerate(filled.cursors) if damage.position <= cursor.position < PAGE]
    assert len(lost) == damage.rows
    assert got == [sample for row, sample in enumerate(filled.samples) if row not in lost]
    if damage.rows:
        with pytest.raises(LogDamagedError):
            all_samples(view.frames(Cursor(0), Cursor(filled.tail)))
    else:  # it was but a PAD
        assert size == PAGE - 32 and all_samples(view.frames(Cursor(0), Cursor(filled.tail))) == got


@pytest.mark.parametrize(
    ("old", "new"),
    [('"max_bytes"', '"max_byte"'), ('"metadata": {}', '"metadata": []'), (f": {PAGE}", f": {PAGE + 2}")],
)
def test_metadata_that_was_damaged(tmp_path: Path, old: str, new: str) -> None:
    directory = tmp_path / "log"
    Filled(directory)
    path = directory / segment.METADATA
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(LogLostError, match="is damaged"):
        StreamLog.open(directory)


# --- a log that another process trims, and overwrites -------------------------------------------------------


def lapped(log: StreamLog, first: int, count: int) -> None:
    """Samples ``first`` and on, for which the oldest ones make room, and are overwritten."""
    for sn in range(first, first + count):
        run = single(W1, sn, 1000)
        while not log.append(run, reception=sn):
            log.trim_oldest()


def test_copied_frames_stay_unchanged_when_the_log_is_overwritten(tmp_path: Path) -> None:
    with StreamLog.create(tmp_path / "log", max_bytes=8 * PAGE, segment_bytes=2 * PAGE, metadata={}) as log:
        lapped(log, 1, 24)
        sent = {sn: samples(single(guid(1), sn, 1000)) for sn in range(1, 101)}
        got: list[int] = []
        for item in items(one_log(tmp_path / "log"), None, None, bodies=True):
            assert not isinstance(item, Damage)
            if not got:
                lapped(log, 25, 76)
            if isinstance(item, Frame):
                (sample,) = samples(item.run)
                assert [sample] == sent[sample.sn]
                got.append(sample.sn)
        assert got == sorted(set(got)) and got[0] < 25


@pytest.mark.parametrize("number", range(1, 15))
def test_a_time_is_looked_for_while_frames_are_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Once a header was found the receiver gets the processor, and bodies come to lie where headers did."""
    filling = np.full(125, 0x7FFF_FFFF, np.int64).view(np.uint8)
    with StreamLog.create(tmp_path / "log", max_bytes=8 * PAGE, segment_bytes=2 * PAGE, metadata={}) as log:
        lapped(log, 1, 24)
        header, left = SegmentFrames.header, [number]

        def late(self: SegmentFrames, position: int) -> FrameHeader | None:
            found = header(self, position)
            left[0] -= 1
            if not left[0]:
                for sn in range(25, 60):
                    run = Run.single(W1, sn, filling[: 900 + 4 * number])
                    while not log.append(run, reception=sn):
                        log.trim_oldest()
            return found

        with monkeypatch.context() as hooked:
            hooked.setattr(SegmentFrames, "header", late)
            found = LogView(log.directory).at(20)
        held = list(LogView(log.directory).frames(Cursor(log.base), Cursor(log.position)))
        sought = [frame for frame in held if frame.reception >= 20]
        assert [frame for frame in held if frame.stop > found.position] == (sought if left[0] > 0 else held)
