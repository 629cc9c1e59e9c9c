"""Queries of receiver services, in the orders in which Spark calls them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows

from spark_rtps.datasource import receiver_services as module
from spark_rtps.datasource.offsets import ReceiverServiceOffset
from spark_rtps.datasource.receiver_service_batch_reader import ReceiverServiceBatchReader
from spark_rtps.datasource.schema import plan_source
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.transport.errors import LogLostError, OptionError, RangeServerError, UsageError
from tests.datasource.receiver_service_scene import ReceiverServices, ids, settings_of, step
from tests.datasource.stream_reader_scene import ALL, COLUMNS
from tests.support.stream_logs import RECEPTION


class TestStream:
    def test_every_row_comes_once_over_a_restart(self, services: ReceiverServices) -> None:
        services.a.receive(100, 3)
        reader = services.reader(startingOffsets="earliest")
        zero = reader.initialOffset()
        assert json.dumps(reader.initialOffset()) == json.dumps(zero)
        services.b.receive(0, 2)
        one, found = step(reader, zero)
        assert found == [0, 1, 100, 101, 102]
        assert reader.initialOffset() == zero  # Spark asks again
        again = services.reader(startingOffsets="earliest")  # begins with the uncommitted batch
        assert sorted(ids(again, again.partitions(zero, one))) == found
        services.b.receive(2, 1)
        two, found = step(again, one)
        assert found == [2]
        assert json.dumps(again.latestOffset(two, ALL)) == json.dumps(two)

    def test_offsets_that_are_known_to_be_of_the_log_are_bounded(
        self, services: ReceiverServices, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Hardly any of the last micro-batches is asked for again, one of long ago is."""
        asked = []
        place = services.a.place
        monkeypatch.setattr(services.a, "place", lambda *where: asked.append(where) or place(*where))
        reader = services.reader()
        offsets = [reader.initialOffset()]
        for number in range(20):
            services.a.receive(number, 1)
            offset, found = step(reader, offsets[-1])
            assert found == [number]
            offsets.append(offset)
        assert len(asked) <= 1, "they are forgotten together"
        asked.clear()
        assert ids(reader, reader.partitions(offsets[0], offsets[1])) == [0]
        assert len(asked) == 1

    def test_latest_is_what_arrives_from_now_on(self, services: ReceiverServices) -> None:
        services.a.receive(0, 3)
        reader = services.reader()
        zero = reader.initialOffset()
        services.a.receive(3, 1)
        assert step(reader, zero)[1] == [3]

    def test_a_position_for_each(self, services: ReceiverServices) -> None:
        services.a.receive(0, 2)
        at = services.a.stream.position
        services.a.receive(2, 2)
        services.b.receive(10, 1)
        reader = services.reader(startingOffsets=json.dumps({"a": at, "b": "latest"}))
        assert step(reader, reader.initialOffset())[1] == [2, 3]
        reader = services.reader(startingOffsets=json.dumps({"a": at, "b": "earliest"}))
        assert step(reader, reader.initialOffset())[1] == [2, 3, 10]

    def test_a_timestamp_finds_what_was_recorded(self, services: ReceiverServices) -> None:
        services.a.receive(0, 5)
        reader = services.reader(startingTimestamp=RECEPTION // 1_000_000)
        assert step(reader, reader.initialOffset())[1] == [0, 1, 2, 3, 4]

    def test_the_others_go_on_when_one_is_out_of_reach(
        self, services: ReceiverServices, caplog: pytest.LogCaptureFixture
    ) -> None:
        reader = services.reader()
        zero = reader.initialOffset()
        services.a.receive(0, 2)
        services.b.receive(10, 2)
        services.b.is_gone = True
        one, found = step(reader, zero)
        step(reader, one)
        assert found == [0, 1]
        assert one["receivers"]["b"] == zero["receivers"]["b"]
        assert caplog.text.count("its samples wait there") == 1
        assert reader.reportLatestOffset()["status"]["b"] == {"state": "unreached"}
        reader.commit(one)
        services.b.is_gone = False
        two, found = step(reader, one)
        assert found == [10, 11]
        reader.commit(two)
        assert services.b.committed[-1][0] == zero["group"]

    def test_a_receiver_leaves_while_a_batch_is_planned(self, services: ReceiverServices) -> None:
        first = services.reader(startingTimestamp=1)
        services.b.goes = True
        zero = first.initialOffset()
        assert list(zero["receivers"]) == ["a"]
        services.b.goes = services.b.is_gone = False
        one, _ = step(first, zero)
        services.b.receive(0, 2)
        two, _ = step(first, one)
        services.a.receive(5, 1)
        for receiver in (services.a, services.b):
            receiver.goes = True
        again = services.reader()  # trusts no place yet
        assert again.latestOffset(one, ALL) == one
        assert services.b.is_gone
        parts = again.partitions(one, two)  # tasks wait longer for it than planning does
        assert [(part.start_position, part.served.addresses) for part in parts] == [  # type: ignore[attr-defined]
            (one["receivers"]["b"]["position"], ("h2:1",))
        ]

    def test_too_long_out_of_reach(
        self, services: ReceiverServices, caplog: pytest.LogCaptureFixture
    ) -> None:
        services.b.is_gone = True
        with pytest.raises(RangeServerError, match=r"receiver b .*receiver.timeout"):
            services.reader(**{"receiver.timeout": "0s"}).initialOffset()
        reader = services.reader(**{"receiver.timeout": "0s", "failOnDataLoss": "false"})
        assert list(reader.initialOffset()["receivers"]) == ["a"]
        assert "continuing without it" in caplog.text

    def test_a_new_receiver_joins(self, services: ReceiverServices) -> None:
        services.b.is_gone = True
        reader = services.reader(startingOffsets="earliest")
        zero = reader.initialOffset()
        services.b.is_gone = False
        services.b.receive(0, 2)
        one, found = step(reader, zero)
        assert found == []
        assert step(reader, one)[1] == [0, 1]

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_name_that_is_missing(
        self, services: ReceiverServices, fails: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        reader = services.reader(failOnDataLoss=str(fails).lower())
        zero = reader.initialOffset()
        zero["receivers"]["gone"] = zero["receivers"]["a"]
        if fails:
            with pytest.raises(UsageError, match="positions of gone"):
                reader.latestOffset(zero, ALL)
            return
        assert list(reader.latestOffset(zero, ALL)["receivers"]) == ["a", "b"]
        assert "continuing without them" in caplog.text

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_log_that_was_made_anew(self, services: ReceiverServices, fails: bool) -> None:
        reader = services.reader(failOnDataLoss=str(fails).lower())
        zero = reader.initialOffset()
        services.a.renew()
        services.a.receive(7, 1)
        if fails:
            with pytest.raises(LogLostError, match="receiver a has the log"):
                reader.latestOffset(zero, ALL)
            return
        one, found = step(reader, zero)
        assert found == []
        assert step(reader, one)[1] == [7]

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_range_that_was_trimmed(self, services: ReceiverServices, fails: bool) -> None:
        reader = services.reader(failOnDataLoss=str(fails).lower())
        zero = reader.initialOffset()
        services.a.receive(0, 1)
        services.a.base = services.a.stream.position
        services.a.receive(1, 1)
        if fails:
            with pytest.raises(LogLostError, match=r"receiver a: .*before its beginning"):
                reader.latestOffset(zero, ALL)
            return
        assert step(reader, zero)[1] == [1]

    def test_limits_are_shared(self, services: ReceiverServices) -> None:
        reader = services.reader(maxRowsPerTrigger=4)
        zero = reader.initialOffset()
        services.a.receive(0, 10)
        services.b.receive(100, 10)
        assert step(reader, zero, ReadMaxRows(4))[1] == [0, 1, 100, 101]
        one, first = step(reader, zero, ReadMaxRows(1))
        _, second = step(reader, one, ReadMaxRows(1))
        assert sorted(first + second) == [0, 100]

    def test_a_batch_takes_half_of_a_log_at_most(self, services: ReceiverServices) -> None:
        """It is committed when the next one is planned: one of all of a full log would leave nothing to plan."""
        reader = services.reader()
        zero = reader.initialOffset()
        services.a.receive(0, 10)
        services.a.max_bytes = services.a.stream.position
        services.b.receive(100, 10)
        one, found = step(reader, zero)
        assert found == [*range(5), *range(100, 110)]
        assert step(reader, one)[1] == [5, 6, 7, 8, 9]

    def test_receivers_are_asked_at_the_same_time(self, services: ReceiverServices) -> None:
        reader = services.reader()
        zero = reader.initialOffset()
        services.a.receive(0, 1)
        services.b.receive(1, 1)
        services.a.together = services.b.together = threading.Barrier(2)
        one, found = step(reader, zero)
        assert found == [0, 1]
        reader.commit(one)
        assert services.a.committed and services.b.committed

    def test_available_now_takes_what_was_there(self, services: ReceiverServices) -> None:
        reader = services.reader()
        zero = reader.initialOffset()
        services.a.receive(0, 2)
        reader.prepareForTriggerAvailableNow()
        one, found = step(reader, zero)
        services.a.receive(2, 2)
        assert (found, reader.latestOffset(one, ALL)) == ([0, 1], one)


def test_a_query_asks_for_its_subscription(services: ReceiverServices) -> None:
    asked = {
        "reliability": "best_effort",
        "filter": "x > 0.7",
        "startingOffsets": "earliest",
        "type": "Point",
    }
    services.a.receive(0, 3)
    reader = services.reader(**asked, **{"receiver.subscribe": "true", "receiver.token": "geheim"})
    assert step(reader, reader.initialOffset())[1] == [2]  # x is half of the id
    assert services.a.asked == services.b.asked == [{"topic": "T", **asked}]
    assert services.a.patience > 10, "it may be busy"  # type: ignore[operator]


def test_an_unreachable_receiver_is_not_waited_for_until_it_subscribes(services: ReceiverServices) -> None:
    services.b.is_gone = True
    reader = services.reader(**{"receiver.subscribe": "true"})
    zero = reader.initialOffset()
    services.a.receive(0, 1)
    assert step(reader, zero)[1] == [0]
    assert (len(services.a.asked), services.b.asked) == (1, [])
    services.b.is_gone = False
    step(reader, zero)
    assert len(services.b.asked) == 1


def test_a_profile_is_asked_for_option_by_option() -> None:
    settings = settings_of(**{"receiver.subscribe": "true", "qos.profile": "sensor_data"})
    asked = settings.receiver_subscribes
    assert asked["reliability"] == "best_effort"
    assert "qos.profile" not in asked  # type: ignore[operator]


class TestBatch:
    def test_by_time(self, services: ReceiverServices) -> None:
        services.a.receive(0, 3)
        services.b.receive(10, 2)
        for options, wanted in (
            ({}, [0, 1, 2, 10, 11]),
            ({"endingTimestamp": RECEPTION // 1_000_000}, []),
            ({"startingOffsets": "latest"}, []),
        ):
            settings = settings_of(**options)
            reader = ReceiverServiceBatchReader(
                settings, plan_source(settings, COLUMNS), make=services.connect
            )
            assert sorted(ids(reader, reader.partitions())) == wanted

    def test_by_position(self, services: ReceiverServices) -> None:
        services.a.receive(0, 2)
        at = services.a.stream.position
        services.a.receive(2, 2)
        until = services.a.stream.position
        services.a.receive(4, 1)
        services.b.receive(10, 2)
        for begin, end, wanted in (
            ((0, 0), (at, 0), [0, 1]),
            ((at, "latest"), (until, "latest"), [2, 3]),
            ((at, "earliest"), ("latest", 0), [2, 3, 4]),
            ((at, "earliest"), (at, "latest"), [10, 11]),
        ):
            assert sorted(ids(*batch(services, begin, end))) == wanted

    @pytest.mark.parametrize("fails", [True, False])
    @pytest.mark.parametrize(
        ("position", "what", "rows"),
        [
            (1, "is trimmed", [2, 3]),
            ("middle", "is not the beginning of a frame", [3]),
            (1 << 40, "is behind its end", []),
        ],
    )
    def test_a_position_that_is_none(
        self,
        services: ReceiverServices,
        position: int | str,
        what: str,
        rows: list[int],
        fails: bool,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        services.a.receive(0, 2)
        services.a.base = services.a.stream.position
        services.a.receive(2, 2)
        position = services.a.base + 8 if position == "middle" else position
        reported = {} if fails else {"failOnDataLoss": "false"}
        if fails:
            with pytest.raises(
                OptionError, match=f"position {position} of receiver a {what}.*failOnDataLoss"
            ):
                batch(services, (position, "latest"), ("latest", "latest"), **reported)
        else:
            assert ids(*batch(services, (position, "latest"), ("latest", "latest"), **reported)) == rows
            assert f"startingOffsets: position {position} of receiver a {what}" in caplog.text

    def test_a_batch_that_ends_before_it_begins(self, services: ReceiverServices) -> None:
        services.a.receive(0, 2)
        with pytest.raises(UsageError, match="receiver a: the batch would begin at position"):
            batch(services, ("latest", "latest"), (0, "latest"))


def batch(
    services: ReceiverServices, begin: tuple[object, object], end: tuple[object, object], **options: object
) -> tuple[ReceiverServiceBatchReader, Sequence[InputPartition]]:
    """A reader of the range at a and b, and its partitions."""
    start, stop = (json.dumps(dict(zip("ab", each, strict=True))) for each in (begin, end))
    settings = settings_of(startingOffsets=start, endingOffsets=stop, **options)
    reader = ReceiverServiceBatchReader(settings, plan_source(settings, COLUMNS), make=services.connect)
    return reader, reader.partitions()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"receivers": "a"}, "name=host:port"),
        ({"receivers": "a=h:1,a=h:2"}, "is taken"),
        ({"receivers": ","}, "must name one"),
        ({"reliability": "reliable"}, "decided by the subscription.*receiver.subscribe=true"),
        ({"receiver.subscribe": "true", "receiver.subscription": "imu"}, "set one of them"),
        ({"startingTimestamp": "soon"}, "ISO 8601"),
        ({"startingTimestamp": "1", "startingOffsets": "latest"}, "excludes"),
        ({"endingTimestamp": "1", "endingOffsets": "latest"}, "excludes"),
        ({"endingOffsets": "earliest"}, "must be one of latest"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "is later than endingTimestamp=1"),
        ({"startingOffsets": '{"a": 1}'}, "missing or unknown: b"),
        ({"startingOffsets": '{"a": 1, "b": 1, "c": 1}'}, "missing or unknown: c"),
        ({"startingOffsets": '{"a": 9, "b": 0}', "endingOffsets": '{"a": 8, "b": 0}'}, "9 is greater than 8"),
        ({"retention": "bytes"}, "decided by the subscription"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        settings_of(**options)


def test_a_token_is_shown_nowhere() -> None:
    assert "geheim" not in repr(settings_of(**{"receiver.token": "geheim"}))
    for options in ({"receiver.token": "geheim"}, {"receivertoken": "geheim"}):
        with pytest.raises(OptionError) as failed:
            parse_options({"topic": "T", **options}, AppliesTo.READ)
        assert "geheim" not in str(failed.value)
    with pytest.raises(OptionError) as failed:
        parse_options({"topic": "T", "receiver.token": "geheim"}, AppliesTo.WRITE)
    assert "geheim" not in str(failed.value)


@pytest.mark.parametrize("place", ["receiver.token", "receiver.token.file", "SPARK_RTPS_TOKEN"])
@pytest.mark.parametrize(
    "token", ["geheim", "geheim\n", " geheim\r\n", "ge\nheim", "ge heim", "gehëim"], ids=ascii
)
def test_a_token_is_one_word_wherever_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, token: str
) -> None:
    """Files and environments may end it with a line's end, which no header of HTTP may have."""
    monkeypatch.delenv("SPARK_RTPS_TOKEN", raising=False)
    given = {}
    if place == "SPARK_RTPS_TOKEN":
        monkeypatch.setenv(place, token)
    elif place == "receiver.token":
        given[place] = token
    else:
        (tmp_path / "token").write_text(token, encoding="utf-8")
        monkeypatch.setenv("HOME", str(tmp_path))
        given[place] = "~/token"
    settings = settings_of(**given)
    if token.strip() == "geheim":
        served = [each._served for each in module.receiver_services(settings).values()]
        assert {each.token for each in served} == {"geheim"}
        return
    with pytest.raises(OptionError, match=rf"{place}.*one word of ASCII") as failed:
        module.receiver_services(settings)
    assert token.strip() not in str(failed.value)


def test_an_offset_of_something_else_is_refused() -> None:
    for raw in ({"v": 1, "receivers": {"embedded": {}}}, {"v": 1, "group": "g", "receivers": {"a": 1}}, []):  # type: ignore[var-annotated]
        with pytest.raises(UsageError):
            ReceiverServiceOffset.from_json(raw)
