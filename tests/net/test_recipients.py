"""Recipients that fail: what they did not keep is not acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from spark_rtps.transport.errors import LogFullError
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.wire.samples import Run
from tests.net.net_scene import Scene, scene_of
from tests.support import domains
from tests.support.numbered_samples import numbered
from tests.support.waiting import PATIENCE


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_of(domains.NET_ON_HOST) as scene:
        yield scene


@pytest.mark.parametrize("reader_goes", [True, False])
def test_samples_that_a_recipient_failed_to_take_are_not_acknowledged(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, reader_goes: bool
) -> None:
    """As of a receiver whose full log ends it: it says goodbye, and its writers learn what it did not get."""
    reading = scene.node()
    got = scene.reader(reading)
    writer = scene.writer(scene.node())
    writer.write_samples(numbered(0, 10), timeout=PATIENCE)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    seen, failed = writer.readers.ready_reliable(), threading.Event()

    def fails(reader: StatefulReader, runs: list[Run]) -> None:
        failed.set()
        raise LogFullError("the log is full", path="log", limit=1, needed=2)

    monkeypatch.setattr(got, "deliver", fails)
    with reading.lock:  # what is sent, and the HEARTBEAT behind it, arrives in one burst
        writer.write_samples(numbered(10, 10), timeout=PATIENCE)
        assert writer.wait_for_acknowledgments(0.1) == {got.reader.guid: 10}
    assert failed.wait(PATIENCE)
    if reader_goes:
        reading.close()
        scene.wait(lambda: not writer.writer.readers)
        assert writer.readers.unserved(seen) == {got.reader.guid: 10}
    else:
        assert writer.wait_for_acknowledgments(0.3) == {got.reader.guid: 10}
    assert got.numbers == list(range(10))
