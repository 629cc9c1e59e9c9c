"""Receivers that start again elsewhere: when they keep their GUID, and what they count."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spark_rtps.transport.log.host_clocks import Clocks
from spark_rtps.transport.log.last_use import IN_USE_NS, note_in_use
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.loss_report import LOSS_REPORT, read_loss_report
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import LossCause
from spark_rtps.transport.protocol.trust import Trust
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.receiver.addresses import (
    Addresses,
    read_addresses,
    reserved_ports,
    with_reserved_ports,
    write_addresses,
)
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.process import ReceiverProcess
from spark_rtps.transport.structure import NANOSECONDS, Guid, Locator
from spark_rtps.transport.wire.samples import Samples
from tests.support import domains
from tests.support.waiting import wait_until

DOMAIN = domains.RECEIVER_MOVED
#: All of 127/8 is on the loopback interface.
HERE, THERE = "127.0.0.2", "127.0.0.3"
LAST = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_LAST)
SAMPLE = 64
WRITER = Guid(b"\1" * 12, b"\0\0\1\2")
OTHER = Guid(b"\2" * 12, b"\0\0\1\2")


# --- what is written down ----------------------------------------------------------------------------------


def addresses(*ports: int, index: int = 0) -> Addresses:
    return Addresses.from_locators(index, [Locator("10.0.0.1", port) for port in ports])


def test_written_addresses_are_read(tmp_path: Path) -> None:
    written = addresses(7410, 7411, index=3)
    written.moved_from[WRITER] = 17
    written.guid_prefix = b"p" * 12
    write_addresses(tmp_path, written)
    assert read_addresses(tmp_path) == written
    assert written.locators == {"10.0.0.1:7410", "10.0.0.1:7411"}


def test_nothing_was_written(tmp_path: Path) -> None:
    assert read_addresses(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "[]",
        '{"participant_index": 0, "locators": []}',
        '{"participant_index": "x", "locators": [], "moved_from": {}}',
        '{"participant_index": 0, "locators": 7, "moved_from": {}}',
        '{"participant_index": 0, "locators": [], "moved_from": {"00": 1}}',
        '{"participant_index": 0, "locators": [], "moved_from": []}',
        '{"participant_index": Infinity, "locators": [], "moved_from": {}}',
        '{"participant_index": 0, "locators": [], "moved_from": {"' + "00" * 16 + '": -1}}',
        "[" * 100_000,
    ],
)
def test_invalid_addresses_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    (tmp_path / "addresses.json").write_text(text)
    with caplog.at_level(logging.WARNING):
        assert read_addresses(tmp_path) is None
    assert "ignored the receiver's addresses" in caplog.text


def test_a_disk_that_takes_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        write_addresses(tmp_path / "missing", addresses(7410))
    assert "writing the receiver's addresses" in caplog.text


def test_writers_are_remembered_until_something_of_them_is_in_the_log() -> None:
    first, second, third = addresses(1), addresses(2), addresses(2)
    second.follow(first, {WRITER: 10, OTHER: 20}, moved=True)
    assert second.moved_from == {WRITER: 10, OTHER: 20}
    second.moved_from[OTHER] = 25  # five were counted as missed
    third.follow(second, {WRITER: 11, OTHER: 20}, moved=False)
    assert third.moved_from == {OTHER: 25}
    fourth = addresses(3)
    fourth.follow(third, {WRITER: 11, OTHER: 20}, moved=True)
    assert fourth.moved_from == {WRITER: 11, OTHER: 25}


LEASE = 20 * NANOSECONDS
YEAR = 365 * 86_400 * NANOSECONDS


def test_ports_are_reserved_while_peers_wait_for_their_receiver(tmp_path: Path) -> None:
    written = Addresses.from_locators(3, [Locator("10.0.0.1", 7416), Locator("10.0.0.1", 7417)], LEASE)
    for name in ("own", "down", "long-down"):
        (tmp_path / name).mkdir()
        write_addresses(tmp_path / name, written)
    now = (tmp_path / "down" / "addresses.json").stat().st_mtime_ns
    assert reserved_ports(tmp_path / "own", now=Clocks(now + LEASE + IN_USE_NS, 0, "")) == (7416, 7417)
    assert reserved_ports(tmp_path / "own", now=Clocks(now + LEASE + 2 * IN_USE_NS, 0, "")) == ()


@pytest.mark.parametrize("step", [50 * YEAR, -50 * YEAR])
def test_a_clock_step_does_not_change_which_receivers_are_down(tmp_path: Path, step: int) -> None:
    """As on a host without a battery for its clock: files are dated 1970 until the time is known."""
    (tmp_path / "down").mkdir()
    write_addresses(tmp_path / "down", Addresses.from_locators(3, [Locator("10.0.0.1", 7416)], LEASE))
    note_in_use(tmp_path / "down")
    noted = Clocks.read_now()
    for later, ports in ((LEASE, (7416,)), (LEASE + 2 * IN_USE_NS, ())):
        now = replace(noted, wall_ns=noted.wall_ns + step + later, uptime_ns=noted.uptime_ns + later)
        assert reserved_ports(tmp_path / "own", now=now) == ports


@pytest.mark.parametrize("content", [None, "[]", "{"])
def test_no_ports_are_reserved_by_files_that_nobody_wrote(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "other").mkdir()
    if content is not None:
        (tmp_path / "other" / "addresses.json").write_text(content)
    assert reserved_ports(tmp_path / "own", now=Clocks(0, 0, "")) == ()


def test_other_participants_leave_the_ports_of_receivers_alone_that_are_down(tmp_path: Path) -> None:
    (tmp_path / "down").mkdir()
    write_addresses(tmp_path / "down", Addresses.from_locators(3, [Locator("10.0.0.1", 7416)], LEASE))
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "addresses.json")  # which nobody writes to
    config = NodeConfig(domain=DOMAIN)
    assert with_reserved_ports(config, tmp_path) == replace(config, reserved_ports=(7416,))
    assert with_reserved_ports(config, tmp_path / "nowhere") == config


def test_no_ports_are_reserved_for_a_receiver_that_took_its_leave(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    write_addresses(tmp_path / "other", addresses(7410))
    assert reserved_ports(tmp_path / "own", now=Clocks(0, 0, "")) == ()


# --- processes ---------------------------------------------------------------------------------------------


@pytest.fixture
def writer() -> Iterator[BlockingWriter]:
    # whatever the receiver's address is, the system sends from 127.0.0.1
    config = NodeConfig(domain=DOMAIN, interface="lo", lease_duration=60 * NANOSECONDS, trust=Trust.ANY)
    with closing(Node.open(config).start()) as node:
        yield node.create_writer(WriterSpec("t", "T", LAST))


def write(writer: BlockingWriter, count: int) -> None:
    for _ in range(count):
        writer.write_samples(Samples.uniform(np.zeros(SAMPLE, np.uint8), 1, SAMPLE))


class Moving:
    """A receiver that is killed and started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        node = NodeConfig(domain=DOMAIN, lease_duration=60 * NANOSECONDS, trust=Trust.ANY)
        self.config = ReceiverConfig(str(directory), "t", "T", False, qos=LAST, node=node)
        self.process: ReceiverProcess | None = None

    def start(self, interface: str) -> ReceiverProcess:
        config = replace(self.config, node=replace(self.config.node, interface=interface))
        self.process = ReceiverProcess.start(config)
        return self.process

    def kill(self) -> None:
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.stop()
            self.process = None

    @property
    def prefix(self) -> str:
        return str(LogView(self.directory).metadata["guid_prefix"])

    @property
    def locators(self) -> set[str]:
        found = read_addresses(self.directory)
        assert found is not None
        return set(found.locators)

    @property
    def reached(self) -> dict[Guid, int]:
        """Of the writers that knew it elsewhere."""
        found = read_addresses(self.directory)
        return {} if found is None else found.moved_from

    def count(self, name: str) -> int:
        assert self.process is not None
        return self.process.counters().get(name, 0)

    def wait_for(self, name: str, count: int) -> None:
        wait_until(lambda: self.count(name) == count, lambda: f"{name} {count}, not {self.count(name)}")

    def missed(self) -> list[tuple[str, int]]:
        """Causes and samples of the loss report."""
        losses, _ = read_loss_report(self.directory / LOSS_REPORT)
        return [(loss.cause, loss.samples) for loss in losses]


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Moving]:
    moving = Moving(tmp_path / "log")
    yield moving
    moving.kill()


def matched(receiver: Moving, writer: BlockingWriter, readers: int) -> None:
    receiver.wait_for("reader.matched_writers", 1)
    wait_until(lambda: len(writer.writer.readers) == readers, f"{readers} readers")


def test_missed_samples_are_counted_once(receiver: Moving, writer: BlockingWriter) -> None:
    """Also if it moves, is killed before anything more is in its log, and moves back."""
    receiver.start(HERE)
    matched(receiver, writer, 1)
    first = receiver.prefix
    write(writer, 10)
    receiver.wait_for("log.rows", 10)
    receiver.kill()
    write(writer, 10)

    receiver.start(THERE)
    wait_until(lambda: receiver.reached == {writer.guid: 20}, "what was missed")
    second = receiver.prefix
    assert second != first
    assert receiver.missed() == [(LossCause.MOVED, 10)]
    assert receiver.count("reader.lost_samples") == receiver.count("reader.missed_samples") == 10
    assert receiver.count("status.sample_lost.by_move") == 10
    receiver.kill()

    receiver.start(THERE)  # at the same address nothing is missed
    write(writer, 10)
    receiver.wait_for("log.rows", 20)
    assert receiver.prefix == second
    receiver.kill()
    write(writer, 5)

    receiver.start(HERE)
    wait_until(lambda: receiver.reached == {writer.guid: 35}, "what was missed")
    assert receiver.prefix not in (first, second)
    assert receiver.missed() == [(LossCause.MOVED, 15)]
    write(writer, 1)
    receiver.wait_for("log.rows", 21)


def test_killed_while_it_moves_and_back_again_it_counts_what_it_missed(
    receiver: Moving, writer: BlockingWriter
) -> None:
    """The log had its new GUID already, and the addresses were not written down yet."""
    receiver.start(HERE)
    matched(receiver, writer, 1)
    first, between = receiver.prefix, "ab" * 12
    write(writer, 10)
    receiver.wait_for("log.rows", 10)
    receiver.kill()
    write(writer, 5)
    with StreamLog.open(receiver.directory) as log:
        log.amend(guid_prefix=between)
    receiver.start(HERE)
    wait_until(lambda: receiver.reached == {writer.guid: 15}, "what was missed")
    assert receiver.prefix not in (first, between)
    assert receiver.missed() == [(LossCause.MOVED, 5)]
    write(writer, 1)
    receiver.wait_for("log.rows", 11)


def test_a_receiver_requests_its_ports_again(receiver: Moving, writer: BlockingWriter) -> None:
    with closing(Node.open(NodeConfig(domain=DOMAIN, interface=HERE))):
        receiver.start(HERE)  # the lowest ports are taken
        locators, prefix = receiver.locators, receiver.prefix
    receiver.kill()
    receiver.start(HERE)
    assert (receiver.locators, receiver.prefix) == (locators, prefix)


def test_another_receiver_leaves_the_ports_of_one_that_is_down_alone(tmp_path: Path) -> None:
    first, second = Moving(tmp_path / "first"), Moving(tmp_path / "second")
    try:
        first.start(HERE)
        locators, prefix = first.locators, first.prefix
        first.kill()
        second.start(HERE)
        assert not second.locators & locators
        first.start(HERE)
        assert (first.locators, first.prefix) == (locators, prefix)
        assert first.process is not None
        first.process.stop()
        first.process = None
        second.kill()
        with closing(Node.open(NodeConfig(domain=DOMAIN, interface=HERE))) as node:
            assert node.sockets.participant_index == 0
            assert reserved_ports(tmp_path / "third", now=Clocks.read_now()) == tuple(sorted(ports(second)))
    finally:
        first.kill()
        second.kill()


def ports(receiver: Moving) -> set[int]:
    return {int(each.rpartition(":")[2]) for each in receiver.locators}


def test_other_ports_are_another_address(
    receiver: Moving, writer: BlockingWriter, capfd: pytest.CaptureFixture[str]
) -> None:
    receiver.start(HERE)
    matched(receiver, writer, 1)
    write(writer, 3)
    receiver.wait_for("log.rows", 3)
    locators, prefix = receiver.locators, receiver.prefix
    receiver.kill()
    write(writer, 3)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as squatter:
        squatter.bind((HERE, int(min(locators).rpartition(":")[2])))
        receiver.start(HERE)
        receiver.wait_for("reader.missed_samples", 3)
    assert not receiver.locators & locators
    assert receiver.prefix != prefix
    assert f"was reached at {', '.join(sorted(locators))} before" in capfd.readouterr().err


@pytest.mark.parametrize("change", ["more", "gone"])
def test_a_receiver_of_several_addresses_has_moved_if_one_is_gone(receiver: Moving, change: str) -> None:
    """What is new does not matter; peers may use any that is gone."""
    receiver.start(HERE)
    prefix = receiver.prefix
    receiver.kill()
    path = receiver.directory / "addresses.json"
    reported = json.loads(path.read_text())
    if change == "more":
        reported["locators"] = reported["locators"][:1]
    else:
        reported["locators"].append("192.0.2.1:7410")
    path.write_text(json.dumps(reported))
    receiver.start(HERE)
    assert (receiver.prefix == prefix) == (change == "more")
    assert all(each.startswith(f"{HERE}:") for each in receiver.locators)


def test_a_log_of_before_keeps_its_guid(receiver: Moving) -> None:
    receiver.start(HERE)
    prefix = receiver.prefix
    receiver.kill()
    (receiver.directory / "addresses.json").unlink()
    receiver.start(THERE)
    assert receiver.prefix == prefix
