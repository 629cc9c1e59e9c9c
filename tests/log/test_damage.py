"""A stream log whose files are damaged in every way there is: right rows or a named loss, never other rows or silence.

The oracle is the same everywhere. What is read is the log's rows without some of them, in order. The ones that are
missing were handed over as damage, with their number where it is told; without ``on_damage`` reading raises an error
that names the log. A log that is opened and appended to shows the appended rows too, and never gives a position to
other rows than before.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from spark_rtps.transport.errors import LogDamagedError, LogError, LogLostError
from spark_rtps.transport.log import checkpoint, segment
from spark_rtps.transport.log.checksum import FOLDED_FROM, body_checksum
from spark_rtps.transport.log.damage import Damage
from spark_rtps.transport.log.frame import Cursor, Frame
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.wire.samples import Run
from tests.log.make_runs import Sample, all_samples, guid, indexed, samples, single, uniform

PAGE = segment.PAGE
W1, W2 = guid(1), guid(2)
LATER = samples(single(W2, 1000))
RUNS = [uniform(W1, 1, 3), indexed(W2, 1, 4), single(W1, 4), uniform(W1, 5, 2, 8), single(W2, 5, 0)]


def plain(frame: Frame) -> tuple[object, ...]:
    """All of a frame, to compare; the number of its samples first."""
    run = frame.run
    rest = [getattr(run, name) for name in _PLAIN]
    index = b"" if run.index is None else run.index.tobytes()
    place = frame.position, frame.length, frame.reception, frame.rows_before
    return run.count, *place, *rest, run.data.tobytes(), index


_PLAIN = [field.name for field in fields(Run) if field.name not in ("data", "index")]


class Scene:
    """A log of two and a half segments, as ``kill -9`` leaves it, which can be had back as it was."""

    def __init__(self, home: Path, *, name: str = "log", is_closed: bool = False) -> None:
        self.directory = home / name
        sound = home / f"sound {name}"
        self.samples: list[Sample] = []
        self.starts: list[int] = []
        numbers = {W1: 1, W2: 1}
        with StreamLog.create(sound, max_bytes=16 * PAGE, segment_bytes=PAGE, metadata={"a": 1}) as log:
            while log.position < 2 * PAGE + PAGE // 2:
                run = RUNS[len(self.starts) % len(RUNS)]
                run.first_sn = numbers[run.writer]
                numbers[run.writer] += run.count
                assert log.append(run, reception=0)
                self.starts.append(log.position)
                self.samples += samples(run)
            self.end = log.position
            if is_closed:
                log.close()
            self.files = {path.name: path.read_bytes() for path in sound.iterdir()}
        self.restore()
        self.view = LogView(self.directory)
        self.frames = [plain(frame) for frame in self.view.frames(Cursor(0), Cursor(self.end))]

    def restore(self, *names: str) -> None:
        """All files, or these, as they were; no others are left."""
        self.directory.mkdir(exist_ok=True)
        for name in os.listdir(self.directory):
            if name not in self.files:
                (self.directory / name).unlink()
        for name, raw in self.files.items():
            path = self.directory / name
            if not path.exists() or path.stat().st_size != len(raw) or name in names or not names:
                with open(path, "r+b" if path.exists() else "w+b") as file:
                    file.write(raw)
                    file.truncate()

    @property
    def segments(self) -> list[str]:
        return sorted(name for name in self.files if name.endswith(segment.SUFFIX))

    # --- the oracle --------------------------------------------------------------------------------

    def check_reading(self, view: LogView | None = None) -> list[Damage] | None:
        """Read with damage handed over, and without; the damage, None if no view was to be had."""
        view = view or LogView(self.directory)
        end = Cursor(self.end)
        found: list[Damage] = []
        try:
            got = all_samples(view.frames(Cursor(0), end, found.append))
        except LogError as error:
            self.check_name(error)
            return None
        self.check(got, self.samples, found)
        for limit in (7, 100):
            planned = view.advance(Cursor(0), max_rows=limit, tail=self.end)
            assert Cursor(0) < planned <= end
        pieces = view.split(Cursor(0), end, 3)
        assert all_samples(f for low, high in pieces for f in view.frames(low, high, lambda _: None)) == got
        if any(damage.rows != 0 for damage in found):
            with pytest.raises(LogDamagedError) as raised:
                list(view.frames(Cursor(0), end))
            first = next(damage for damage in found if damage.rows != 0)
            assert (raised.value.position, raised.value.stop) == (first.position, first.stop)
            assert raised.value.path == self.directory
        else:
            assert all_samples(view.frames(Cursor(0), end)) == self.samples == got
        return found

    def check_name(self, error: LogError) -> None:
        assert str(self.directory) in str(error)

    def check_frames(self) -> list[Damage]:
        """The quick form of the same: whole frames."""
        found: list[Damage] = []
        got = [plain(frame) for frame in self.view.frames(Cursor(0), Cursor(self.end), found.append)]
        rest = iter(self.frames)
        assert all(frame in rest for frame in got), "other frames, or in another order"
        missing = len(self.samples) - sum(int(str(frame[0])) for frame in got)
        assert missing == sum(damage.rows for damage in found if damage.rows is not None)
        return found

    def check(self, got: list[Sample], all_: list[Sample], found: list[Damage]) -> None:
        rest = iter(all_)
        assert all(sample in rest for sample in got), "other rows, or in another order"
        lost = [damage.rows for damage in found]
        missing = len(all_) - len(got)
        if None not in lost:
            assert missing == sum(lost)
        assert not missing or found
        for damage in found:
            assert 0 <= damage.position < damage.stop
            if damage.writer is not None and damage.rows:
                numbers = {sample.sn for sample in all_ if sample.writer == damage.writer}
                kept = {sample.sn for sample in got if sample.writer == damage.writer}
                assert damage.first_sn in numbers - kept

    def check_recovery(self) -> StreamLog | None:
        """Open, append, read; None if the log cannot be resumed, which is said by name."""
        try:
            log = StreamLog.open(self.directory)
        except LogLostError as error:
            self.check_name(error)
            return None
        with log:
            assert log.position >= self.end
            assert log.rows >= len(self.samples)
            for damage in log.damage:
                assert damage.path == self.directory
            if not log.append(single(W2, 1000), reception=0):
                log.trim(log.position)  # a file grew so much that there is no room
                assert log.append(single(W2, 1000), reception=0)
                return log
            found: list[Damage] = []
            got = all_samples(LogView(self.directory).frames(Cursor(0), Cursor(log.position), found.append))
            assert got[-1:] == LATER
            self.check(got, self.samples + LATER, found)
            for writer, sn in log.writers.items():
                known = max((s.sn for s in self.samples if s.writer == writer), default=0)
                assert sn <= known or (writer, sn) == (W2, 1000)
        return log


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("damage"))


@pytest.fixture(autouse=True)
def restored(scene: Scene) -> Iterator[None]:
    scene.restore()
    yield
    scene.restore()


def flips(raw: bytes, step: int = 1) -> Iterator[tuple[int, int]]:
    """Each byte with one of its bits flipped, another one each time, or with all of them."""
    for at in range(0, len(raw), step):
        yield at, raw[at] ^ (0xFF if at % 7 == 0 else 1 << at % 8)


def used(name: str, raw: bytes) -> list[int]:
    """Where the bytes of a file lie that mean anything."""
    if name != checkpoint.WRITERS:
        return list(range(len(raw)))
    slot = (len(raw) - PAGE) // 2
    return [start + at for start in (0, slot, 2 * slot) for at in range(100)]


def test_the_log_is_sound(scene: Scene) -> None:
    assert len(scene.segments) == 3
    assert scene.check_reading() == []
    log = scene.check_recovery()
    assert log is not None and log.damage == []


def test_every_byte_of_a_segment_flipped(scene: Scene) -> None:
    sound = 0
    for name in scene.segments:
        raw = scene.files[name]
        with open(scene.directory / name, "r+b", buffering=0) as file:
            for at, value in flips(raw):
                os.pwrite(file.fileno(), bytes([value]), at)
                sound += not scene.check_frames()
                if at % 256 == 0:
                    scene.check_reading(scene.view)
                os.pwrite(file.fileno(), raw[at : at + 1], at)
    assert scene.check_reading(scene.view) == []
    # Nothing is read of what lies behind a PAD's header, or behind a body up to the next frame.
    assert sound < PAGE


@pytest.mark.parametrize("which", range(3))
def test_every_byte_of_a_segment_flipped_before_it_is_resumed(scene: Scene, which: int) -> None:
    name = scene.segments[which]
    raw = scene.files[name]
    for at, value in flips(raw, 5 if which == 2 else 53):
        if which == 2 and at > scene.end - 2 * PAGE + 64:
            break
        scene.restore(*scene.files)
        with open(scene.directory / name, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), bytes([value]), at)
        assert scene.check_recovery() is not None


@pytest.mark.parametrize("name", [checkpoint.WRITERS, segment.METADATA, "lock"])
def test_every_byte_of_another_file_flipped(scene: Scene, name: str) -> None:
    raw = scene.files[name]
    for at in used(name, raw):
        for value in [raw[at] ^ (0xFF if at % 5 == 0 else 1 << at % 8)]:
            scene.restore(*scene.files)
            with open(scene.directory / name, "r+b", buffering=0) as file:
                os.pwrite(file.fileno(), bytes([value]), at)
            assert not scene.check_reading(), "a damaged file of checkpoints is no damage of frames"
            log = scene.check_recovery()
            assert log is None or not log.damage


@pytest.mark.parametrize("fill", [0, 0xFF])
def test_every_page_overwritten(scene: Scene, fill: int) -> None:
    for name, raw in scene.files.items():
        for at in range(0, len(raw), PAGE):
            if at not in used(name, raw):
                continue
            scene.restore(*scene.files)
            path = scene.directory / name
            changed = bytearray(raw)
            changed[at : at + PAGE] = bytes([fill]) * len(raw[at : at + PAGE])
            path.write_bytes(changed)
            found = scene.check_reading()
            if name in scene.segments:
                assert found
            log = scene.check_recovery()
            assert log is None if name == segment.METADATA else log is not None


def test_every_file_cut(scene: Scene) -> None:
    for name, raw in scene.files.items():
        edges = {
            at + by
            for at in (*scene.starts, 0, PAGE, len(raw))
            for by in (-33, -32, -31, -1, 0, 1, 8, 31, 32, 104)
        }
        for size in sorted({edge % (PAGE + 1) if name in scene.segments else edge for edge in edges}):
            if not 0 <= size < len(raw):
                continue
            for check in (scene.check_reading, scene.check_recovery):
                scene.restore(*scene.files)
                os.truncate(scene.directory / name, size)
                check()


def change(action: str, path: Path, other: Path) -> None:
    match action:
        case "removed":
            path.unlink()
        case "emptied":
            path.write_bytes(b"")
        case "swapped":
            raw = path.read_bytes()
            path.write_bytes(other.read_bytes())
            other.write_bytes(raw)
        case "the other's":
            path.write_bytes(other.read_bytes())
        case "grown":
            path.write_bytes(path.read_bytes() + other.read_bytes())


@pytest.mark.parametrize("action", ["removed", "emptied", "swapped", "the other's", "grown"])
def test_files_removed_swapped_and_doubled(scene: Scene, action: str) -> None:
    for name in scene.files:
        for other in scene.files if action not in ("removed", "emptied") else [name]:
            for check in (scene.check_reading, scene.check_recovery):
                scene.restore(*scene.files)
                change(action, scene.directory / name, scene.directory / other)
                check()


@pytest.mark.parametrize("base", [32, PAGE // 2, 3 * PAGE, 4 * PAGE, 1 << 40, 10**19])
def test_a_segment_doubled_under_another_name(scene: Scene, base: int) -> None:
    for name in scene.segments:
        for check in (scene.check_reading, scene.check_recovery):
            scene.restore(*scene.files)
            shutil.copy(scene.directory / name, segment.segment_path(scene.directory, base))
            result = check()
            assert result == [] if isinstance(result, list) else result is not None and not result.damage


def test_segments_of_another_log(scene: Scene, tmp_path: Path) -> None:
    """It holds the same runs at the same positions; only the seeds tell them apart."""
    other = Scene(tmp_path, name="other")
    for name in (*scene.segments, checkpoint.WRITERS):
        for check in (scene.check_reading, scene.check_recovery):
            scene.restore(*scene.files)
            shutil.copy(other.directory / name, scene.directory / name)
            result = check()
            if name in scene.segments:
                assert (result if isinstance(result, list) else result.damage) or name != scene.segments[-1]


def test_an_older_file_of_checkpoints_hides_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, is_closed=True)
    with StreamLog.create(tmp_path / "new", max_bytes=16 * PAGE, segment_bytes=PAGE, metadata={}) as log:
        old = (log.directory / checkpoint.WRITERS).read_bytes()
        for sn in range(1, 60):
            log.append(single(W1, sn, 100), reception=0)
        end, rows = log.position, log.rows
    (tmp_path / "new" / checkpoint.WRITERS).write_bytes(old)
    with StreamLog.open(tmp_path / "new") as log:
        assert (log.position, log.rows, log.writers, log.damage) == (end, rows, {W1: 59}, [])
    assert scene.check_reading() == []


def test_a_payload_behind_damage_is_not_taken_for_a_frame(tmp_path: Path) -> None:
    """A payload that holds a frame with the right position, made by who does not know the log's seed."""
    directory, twin = tmp_path / "log", tmp_path / "twin"
    for where in (twin, directory):
        with StreamLog.create(where, max_bytes=16 * PAGE, segment_bytes=4 * PAGE, metadata={}) as log:
            log.append(single(W1, 1), reception=0)
            start = log.position
            inner = start + 192
            if where == twin:
                log.append(single(W1, 2, 24), reception=0)
                assert log.position == inner, "so that the next frame lies where the payload puts it"
                log.append(single(W2, 666), reception=0)
                forged = segment.segment_path(twin, 0).read_bytes()[inner : log.position]
                continue
            header = inner - start - 104 - 40
            data = np.frombuffer(bytes(header) + forged, np.uint8)
            log.append(type(RUNS[0]).single(W1, 2, data), reception=0)
            raw = segment.segment_path(directory, 0).read_bytes()
            assert raw[inner : inner + len(forged)] == forged
            log.append(single(W1, 3), reception=0)
            end = log.position
    with open(segment.segment_path(directory, 0), "r+b") as file:
        file.seek(start)
        file.write(bytes(8))
    found: list[Damage] = []
    got = all_samples(LogView(directory).frames(Cursor(0), Cursor(end), found.append))
    assert [sample.sn for sample in got] == [1, 3]
    assert [(damage.rows, damage.writer, damage.first_sn) for damage in found] == [(1, W1, 2)]


# --- the checksum of long bodies ------------------------------------------------------------------


def test_long_bodies_are_verified_too(tmp_path: Path) -> None:
    with StreamLog.create(tmp_path / "log", max_bytes=1 << 22, segment_bytes=1 << 18, metadata={}) as log:
        for number in range(3):
            log.append(uniform(W1, 1 + 100 * number, 100, 400), reception=0)
        end = log.position
    path = segment.segment_path(log.directory, 0)
    raw = path.read_bytes()
    view = LogView(log.directory)
    (_, middle, last) = [frame.position for frame in view.frames(Cursor(0), Cursor(end))]
    pages = range(-(-middle // PAGE), last // PAGE - 1)
    assert len(pages) > 5

    def page(number: int) -> slice:
        return slice(number * PAGE, (number + 1) * PAGE)

    changes: list[tuple[str, Callable[[bytearray, int], None]]] = [
        ("zeroed", lambda b, n: b.__setitem__(page(n), bytes(PAGE))),
        ("ones", lambda b, n: b.__setitem__(page(n), b"\xff" * PAGE)),
        ("doubled", lambda b, n: b.__setitem__(page(n), b[page(n + 1)])),
        (
            "swapped",
            lambda b, n: b.__setitem__(slice(n * PAGE, n * PAGE + 2 * PAGE), b[page(n + 1)] + b[page(n)]),
        ),
        ("torn", lambda b, n: b.__setitem__(slice(n * PAGE + 512, (n + 1) * PAGE), bytes(PAGE - 512))),
        ("shifted", lambda b, n: b.__setitem__(page(n), b[n * PAGE + 8 : (n + 1) * PAGE + 8])),
        ("flipped", lambda b, n: b.__setitem__(n * PAGE + 77, b[n * PAGE + 77] ^ 16)),
    ]
    for name, apply in changes:
        for number in pages:
            changed = bytearray(raw)
            apply(changed, number)
            path.write_bytes(changed)
            found: list[Damage] = []
            got = all_samples(view.frames(Cursor(0), Cursor(end), found.append))
            assert [(d.rows, d.writer, d.first_sn) for d in found] == [(100, W1, 101)], name
            assert len(got) == 200


def test_the_checksum_of_a_long_body_finds_what_it_says_it_finds() -> None:
    rng = np.random.default_rng(12)
    body = rng.integers(0, 256, FOLDED_FROM * 4 + 13, np.uint8)
    right = body_checksum(body, 7)
    assert body_checksum(body, 8) != right
    for at in rng.integers(0, body.size - 4, 3000).tolist():
        bits = int(rng.integers(1, 1 << 32))  # a burst of up to 32 bits, at any bit
        shift = at % 8
        for burst in (1 << shift, bits):
            old = body[at : at + 4].copy()
            body[at : at + 4] = np.frombuffer(
                (int.from_bytes(old.tobytes(), "little") ^ burst & 0xFFFFFFFF).to_bytes(4, "little"), np.uint8
            )
            assert body_checksum(body, 7) != right
            body[at : at + 4] = old
    for _ in range(3000):  # two bits, unless they have one column and one number
        pair = rng.integers(0, body.size * 8, 2)
        low, high = sorted(pair.tolist())
        if (high - low) % (64 * 509) == 0:
            continue
        body[[low // 8]] ^= np.uint8(1 << low % 8)
        body[[high // 8]] ^= np.uint8(1 << high % 8)
        assert body_checksum(body, 7) != right
        body[[low // 8]] ^= np.uint8(1 << low % 8)
        body[[high // 8]] ^= np.uint8(1 << high % 8)
    assert body_checksum(body, 7) == right
