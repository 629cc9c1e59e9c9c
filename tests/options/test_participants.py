"""What settings ask for reaches the configuration of participants and writers: nothing is left at its default."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.options.participants import node_config, publication_policy
from spark_rtps.transport.net.node_config import NodeConfig, RosNode
from spark_rtps.transport.protocol.policies import PublicationPolicy
from spark_rtps.transport.protocol.trust import Trust
from spark_rtps.transport.structure import NANOSECONDS
from tests.support import domains

DOMAIN = domains.SETTINGS

PARTICIPANT = {
    "domain": str(DOMAIN),
    "interface": "lo",
    "peers": "10.0.0.1,10.0.0.2",
    "peers.allow": "10.0.0.0/8",
    "trust": "any",
    "participant.name": "of a test",
    "multicast": "false",
    "multicast.ttl": "3",
    "multicast.interface": "lo",
    "participant.lease_duration": "77s",
    "receive_buffer": "1MiB",
    "send_buffer": "2MiB",
    "mtu": "1400",
    "message_size_max": "1300",
    "ipc": "true",
    "ros": "true",
    "ros.node": "bridge",
    "ros.namespace": "/robot1",
}
#: What no option decides.
OWN = {"guid_prefix", "incarnation", "participant_index", "reserved_ports", "resolve_types"}


def settings(role: AppliesTo, **options: str) -> Settings:
    return parse_options({"topic": "T", **PARTICIPANT, **options}, role)


def unlike_default(value: Any) -> set[str]:
    """The fields of a dataclass that differ from its default."""
    default = type(value)()
    return {each.name for each in fields(value) if getattr(value, each.name) != getattr(default, each.name)}


def test_all_options_of_a_participant_reach_its_node() -> None:
    for role in (AppliesTo.READ, AppliesTo.WRITE):
        config = node_config(settings(role))
        assert unlike_default(config) == {each.name for each in fields(NodeConfig)} - OWN
        assert (config.domain, config.interface, config.peers) == (DOMAIN, "lo", ("10.0.0.1", "10.0.0.2"))
        assert (config.peers_allowed, config.trust) == (("10.0.0.0/8",), Trust.ANY)
        assert (config.participant_name, config.multicast) == ("of a test", False)
        assert (config.multicast_ttl, config.multicast_interface) == (3, "lo")
        assert config.lease_duration == 77 * NANOSECONDS
        assert (config.receive_buffer, config.send_buffer) == (1 << 20, 2 << 20)
        assert config.ros == RosNode("bridge", "/robot1")
        assert (config.mtu, config.message_size_max, config.ipc) == (1400, 1300, True)


def test_all_policies_of_a_sink_reach_its_writer() -> None:
    given = settings(
        AppliesTo.WRITE,
        **{
            "reliable_writer.heartbeat_period": "33ms",
            "batch.enable": "true",
            "batch.interceptor": "a.module:function",
            "publish_mode": "asynchronous",
            "transport_priority": "5",
            "coalescing": "false",
            "flow_control.strategy": "tagged",
            "flow_control.group_tag": "9",
            "flow_control.group_min_size": "2",
            "readers.allow": "10.1.0.0/16",
            "multicast.send": "off",
        },
    )
    policy = publication_policy(given)
    assert unlike_default(policy) == {each.name for each in fields(PublicationPolicy)}
    assert policy.writer == given.writer_policy and policy.writer.heartbeat_period == 33_000_000
    assert policy.batch == given.batch and policy.batch.enable
    assert policy.flow_controller == given.flow_controller
    assert (policy.interceptor, policy.transport_priority) == ("a.module:function", 5)
    assert policy.flow_control == given.flow_control and policy.readers_allowed == ("10.1.0.0/16",)
    chosen = policy.flow_control
    assert (chosen.strategy, chosen.group_tag, chosen.group_min_size, chosen.ipc) == ("tagged", 9, 2, True)
