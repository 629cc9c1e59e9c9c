"""A receiver's process that is started before it is known what it receives."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.receiver import child as children
from spark_rtps.transport.receiver.child import discard, prepare, take
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.process import ReceiverProcess
from tests.support import domains


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    while children._PREPARED:
        discard(children._PREPARED.pop()[0])


def prepared() -> int:
    ((child, _),) = children._PREPARED
    return child.pid


def test_the_next_receiver_takes_it(tmp_path: Path) -> None:
    prepare()
    pid = prepared()
    prepare()
    assert prepared() == pid  # one is enough
    node = NodeConfig(domain=domains.RECEIVER_PROCESS, interface="lo")
    config = ReceiverConfig(
        log_directory=str(tmp_path / "log"), topic="T", type_name="T", keyed=False, qos=Qos(), node=node
    )
    process = ReceiverProcess.start(config)
    try:
        assert process.pid == pid
        assert not children._PREPARED
        other = take()  # the one after that is a new one
        assert other.pid != pid
        discard(other)
    finally:
        process.stop()


def test_an_unused_prepared_process_ends_with_its_parent() -> None:
    prepare()
    ((child, _),) = children._PREPARED
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(60) == 0


def test_a_dead_prepared_process_is_not_used() -> None:
    prepare()
    ((dead, _),) = children._PREPARED
    dead.kill()
    dead.wait()
    child = take()
    assert child.pid != dead.pid
    assert child.poll() is None
    discard(child)


def test_a_prepared_process_with_other_modules_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prepare()
    pid = prepared()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    child = take()
    assert child.pid != pid
    discard(child)
