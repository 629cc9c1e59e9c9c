"""The options of multicast: what they make of participants and writers, and what is refused."""

from __future__ import annotations

import pytest

from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.options.participants import node_config, publication_policy
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.receiver.config import ReceiverConfig

READ, WRITE = AppliesTo.READ, AppliesTo.WRITE


def parse(role: AppliesTo, **options: str) -> Settings:
    return parse_options({"topic": "T", **{k.replace("__", "."): v for k, v in options.items()}}, role)


def test_a_participant_gets_the_multicast_options() -> None:
    config = node_config(parse(READ))
    assert (config.multicast_receive, config.multicast_ttl, config.multicast_interface) == ("auto", 1, None)
    given = parse(READ, multicast__receive="239.1.2.3:7500", multicast__ttl="4", multicast__interface="eth1")
    config = node_config(given)
    assert (config.multicast_receive, config.multicast_ttl) == ("239.1.2.3:7500", 4)
    assert config.multicast_interface == "eth1"
    json = ReceiverConfig("/log", "T", "Type", False, node=config).to_json()
    assert ReceiverConfig.from_json(json).node == config


def test_a_writer_gets_the_multicast_options() -> None:
    policy = publication_policy(parse(WRITE))
    assert policy.multicast and policy.flow_control.multicast_strategy == "auto"
    assert policy.writer.multicast_resend_threshold == 2
    given = parse(
        WRITE,
        multicast__send="off",
        flow_control__multicast_strategy="max",
        reliable_writer__multicast_resend_threshold="1",
    )
    policy = publication_policy(given)
    assert not policy.multicast and policy.flow_control.multicast_strategy == "max"
    assert policy.writer.multicast_resend_threshold == 1


@pytest.mark.parametrize("role", [READ, WRITE])
@pytest.mark.parametrize("group", ["10.0.0.1", "239.255.0.1:7400", "224.0.0.1", "here", "239.1.2.3:0"])
def test_an_invalid_group_is_refused(role: AppliesTo, group: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(role, multicast__receive=group)
    assert (caught.value.option, caught.value.value) == ("multicast.receive", group)


def test_tagged_needs_a_tag_for_groups_too() -> None:
    with pytest.raises(OptionError) as caught:
        parse(WRITE, flow_control__multicast_strategy="tagged")
    assert caught.value.option == "flow_control.multicast_strategy"
    assert parse(WRITE, flow_control__multicast_strategy="tagged", flow_control__group_tag="7").warnings == ()
