"""What a task found travels as JSON, counts once, and is believed only as far as it is well formed."""

from __future__ import annotations

import base64
import errno
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.monitoring import range_tally
from spark_rtps.monitoring.decoding_report import (
    DAMAGED,
    DECODING_REPORT,
    DecodingReport,
    LostPart,
    read_decoding_report,
    update_decoding_report,
)
from spark_rtps.monitoring.query_names import NO_QUERY, QUERY_FILE, read_query
from spark_rtps.monitoring.range_tally import MalformedNumbers, RangeTally

numbers = st.sets(st.integers(0, 5_000), max_size=60).map(lambda found: np.array(sorted(found), np.int64))


def tally_of(malformed: np.ndarray, filtered: np.ndarray, seen: tuple[int, int], failed: int) -> RangeTally:
    entry = MalformedNumbers("01.02:03", "a string without its end", malformed, 5, 9)
    return RangeTally(
        (entry,), filtered[::2], filtered, seen, failed, (LostPart(DAMAGED, 96, 7, 64, None, "ab"),)
    )


def counts(*tallies: RangeTally) -> tuple[object, ...]:
    report = DecodingReport()
    for tally in tallies:
        tally.add_to(report)
    return report.malformed, report.overflow, report.filtered, report.lost, list(report.counted)


@given(numbers, numbers, st.integers(0, 2_000), st.integers(0, 5_000), st.booleans())
def test_a_decoded_tally_counts_as_the_encoded_one(
    malformed: Any, filtered: Any, first: int, length: int, fails: bool
) -> None:
    last = first + length
    failed = last + 3 if fails else -1
    malformed, filtered = (some[(some >= first) & (some <= last)] for some in (malformed, filtered))
    malformed = np.append(malformed, failed) if fails else malformed
    sent = tally_of(malformed, filtered, (first, last), failed)
    arrived = RangeTally.from_json(sent.to_json())
    assert counts(arrived) == counts(sent)
    assert counts(arrived, sent) == counts(sent), "a repeated task counts once"


def test_the_first_sample_of_a_log_counts_once_though_it_ends_each_attempt_of_a_task() -> None:
    none = np.empty(0, np.int64)
    tally = tally_of(np.array([0]), none, (0, -1), 0)
    malformed, *_ = counts(tally, tally)
    assert [each.count for each in malformed.values()] == [1]  # type: ignore[attr-defined]


def test_the_numbers_of_all_entries_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes may unpack to very many."""
    monkeypatch.setattr(range_tally, "_BITS_MAX", 8 * 64)
    entry = MalformedNumbers("01.02:03", "a string without its end", np.array([3, 202]), 5, 9)
    taken, refused = (RangeTally((entry,) * times, seen=(0, 300)).to_json() for times in (2, 3))
    assert len(RangeTally.from_json(taken).malformed) == 2
    with pytest.raises(ValueError, match="too many samples"):
        RangeTally.from_json(refused)


def test_more_lost_parts_than_one_report_takes_are_sent_in_several() -> None:
    lost = tuple(LostPart(DAMAGED, 32 * i, 7, 32, None, "ab") for i in range(10_000))
    whole = replace(tally_of(np.array([3]), np.array([4]), (0, 9), -1), lost=lost)
    parts = [RangeTally.from_json(part) for part in whole.split(1 << 20)]
    assert [len(part.lost) for part in parts] == [0, 4096, 4096, 1808]
    assert counts(*parts) == counts(whole) == counts(*parts, *parts)


@pytest.mark.parametrize("failed", [-1, 20_004])
def test_samples_of_many_reasons_are_sent_in_as_many_parts_as_it_takes(
    failed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 64 writers, half a million malformed samples took more than one report may have, and none was counted."""
    reason_of = np.random.default_rng(5).integers(0, 40, 20_000)
    entries = tuple(
        MalformedNumbers(f"{n:02}", "too short", np.flatnonzero(reason_of == n) + 3, 5, 9) for n in range(40)
    )
    some = np.append(np.arange(7, 20_000, 3), np.array([failed] * (failed > 0), np.int64))
    whole = RangeTally(entries, some, some, (3, 20_002), failed)
    for bits_max, parts_least in ((1 << 26, 10), (1 << 16, 16)):
        monkeypatch.setattr(range_tally, "_SAMPLES_MAX", bits_max)
        raw = list(whole.split(8_000))
        assert len(raw) >= parts_least and max(map(len, raw)) <= 8_000
        parts = [RangeTally.from_json(each) for each in raw]
        assert counts(*parts) == counts(whole) == counts(*parts, *parts)


@given(numbers, numbers, st.integers(0, 2_000), st.integers(-1, 5_000), st.booleans(), st.integers(0, 900))
def test_parts_count_as_the_whole(
    malformed: Any, filtered: Any, first: int, length: int, fails: bool, most: int
) -> None:
    last = first + length
    failed = last + 3 if fails else -1
    malformed, filtered = (some[(some >= first) & (some <= last)] for some in (malformed, filtered))
    malformed = np.append(malformed, failed) if fails else malformed
    whole = tally_of(malformed, filtered, (first, last), failed)
    assert counts(*map(RangeTally.from_json, whole.split(most))) == counts(whole)


def test_a_report_that_cannot_be_opened_just_then_keeps_what_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptors may be left for one file, and the next one can be written again."""
    first, second = (RangeTally(filtered=np.array([at]), seen=(at, at)) for at in (3, 7))
    update_decoding_report(tmp_path, first.add_to)
    with monkeypatch.context() as patch:
        patch.setattr(
            Path, "read_bytes", lambda _: (_ for _ in ()).throw(OSError(errno.EMFILE, "no descriptors"))
        )
        update_decoding_report(tmp_path, second.add_to)
    assert read_decoding_report(tmp_path).filtered == 1
    update_decoding_report(tmp_path, first.add_to)
    update_decoding_report(tmp_path, second.add_to)
    assert read_decoding_report(tmp_path).filtered == 2, "each sample counts once"


@pytest.mark.parametrize(
    "damaged",
    [b"[" * 100_000, b'{"v":1,"malformed":[],"counted":[],"overflow":1e999,"filtered":0}', b"\xff", b"[]"],
)
def test_a_damaged_report_fails_neither_tasks_nor_commands(tmp_path: Path, damaged: bytes) -> None:
    for name in (DECODING_REPORT, QUERY_FILE):
        (tmp_path / name).write_bytes(damaged)
    assert read_decoding_report(tmp_path).counters() == {} and read_query(tmp_path) == NO_QUERY
    update_decoding_report(tmp_path, RangeTally(filtered=np.array([3]), seen=(3, 3)).add_to)
    assert read_decoding_report(tmp_path).filtered == 1


def test_every_other_sample_of_a_long_range_is_short() -> None:
    every_other = np.arange(0, 1_000_000, 2)
    tally = RangeTally(filtered=every_other, seen=(0, 999_999))
    assert len(tally.to_json()) < 20_000
    assert (RangeTally.from_json(tally.to_json()).filtered == every_other).all()


def altered(**changes: object) -> bytes:
    some = np.arange(3)
    return json.dumps({**json.loads(tally_of(some, some, (0, 9), -1).to_json()), **changes}).encode()


BOMB = base64.b64encode(zlib.compress(bytes(64 << 20))).decode()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b"\xff",
        altered(v=2),
        altered(seen=[0]),
        altered(seen=[0, "9"]),
        altered(seen=[True, 9]),
        altered(failed=-2),
        altered(failed=1 << 70),
        altered(filtered=[0, "%%%"]),
        altered(filtered=[0, "AAAA"]),
        altered(filtered=[-1, ""]),
        altered(filtered=[0, BOMB]),
        altered(filtered=[0, base64.b64encode(zlib.compress(bytes(100))[:-3]).decode()]),
        altered(malformed=[["w", "r", [0, ""], 0]]),
        altered(malformed=[["w", "r" * 10_000, [0, ""], 0, 0]]),
        altered(malformed=[["w", "r", [0, ""], 0, 0]] * 1_000),
        altered(lost=[["c", 0, 0, 0, -1, ""]]),
        altered(lost=[["c", 0, 0, 0, None, ""]] * 5_000),
        altered(lost={}),
    ],
)
def test_malformed_json_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        RangeTally.from_json(raw)


def test_unprintable_characters_are_left_out_of_texts() -> None:
    raw = altered(malformed=[["w\x1b[31m", "a\nb", [0, ""], 1, 2]])
    (found,) = RangeTally.from_json(raw).malformed
    assert (found.writer, found.reason) == ("w [31m", "a b")
