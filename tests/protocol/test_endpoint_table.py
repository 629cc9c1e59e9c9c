"""The table of remote endpoints: a plain model of it, its quotas, and what one endpoint costs among many."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.transport import limits
from spark_rtps.transport.errors import DecodeError, DropReason
from spark_rtps.transport.protocol.discovery import endpoint_table
from spark_rtps.transport.protocol.discovery.endpoint_data import EndpointData, encode_endpoint
from spark_rtps.transport.protocol.discovery.endpoint_table import EndpointTable
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.structure import Guid

HOSTS = ("10.0.0.1", "10.0.0.2")


def prefix(number: int) -> bytes:
    return number.to_bytes(12, "big")


def endpoint(participant: int, number: int, topic: str = "t", size: int = 0) -> EndpointData:
    guid = Guid(prefix(participant), number.to_bytes(3, "big") + b"\3")
    return EndpointData(guid, topic, "T", Qos(user_data=bytes(size)))


def never(topic: str) -> bool:
    return False


def put(table: EndpointTable, data: EndpointData, is_wanted: Callable[[str], bool] = never) -> bool:
    try:
        table.put(data, encode_endpoint(data), is_wanted)
    except DecodeError as error:
        return error.reason is not DropReason.OVER_LIMIT
    return True


NUMBER = st.integers(0, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), NUMBER, st.sampled_from(HOSTS)),
        st.tuples(st.just("leave"), NUMBER),
        st.tuples(st.just("put"), NUMBER, NUMBER, st.sampled_from("abc"), st.sampled_from([0, 400, 4000])),
        st.tuples(st.just("remove"), NUMBER, NUMBER),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_the_table_equals_the_model(steps: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, most in (
            ("ENDPOINTS_PER_PARTICIPANT_MAX", 3),
            ("ENDPOINTS_PER_ADDRESS_MAX", 5),
            ("ENDPOINT_BYTES_PER_ADDRESS_MAX", 15_000),
            ("ENDPOINT_BYTES_PER_PARTICIPANT_MAX", 9_000),
        ):
            patch.setattr(endpoint_table, name, most)
        table, where = EndpointTable(), {}
        model: dict[Guid, EndpointData] = {}
        for step in steps:
            match step:
                case "join", number, host:
                    table.join(prefix(number), host)
                    where[prefix(number)] = host
                case "leave", number:
                    gone = {each.guid for each in table.leave(prefix(number))}
                    assert gone == {guid for guid in model if guid.prefix == prefix(number)}
                    model = {guid: data for guid, data in model.items() if guid not in gone}
                    where.pop(prefix(number), None)
                case "put", number, which, topic, size if prefix(number) in where:
                    data = endpoint(number, which, topic, size)
                    if put(table, data, lambda topic: topic == "a"):
                        model[data.guid] = data
                case "remove", number, which:
                    guid = endpoint(number, which).guid
                    assert table.remove_endpoint(guid) == model.pop(guid, None)
            assert {each.guid: each for each in table.all()} == model
            for topic in "abc":
                on_topic = {each.guid for each in table.on_topic(topic)}
                assert on_topic == {guid for guid, data in model.items() if data.topic == topic}
            costs = {guid: len(encode_endpoint(data)) + 1024 for guid, data in model.items()}
            assert table.nbytes == sum(costs.values())
            for host in HOSTS:
                there = [guid for guid in model if where[guid.prefix] == host]
                account = table._addresses.get(host)
                found = (account.count, account.nbytes) if account else (0, 0)
                assert found == (len(there), sum(costs[guid] for guid in there))
            for each in where:
                own = [guid for guid in model if guid.prefix == each]
                assert len(own) <= 3 and sum(costs[guid] for guid in own) <= 9_000


def test_one_address_leaves_room_to_others() -> None:
    table = EndpointTable()
    for participant in range(5):
        table.join(prefix(participant), "10.0.0.66")
        for number in range(3_500):
            put(table, endpoint(participant, number, f"x{number}"))
    assert len(table.all()) == limits.ENDPOINTS_PER_ADDRESS_MAX * 3 // 4
    assert table.nbytes <= limits.ENDPOINT_BYTES_PER_ADDRESS_MAX
    table.join(prefix(100), "10.0.0.2")
    assert all(put(table, endpoint(100, number)) for number in range(3_000))


def test_endpoints_of_wanted_topics_replace_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_table, "ENDPOINTS_PER_ADDRESS_MAX", 400)
    table = EndpointTable()
    for participant in range(4):
        table.join(prefix(participant), "10.0.0.66")
        for number in range(100):
            put(table, endpoint(participant, number, f"x{number}"))
    assert not put(table, endpoint(0, 5_000, "y"), lambda topic: topic == "t")
    assert put(table, endpoint(0, 5_000, "t"), lambda topic: topic == "t")


def test_a_robot_with_200_nodes_has_room() -> None:
    table = EndpointTable()
    for node in range(200):
        table.join(prefix(node), "10.0.0.5")
        assert all(put(table, endpoint(node, number, f"rt/{number}", 64)) for number in range(40))
    table.join(prefix(999), "10.0.0.6")  # and as one process
    assert all(put(table, endpoint(999, number, f"rt/{number}", 64)) for number in range(3_000))


def test_a_change_that_shrinks_always_finds_room() -> None:
    table = EndpointTable()
    table.join(prefix(1), HOSTS[0])
    large = endpoint(1, 0, size=60_000)
    assert put(table, large)
    for number in range(1, 5_000):
        put(table, endpoint(1, number, size=10_000))
    assert put(table, replace(large, qos=Qos()))


def calls(work: Callable[[], object]) -> int:
    """How many Python functions are called."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_one_endpoint_costs_the_same_among_many() -> None:
    costs = []
    for others in (10, 10_000):
        table = EndpointTable()
        for number in range(others):
            table.join(prefix(number // 1_000), "10.0.0.66")
            put(table, endpoint(number // 1_000, number, f"x{number}"))
        data = endpoint(0, 100_000)
        costs.append(calls(lambda: (put(table, data), table.on_topic("t"), table.remove_endpoint(data.guid))))  # noqa: B023
    assert costs[0] == costs[1]
