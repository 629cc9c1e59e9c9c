"""Content filters are the reader's business: one that announces a filter is sent everything, batched or not."""

from __future__ import annotations

import pytest

from spark_rtps.transport.protocol.discovery import endpoint_data
from spark_rtps.transport.protocol.endpoint_info import ContentFilterProperty
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.events import Matched
from spark_rtps.transport.protocol.policies import BatchPolicy
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.wire import parameters as p
from tests.protocol.batch_scene import BATCH, Scene, numbers, samples
from tests.support.virtual_network import SECOND, VirtualNetwork


@pytest.mark.parametrize("batch", [BatchPolicy(), BATCH])
def test_a_reader_with_a_content_filter_is_sent_everything(
    batch: BatchPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = p.encode_parameter_payload
    content_filter = b"".join(
        p.encode_string(text) for text in ("filtered", "t", "DDSSQL", "x > 3")
    ) + p.encode_u32(0)

    def with_filter(parameters: list[tuple[int, bytes]]) -> bytes:
        return encode([*parameters, (p.PID_CONTENT_FILTER_PROPERTY, content_filter)])

    monkeypatch.setattr(endpoint_data.p, "encode_parameter_payload", with_filter)  # type: ignore[attr-defined]
    scene = Scene(batch)
    scene.join()
    scene.write(samples(0, 100))
    scene.settle()
    assert numbers(scene.taken[0]) == list(range(100))


def test_a_filter_that_no_parameter_can_carry_is_not_announced() -> None:
    """Its reader filters what comes, and is not one for which a missing sample may have been left out."""
    network = VirtualNetwork(seed=0)
    one, two = network.add(), network.add()
    expression = " OR ".join(f"x = %{i}" for i in range(20))
    sizes = {"short": 100, "long": 4_000}
    for topic, size in sizes.items():
        given = ContentFilterProperty("filtered", topic, "DDSSQL", expression, ("y" * size,) * 20)
        one.create_reader(ReaderSpec(topic, "T", Qos(), content_filter=given), now=network.now)
        two.create_writer(WriterSpec(topic, "T", Qos()), now=network.now)
    assert network.run(5 * SECOND, until=lambda: len(two.database.endpoints) == 2)
    for topic, size in sizes.items():
        (own,) = (each for each in one.endpoints.data() if each.topic == topic)
        assert (own.content_filter is not None) is (size < 4_000)
    matched = [each.topic for each in network.events[two.prefix] if isinstance(each, Matched)]
    assert sorted(matched) == ["long", "short"]
