"""Threads on one publication log: claiming at once, and committing while another unblocks."""

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
from waiting import PATIENCE

from spark_rtps.transport.log.publication_log import Claim, PublicationLog
from spark_rtps.transport.log.term_frames import DATA, PAD

TERM = 64 << 10
ANY = 1 << 62


def claimed(log: PublicationLog, length: int) -> Claim:
    claim = log.claim(length, limit=ANY)
    assert isinstance(claim, Claim)
    return claim


def type_at(log: PublicationLog, position: int) -> int:
    frame = log.frame(position)
    assert frame is not None
    return frame.type


def run_at_once(*bodies: Callable[[], None], line_by_line: bool) -> None:
    """Each in a thread of its own; ``line_by_line``: another may go on between any two lines of the log's code."""
    failures: list[Exception] = []

    def trace(frame: FrameType, event: str, _argument: object) -> object:
        if "/transport/log/" not in frame.f_code.co_filename:
            return None
        time.sleep(0)
        return trace

    def run(body: Callable[[], None]) -> None:
        if line_by_line:
            sys.settrace(trace)  # type: ignore[arg-type]
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
            body = bytes([number]) * rng.randrange(1, 2000)
            claim = log.claim(len(body), limit=ANY, first_sn=n, count=number)
            while not isinstance(claim, Claim):
                claim = log.claim(len(body), limit=ANY, first_sn=n, count=number)
            claim.data[:] = np.frombuffer(body, np.uint8)
            assert claim.commit()
        running[number] = False

    def consume() -> None:
        position = 0
        while any(running) or position != log.position:
            frames, position = log.scan(position, ANY, ANY)
            for frame in frames:
                assert (frame.data == frame.count).all()
                seen.append((frame.count, frame.first_sn))
            log.clean(position)

    run_at_once(consume, *(partial(produce, n) for n in range(producers)), line_by_line=line_by_line)
    assert log.position > 6 * TERM
    for number in range(producers):
        assert [n for who, n in seen if who == number] == list(range(each))


class LateLock:
    """A lock that somebody else has first, for ``meanwhile``."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._lock = threading.Lock()
        self._meanwhile: Callable[[], object] | None = meanwhile

    def __enter__(self) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile:
            meanwhile()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_claim_that_is_unblocked_while_it_is_committed() -> None:
    log = PublicationLog.create(TERM)
    claim = claimed(log, 8)
    log.lock = LateLock(lambda: log.unblock(0))  # type: ignore[assignment]
    assert not claim.commit()
    assert type_at(log, 0) == PAD


def test_a_claim_that_is_committed_while_it_is_unblocked() -> None:
    log = PublicationLog.create(TERM)
    claim = claimed(log, 8)
    log.lock = LateLock(claim.commit)  # type: ignore[assignment]
    assert not log.unblock(0)
    assert type_at(log, 0) == DATA
