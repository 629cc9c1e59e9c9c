"""Participants: what they see, which options they take, and how they end."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import spark_rtps as rtps
from spark_rtps.api.arguments import topic_settings
from spark_rtps.options import AppliesTo
from spark_rtps.transport.receiver.addresses import Addresses, write_addresses
from spark_rtps.transport.structure import Locator
from tests.interop import cyclone_types
from tests.interop.cyclone_peer import CyclonePeer
from tests.support.waiting import wait_until

SCHEMA = pa.schema([("x", pa.int32())])


def threads_of(domain: int) -> list[str]:
    """Names of the threads that serve a domain."""
    return [each.name for each in threading.enumerate() if each.name.endswith(f"-{domain}")]


class TestDiscovery:
    def test_topics_endpoints_and_participants(
        self, participant: rtps.Participant, cyclone: Callable[..., CyclonePeer]
    ) -> None:
        peer = cyclone()
        peer.writer("b", cyclone_types.Vehicle)
        peer.reader("a", cyclone_types.Number)
        wait_until(lambda: len(participant.topics()) == 2)
        assert participant.topics() == {"a": ["interop::Number"], "b": ["interop::Vehicle"]}
        assert [(e.kind, e.topic) for e in participant.endpoints()] == [("reader", "a"), ("writer", "b")]
        assert len(participant.participants()) == 1

    def test_a_topic_that_nobody_writes(self, participant: rtps.Participant) -> None:
        with pytest.raises(rtps.OptionError, match="no one is on topic 'nothing'"):
            participant.subscribe("nothing", options={"type.discovery_timeout": 0.1})


def test_a_participant_takes_no_ports_of_a_receiver_that_is_down_briefly(
    domain: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_rtps.api.membership.default_log_dir", lambda: tmp_path)
    (tmp_path / "log").mkdir()
    write_addresses(tmp_path / "log", Addresses.from_locators(0, [Locator("127.0.0.1", 7410)], 10**9))
    with rtps.Participant(domain, interface="lo") as participant:
        assert participant.node.config.reserved_ports == (7410,)


class TestEnd:
    def test_close_twice(self, domain: int) -> None:
        participant = rtps.Participant(domain, interface="lo")
        with participant:
            subscription = participant.subscribe("t", schema=SCHEMA, type="T")
            assert threads_of(domain)
        participant.close()
        subscription.close()
        assert participant.is_closed and subscription.is_closed
        assert not threads_of(domain)

    def test_a_participant_that_never_joined_closes(self) -> None:
        rtps.Participant(0).close()

    def test_nothing_goes_after_the_end(self, participant: rtps.Participant) -> None:
        participant.close()
        with pytest.raises(rtps.UsageError, match="the participant is closed"):
            participant.subscribe("t", schema=SCHEMA, type="T")
        with pytest.raises(rtps.UsageError, match="the participant is closed"):
            participant.topics()

    def test_an_unreferenced_participant_leaves(self, domain: int) -> None:
        participant = rtps.Participant(domain, interface="lo")
        subscription = participant.subscribe("t", schema=SCHEMA, type="T")
        alive = weakref.ref(participant._membership)
        del participant
        gc.collect()
        assert alive() is not None and not subscription.is_closed  # the subscription has it
        del subscription
        gc.collect()
        assert alive() is None
        wait_until(lambda: not threads_of(domain))


class TestOptions:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"domain": 233}, "option 'domain' = '233': must be between 0 and 232"),
            ({"options": {"reliability": "reliable"}}, "give it to subscribe\\(\\) or publish\\(\\)"),
            ({"options": {"log.dir": "/tmp"}}, "belongs to Spark's queries"),
            ({"options": {"domian": 1}}, "did you mean 'domain'"),
            ({"options": {"mtu": object()}}, "must be a text, a number, a bool"),
        ],
    )
    def test_options_of_a_participant(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(rtps.OptionError, match=message):
            rtps.Participant(**arguments)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"options": {"domain": 3}}, "holds for the whole participant"),
            ({"options": {"maxRowsPerTrigger": 3}}, "belongs to Spark's queries; give max_rows to read"),
            (
                {"options": {"statuses": True}},
                "belongs to Spark's queries; read the statuses of a subscription",
            ),
            ({"options": {"checkpointLocation": "/tmp"}}, "belongs to Spark's queries"),
            ({"options": {"startingOffsets": "earliest"}}, "set durability=transient_local"),
            ({"options": {"topic": "u"}}, "the topic is the first argument"),
            ({"options": {"lifespan": 1}}, "applies only to writing"),
            ({"options": {"durabilty": "volatile"}}, "did you mean 'durability'"),
            ({"reliability": "sometimes"}, "must be one of reliable, best_effort"),
            ({"reliability": "reliable", "options": {"reliability": "best_effort"}}, "give one of the two"),
            ({"history": "keep_all", "history_depth": 3}, "no meaning with history=keep_all"),
            ({"payload": "arrow"}, "the batches' columns are not known"),
        ],
    )
    def test_options_of_a_subscription(
        self, arguments: dict[str, Any], message: str, participant: rtps.Participant
    ) -> None:
        with pytest.raises(rtps.OptionError, match=message):
            participant.subscribe("t", **arguments)

    def test_the_size_of_the_buffer(self, participant: rtps.Participant) -> None:
        for size in ("much", 10, "1KiB"):
            with pytest.raises(rtps.UsageError, match="buffer_size is"):
                participant.subscribe("t", schema=SCHEMA, type="T", buffer_size=size)

    @pytest.mark.parametrize(
        "value", ["1500ms", 1.5, timedelta(seconds=1.5)], ids=["text", "number", "timedelta"]
    )
    def test_a_duration(self, value: Any) -> None:
        assert self.settings({"deadline": value}).qos.deadline == 1_500_000_000

    def test_values_of_python(self) -> None:
        options = {
            "metadata": True,
            "history.depth": 5,
            "partition": ["a", "b"],
            "user_data": b"\x01\xff",
            "liveliness.lease_duration": float("inf"),
            "filter": None,
        }
        settings = self.settings(options)
        assert settings.metadata and settings.qos.history_depth == 5
        assert settings.qos.partition == ("a", "b") and settings.qos.user_data == b"\x01\xff"
        assert settings.qos.liveliness_lease_duration == 0x7FFF_FFFF_FFFF_FFFF

    def settings(self, options: dict[str, Any]) -> Any:
        return topic_settings("t", AppliesTo.READ, of_participant={}, options=options, keywords={})


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"max_rows": 0}, "max_rows is 0; it must be at least 1"),
            ({"sample_states": "read"}, "sample_states is 'read'; it must be one of any, not_read"),
        ],
    )
    def test_arguments_of_a_read(
        self, arguments: dict[str, Any], message: str, participant: rtps.Participant
    ) -> None:
        subscription = participant.subscribe("t", schema=SCHEMA, type="T")
        with pytest.raises(rtps.UsageError, match=message):
            subscription.read(**arguments)


def test_a_participant_whose_close_is_interrupted_has_left_all_the_same(
    participate: Callable[..., rtps.Participant], monkeypatch: pytest.MonkeyPatch
) -> None:
    other, ours = participate(), participate()
    wait_until(lambda: len(other.participants()) == 1)
    finish, node = mock.Mock(side_effect=KeyboardInterrupt), ours.node
    monkeypatch.setattr(node.participant, "finish", finish)
    with pytest.raises(KeyboardInterrupt):
        ours.close()
    wait_until(lambda: not other.participants())
    assert node.is_closed and all(each.fileno() < 0 for each in node.sockets.receivers)
