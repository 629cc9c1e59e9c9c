"""A stream log after a power failure: of what was not synced, any page may be on the disk as it was at any time before.

The names of the files are as they were at one moment, since file systems keep the order of those. Whatever is left: no
sample comes out that was not appended, none comes twice or is asked for again while it can be read, and where samples
are missing that are not asked for again, there is damage.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from pathlib import Path

import pytest

from spark_rtps.transport.log import segment
from spark_rtps.transport.log.damage import Damage
from spark_rtps.transport.log.frame import Cursor, align, frame_length
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.samples import Run
from tests.log.make_runs import Sample, all_samples, guid, indexed, samples, single, uniform

PAGE = segment.PAGE
#: They are written with care for their order, or again by whoever starts.
WHOLE = (segment.METADATA, "lock")


class Disk:
    """A folder, and what its files held after each step: their names, and the content of each inode."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._steps: list[tuple[dict[str, int], dict[int, bytes]]] = []
        self.note()

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
    """A log in its life, and the frame in which each of its samples lies."""

    def __init__(self, chance: random.Random, folder: Path) -> None:
        self._chance = chance
        pages = chance.choice([1, 2, 3])
        self.log = StreamLog.create(folder, max_bytes=24 * PAGE, segment_bytes=pages * PAGE, metadata={})
        self.disk = Disk(folder)
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
        return make(writer, first, self._chance.choice([1, 5, 30]), self._chance.choice([4, 60, 300]))

    def _append(self, run: Run) -> None:
        if self.log.append(run, reception=0):
            length = align(frame_length(run))
            is_long = length > self.log.segment_bytes
            at = self.log._segments[-1].base if is_long else self.log.position - length
            self.frames[at] = samples(run)


@pytest.mark.parametrize("seed", range(60))
def test_what_a_power_failure_leaves_is_gone_on_with(seed: int, tmp_path: Path) -> None:
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
