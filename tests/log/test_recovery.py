"""What a killed appender leaves is resumed: every committed frame, no half one."""

from __future__ import annotations

import random
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from spark_rtps.transport.errors import LogDamagedError, LogLostError
from spark_rtps.transport.limits import WRITERS_MAX
from spark_rtps.transport.log import checkpoint, segment
from spark_rtps.transport.log.damage import Damage
from spark_rtps.transport.log.frame import Cursor, align, frame_length
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from tests.log.make_runs import all_samples, guid, indexed, payload, read, samples, single, uniform
from tests.support.child_environment import child_environment

W1, W2 = guid(1), guid(2)
PAGE = segment.PAGE


def create(directory: Path, *, segments: int = 16) -> StreamLog:
    return StreamLog.create(directory, max_bytes=segments * PAGE, segment_bytes=PAGE, metadata={})


def crashed(log: StreamLog, name: str = "crashed") -> Path:
    """The log's directory as ``kill -9`` would leave it now."""
    twin = log.directory.with_name(name)
    shutil.rmtree(twin, ignore_errors=True)
    shutil.copytree(log.directory, twin)
    return twin


def newest_checkpoint(directory: Path) -> checkpoint.Checkpoint:
    return checkpoint.read_checkpoint(directory, segment.read_metadata(directory).seed)


def with_tail(log: StreamLog, position: int, rows: int) -> bytes:
    """The file of checkpoints as it was when the log ended at ``position``."""
    raw = (log.directory / checkpoint.WRITERS).read_bytes()
    return raw[:-PAGE] + struct.pack("=4q", position, rows, ~position, ~rows).ljust(PAGE, b"\0")


def last_segment(directory: Path) -> Path:
    return max(directory.glob("*.segment"))


@pytest.mark.parametrize("writers", [0, 1, 40, 41, 42, 300, WRITERS_MAX])
def test_a_checkpoint_of_many_writers(tmp_path: Path, writers: int) -> None:
    checkpoint.create_checkpoint_file(tmp_path)
    known = tuple((guid(number), number) for number in range(writers))
    kept = checkpoint.Checkpoint(7, 64, 96, 128, 4096, 9, known)
    checkpoint.write_checkpoint(tmp_path, kept, seed=3)
    assert checkpoint.read_checkpoint(tmp_path, 3) == kept
    assert checkpoint.read_base(tmp_path, 3) == (64, 96)
    path = tmp_path / checkpoint.WRITERS
    raw = bytearray(path.read_bytes())
    raw[checkpoint._SLOT_BYTES + checkpoint._SLOT_HEADER.size + writers * 24 - 1] ^= 1  # its last one
    path.write_bytes(raw)
    with pytest.raises(LogLostError):
        checkpoint.read_base(tmp_path, 3)


def test_an_appender_that_was_not_closed(tmp_path: Path) -> None:
    with create(tmp_path / "log") as log:
        for sn in range(1, 60):
            log.append(uniform(W1, sn * 10, 10) if sn % 2 else indexed(W2, sn * 10, 10), reception=0)
        with StreamLog.open(crashed(log)) as again:
            assert (again.position, again.base, again.rows) == (log.position, log.base, log.rows)
            assert again.writers == log.writers
            assert again.free_bytes == log.free_bytes
            assert read(again.directory, 0, again.position) == read(log.directory, 0, log.position)


def test_nothing_was_appended_yet(tmp_path: Path) -> None:
    with create(tmp_path / "log") as log, StreamLog.open(crashed(log)) as again:
        assert (again.position, again.rows) == (0, 0)
        assert again.append(single(W1, 1), reception=0)


@pytest.mark.parametrize("make", [uniform, indexed])
def test_the_last_frame_cut_at_every_byte(tmp_path: Path, make: type) -> None:
    with create(tmp_path / "log") as log:
        log.append(make(W1, 1, 3), reception=0)
        before = log.position
        log.append(make(W1, 4, 2), reception=0)
        after = log.position
        twin = crashed(log)
        whole = last_segment(twin).read_bytes()
        known = (twin / checkpoint.WRITERS).read_bytes()
    sound = 0
    for cut in range(before, after):
        last_segment(twin).write_bytes(whole[:cut])
        (twin / checkpoint.WRITERS).write_bytes(known)
        with StreamLog.open(twin) as again:
            assert (again.position, again.rows) == (after, 5)
            assert again.append(make(W1, 6, 1), reception=0)
            if not again.damage:
                sound += 1
                assert again.writers == {W1: 6}
                assert [sample.sn for sample in read(twin, 0, again.position)] == [1, 2, 3, 4, 5, 6]
                continue
            (damage,) = again.damage
            assert (damage.position, damage.stop, damage.rows) == (before, after, 2)
            with pytest.raises(LogDamagedError, match=f"at position {before}: 2 samples of writer"):
                read(twin, 0, again.position)
            found: list[Damage] = []
            frames = LogView(twin).frames(Cursor(0), Cursor(again.position), found.append)
            assert [sample.sn for sample in all_samples(frames)] == [1, 2, 3, 6]
            assert found == [Damage(twin, before, after, 2, W1, 4)]
    # Only zeros behind the body may be missing without harm.
    assert sound == sum(1 for cut in range(before, after) if not any(whole[cut:after]))


def test_samples_lost_at_the_end_are_requested_again(tmp_path: Path) -> None:
    with create(tmp_path / "log") as log:
        log.append(single(W1, 1), reception=0)
        before = log.position
        log.append(single(W1, 2), reception=0)
        twin = crashed(log)
        end = log.position
    raw = bytearray(last_segment(twin).read_bytes())
    raw[before:end] = bytes(end - before)
    last_segment(twin).write_bytes(raw)
    with StreamLog.open(twin) as again:
        # No position is given to other samples than before, and the reader goes on with the first lost sample.
        assert (again.position, again.rows, again.writers) == (end, 2, {W1: 1})


def test_the_last_frame_half_stored_at_every_byte(tmp_path: Path) -> None:
    with create(tmp_path / "log") as log:
        log.append(uniform(W1, 1, 3), reception=0)
        before = log.position
        log.append(uniform(W1, 4, 1), reception=0)
        twin = crashed(log)
        whole = last_segment(twin).read_bytes()
        length = int.from_bytes(whole[before : before + 4], "little")
        known = with_tail(log, before, 3)
        for stored in range(4, length):
            torn = (-length).to_bytes(4, "little", signed=True) + whole[before + 4 : before + stored]
            last_segment(twin).write_bytes((whole[:before] + torn).ljust(PAGE, b"\0"))
            (twin / checkpoint.WRITERS).write_bytes(known)
            with StreamLog.open(twin) as again:
                assert (again.position, again.rows, again.writers) == (before, 3, {W1: 3})
                assert not again.damage
            assert not any(last_segment(twin).read_bytes()[before:])


@pytest.mark.parametrize("shift", [-32, 32])
def test_stale_bytes_are_never_a_frame(tmp_path: Path, shift: int) -> None:
    """What lies behind the tail is zeroed: a frame of another position, and one that would be next."""
    with create(tmp_path / "log") as log:
        for sn in range(1, 6):
            log.append(single(W1, sn), reception=0)
        position = log.position
        twin = crashed(log)
    raw = bytearray(last_segment(twin).read_bytes())
    frame = raw[:192]
    raw[position + 224 + shift : position + 224 + shift + 192] = frame
    raw[position : position + 4] = b"\xff\xff\xff\xff"
    last_segment(twin).write_bytes(raw)
    with StreamLog.open(twin) as again:
        assert again.position == position
        assert not any(last_segment(twin).read_bytes()[position:])
        assert again.append(single(W1, 6), reception=0)
        assert [sample.sn for sample in read(twin, 0, again.position)] == list(range(1, 7))


def test_a_committed_position_beyond_the_frames_is_lost(tmp_path: Path) -> None:
    with create(tmp_path / "log") as log:
        log.append(single(W1, 1), reception=0)
        position = log.position
        twin = crashed(log)
    raw = bytearray(last_segment(twin).read_bytes())
    raw[position : 2 * position] = raw[:position]
    raw[position + 16 : position + 24] = (1).to_bytes(8, "little")  # rows_before would be right
    last_segment(twin).write_bytes(raw)
    with StreamLog.open(twin) as again:
        assert (again.position, again.rows) == (PAGE, 1)
        assert again.damage == [Damage(twin, position, PAGE)]
        assert again.append(single(W1, 2), reception=0)
        with pytest.raises(LogDamagedError, match="an unknown number of samples are lost"):
            read(twin, 0, again.position)


def test_killed_between_a_new_segment_and_its_first_frame(tmp_path: Path) -> None:
    with create(tmp_path / "log") as log:
        log.append(single(W1, 1), reception=0)
        for name in (f"{PAGE:020d}.segment", f"{2 * PAGE:020d}.new"):
            twin = crashed(log)
            (twin / name).write_bytes(bytes(PAGE))
            with StreamLog.open(twin) as again:
                assert (again.position, again.rows) == (log.position, 1)
                assert not (twin / name).exists()
                while again.position < 2 * PAGE:
                    assert again.append(single(W1, again.rows + 1, 300), reception=0)
                assert [sample.sn for sample in read(twin, 0, again.position)] == list(
                    range(1, again.rows + 1)
                )


def test_killed_between_a_long_frame_and_its_pad(tmp_path: Path) -> None:
    with create(tmp_path / "log") as log:
        log.append(single(W1, 1, 5 * PAGE), reception=0)
        twin = crashed(log)
        end = log.position
        raw = bytearray(last_segment(twin).read_bytes())
        pad = align(frame_length(single(W1, 1, 5 * PAGE)))
        raw[pad:] = bytes(len(raw) - pad)
        last_segment(twin).write_bytes(raw)
        with StreamLog.open(twin) as again:
            assert (again.position, again.rows) == (end, 1)
            again.trim(end)  # else the next long one would find no room for ever
            assert again.append(single(W1, 2, 14 * PAGE), reception=0)


def test_killed_while_trimming(tmp_path: Path) -> None:
    with create(tmp_path / "log") as log:
        while log.position < 4 * PAGE:
            log.append(single(W1, log.rows + 1, 300), reception=0)
        twin = crashed(log)
        log.trim(2 * PAGE)
        shutil.copy(
            log.directory / checkpoint.WRITERS, twin / checkpoint.WRITERS
        )  # the segments are still there
        with StreamLog.open(twin) as again:
            assert (again.base, again.position, again.rows) == (log.base, log.position, log.rows)
            assert len(list(twin.glob("*.segment"))) == len(list(log.directory.glob("*.segment")))


def test_a_checkpoint_cut_short_leaves_the_one_before(tmp_path: Path) -> None:
    with create(tmp_path / "log") as log:
        while log.position < 3 * PAGE:
            log.append(single(W1, log.rows + 1, 300), reception=0)
        newest = newest_checkpoint(log.directory)
        twin = crashed(log)
    raw = bytearray((twin / checkpoint.WRITERS).read_bytes())
    half = (len(raw) - PAGE) // 2
    raw[newest.serial % 2 * half + 50] ^= 1
    (twin / checkpoint.WRITERS).write_bytes(raw)
    assert newest_checkpoint(twin).serial == newest.serial - 1
    with StreamLog.open(twin) as again:
        assert (again.position, again.rows, again.writers) == (log.position, log.rows, log.writers)
        again.close()
    (twin / checkpoint.WRITERS).write_bytes(bytes(len(raw)))
    with pytest.raises(LogLostError, match="damaged"):
        StreamLog.open(twin)


def test_lost_segments_are_logged(tmp_path: Path) -> None:
    with create(tmp_path / "log") as log:
        while log.position < 4 * PAGE:
            log.append(single(W1, log.rows + 1, 300), reception=0)
        end, rows = log.position, log.rows
        starts = [frame.position for frame in LogView(log.directory).frames(Cursor(0), Cursor(end))]
        middle, last = f"{PAGE:020d}.segment", f"{4 * PAGE:020d}.segment"
        for name, start, stop in ((middle, PAGE, 2 * PAGE), (last, 4 * PAGE, end)):
            for remove in (Path.unlink, lambda path: path.write_bytes(b"")):
                twin = crashed(log)
                remove(twin / name)
                with StreamLog.open(twin) as again:
                    assert (again.position, again.rows) == (end, rows)
                    (damage,) = again.damage
                    lost = sum(start <= at < stop for at in starts)
                    assert (damage.position, damage.stop, damage.rows) == (start, stop, lost)
                    assert again.append(single(W1, rows + 1), reception=0)
                    with pytest.raises(
                        LogDamagedError, match=f"at position {start}: {lost} samples of writer"
                    ):
                        read(twin, 0, again.position)
                    found: list[Damage] = []
                    frames = LogView(twin).frames(Cursor(0), Cursor(again.position), found.append)
                    assert len(all_samples(frames)) == rows + 1 - lost
                    assert [(d.position, d.stop, d.rows) for d in found] == [(start, stop, lost)]
                    assert (found[0].writer, found[0].first_sn) == (W1, starts.index(start) + 1)


def test_a_frame_right_behind_damage_counts(tmp_path: Path) -> None:
    with create(tmp_path / "log") as log:
        log.append(uniform(W1, 1, 3), reception=0)
        at = log.position
        log.append(uniform(W2, 1, 3), reception=0)
        log.append(uniform(W1, 4, 3), reception=0)
        twin = crashed(log)
    raw = bytearray(last_segment(twin).read_bytes())
    raw[at + 16] ^= 0xFF
    last_segment(twin).write_bytes(raw)
    with StreamLog.open(twin) as again:
        assert again.writers == {W1: 6}, "its reader would ask for 4 to 6 again, which are in the log"


def damage(directory: Path, rng: random.Random) -> None:
    """One bit, a sector, the rest of a segment, or all of it."""
    files = sorted(directory.glob("*.segment"))
    if not files:
        return
    file, kind = rng.choice(files), rng.random()
    raw = bytearray(file.read_bytes())
    if kind < 0.5 and raw:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    elif kind < 0.75 and raw:
        at = rng.randrange(len(raw)) // 512 * 512
        raw[at : at + 512] = bytes(512)
    elif kind < 0.9:
        del raw[rng.randrange(len(raw) + 1) :]
    else:
        file.unlink()
        return
    file.write_bytes(raw)


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_damage_repeats_no_sample_and_reuses_no_position(tmp_path: Path, seed: int) -> None:
    """What a recovered log lets its reader ask for next follows all that can still be read of each writer."""
    for number in range(seed, seed + 20):
        rng = random.Random(number)
        directory = tmp_path / str(number)
        log = StreamLog.create(directory, max_bytes=64 * PAGE, segment_bytes=2 * PAGE, metadata={})
        numbers = dict.fromkeys((guid(1), guid(2), guid(3), guid(4)), 0)
        for _ in range(rng.randrange(1, 60)):
            writer, count = rng.choice(list(numbers)), rng.randrange(1, 12)
            make = uniform if rng.random() < 0.6 else indexed
            if not log.append(make(writer, numbers[writer] + 1, count), reception=1):
                break
            numbers[writer] += count
            if rng.random() < 0.03:
                log.trim(rng.randrange(0, log.position + 1))
        twin, end = crashed(log, f"crashed-{number}"), log.position
        log.close()
        for _ in range(rng.randrange(1, 4)):
            damage(twin, rng)
        with StreamLog.open(twin) as again:
            assert again.position >= end
            for writer in numbers:
                assert again.append(uniform(writer, again.writers.get(writer, 0) + 1, 3), reception=2)
            last = dict.fromkeys(numbers, 0)
            start, stop = Cursor(again.base), Cursor(again.position)
            for frame in LogView(twin).frames(start, stop, lambda _: None):
                assert frame.run.first_sn > last[frame.run.writer], (number, frame.position)
                last[frame.run.writer] = frame.run.last_sn
            LogView(twin).split(start, stop, 3)
            LogView(twin).advance(start, max_rows=5, tail=stop.position)


APPEND_FOREVER = """
import sys
from pathlib import Path
from tests.log.make_runs import guid, indexed, single, uniform
from spark_rtps.transport.log.stream_log import StreamLog
runs = [make(guid(1), 1, n, 400) for make in (uniform, indexed) for n in (1, 7, 40)]
log = StreamLog.open(Path(sys.argv[1]))
sn = log.writers.get(guid(1), 0) + 1
print(log.position, flush=True)
while True:
    run = runs[sn % len(runs)]
    run.first_sn = sn
    if not log.append(run, reception=0):
        log.trim((log.base + log.position) // 2)
    else:
        sn += run.count
"""


def test_kill_at_random_instants(tmp_path: Path) -> None:
    """Real appenders, killed while they append and trim as fast as they can; all work on one log."""
    directory = tmp_path / "log"
    StreamLog.create(directory, max_bytes=64 * PAGE, segment_bytes=8 * PAGE, metadata={}).close()
    rng = random.Random(2)
    last = 0
    for _ in range(20):
        with subprocess.Popen(
            [sys.executable, "-c", APPEND_FOREVER, str(directory)],
            stdout=subprocess.PIPE,
            env=child_environment(),
        ) as child:
            assert child.stdout is not None
            assert int(child.stdout.readline()) >= last
            try:
                child.wait(rng.uniform(0, 0.02))
            except subprocess.TimeoutExpired:
                pass
            assert child.poll() is None
            child.send_signal(signal.SIGKILL)
        with StreamLog.open(directory) as log:
            assert not log.damage
            got = read(directory, log.base, log.position)
            if got:
                numbers = [sample.sn for sample in got]
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
                assert numbers[-1] == log.writers[W1] == log.rows
                assert all(len(s.payload) in (0, 400, 404, 408) for s in got)
                assert payload(W1, 1, 400) in {sample.payload for sample in got}
            assert log.position >= last
            last = log.position
    assert last > 64 * PAGE


def test_samples_survive_many_lives(tmp_path: Path) -> None:
    expected = []
    create(tmp_path / "log").close()
    for life in range(12):
        with StreamLog.open(tmp_path / "log") as log:
            run = indexed(guid(life % 3), life * 10 + 1, 10)
            assert log.append(run, reception=0)
            expected += samples(run)
            assert read(tmp_path / "log", 0, log.position) == expected
