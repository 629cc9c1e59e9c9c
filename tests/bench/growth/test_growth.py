"""The curves of docs/growth.svg, at sizes that take no time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import figures
from tests.bench.growth import logs, rates
from tests.bench.growth.curves import lines
from tests.bench.growth.plot import draw
from tests.support import domains

MB = 1_000_000


def test_every_curve_at_a_small_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_TURNS", 1)
    domain = domains.BENCH[14]
    found = {
        "writers": rates.by_writers(domain, (4,), 0.2),
        "instances": rates.by_keys(domain, (200,), seconds=0.2),
        "length": logs.by_length((0.01, 0.02), 4 * MB),
        "partitions": logs.by_partitions((1, 4), 4 * MB, with_spark=False),
    }
    assert [len(of) for of in found["writers"].values()] == [1, 1]  # type: ignore[attr-defined]
    assert list(found["instances"]) == list(rates.RULES)  # type: ignore[call-overload]
    for curves in (found["writers"], found["instances"]):
        for by_count in curves.values():  # type: ignore[attr-defined]
            assert all(of["samples"] > 0 and of["receiver"] > 0 for of in by_count.values())
    assert [of["planned"] for of in found["partitions"].values()] == [1, 4]  # type: ignore[attr-defined]
    assert len(lines(found)) == 2 + 4 + 2 + 2
    draw(found, tmp_path)
    assert "partitions of 100 MB" in (tmp_path / "growth.svg").read_text(encoding="utf-8")


def test_a_log_that_would_fill_the_disk_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 15 * MB}))  # type: ignore[attr-defined]
    monkeypatch.setattr(logs, "_LEFT", 5 * MB)
    assert list(logs.by_length((0.005, 0.01), MB)) == ["0.005"]


def test_nothing_is_left_on_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(figures.tempfile, "tempdir", str(tmp_path))  # type: ignore[attr-defined]
    logs.by_length((0.005,), MB)
    assert not list(tmp_path.iterdir())
