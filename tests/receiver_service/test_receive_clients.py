"""A receiver service as its clients see it: subscriptions made, found again and removed, groups, and what survives."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from spark_rtps.receiver_service.children import server_config
from spark_rtps.receiver_service.config import read_config
from spark_rtps.serving.client.receiver_client import ReceiverClient
from spark_rtps.serving.wire_format.served import Served
from spark_rtps.transport.errors import LogAccessError, RtpsError
from spark_rtps.transport.log.frame import Cursor
from tests.receiver_service.receive_scene import NUMBERS, Writer, grows
from tests.support.receive_command import Receive
from tests.support.waiting import wait_until


def client_of(receive: Receive, token: str | None = None) -> ReceiverClient:
    ports = re.findall(r"serving at 127\.0\.0\.1:(\d+)", receive.printed())
    token = token or (receive.root / "token").read_text().strip()
    return ReceiverClient(Served((f"127.0.0.1:{ports[-1]}",), token), patience=20)


def test_a_subscription_of_a_client(receive: Receive) -> None:
    receive.start(NUMBERS)
    client = client_of(receive)
    writer = Writer("Other")
    try:
        (numbers,) = client.subscriptions()
        assert (numbers.name, numbers.topic, numbers.dynamic) == ("numbers", "Numbers", False)
        made = client.subscribe({"topic": "Other", "reliability": "reliable", "history": "keep_all"})
        assert (made.name, made.topic, made.dynamic, made.domain) == ("Other", "Other", True, numbers.domain)
        again = client.subscribe({"topic": "Other", "reliability": "reliable", "history": "keep_all"})
        assert again.log == made.log
        grows(receive, "Other")
        assert client.tail(made.log, after=0, wait=10).rows > 0
        with pytest.raises(RtpsError, match="did you mean 'reliability'"):
            client.subscribe({"topic": "Other", "reliabilty": "reliable"})

        (server,) = receive.children()["serving"]
        os.kill(server, signal.SIGKILL)
        assert (
            client.subscribe({"topic": "Other", "reliability": "reliable", "history": "keep_all"}).log
            == made.log
        )
        receive.kill(signal.SIGKILL)
        receive.silent()
        receive.start(NUMBERS)
        assert {each.name: each.log for each in client_of(receive).subscriptions()}["Other"] == made.log
    finally:
        writer.close()
        client.close()


def test_samples_unread_by_groups_are_logged_at_the_end(receive: Receive) -> None:
    receive.start(NUMBERS + 'retention = "committed"\n')
    client = client_of(receive)
    writer = Writer("Numbers")
    try:
        grows(receive)
        log = receive.records()["numbers"]["log"]
        client.commit_offset(log, "slow", Cursor(0))
        client.commit_offset(log, "quick", Cursor(client.tail(log).position))
        assert client.groups(log)["slow"] == Cursor(0)
    finally:
        writer.close()
        client.close()
    receive.kill(signal.SIGTERM)
    assert "left: numbers (topic 'Numbers'): group slow is" in receive.printed()


def test_tokens_that_change(receive: Receive) -> None:
    read, admin = receive.root.parent / "read", receive.root.parent / "admin"
    read.write_text("r" * 32)
    admin.write_text("a" * 32)
    text = NUMBERS + '[tokens]\nread = "read"\nadmin = "admin"\n'
    receive.start(text)
    reader = client_of(receive, "r" * 32)
    assert [each.name for each in reader.subscriptions()] == ["numbers"]
    with pytest.raises(LogAccessError):
        reader.subscribe({"topic": "Other"})
    (receiver,) = receive.children()["receiver"]
    read.write_text("n" * 32)
    receive.signal(signal.SIGHUP)
    wait_until(lambda: receive.printed().count("serving at") == 2, receive.printed)
    with pytest.raises(LogAccessError):
        reader.subscriptions()
    assert client_of(receive, "n" * 32).subscriptions()
    assert receive.children()["receiver"] == [receiver]
    assert "r" * 32 not in receive.printed() and "a" * 32 not in receive.printed()


def test_the_servers_part_of_the_file(tmp_path: Path) -> None:
    for name in ("crt", "key", "ca"):
        (tmp_path / name).write_text(name)
    (tmp_path / "receiver.toml").write_text(
        'directory = "state"\nlisten = "0.0.0.0:7421"\ncertificate = "crt"\nkey = "key"\nclient_ca = "ca"\n'
        'client_role = "read"\ngroups_retention = "1d"\n[defaults]\ndomain = 7\n'
    )
    config = server_config(read_config(tmp_path / "receiver.toml"), 7422)
    assert (config.log_dir, config.address, config.port) == (tmp_path / "state", "0.0.0.0", 7422)
    assert (config.certificate, config.key) == (str(tmp_path / "crt"), str(tmp_path / "key"))
    assert (config.client_ca, config.client_role, dict(config.tokens)) == (str(tmp_path / "ca"), "read", {})
    assert config.receiver_service and config.groups_retention == 86_400 * 10**9
    assert config.node is not None and config.node.domain == 7
