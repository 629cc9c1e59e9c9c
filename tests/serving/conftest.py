from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from spark_rtps.serving import connections


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread that fetches outlives a test, and no socket that is not kept on purpose."""
    yield
    connections.close_all()
    gc.collect()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("spark-rtps")] == []
