"""Slices of a topic among the receivers of a query: missing, there twice, or beside a receiver without one."""

from __future__ import annotations

import pytest

from spark_rtps.datasource.receiver_service_batch_reader import ReceiverServiceBatchReader
from spark_rtps.datasource.receiver_service_slices import wrong_slices
from spark_rtps.datasource.schema import plan_source
from spark_rtps.transport.errors import UsageError
from tests.datasource.receiver_service_scene import ReceiverServices, settings_of
from tests.datasource.stream_reader_scene import ALL, COLUMNS


def sliced(services: ReceiverServices, a: str | None, b: str | None) -> None:
    for receiver, part in ((services.a, a), (services.b, b)):
        receiver.options = {} if part is None else {"slice": part}


WRONG = [
    ("0/2", "0/2", "a and b have slice 0/2: the same writers are read more than once"),
    ("0/2", "0/2", "a has slice 0/2 and b has slice 0/2; no receiver has slice 1/2"),
    ("0/3", "2/3", "a has slice 0/3 and b has slice 2/3; no receiver has slice 1/3"),
    ("0/2", "1/3", "a has slice 0/2 and b has slice 1/3: with different numbers of slices"),
    (None, "1/2", "b has slice 1/2, and a has none and reads the writers of all slices again"),
]


@pytest.mark.parametrize(("a", "b", "why"), WRONG)
@pytest.mark.parametrize("fails", [True, False])
def test_a_stream_says_it_when_it_starts(
    services: ReceiverServices, a: str | None, b: str, why: str, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sliced(services, a, b)
    reader = services.reader(failOnDataLoss=str(fails).lower())
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
def test_and_so_does_a_batch(
    services: ReceiverServices, a: str | None, b: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    sliced(services, a, b)
    for options in ({}, {"failOnDataLoss": "false"}):
        settings = settings_of(**options)
        reader = ReceiverServiceBatchReader(settings, plan_source(settings, COLUMNS), make=services.connect)
        if options:
            reader.partitions()
        else:
            with pytest.raises(UsageError, match=why):
                reader.partitions()
    assert why in caplog.text


@pytest.mark.parametrize(("a", "b"), [("0/2", "1/2"), (None, None)])
def test_correct_slices_log_nothing(
    services: ReceiverServices, a: str | None, b: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    sliced(services, a, b)
    reader = services.reader()
    reader.latestOffset(reader.initialOffset(), ALL)
    assert caplog.text == ""


def test_a_receiver_that_comes_back_with_another_slice(services: ReceiverServices) -> None:
    sliced(services, "0/2", "1/2")
    reader = services.reader()
    zero = reader.initialOffset()
    services.b.is_gone = True
    reader.latestOffset(zero, ALL)
    sliced(services, "0/2", "0/2")
    reader.latestOffset(zero, ALL)
    services.b.is_gone = False
    with pytest.raises(UsageError, match="no receiver has slice 1/2"):
        reader.latestOffset(zero, ALL)


def test_an_unreached_receiver_may_have_the_missing_slice(services: ReceiverServices) -> None:
    sliced(services, "0/2", "1/2")
    services.b.is_gone = True
    reader = services.reader()
    zero = reader.initialOffset()
    services.b.is_gone = False
    reader.latestOffset(zero, ALL)


def test_slices_are_checked_after_a_restart_too(services: ReceiverServices) -> None:
    sliced(services, "0/2", "1/2")
    reader = services.reader(startingOffsets="earliest")
    zero = reader.initialOffset()
    services.a.receive(0, 1)
    one = reader.latestOffset(zero, ALL)
    sliced(services, "1/2", "1/2")
    again = services.reader()
    again.partitions(zero, one)  # asks one of them
    with pytest.raises(UsageError, match="no receiver has slice 0/2"):
        again.latestOffset(one, ALL)


def test_a_slice_that_the_query_asked_for(services: ReceiverServices) -> None:
    """Another query reads the others."""
    sliced(services, "0/2", "0/2")
    reader = services.reader(slice="0/2", **{"receiver.subscribe": "true"})
    reader.latestOffset(reader.initialOffset(), ALL)


def test_places_of_other_writers_are_looked_at_apart(services: ReceiverServices) -> None:
    sliced(services, "0/2", "0/2")
    infos = {"a": services.a.subscriptions()[0]}
    for domain, options in ((7, {"slice": "0/2"}), (0, {"slice": "0/2", "partition": "east"})):
        services.b.domain, services.b.options = domain, options
        output = wrong_slices(infos | {"b": services.b.subscriptions()[0]}, ["a", "b"])
        assert output is not None and output.count("no receiver has slice 1/2") == 2
    services.b.domain, services.b.options = 7, {}
    assert wrong_slices({"b": services.b.subscriptions()[0]}, ["b"]) is None


def test_a_message_stays_short(services: ReceiverServices) -> None:
    sliced(services, "0/999999999", None)
    (info,) = services.a.subscriptions()
    output = wrong_slices({f"r{i}": info for i in range(200)}, [f"r{i}" for i in range(200)])
    assert output is not None and len(output) < 2_000
    assert "slice 1/999999999, 2/999999999" in output and "and 999999982 more" in output
    assert "184 more" in output
