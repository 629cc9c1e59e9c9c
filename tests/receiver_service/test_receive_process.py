"""``spark-rtps receive`` as a process: kills, signals, patterns, and every sample once in the log."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.receiver_service.receive_scene import NUMBERS, Writer, all_once, grows
from tests.support.receive_command import ROOT, Receive
from tests.support.waiting import wait_until


@pytest.fixture
def writer() -> Iterator[Writer]:
    made = Writer("Numbers")
    yield made
    made.close()


class TestKills:
    def test_a_receiver_the_server_and_the_supervisor(self, receive: Receive, writer: Writer) -> None:
        receive.start(NUMBERS)
        grows(receive)
        log = receive.log("numbers")

        (receiver,) = receive.children()["receiver"]
        os.kill(receiver, signal.SIGKILL)
        wait_until(lambda: receive.children()["receiver"] not in ([], [receiver]), receive.printed)
        grows(receive)

        (server,) = receive.children()["serving"]
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: receive.children()["serving"] not in ([], [server]), receive.printed)
        grows(receive)

        receive.kill(signal.SIGKILL)
        receive.silent()
        receive.start(NUMBERS)
        assert receive.log("numbers") == log
        grows(receive)

        all_once(receive, writer.stop())

    @pytest.mark.parametrize("fate", ["removed", "damaged"])
    def test_a_log_that_is_lost(self, receive: Receive, writer: Writer, fate: str) -> None:
        receive.start(NUMBERS)
        grows(receive)
        receive.kill(signal.SIGTERM)
        lost = receive.log("numbers")
        if fate == "removed":
            shutil.rmtree(lost)
        else:
            (lost / "metadata.json").write_text("{")
        receive.silent()
        receive.start(NUMBERS)
        grows(receive)
        assert receive.log("numbers") != lost and "NEW log" in receive.printed()

    def test_a_log_that_ends_before_what_a_group_has_committed(
        self, receive: Receive, writer: Writer
    ) -> None:
        """As after a power failure: it goes on behind what is gone."""
        receive.start(NUMBERS)
        grows(receive)
        receive.kill(signal.SIGTERM)
        log, committed = receive.log("numbers"), receive.position("numbers") + (1 << 20)
        groups = {"g": {"position": committed, "row": 0, "at_ns": 0}}
        (log / "groups.json").write_text(json.dumps({"v": 1, "groups": groups}))
        receive.silent()
        receive.start(NUMBERS)
        wait_until(lambda: receive.position("numbers") > committed, receive.printed)
        assert receive.log("numbers") == log and "NEW log" not in receive.printed()


class TestSignals:
    def test_a_start_after_term_misses_nothing(self, receive: Receive, writer: Writer) -> None:
        receive.start(NUMBERS)
        grows(receive)
        (receive.log("numbers") / "groups.json").write_text(
            json.dumps({"v": 1, "groups": {"slow": {"position": 0, "row": 0, "at_ns": time.time_ns()}}})
        )
        assert receive.kill(signal.SIGTERM) == 0
        receive.reported("STOPPING=1")
        assert "left: numbers (topic 'Numbers'): group slow is" in receive.printed()
        receive.start(NUMBERS)
        grows(receive)
        all_once(receive, writer.stop())

    def test_hup(self, receive: Receive, writer: Writer) -> None:
        receive.start(NUMBERS)
        grows(receive)
        (receiver,) = receive.children()["receiver"]

        receive.write(NUMBERS + '[subscriptions.other]\ntopic = "Other"\n')
        receive.silent()
        receive.signal(signal.SIGHUP)
        receive.reported("RELOADING=1")
        receive.reported("READY=1")
        wait_until(lambda: len(receive.children()["receiver"]) == 2, receive.printed)
        assert receiver in receive.children()["receiver"] and "other is new" in receive.printed()

        receive.write(NUMBERS.replace("keep_all", "keep_al"))
        receive.signal(signal.SIGHUP)
        wait_until(lambda: "keeping the previous configuration" in receive.printed(), receive.printed)
        assert "[subscriptions.numbers] history: 'keep_al' must be one of" in receive.printed()
        grows(receive)
        assert receiver in receive.children()["receiver"]
        all_once(receive, writer.stop())

    def test_the_watchdog_is_notified(self, receive: Receive) -> None:
        receive.start(NUMBERS)
        for _ in range(3):
            receive.reported("WATCHDOG=1")


def test_a_pattern_finds_topics_now_and_later(receive: Receive, writer: Writer) -> None:
    receive.start('[subscriptions.all]\ntopic = "Num*"\nreliability = "reliable"\nhistory = "keep_all"\n')
    wait_until(lambda: "all/Numbers" in receive.records(), receive.printed)
    grows(receive, "all/Numbers")
    later = Writer("Numerals")
    try:
        wait_until(lambda: "all/Numerals" in receive.records(), receive.printed)
        grows(receive, "all/Numerals")
    finally:
        later.close()


def test_two_in_one_directory(receive: Receive) -> None:
    receive.start("")
    second = subprocess.run(
        [sys.executable, "-m", "spark_rtps", "receive", str(receive.file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 1 and "another `spark-rtps receive` works in" in second.stderr


def test_the_token_of_this_host(receive: Receive) -> None:
    receive.start("")
    token = receive.root / "token"
    found = token.read_text()
    assert token.stat().st_mode & 0o777 == 0o600 and len(found.strip()) == 64
    receive.kill(signal.SIGTERM)
    receive.silent()
    receive.start("")
    assert token.read_text() == found
