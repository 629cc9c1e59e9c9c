"""A stream log after a power failure: of what was not synced, any page may be on the disk as it was at any time before.

The names of the files are as they were at one moment, since file systems keep the order of those. Whatever is left: no
sample comes out that was not appended, none comes twice or is asked for again while it can be read, and where samples
are missing that are not asked for again, there is damage.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from spark_rtps.serving.wire_format.misplaced_offset import find_misplacement
from spark_rtps.transport.errors import LogError
from spark_rtps.transport.log import checkpoint, host_clocks, segment
from spark_rtps.transport.log.damage import Damage
from spark_rtps.transport.log.frame import Cursor, align, frame_length
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.log.verification import verify
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.samples import Run
from tests.log.make_runs import Sample, all_samples, guid, indexed, samples, single, uniform

PAGE = segment.PAGE
#: They are written with care for their order, or again by whoever starts.
WHOLE = (segment.METADATA, "lock")


class Disk:
    """A folder, and what its files held after each step: their names, and the content of each inode."""

    def __init__(self, folder: Path, before: dict[str, bytes] | None = None) -> None:
        """``before``: what the files held before the log was opened, which synced the page of the tail."""
        self._folder = folder
        self._steps: list[tuple[dict[str, int], dict[int, bytes]]] = []
        self.note()
        names, contents = self._steps[0]
        if before is not None:
            older = {inode: before.get(name, b"") for name, inode in names.items()}
            writers = names[checkpoint.WRITERS]
            older[writers] = older[writers][: checkpoint._TAIL_AT] + contents[writers][checkpoint._TAIL_AT :]
            self._steps.insert(0, (names, older))

    def note(self, *, synced: bool = False) -> None:
        names, contents = dict[str, int](), dict[int, bytes]()
        for entry in os.scandir(self._folder):
            names[entry.name] = inode = entry.inode()
            contents[inode] = Path(entry.path).read_bytes()
        self._steps = [*([] if synced else self._steps), (names, contents)]

    def fail(self, chance: random.Random, left: Path) -> None:
        """Power fails: what is left is put into another folder."""
        left.mkdir()
        names, now = chance.choice(self._steps)
        newest = chance.choice([0.02, 0.3, 0.7, 0.98])
        for name, inode in sorted(names.items()):
            versions = [contents[inode] for _, contents in self._steps if inode in contents]
            if inode not in self._steps[0][1]:
                versions.insert(0, b"")  # it was allocated
            raw = now[inode]
            if name not in WHOLE:
                pages = (self._page(chance, versions, at, newest) for at in range(0, len(raw), PAGE))
                raw = b"".join(pages)[: len(raw)]
            (left / name).write_bytes(raw)

    def _page(self, chance: random.Random, versions: list[bytes], at: int, newest: float) -> bytes:
        found = versions[-1] if chance.random() < newest else chance.choice([versions[0], *versions])
        return found[at : at + PAGE].ljust(PAGE, b"\0")


class Story:
    """A log in its life, and the frame in which each of its samples lies; ``log``: it has lived before."""

    def __init__(
        self,
        chance: random.Random,
        folder: Path,
        log: StreamLog | None = None,
        before: dict[str, bytes] | None = None,
    ) -> None:
        self._chance = chance
        pages = chance.choice([1, 2, 3])
        self.log = log or StreamLog.create(
            folder, max_bytes=24 * PAGE, segment_bytes=pages * PAGE, metadata={}
        )
        self.disk = Disk(folder, before)
        self.frames: dict[int, list[Sample]] = {}
        #: How far a consumer group has come, which is on the disk.
        self.reached = 0

    def tell(self) -> None:
        for _ in range(self._chance.randrange(3, 40)):
            what = self._chance.random()
            if what < 0.8:
                self._append(self._run())
            elif what < 0.9 and self.frames:
                self.log.trim(max(self.log.base, self._chance.choice([*self.frames])))
                self.reached = max(self.reached, self.log.base)
            elif what < 0.95 and self.frames:
                self.reached = max(self.reached, self._chance.choice([*self.frames]))
            self.disk.note(synced=what >= 0.97)
        self.log.close()

    def _run(self) -> Run:
        writer = guid(self._chance.randrange(3))
        first = self.log.writers.get(writer, 0) + 1
        make = self._chance.choice([uniform, indexed, single])
        if make is single:
            return single(writer, first, self._chance.choice([10, 500, 3_000, 7_000]))
        return make(writer, first, self._chance.choice([1, 5, 30]), self._chance.choice([4, 60, 300]))  # type: ignore[no-any-return, operator]

    def _append(self, run: Run) -> None:
        if self.log.append(run, reception=0):
            length = align(frame_length(run))
            is_long = length > self.log.segment_bytes
            at = self.log._segments.files[-1].base if is_long else self.log.position - length
            self.frames[at] = samples(run)


@pytest.mark.parametrize("seed", range(60))
def test_a_log_is_resumed_after_a_power_failure(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    story = Story(chance, tmp_path / "log")
    story.tell()
    trimmed = story.log.base
    story.disk.fail(chance, tmp_path / "left")
    damage: list[Damage] = []
    readable: defaultdict[Guid, set[int]] = defaultdict(set)
    with StreamLog.open(tmp_path / "left", reached=story.reached) as log:
        assert log.position >= story.reached
        rows = 0
        for frame in LogView(log.directory).frames(Cursor(log.base), Cursor(log.position), damage.append):
            found = all_samples([frame])
            assert found == story.frames[frame.position]
            assert frame.rows_before >= rows
            rows = frame.rows_before + len(found)
            for sample in found:
                assert sample.sn not in readable[sample.writer]
                readable[sample.writer].add(sample.sn)
        assert log.rows >= rows
        for writer, numbers in readable.items():
            assert log.writers[writer] >= max(numbers)
        missing = [
            sample
            for position, lain in story.frames.items()
            for sample in lain
            if position >= max(trimmed, log.base)
            and sample.sn <= log.writers.get(sample.writer, 0)
            and sample.sn not in readable[sample.writer]
        ]
        known = sum(each.rows or 0 for each in damage)
        assert known >= len(missing) or any(each.rows is None for each in damage)
        assert log.append(single(guid(1), log.writers.get(guid(1), 0) + 1, 10), reception=0)
        end = log.position, log.rows, log.writers
    with StreamLog.open(tmp_path / "left") as again:
        assert (again.position, again.rows, again.writers) == end


@pytest.mark.parametrize("seed", range(40))
def test_no_position_is_used_again_however_often_the_power_fails(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has read a log may have planned to read it up to its end, and nobody else knows of that."""
    chance = random.Random(seed)
    frames: dict[int, list[Sample]] = {}
    monkeypatch.setattr(host_clocks, "boot_id", lambda: "the first")
    story = Story(chance, tmp_path / "0")
    reached = 0
    for life in range(1, 5):
        story.tell()
        if chance.random() < 0.3:
            story.disk.note()  # as it was closed
        assert not story.frames.keys() & frames.keys()
        frames |= story.frames
        reached = max(reached, story.reached)
        ends = [position + 1 for position in story.frames]
        folder = tmp_path / str(life)
        story.disk.fail(chance, folder)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        monkeypatch.setattr(host_clocks, "boot_id", lambda life=life: f"one more, {life}")
        log = StreamLog.open(folder, reached=chance.choice([0, reached]))
        assert log.position >= max(ends, default=0), "the next frame lies behind all that can be planned"
        view, damage = LogView(folder), list[Damage]()
        for frame in view.frames(Cursor(log.base), Cursor(log.position), damage.append):
            assert all_samples([frame]) == frames[frame.position]
        if ends:  # a micro-batch of the life before
            start, stop = sorted(chance.choices([*story.frames], k=2))
            try:
                planned = list(view.frames(Cursor(start), Cursor(stop), damage.append))
            except LogError:
                planned = []
            for frame in planned:
                assert all_samples([frame]) == frames[frame.position]
        story = Story(chance, folder, log, before)
    story.log.close()


def failed(log: StreamLog, folder: Path) -> Path:
    """The log as it is now, on a host that was started anew since."""
    shutil.copytree(log.directory, folder)
    return folder


def test_a_log_that_went_on_behind_its_end_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything was on the disk: nobody is told of a loss, wherever they stand."""
    monkeypatch.setattr(host_clocks, "boot_id", lambda: "before")
    with StreamLog.create(tmp_path / "log", max_bytes=16 * PAGE, segment_bytes=PAGE, metadata={}) as log:
        for sn in range(1, 61):
            assert log.append(single(guid(1), sn, 300), reception=0)
        end, segments = log.position, log._segments.nbytes // PAGE
        left = failed(log, tmp_path / "left")
    monkeypatch.setattr(host_clocks, "boot_id", lambda: "after")
    for again in range(3):
        with StreamLog.open(left) as log:
            if again == 0:
                first = log.position
                assert first > end + log.max_bytes
                assert log._segments.nbytes == segments * PAGE
            else:
                assert log.position < first + PAGE, "once"
            assert log.damage == []
            assert log.append(single(guid(1), 61 + again, 300), reception=0)
            view = LogView(left)
            assert verify(view).is_sound
            tail = Cursor(log.position)
            for start in (0, end):
                assert find_misplacement(view, Cursor(start), base=view.base, tail=tail) is None
                found = all_samples(view.frames(Cursor(start), tail))
                assert [sample.sn for sample in found] == [*range(61 if start else 1, 62 + again)]
            for planned in (Cursor(end + 32), Cursor(end + 2 * PAGE)):
                assert find_misplacement(view, planned, base=view.base, tail=tail) is not None
                with pytest.raises(LogError):
                    list(view.frames(Cursor(end), planned))
                with pytest.raises(LogError):
                    list(view.frames(planned, tail))
            assert view.advance(Cursor(end), max_rows=1, tail=tail.position) > Cursor(first)
            pieces = view.split(Cursor(0), tail, 4)
            assert [s.sn for a, b in pieces for s in all_samples(view.frames(a, b))] == [
                *range(1, 62 + again)
            ]
    with StreamLog.open(left) as log:
        log.trim(first)
        assert log.base == end, "who has read all before misses nothing"
        view, tail = LogView(left), Cursor(log.position)
        assert find_misplacement(view, Cursor(end), base=view.base, tail=tail) is None
        assert [s.sn for s in all_samples(view.frames(Cursor(end), tail))] == [61, 62, 63]
    with StreamLog.open(left) as log:
        assert (log.damage, log.base) == ([], end)


@pytest.mark.parametrize("rows", [0, 1])
def test_an_empty_log_goes_on_behind_its_end(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_clocks, "boot_id", lambda: "before")
    with StreamLog.create(tmp_path / "log", max_bytes=16 * PAGE, segment_bytes=PAGE, metadata={}) as log:
        for sn in range(1, rows + 1):
            assert log.append(single(guid(1), sn, 300), reception=0)
        log.trim_all()
        end = log.position
        left = failed(log, tmp_path / "left")
    monkeypatch.setattr(host_clocks, "boot_id", lambda: "after")
    for _ in range(2):
        with StreamLog.open(left) as log:
            assert (log.damage, log.base) == ([], end)
            assert log.append(single(guid(1), log.rows + 1), reception=0)
            view = LogView(left)
            assert verify(view).is_sound
            assert find_misplacement(view, Cursor(end), base=view.base, tail=Cursor(log.position)) is None
            got = all_samples(view.frames(Cursor(end), Cursor(log.position)))
            assert [sample.sn for sample in got] == [*range(rows + 1, log.rows + 1)]


@pytest.mark.parametrize("is_closed", [False, True])
def test_only_what_was_not_closed_goes_on_behind_its_end(
    is_closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor what was killed, as long as the host goes on."""
    with StreamLog.create(tmp_path / "log", max_bytes=16 * PAGE, segment_bytes=PAGE, metadata={}) as log:
        assert log.append(single(guid(1), 1), reception=0)
        end = log.position
        left = tmp_path / "left" if is_closed else failed(log, tmp_path / "left")
    if is_closed:
        failed(log, left)
        monkeypatch.setattr(host_clocks, "boot_id", lambda: "after")
    with StreamLog.open(left) as log:
        assert (log.position, log.damage) == (end, [])
