"""What a task may rely on when its readers come and go: a real writer, no network."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from spark_rtps.api.writer_session import WriterSession
from spark_rtps.datasource import writer
from spark_rtps.datasource.schema import plan_sink
from spark_rtps.datasource.writer import RtpsArrowWriter
from spark_rtps.datasource.writer_pool import WriterPool
from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.transport.errors import AcknowledgmentError, NoReaderError
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.send_failures import SendFailures
from spark_rtps.transport.protocol.endpoint_info import ReaderInfo
from spark_rtps.transport.protocol.participant.events import Event
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.submessages import AckNack
from tests.support.stream_logs import encoded, points


class Network:
    """Drives a writer whose readers do what the test says, one thing a duty cycle."""

    def __init__(self, settings: Settings) -> None:
        self.lock = threading.RLock()
        self.sleeps_until = 0
        self.send_failures = SendFailures()
        self.duty_cycle = self.directory = self
        self.is_closed = False
        self.refused: dict[Guid, tuple[str, ...]] = {}
        self.writer = StatefulWriter(Guid(bytes(12), b"\0\0\1\3"), settings.qos)
        self.publishing = BlockingWriter(self, self.writer, settings.topic)
        self.script: list[Callable[[], None]] = []
        self._count = 0

    @contextlib.contextmanager
    def steering(self, *, lingering: bool = False) -> Iterator[None]:
        yield

    def run_once(self, timeout: float) -> int:
        if self.script:
            self.script.pop(0)()
        else:
            time.sleep(0.001)
        return 0

    def do_work(self) -> int:
        return 0

    def flush(self) -> int:
        return 0

    def incompatible(self, guid: Guid) -> dict[Guid, tuple[str, ...]]:
        return self.refused

    def wake(self) -> None:
        pass

    def events(self) -> list[Event]:
        return []

    def assert_liveliness(self, writer: Guid | None = None) -> None:
        pass

    # --- readers ---------------------------------------------------------------------------------

    def join(self, number: int, *, reliable: bool = True) -> None:
        self.writer.match_reader(ReaderInfo(guid(number), (), (), reliable, False), now=time.monotonic_ns())
        if reliable:
            self.acknowledge(number, self.writer.last_sn)

    def acknowledge(self, number: int, last: int) -> None:
        self._count += 1
        acknack = AckNack(bytes(4), bytes(4), SequenceNumberSet(last + 1, 0, ()), self._count, True)
        self.writer.feedback.on_acknack(guid(number), acknack, now=time.monotonic_ns())

    def leave(self, number: int) -> None:
        self.writer.unmatch_reader(guid(number))


def guid(number: int) -> Guid:
    return Guid(bytes([number]) * 12, b"\0\0\1\4")


def settings(**options: str) -> Settings:
    given = {"topic": "T", "connect_timeout": "50ms", "acknowledgment_timeout": "50ms", **options}
    return parse_options(given, AppliesTo.WRITE)


@pytest.fixture
def network() -> Network:
    return Network(settings())


def session(network: Network, **options: str) -> WriterSession:
    return WriterSession(network.publishing, settings(**options), look_around_until=0)


def write(to: WriterSession, count: int = 10) -> None:
    to.wait_for_reader()
    to.write_samples(encoded(points(0, count)))


class TestReadersThatLeave:
    def test_a_reader_that_leaves_before_it_has_all_samples_is_an_error(self, network: Network) -> None:
        network.join(1)
        task = session(network)
        write(task)
        network.script = [lambda: network.acknowledge(1, 4), lambda: network.leave(1)]
        with pytest.raises(AcknowledgmentError, match=r"0101.* \(had 4 of 10\) left before"):
            task.wait_for_acknowledgments()

    def test_between_two_batches(self, network: Network) -> None:
        network.join(1)
        task = session(network)
        write(task)
        network.leave(1)
        with pytest.raises(NoReaderError, match=r"within 0\.05 s"):
            task.wait_for_reader()

    def test_and_others_do_not_match(self, network: Network, caplog: pytest.LogCaptureFixture) -> None:
        reason = "TYPE: the writer's is 'A', the reader's is 'B'"
        network.refused = {guid(number): (reason,) for number in range(5)}
        mended = re.escape(f"{reason} (set the option type (or type.name) to the reader's)")
        for _ in range(2):
            with pytest.raises(NoReaderError, match=f"(no match with .*: {mended}.*){{3}}. Else raise"):
                session(network).wait_for_reader()
        assert re.search(mended, "\n".join(r.getMessage() for r in caplog.records))
        assert len(caplog.records) == 1

    def test_and_one_of_two_matches(self, network: Network, caplog: pytest.LogCaptureFixture) -> None:
        network.join(1)
        network.refused = {guid(2): ("PARTITION: the writer's are [], the reader's are ['a']",)}
        session(network).wait_for_reader()
        assert "no match" in caplog.text and "set the option partition" in caplog.text

    def test_a_reader_that_leaves_with_all_samples_is_no_error(self, network: Network) -> None:
        network.join(1)
        task = session(network)
        write(task)
        network.script = [lambda: network.acknowledge(1, 10), lambda: network.leave(1)]
        task.wait_for_acknowledgments()

    def test_a_reader_that_leaves_while_another_has_all_samples_is_no_error(self, network: Network) -> None:
        network.join(1)
        network.join(2)
        task = session(network)
        write(task)
        network.script = [lambda: network.leave(1), lambda: network.acknowledge(2, 10)]
        task.wait_for_acknowledgments()

    def test_and_are_replaced_too_late(self, network: Network) -> None:
        network.join(1)
        task = session(network)
        write(task)
        network.leave(1)
        network.script = [lambda: network.join(2)]
        write(task)
        network.script = [lambda: network.acknowledge(2, 20)]
        with pytest.raises(AcknowledgmentError, match=r"\(had 0 of 20\) left"):
            task.wait_for_acknowledgments()

    def test_and_come_back_under_the_same_guid(self, network: Network) -> None:
        network.join(1)
        task = session(network)
        write(task)
        network.leave(1)
        network.join(1)
        with pytest.raises(AcknowledgmentError, match=r"\(had 0 of 10\) left"):
            task.wait_for_acknowledgments()

    def test_and_are_replaced_in_time(self, network: Network) -> None:
        network.join(1)
        task = session(network)
        write(task)
        network.acknowledge(1, 10)
        network.leave(1)
        network.script = [lambda: network.join(2)]
        write(task)
        network.script = [lambda: network.acknowledge(2, 20)]
        task.wait_for_acknowledgments()

    def test_leaving_readers_are_ignored_when_rows_may_be_dropped(self, network: Network) -> None:
        network.join(1)
        task = session(network, on_no_reader="drop")
        write(task)
        network.leave(1)
        task.wait_for_acknowledgments()

    def test_best_effort_readers_promise_nothing(self, network: Network) -> None:
        network.join(1, reliable=False)
        task = session(network)
        write(task)
        network.leave(1)
        task.wait_for_acknowledgments()


class TestLookingAround:
    @pytest.mark.parametrize("options", [{}, {"on_no_reader": "drop"}])
    def test_the_first_reader_need_not_be_the_only_one(
        self, network: Network, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slept: list[Any] = []
        monkeypatch.setattr("time.sleep", slept.append)
        network.join(1)
        until = time.monotonic_ns() + 1_000_000_000
        task = WriterSession(network.publishing, settings(**options), look_around_until=until)
        task.wait_for_reader()
        assert slept == [pytest.approx(1, abs=0.1)]

    def test_once(self, network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("time.sleep", None)
        network.join(1)
        session(network).wait_for_reader()


class TestTask:
    def task(self) -> RtpsArrowWriter:
        given = settings()
        return RtpsArrowWriter(plan_sink(given, StructType().add("id", "integer").add("x", "double")))

    def test_nothing_to_write_needs_no_participant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(WriterPool, "session", None)
        message = self.task().write(iter([points(0, 0)]))
        assert (message.rows, message.samples) == (0, 0)  # type: ignore[attr-defined]

    def test_a_reader_is_waited_for_before_every_batch(
        self, network: Network, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = session(network)
        monkeypatch.setattr(writer.WRITERS, "session", lambda *_: made)  # type: ignore[attr-defined]
        network.join(1)

        def batches() -> Iterator[pa.RecordBatch]:
            yield points(0, 5)
            network.acknowledge(1, 5)
            yield points(0, 0)
            network.leave(1)
            yield points(5, 5)

        with pytest.raises(NoReaderError):
            self.task().write(batches())
