from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.receiver_service.receive_scene import DOMAIN
from tests.receiver_service.supervisor_scene import Scene
from tests.support.receive_command import Receive


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def receive(tmp_path: Path) -> Iterator[Receive]:
    made = Receive(tmp_path, DOMAIN)
    yield made
    made.close()
