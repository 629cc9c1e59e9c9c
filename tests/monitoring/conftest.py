from __future__ import annotations

import pytest

from spark_rtps.api import writer_session
from spark_rtps.columns import malformed
from spark_rtps.transport.log_once import LogOnce


@pytest.fixture(autouse=True)
def nothing_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process says once, each test hears."""
    monkeypatch.setattr(malformed, "_REPORTED", {})
    monkeypatch.setattr(writer_session, "_MISMATCHES_LOGGED", LogOnce(64))
