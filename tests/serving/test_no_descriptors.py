"""A server without descriptors answers that it may be asked again, and never that a log is lost."""

from __future__ import annotations

import builtins
import errno
import http.client
import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.serving.server import log_server, tail_watch
from spark_rtps.serving.server.http_messages import Refusal
from spark_rtps.serving.server.log_server import LogServer
from spark_rtps.serving.server.process import LogServerConfig
from spark_rtps.serving.server.tail_watch import TailWatch
from spark_rtps.transport.log.counters import Counters
from tests.serving.answering_scene import Answering
from tests.serving.receiver_service_scene import LOG

OPENING = ((io, "open"), (builtins, "open"), (os, "open"), (os, "scandir"))
OF_LOG = f"/v1/logs/{LOG}"
TARGETS = (
    ("GET", f"{OF_LOG}/tail?after=-1"),
    ("GET", f"{OF_LOG}/tail?after=END&wait=0.001"),
    ("GET", f"{OF_LOG}/advance?position=0&tail=END&max_rows=10"),
    ("GET", f"{OF_LOG}/split?position=0&end_position=END&end_row=0&pieces=3"),
    ("GET", f"{OF_LOG}/place?position=0"),
    ("GET", f"{OF_LOG}/place?position=END"),
    ("GET", f"{OF_LOG}/at?time=0"),
    ("GET", OF_LOG),
    ("GET", f"{OF_LOG}/frames?from=0&to=END"),
    ("GET", f"{OF_LOG}/writer-types"),
    ("GET", f"{OF_LOG}/groups"),
    ("PUT", f"{OF_LOG}/groups/g"),
    ("PUT", f"{OF_LOG}/groups/NEW"),
    ("GET", "/v1/subscriptions"),
)


class Descriptors:
    """Counts what is opened, and refuses the file number ``refused``."""

    def __init__(self) -> None:
        self.count = 0
        self.refused = 0

    def limiting(self, opening: Callable[..., Any]) -> Callable[..., Any]:
        def limited(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.count == self.refused:
                raise OSError(errno.EMFILE, "Too many open files")
            return opening(*args, **kwargs)

        return limited

    @contextmanager
    def refusing(self, number: int) -> Iterator[None]:
        self.count, self.refused = 0, number
        with pytest.MonkeyPatch.context() as patch:
            for module, name in OPENING:
                patch.setattr(module, name, self.limiting(getattr(module, name)))
            yield


@pytest.fixture
def answering(tmp_path: Path) -> Answering:
    made = Answering(tmp_path)
    Counters.create(tmp_path / LOG / "counters")
    made.put(0)
    return made


def answer(answering: Answering, method: str, target: str) -> tuple[int, Any]:
    body = json.dumps({"v": 1, "position": answering.end}).encode() if method == "PUT" else b""
    try:
        found = answering.answers.answer(method, target, body)
    except Refusal as refusal:
        return refusal.answer.status, refusal.answer.body
    if not isinstance(found.body, bytes):
        os.close(found.body.fd)
        return found.status, found.body.nbytes
    return found.status, found.body


@pytest.mark.parametrize(
    ("method", "target"), TARGETS, ids=[f"{each[0]}-{each[1][-30:]}" for each in TARGETS]
)
def test_each_file_that_a_request_opens_may_be_refused(
    answering: Answering, method: str, target: str
) -> None:
    target = target.replace("END", str(answering.end))
    descriptors = Descriptors()
    with descriptors.refusing(0):
        sound = answer(answering, method, target.replace("NEW", "first"))
    opened = descriptors.count
    assert sound[0] in (200, 204) and opened
    for number in range(1, opened + 1):
        asked = target.replace("NEW", f"new-{number}")
        with descriptors.refusing(number):
            found = answer(answering, method, asked)
        if found[0] != 503 and "groups" not in target:
            assert found == sound
        assert found[0] in (200, 204, 503), found
        assert answer(answering, method, asked)[0] == sound[0], "and it is answered a moment later"


def test_a_connection_that_cannot_be_served_ends_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = log_server.HttpConnection  # type: ignore[attr-defined]
    faults = [MemoryError()]

    def made(*args: Any, **kwargs: Any) -> Any:
        if faults:
            raise faults.pop()
        return exchange(*args, **kwargs)

    monkeypatch.setattr(log_server, "HttpConnection", made)
    server = LogServer(LogServerConfig(tmp_path, "127.0.0.1", 0, "token"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        for is_first in (True, False):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            connection.request("GET", "/healthz")
            if is_first:
                with pytest.raises((http.client.HTTPException, OSError)):
                    connection.getresponse()
            else:
                assert connection.getresponse().status == 200
            connection.close()
    finally:
        server.close()
        thread.join(20)


def test_a_request_waiting_for_a_log_is_woken_after_an_unexpected_error(
    answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_tail, faults = tail_watch.read_tail, [ZeroDivisionError()]  # type: ignore[attr-defined]

    def failing(directory: Path) -> Any:
        if faults and threading.current_thread().name == "tail":
            raise faults.pop()
        return read_tail(directory)

    monkeypatch.setattr(tail_watch, "read_tail", failing)
    watch = TailWatch()
    try:
        waiting = threading.Thread(target=watch.wait, args=(answering.root / LOG, answering.end, 60.0))
        waiting.start()
        waiting.join(20)
        assert not waiting.is_alive() and not faults
        monkeypatch.setattr(tail_watch, "_is_behind", lambda *_: False)  # the thread alone finds it
        waiting = threading.Thread(target=watch.wait, args=(answering.root / LOG, 0, 60.0))
        waiting.start()
        waiting.join(20)
        assert not waiting.is_alive()
    finally:
        watch.close()


def test_a_request_waiting_for_a_log_is_woken_after_a_failed_thread_start(
    answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def no_threads(thread: threading.Thread) -> None:
        if thread.name == "tail":
            raise RuntimeError("can't start new thread")
        start(thread)

    watch = TailWatch()
    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", no_threads)
        for _ in range(2 * tail_watch.WAITING_MAX):
            with pytest.raises(tail_watch.TooManyWait):
                watch.wait(answering.root / LOG, answering.end, 60.0)
    monkeypatch.setattr(tail_watch, "_is_behind", lambda *_: False)  # the thread alone finds it
    try:
        waiting = threading.Thread(target=watch.wait, args=(answering.root / LOG, 0, 60.0))
        waiting.start()
        waiting.join(20)
        assert not waiting.is_alive()
    finally:
        watch.close()
