from __future__ import annotations

import pytest

from spark_rtps.columns import malformed


@pytest.fixture(autouse=True)
def nothing_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process says once, each test hears."""
    monkeypatch.setattr(malformed, "_REPORTED", {})
