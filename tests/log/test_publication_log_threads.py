"""Threads on one publication log, and on a writer that has one: claiming at once, committing while another gives up.

A reader of the log follows meanwhile, as if in another process: it takes no lock.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType

import numpy as np
import pytest

from spark_rtps.transport.log.image import CopyBuffer, Image
from spark_rtps.transport.log.publication_log import ADMIN_ACTION, BACK_PRESSURED, FrameClaim, PublicationLog
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.buffer_claim import BufferClaim
from spark_rtps.transport.protocol.endpoint_info import ReaderInfo
from spark_rtps.transport.protocol.policies import FlowControlPolicy
from spark_rtps.transport.protocol.writing.flow import FlowControl
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from tests.log.publishing_scene import (
    PAYLOAD_HEADER,
    Driver,
    each_once_and_in_order,
    number_of,
    payload,
    read_all,
    samples_of,
)
from tests.protocol.writer_script import ME, RELIABLE, reader_guid, where
from tests.support.publication_frames import DATA, PAD, FrameAt, scan_frames
from tests.support.waiting import PATIENCE

TERM = 64 << 10
ANY = 1 << 62
#: The answers after which an offer or a claim is tried again.
AGAIN = (BACK_PRESSURED, ADMIN_ACTION)


def run_at_once(*bodies: Callable[[], None], line_by_line: bool) -> None:
    """Each in its own thread; ``line_by_line``: another goes on between any two lines of log and writer."""
    failures: list[Exception] = []

    def trace(frame: FrameType, event: str, _argument: object) -> object:
        name = frame.f_code.co_filename
        if "/transport/log/" not in name and "/protocol/writing/" not in name:
            return None
        time.sleep(0)
        return trace

    def run(body: Callable[[], None]) -> None:
        if line_by_line:
            sys.settrace(trace)
        try:
            body()
        except Exception as failure:  # noqa: BLE001 - shown by the thread that waits
            failures.append(failure)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=run, args=(body,), daemon=True) for body in bodies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    finally:
        sys.setswitchinterval(interval)
    assert not failures and not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(("line_by_line", "each"), [(False, 800), (True, 200)])
def test_threads_claim_at_once(line_by_line: bool, each: int) -> None:
    log = PublicationLog.create(TERM)
    producers = 3
    running = [True] * producers
    seen: list[tuple[int, int]] = []

    def produce(number: int) -> None:
        rng = random.Random(number)
        for n in range(each):
            body = bytes([number, n & 0xFF, n >> 8]) + bytes([number]) * rng.randrange(1, 2000)
            claim = log.claim(len(body), limit=ANY, first_sn=n, count=number)
            while not isinstance(claim, FrameClaim):
                claim = log.claim(len(body), limit=ANY, first_sn=n, count=number)
            claim.data[:] = np.frombuffer(body, np.uint8)
            assert claim.commit()
        running[number] = False

    def consume() -> None:
        image = Image(log, 0, CopyBuffer())
        while any(running) or image.position != log.position:
            frames = image.poll(1 << 20)
            if frames is None:
                continue
            for start, stop, _ in frames.spans:
                source, number = (
                    frames.data[start],
                    int.from_bytes(frames.data[start + 1 : start + 3], "little"),
                )
                assert (frames.data[start + 3 : stop] == source).all(), "a torn frame"
                seen.append((int(source), number))
            image.position = frames.end
            log.clean(image.position)

    run_at_once(consume, *(partial(produce, n) for n in range(producers)), line_by_line=line_by_line)
    assert log.position > 6 * TERM
    for number in range(producers):
        assert [n for who, n in seen if who == number] == list(range(each))


# --- the writer and its publication ----------------------------------------------------------------


def publishing(**policy: int) -> tuple[BlockingWriter, PublicationLog]:
    """A writer with a log, which is connected: a best-effort reader takes all that is sent."""
    log, driver = PublicationLog.create(TERM), Driver()
    flow_control = FlowControl(FlowControlPolicy(**policy))
    driver.writer = writer = StatefulWriter(ME, RELIABLE, flow_control=flow_control, log=log)
    writer.match_reader(ReaderInfo(reader_guid(1), (where(1),), (), False, False), now=time.monotonic_ns())
    return BlockingWriter(driver, writer, "t"), log


@pytest.mark.parametrize(("line_by_line", "each"), [(False, 400), (True, 40)])
def test_threads_offer_claim_commit_and_abort_at_once(line_by_line: bool, each: int) -> None:
    """While one thread turns the duty cycle, and another one, as in another process, reads the log without any lock."""
    writer, log = publishing()
    producers = 3
    running = [True] * producers
    written: dict[int, list[int]] = {}
    seen: list[tuple[int, int]] = []

    def produce(source: int) -> None:
        rng, written[source] = random.Random(source), []
        for n in range(each):
            data = payload(source, n, 4 * rng.randrange(4, 500))
            if rng.random() < 0.5:
                while (answer := writer.offer(samples_of([data]))) < 0:
                    assert answer in AGAIN
            else:
                while not isinstance(claim := writer.try_claim(len(data)), BufferClaim):
                    assert claim in AGAIN
                half = len(data) // 2
                claim.data[:half] = np.frombuffer(data, np.uint8)[:half]
                claim.data[half:] = np.frombuffer(data, np.uint8)[half:]
                if rng.random() < 0.2:
                    claim.abort()
                    continue
                assert claim.commit()
            written[source].append(n)
        running[source] = False

    def conduct() -> None:
        while any(running):
            writer.node.do_work()

    image = Image(log, 0, CopyBuffer())

    def tell() -> None:
        with writer.node.lock:
            writer.writer.feedback.on_log_positions({}, [image.position], now=time.monotonic_ns())

    def consume() -> None:
        while any(running) or image.position != log.position:
            seen.extend(number_of(data) for _, data in read_all(image))
            tell()

    tell()
    run_at_once(conduct, consume, *(partial(produce, n) for n in range(producers)), line_by_line=line_by_line)
    assert line_by_line or log.position > 6 * TERM
    assert each_once_and_in_order(seen) == written
    assert writer.writer.positions.snd_pos == log.position
    assert writer.writer.counters.unblocked_publications == 0


class LateLock:
    """A lock that another thread takes first, for ``meanwhile``."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._lock = threading.RLock()
        self._meanwhile: Callable[[], object] | None = meanwhile

    def __enter__(self) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile:
            meanwhile()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def claimed(writer: BlockingWriter) -> BufferClaim:
    claim = writer.try_claim(PAYLOAD_HEADER)
    assert isinstance(claim, BufferClaim)
    claim.data[:] = np.frombuffer(payload(0, 0, PAYLOAD_HEADER), np.uint8)
    return claim


def types_in(log: PublicationLog) -> list[int]:
    frames = list(scan_frames(log, 0, log.position))
    assert all(isinstance(frame, FrameAt) for frame in frames)
    return [frame.type for frame in frames if isinstance(frame, FrameAt)]


def test_a_claim_that_is_given_up_while_it_is_committed() -> None:
    writer, log = publishing(unblock_timeout=0)
    claim = claimed(writer)
    claim._lock = LateLock(writer.node.do_work)  # type: ignore[assignment]
    assert not claim.commit()
    assert types_in(log) == [PAD] and writer.writer.counters.unblocked_publications == 1


def test_a_claim_that_is_committed_while_it_is_given_up() -> None:
    writer, log = publishing(unblock_timeout=0)
    claim = claimed(writer)
    writer.node.lock = LateLock(claim.commit)  # type: ignore[assignment]
    writer.node.do_work()
    assert types_in(log) == [DATA] and writer.writer.counters.unblocked_publications == 0
    assert not claim.commit(), "once"
