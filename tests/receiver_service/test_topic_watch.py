"""Looking for the topics of several networks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_rtps.receiver_service.topic_watch import TopicWatch, join_domain
from spark_rtps.transport.errors import TransportError
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.receiver.addresses import Addresses, write_addresses
from spark_rtps.transport.structure import NANOSECONDS, Locator
from tests.receiver_service.supervisor_scene import FakeDomain

HERE, THERE = NodeConfig(participant_name="here"), NodeConfig(participant_name="there")


class Networks:
    def __init__(self) -> None:
        self.joined: list[NodeConfig] = []
        self.domains: dict[NodeConfig, FakeDomain] = {}
        self.refuses = False

    def join(self, config: NodeConfig) -> FakeDomain:
        self.joined.append(config)
        if self.refuses:
            raise TransportError("no such interface")
        self.domains[config] = FakeDomain({config.participant_name})
        return self.domains[config]


@pytest.fixture
def networks() -> Networks:
    return Networks()


def test_one_participant_for_each_network(networks: Networks) -> None:
    watch = TopicWatch(networks.join)
    for second in range(1, 4):
        found = watch.topics_now([HERE, THERE, HERE], second * NANOSECONDS)
        assert found == {HERE: {"here"}, THERE: {"there"}}
    assert sorted(each.participant_name for each in networks.joined) == ["here", "there"]
    assert watch.topics_now([HERE], 3 * NANOSECONDS + 1) == {}  # it has just looked
    watch.topics_now([HERE], 4 * NANOSECONDS)
    assert networks.domains[THERE].is_closed and not networks.domains[HERE].is_closed
    watch.close()
    assert networks.domains[HERE].is_closed


def test_a_participant_that_ended_is_made_again(networks: Networks) -> None:
    watch = TopicWatch(networks.join)
    watch.topics_now([HERE], NANOSECONDS)
    networks.domains[HERE].is_closed = True
    assert watch.topics_now([HERE], 2 * NANOSECONDS) == {}
    assert watch.topics_now([HERE], 3 * NANOSECONDS) == {HERE: {"here"}}


def test_a_network_that_is_not_there_is_tried_ever_more_seldom(
    networks: Networks, caplog: pytest.LogCaptureFixture
) -> None:
    networks.refuses = True
    watch = TopicWatch(networks.join)
    for second in range(1, 61):
        assert watch.topics_now([HERE], second * NANOSECONDS) == {}
    assert 3 <= len(networks.joined) <= 8 and "no such interface" in caplog.text
    networks.refuses = False
    for second in range(61, 140):
        found = watch.topics_now([HERE], second * NANOSECONDS)
    assert found == {HERE: {"here"}}


def test_the_watch_takes_no_ports_of_receivers_about_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").mkdir()
    write_addresses(tmp_path / "log", Addresses.from_locators(0, [Locator("127.0.0.1", 7410)], NANOSECONDS))
    joined: list[NodeConfig] = []

    def join(config: NodeConfig) -> None:
        joined.append(config)
        raise TransportError("no")

    monkeypatch.setattr(Node, "open", join)
    with pytest.raises(TransportError):
        join_domain(tmp_path, HERE)
    assert joined == [replace(HERE, reserved_ports=(7410,))]
