from __future__ import annotations

from pathlib import Path

import pytest

from spark_rtps.transport.log import named_logs


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the publication logs of this test are."""
    monkeypatch.setattr(named_logs, "_SHARED_MEMORY", tmp_path)
    return named_logs.directory_of_user()
