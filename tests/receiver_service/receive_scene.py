"""A Cyclone DDS writer of numbers, and what ``spark-rtps receive`` has got of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support import domains
from tests.support.receive_command import Receive
from tests.support.waiting import wait_until

DOMAIN = domains.RECEIVER_SERVICE
CYCLONE = (
    '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo"/></Interfaces></General>'
    "</Domain></CycloneDDS>"
)
NUMBERS = '[subscriptions.numbers]\ntopic = "Numbers"\nreliability = "reliable"\nhistory = "keep_all"\n'


class Writer:
    """Cyclone DDS in a process of its own, which writes numbers from 0 on until it is told to stop."""

    def __init__(self, topic: str, *, pause: float = 0.002) -> None:
        script = Path(__file__).with_name("number_writer.py")
        self._child = subprocess.Popen(
            [sys.executable, str(script), topic, str(DOMAIN), str(pause)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "CYCLONEDDS_URI": CYCLONE},
        )
        assert self._child.stdin is not None and self._child.stdout is not None
        self._stdin, self._stdout = self._child.stdin, self._child.stdout

    def stop(self) -> int:
        """How many numbers were written; it stays for those who have not got all of them."""
        self._stdin.write(b"stop\n")
        self._stdin.flush()
        return int(self._stdout.readline())

    def close(self) -> None:
        self._child.kill()
        self._child.wait()
        self._stdin.close()
        self._stdout.close()


def grows(receive: Receive, name: str = "numbers", by: int = 50) -> None:
    before = len(receive.numbers(name))
    wait_until(lambda: len(receive.numbers(name)) >= before + by, lambda: receive.printed(), every=0.1)


def all_once(receive: Receive, count: int) -> None:
    """Every number is in the log, and none twice, in order."""
    wait_until(lambda: len(receive.numbers()) >= count, lambda: receive.printed(), every=0.2)
    assert receive.numbers() == list(range(count)), receive.printed()
