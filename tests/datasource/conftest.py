from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_rtps.api import writer_session
from spark_rtps.columns import malformed
from spark_rtps.datasource import receiver_services, source_process
from spark_rtps.serving.client import connections
from spark_rtps.transport.log_once import LogOnce
from tests.datasource.receiver_service_scene import ReceiverServices
from tests.datasource.stream_reader_scene import Source


@pytest.fixture(autouse=True)
def nothing_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process says once, each test hears."""
    monkeypatch.setattr(malformed, "_REPORTED", {})
    monkeypatch.setattr(writer_session, "_MISMATCHES_LOGGED", LogOnce(64))


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Source]]:
    """Starts streaming sources, each with the options given."""
    monkeypatch.setattr(source_process, "_DYING_SECONDS", 0.0)
    made: list[Source] = []

    def source(**options: object) -> Source:
        made.append(Source(tmp_path / "logs", **options))
        return made[-1]

    yield source
    for one in made:
        one.reader.stop()
    connections.close_all()


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReceiverServices:
    """Two receivers; what failed is tried again without a pause."""
    monkeypatch.setattr(receiver_services, "_PAUSE_SECONDS", 0.0)
    return ReceiverServices(tmp_path)
