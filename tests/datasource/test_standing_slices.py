"""Slices of a topic among the receivers of a query: missing, there twice, or beside a receiver without one."""

from __future__ import annotations

import pytest

from spark_rtps.datasource import standing_receivers as module
from spark_rtps.datasource.schema import plan_source
from spark_rtps.datasource.standing_batch_reader import StandingBatchReader
from spark_rtps.datasource.standing_slices import wrong_slices
from spark_rtps.transport.errors import UsageError
from tests.datasource.standing_scene import Standing, settings_of
from tests.datasource.stream_reader_scene import ALL, COLUMNS


@pytest.fixture
def standing(tmp_path, monkeypatch) -> Standing:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.0)
    return Standing(tmp_path)


def sliced(standing: Standing, a: str | None, b: str | None) -> None:
    for receiver, part in ((standing.a, a), (standing.b, b)):
        receiver.options = {} if part is None else {"slice": part}


WRONG = [
    ("0/2", "0/2", "a and b have slice 0/2: the same writers are read more than once"),
    ("0/2", "0/2", "a has slice 0/2 and b has slice 0/2, and nobody reads slice 1/2"),
    ("0/3", "2/3", "a has slice 0/3 and b has slice 2/3, and nobody reads slice 1/3"),
    ("0/2", "1/3", "a has slice 0/2 and b has slice 1/3: with different numbers of slices"),
    (None, "1/2", "b has slice 1/2, and a has none and reads the writers of all slices again"),
]


@pytest.mark.parametrize(("a", "b", "why"), WRONG)
@pytest.mark.parametrize("fails", [True, False])
def test_a_stream_says_it_when_it_starts(standing, a, b, why, fails, caplog):
    sliced(standing, a, b)
    reader = standing.reader(failOnDataLoss=str(fails).lower())
    if fails:
        with pytest.raises(UsageError, match=why):
            reader.initialOffset()
        with pytest.raises(UsageError, match=why):
            reader.initialOffset()
    else:
        zero = reader.initialOffset()
        for _ in range(2):
            reader.latestOffset(zero, ALL)
        assert why in caplog.text and caplog.text.count("topic 'T': ") == 1


@pytest.mark.parametrize(("a", "b", "why"), WRONG)
def test_and_so_does_a_batch(standing, a, b, why, caplog):
    sliced(standing, a, b)
    for options in ({}, {"failOnDataLoss": "false"}):
        settings = settings_of(**options)
        reader = StandingBatchReader(settings, plan_source(settings, COLUMNS), make=standing.connect)
        if options:
            reader.partitions()
        else:
            with pytest.raises(UsageError, match=why):
                reader.partitions()
    assert why in caplog.text


@pytest.mark.parametrize(("a", "b"), [("0/2", "1/2"), (None, None)])
def test_what_is_right(standing, a, b, caplog):
    sliced(standing, a, b)
    reader = standing.reader()
    reader.latestOffset(reader.initialOffset(), ALL)
    assert caplog.text == ""


def test_a_receiver_that_comes_back_with_another_slice(standing):
    sliced(standing, "0/2", "1/2")
    reader = standing.reader()
    zero = reader.initialOffset()
    standing.b.is_gone = True
    reader.latestOffset(zero, ALL)
    sliced(standing, "0/2", "0/2")
    reader.latestOffset(zero, ALL)
    standing.b.is_gone = False
    with pytest.raises(UsageError, match="nobody reads slice 1/2"):
        reader.latestOffset(zero, ALL)


def test_one_that_nobody_has_reached_yet_may_have_what_is_missing(standing):
    sliced(standing, "0/2", "1/2")
    standing.b.is_gone = True
    reader = standing.reader()
    zero = reader.initialOffset()
    standing.b.is_gone = False
    reader.latestOffset(zero, ALL)


def test_after_a_restart_too(standing):
    sliced(standing, "0/2", "1/2")
    reader = standing.reader(startingOffsets="earliest")
    zero = reader.initialOffset()
    standing.a.receive(0, 1)
    one = reader.latestOffset(zero, ALL)
    sliced(standing, "1/2", "1/2")
    again = standing.reader()
    again.partitions(zero, one)  # asks one of them
    with pytest.raises(UsageError, match="nobody reads slice 0/2"):
        again.latestOffset(one, ALL)


def test_a_slice_that_the_query_asked_for(standing):
    """Another query reads the others."""
    sliced(standing, "0/2", "0/2")
    reader = standing.reader(slice="0/2", **{"receiver.subscribe": "true"})
    reader.latestOffset(reader.initialOffset(), ALL)


def test_places_of_other_writers_are_looked_at_apart(standing):
    sliced(standing, "0/2", "0/2")
    infos = {"a": standing.a.subscriptions()[0]}
    for domain, options in ((7, {"slice": "0/2"}), (0, {"slice": "0/2", "partition": "east"})):
        standing.b.domain, standing.b.options = domain, options
        said = wrong_slices(infos | {"b": standing.b.subscriptions()[0]}, ["a", "b"])
        assert said is not None and said.count("nobody reads slice 1/2") == 2
    standing.b.domain, standing.b.options = 7, {}
    assert wrong_slices({"b": standing.b.subscriptions()[0]}, ["b"]) is None


def test_a_message_stays_short(standing):
    sliced(standing, "0/999999999", None)
    (info,) = standing.a.subscriptions()
    said = wrong_slices({f"r{i}": info for i in range(200)}, [f"r{i}" for i in range(200)])
    assert said is not None and len(said) < 2_000
    assert "slice 1/999999999, 2/999999999" in said and "and 999999982 more" in said
    assert "184 more" in said
