"""Nothing is let go before Spark has written down that it is processed, which asyncProgressTrackingEnabled puts off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.datasource import receiver_services as module
from spark_rtps.datasource.receiver_service_stream_reader_4_0 import ReceiverServiceStreamReader40
from spark_rtps.datasource.schema import plan_source
from tests.datasource.receiver_service_scene import ReceiverServices, settings_of
from tests.datasource.stream_reader_scene import ALL, COLUMNS, Source, planned


def progress(
    reader: Any,
    receive: Callable[[int], None],
    *,
    is_async: bool,
    batches: int,
    latest: Callable[[dict[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    """What Spark calls: it commits what is written down, which with asynchronous progress is what was planned before.

    The first micro-batch of a query follows no other. Returns what was committed last.
    """
    last = {}
    ends = [reader.initialOffset()]
    for number in range(batches):
        receive(number)
        end = latest(ends[-1])
        due = ends[-2:-1] if is_async else ends[-1:]
        if number and due and not (is_async and number == 1):
            last = due[0]
            reader.commit(last)
        reader.partitions(ends[-1], end)
        ends.append(end)
    return last


WARNED = "asyncProgressTrackingEnabled"


def position(offset: dict[str, Any], receiver: str) -> int:
    return offset["receivers"][receiver]["position"]  # type: ignore[no-any-return]


class TestOwnReceiver:
    @pytest.mark.parametrize("is_async", [False, True])
    def test_nothing_is_committed_that_spark_may_repeat(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_async: bool
    ) -> None:
        source = Source(tmp_path / "logs")

        def receive(number: int) -> None:
            if number:
                source.receiver.receive(number * 10, 10)

        latest = lambda start: source.reader.latestOffset(start, ALL)  # noqa: E731
        last = progress(source.reader, receive, is_async=is_async, batches=6, latest=latest)
        assert max(source.receiver.committed) == position(last, "embedded") > 0
        assert caplog.text.count(WARNED) == is_async

    def test_a_range_that_an_earlier_run_planned_is_not_late(self, tmp_path: Path) -> None:
        zero, one = planned(lambda: Source(tmp_path / "logs"))
        again = Source(tmp_path / "logs")
        assert again.ids(zero, one) == list(range(10))
        again.receiver.receive(10, 10)
        two = again.reader.latestOffset(one, ALL)
        again.reader.commit(one)
        assert again.ids(one, two) == list(range(10, 20))
        again.reader.latestOffset(two, ALL)
        assert max(again.receiver.committed) == two["receivers"]["embedded"]["position"]


@pytest.mark.parametrize("version", ["4.0", "4.3"])
@pytest.mark.parametrize("begins_with", [0, 10])
class TestReceiverServices:
    @pytest.fixture
    def services(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReceiverServices:
        monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.0)
        return ReceiverServices(tmp_path)

    @pytest.mark.parametrize("is_async", [False, True])
    def test_nothing_is_committed_that_spark_may_repeat(
        self,
        services: ReceiverServices,
        caplog: pytest.LogCaptureFixture,
        version: type[Any],
        begins_with: int,
        is_async: bool,
    ) -> None:
        if version == "4.0":  # type: ignore[comparison-overlap]
            settings = settings_of(startingOffsets="earliest")
            reader = ReceiverServiceStreamReader40(
                settings, plan_source(settings, COLUMNS), make=services.connect
            )
            latest = lambda _: reader.latestOffset()  # noqa: E731
        else:
            reader = services.reader(startingOffsets="earliest")  # type: ignore[assignment]
            latest = lambda start: reader.latestOffset(start, ALL)  # type: ignore[call-arg]  # noqa: E731

        def receive(number: int) -> None:
            if number or begins_with:
                services.a.receive(number * 10, 10)

        last = progress(reader, receive, is_async=is_async, batches=6, latest=latest)
        assert max(cursor.position for _, cursor in services.a.committed) == position(last, "a") > 0
        assert caplog.text.count(WARNED) == is_async
