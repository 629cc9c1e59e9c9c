"""``kill -9`` of the receiver process in the middle of a rotation, a checkpoint, a trim and so on, under load.

Each is killed a few lines later than the one before, at last when all of it is done; its successor goes on. In the end
every row is in the log once.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.transport.errors import RtpsError
from spark_rtps.transport.log.error_log import ERROR_LOG, read_error_log
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import PublicationPolicy
from spark_rtps.transport.receiver.process import ReceiverProcess
from spark_rtps.transport.structure import NANOSECONDS
from tests.receiver.kill_scene import BATCHES, RELIABLE, Load, LogReader, config
from tests.support import domains
from tests.support.waiting import wait_until

DOMAIN = domains.RECEIVER_KILL_AT
#: Lines from the first one of the function, and whatever it calls, on.
LINES = (1, 5, 12, 1 << 30)


@dataclass(frozen=True)
class Place:
    """The function, and at which of its calls in each life: from the second one on, most run under load."""

    qualname: str
    call: int = 2


PLACES = {
    "append": Place("StreamLog.append", 100),
    "rotation": Place("StreamLog._begin_segment", 3),
    "checkpoint": Place("write_checkpoint", 5),
    "trim": Place("StreamLog.trim"),
    "commit": Place("LogAppender.commit_position", 8),
    "metadata": Place("StreamLog.amend", 1),
    "counters": Place("ShownCounters.show_log", 20),
    "counters file": Place("Counters.create", 1),
    "participants file": Place("write_known_participants", 1),
    "incarnation": Place("next_incarnation", 1),
    "addresses": Place("write_addresses", 1),
    "recovery": Place("StreamLog.open", 1),
}


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int, int], None]]:
    """The next receivers kill themselves there; "": none does."""
    real = subprocess.Popen
    place: list[str] = []

    def popen(command: list[str], **options: Any) -> Any:
        assert command[0] == sys.executable and command[1] == "-m"
        module = f"{command[2]}.__main__"
        instead = [sys.executable, "-m", "tests.support.killer", module, *place]
        return real(instead if place else command, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)

    def arm(qualname: str, call: int = 0, line: int = 0) -> None:
        place[:] = [qualname, str(call), str(line)] if qualname else []

    return arm  # type: ignore[return-value]


@pytest.mark.parametrize("name", PLACES)
def test_killed_there_nothing_is_lost_or_doubled(
    name: str, tmp_path: Path, kill_at: Callable[..., None]
) -> None:
    place = PLACES[name]
    node = Node.open(NodeConfig(domain=DOMAIN, interface="lo", lease_duration=60 * NANOSECONDS)).start()
    plain = node.create_writer(WriterSpec("t", "T", RELIABLE))
    batching = node.create_writer(WriterSpec("t", "T", RELIABLE, policy=PublicationPolicy(batch=BATCHES)))
    # The type's name is the writers', so that it is amended.
    sizes = {"log_max_bytes": 4 << 20, "log_segment_bytes": 512 << 10}
    given = config(tmp_path / "log", DOMAIN, type_name=None, keyed=None, **sizes)
    log = LogReader(tmp_path / "log")
    loads: list[Load] = []
    #: How each ended.
    found: list[str] = []

    def work(receiver: ReceiverProcess) -> None:
        if not loads and plain.writer.readers and batching.writer.readers:
            loads.extend((Load(plain, 1), Load(batching, 2)))
        log.read(receiver.cursor().position)
        receiver.commit_position(log.end.position)

    def live_and_die() -> None:
        try:
            receiver = ReceiverProcess.start(given)
        except RtpsError as error:
            found.append(str(error))
            return

        def is_dead() -> bool:
            work(receiver)
            try:
                receiver.check()
            except RtpsError as error:
                found.append(str(error))
                return True
            return False

        wait_until(is_dead, f"the receiver to come to {place}")
        reported = receiver.cursor().position
        receiver.stop()
        log.check_closed(reported, given.log_max_bytes)

    try:
        if name == "recovery":  # of a log that there is
            kill_at("StreamLog.append", 100, 1)
            live_and_die()
        for line in LINES:
            kill_at(place.qualname, place.call, line)
            live_and_die()
        kill_at("")
        receiver = ReceiverProcess.start(given)
        try:
            wait_until(lambda: work(receiver) or log.end.position > 1 << 20)
            for each in loads:
                each.stop()

            def is_done() -> bool:
                work(receiver)
                return all(each.has_ended for each in loads) and not (
                    plain.wait_for_acknowledgments(0.01) or batching.wait_for_acknowledgments(0.01)
                )

            wait_until(is_done)
            work(receiver)
            assert log.counts == {plain.guid: loads[0].written, batching.guid: loads[1].written}
            wait_until(lambda: "reader.lost_samples" in receiver.counters(), "the counters to be shown")
            assert receiver.counters()["reader.lost_samples"] == 0
            ends = ("the receiver could not start: it ended without a message", "ended: exit status -9")
            assert len(found) >= len(LINES) and all(each.endswith(ends) for each in found)
        finally:
            receiver.stop()
    finally:
        node.close()
    if (tmp_path / "log" / ERROR_LOG).exists():
        output = [each.text for each in read_error_log(tmp_path / "log" / ERROR_LOG)[0]]
        assert [each for each in output if " full" not in each] == []  # writers are held back for a while
