"""Content filters are the reader's business: one that announces a filter is sent everything, batched or not."""

from __future__ import annotations

import pytest

from spark_rtps.transport.protocol.discovery import endpoint_data
from spark_rtps.transport.protocol.policies import BatchPolicy
from spark_rtps.transport.wire import parameters as p
from tests.protocol.batch_scene import BATCH, Scene, numbers, samples


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

    monkeypatch.setattr(endpoint_data.p, "encode_parameter_payload", with_filter)
    scene = Scene(batch)
    scene.join()
    scene.write(samples(0, 100))
    scene.settle()
    assert numbers(scene.taken[0]) == list(range(100))
