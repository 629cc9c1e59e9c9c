"""Which range a micro-batch takes, and how it is cut."""

from itertools import pairwise
from pathlib import Path

import pytest

from spark_rtps.datasource.range_calculator import (
    PARTITION_BYTES,
    Limits,
    LogPartition,
    pieces_of,
    plan_end,
    plan_partitions,
)
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from tests.support.stream_logs import encoded, points, run_of, write_log


@pytest.fixture
def log(tmp_path: Path) -> tuple[Path, Cursor]:
    runs = [run_of(encoded(points(i * 10, 10)), i * 10 + 1) for i in range(20)]
    return tmp_path, write_log(tmp_path, runs)


def count(directory: Path, start: Cursor, end: Cursor) -> int:
    return sum(f.run.count for f in LogView(directory).frames(start, end))


class TestEnd:
    def test_no_limit_takes_all(self, log: tuple[Path, Cursor]) -> None:
        directory, tail = log
        assert plan_end(directory, Cursor(0), tail, Limits(), log_max_bytes=1 << 30) == tail

    def test_nothing_new(self, log: tuple[Path, Cursor]) -> None:
        directory, tail = log
        assert plan_end(directory, tail, tail, Limits(max_rows=5), log_max_bytes=1 << 30) == tail

    @pytest.mark.parametrize("rows", [1, 7, 10, 13, 199, 200, 5000])
    def test_rows_are_exact(self, log: tuple[Path, Cursor], rows: int) -> None:
        directory, tail = log
        start, left = Cursor(0), 200
        while start < tail:
            end = plan_end(directory, start, tail, Limits(max_rows=rows), log_max_bytes=1 << 30)
            assert count(directory, start, end) == min(rows, left)
            left -= min(rows, left)
            start = end
        assert left == 0

    def test_both_limits(self, log: tuple[Path, Cursor]) -> None:
        directory, tail = log
        end = plan_end(directory, Cursor(0), tail, Limits(max_rows=100, max_bytes=1), log_max_bytes=1 << 30)
        assert count(directory, Cursor(0), end) == 1
        end = plan_end(
            directory, Cursor(0), tail, Limits(max_rows=3, max_bytes=1 << 20), log_max_bytes=1 << 30
        )
        assert count(directory, Cursor(0), end) == 3

    def test_never_all_of_a_full_log(self, log: tuple[Path, Cursor]) -> None:
        directory, tail = log
        start, batches = Cursor(0), 0
        while start < tail:
            end = plan_end(directory, start, tail, Limits(), log_max_bytes=tail.position)
            assert end.position - start.position <= tail.position // 2
            start, batches = end, batches + 1
        assert batches in (2, 3)


class TestPieces:
    @pytest.mark.parametrize(
        ("pieces", "nbytes", "least"),
        [
            (1, 1, 1),
            (1, PARTITION_BYTES, 1),
            (2, PARTITION_BYTES + 1, 1),
            (3, 3 * PARTITION_BYTES, 1),
            (2, 1, 2),
            (2, 2 * PARTITION_BYTES, 2),
            (4, 2 * PARTITION_BYTES + 1, 2),
            (4, 3 * PARTITION_BYTES, 2),
            (8, 5 * PARTITION_BYTES, 4),
        ],
    )
    def test_a_multiple_of_the_least(self, pieces: int, nbytes: int, least: int) -> None:
        assert pieces_of(Cursor(100), Cursor(100 + nbytes), least) == pieces


class TestPartitions:
    def test_empty_range(self, log: tuple[Path, Cursor]) -> None:
        directory, tail = log
        assert plan_partitions(directory, tail, tail, min_partitions=4, host="h") == []

    @pytest.mark.parametrize("pieces", [1, 2, 3, 8])
    def test_pieces_make_up_the_range(self, log: tuple[Path, Cursor], pieces: int) -> None:
        directory, tail = log
        parts = plan_partitions(directory, Cursor(0, 3), tail, min_partitions=pieces, host="h")
        assert len(parts) == pieces
        assert parts[0].start == Cursor(0, 3)
        assert parts[-1].end == tail
        assert all(a.end == b.start for a, b in pairwise(parts))
        assert sum(count(directory, p.start, p.end) for p in parts) == 197

    def test_partition_is_a_value(self, log: tuple[Path, Cursor]) -> None:
        directory, tail = log
        part = plan_partitions(directory, Cursor(0), tail, min_partitions=1, host="h")[0]
        assert part == LogPartition(str(directory), "h", 0, 0, tail.position, 0)
