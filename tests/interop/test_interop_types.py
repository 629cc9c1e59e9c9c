"""Every type feature, both ways: the values that Cyclone DDS wrote in our columns, ours in its objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.qos import DataRepresentation
from tests.interop import cyclone_types
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.subscription import Subscription, batch_of, codec, qos
from tests.support import domains
from tests.support.waiting import PATIENCE

Row = dict[str, Any]
_DOMAIN = domains.INTEROP_TYPES
_ORIGIN = {"x": 0.0, "y": -0.0, "tag": 0}
_FAR = {"x": 1e300, "y": -2.5, "tag": -32768}

_INTEGERS = {
    "i8": (-128, 127),
    "u8": (0, 255),
    "i16": (-(1 << 15), (1 << 15) - 1),
    "u16": (0, (1 << 16) - 1),
    "i32": (-(1 << 31), (1 << 31) - 1),
    "u32": (0, (1 << 32) - 1),
    "i64": (-(1 << 63), (1 << 63) - 1),
    "u64": (0, (1 << 64) - 1),
}
_LOWEST = {name: low for name, (low, _) in _INTEGERS.items()}
_HIGHEST = {name: high for name, (_, high) in _INTEGERS.items()}
_SEQUENCES = {name: [low, 1, high] for name, (low, high) in _INTEGERS.items() if name != "u8"}
_EMPTY: Row = {name: [] for name in _SEQUENCES}

ROWS: dict[str, list[Row]] = {
    "Primitives": [
        {"b": False, "o": 0, **_LOWEST, "f": -3.4028234663852886e38, "d": -1.7976931348623157e308, "c": "a"},
        {"b": True, "o": 255, **_HIGHEST, "f": 1.1754943508222875e-38, "d": 5e-324, "c": "~"},
        {"b": True, "o": 7, **dict.fromkeys(_INTEGERS, 1), "f": 0.5, "d": float("inf"), "c": " "},
    ],
    "Texts": [
        {"s": "", "bounded": "", "many": [], "pair": ["", ""], "few": []},
        {
            "s": "Grüße, 世界 🙂",
            "bounded": "exactly8",
            "many": ["", "a", "ab", "abc"],
            "pair": ["é", "x" * 300],
            "few": ["1", "22", "333"],
        },
        {
            "s": "x" * 5000,
            "bounded": "é",
            "many": ["long " * 100] * 7,
            "pair": ["", "z"],
            "few": ["12345678"],
        },
    ],
    "Enums": [
        {"before": 1, "c": "RED", "many": [], "pair": ["GREEN", "BLUE"]},
        {"before": 2, "c": "BLUE", "many": ["RED", "BLUE", "GREEN"], "pair": ["RED", "RED"]},
    ],
    "Nested": [
        {"before": 1, "p": _ORIGIN, "path": [], "box": [_FAR, _ORIGIN]},
        {"before": 2, "p": _FAR, "path": [_FAR, _ORIGIN, _FAR], "box": [_ORIGIN, _FAR]},
    ],
    "Arrays": [
        {
            "before": i,
            "v": [i + 0.25, -1.0, 1e-9],
            "m": [[i, 2, 3], [-4, -5, -6]],
            "raw": bytes((0, 1, 2, 254, 255)),
            "word": list("ab~ "),
            "cube": [[[1, 2], [3, 4]], [[5, 6], [7, -8]]],
        }
        for i in range(3)
    ],
    "Sequences": [
        {"raw": b"", "b": [], **_EMPTY, "f": [], "d": [], "deep": []},
        {
            "raw": bytes(range(256)),
            "b": [True, False, True],
            **_SEQUENCES,
            "f": [0.5, -0.25],
            "d": [1e-300],
            "deep": [[], [1], [2, 3]],
        },
        {"raw": b"\0", "b": [False], **_SEQUENCES, "f": [1.5] * 33, "d": [2.5] * 17, "deep": [[7] * 20, []]},
    ],
}
CASES = [name + suffix for name in ROWS for suffix in ("", "A")]


def assert_same(found: list[Row | None], expected: list[Row]) -> None:
    assert found == expected
    assert repr(found) == repr(expected)  # -0.0 is not 0.0 here, and True not 1


@pytest.fixture(scope="module")
def peer() -> Iterator[CyclonePeer]:
    with CyclonePeer(_DOMAIN) as peer:
        yield peer


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with closing(Node.open(NodeConfig(domain=_DOMAIN, interface="lo")).start()) as node:
        yield node


@pytest.fixture
def domain() -> int:
    return _DOMAIN


@pytest.mark.parametrize("kind", CASES)
def test_from_cyclone(kind: str, peer: CyclonePeer, subscribe: Callable[..., Subscription]) -> None:
    rows = ROWS[kind.removesuffix("A")]
    topic = f"from_{kind}"
    peer.writer(topic, getattr(cyclone_types, kind))
    receiver = subscribe(topic, kind)
    peer.wait_for_match(topic)
    peer.write(topic, rows)
    peer.wait_for_acks(topic)
    received = receiver.wait_for(len(rows))
    assert_same([sample.row for sample in received], rows)
    assert [sample.sn for sample in received] == list(range(1, len(rows) + 1))
    # appendable types come as D_CDR2, final ones as CDR
    encapsulation = bytes(receiver.runs()[0].samples().payload(0)[:2])
    assert encapsulation == (b"\0\x09" if kind.endswith("A") else b"\0\x01")
    assert receiver.counters(len(received))["reader.lost_samples"] == 0


@pytest.mark.parametrize("kind", CASES)
def test_to_cyclone(kind: str, peer: CyclonePeer, node: Node) -> None:
    rows = ROWS[kind.removesuffix("A")]
    topic = f"to_{kind}"
    peer.reader(topic, getattr(cyclone_types, kind))
    # Cyclone's readers of appendable types take XCDR2 alone
    representation = DataRepresentation.XCDR2 if kind.endswith("A") else DataRepresentation.XCDR1
    writer = node.create_writer(
        WriterSpec(topic, f"interop::{kind}", qos(data_representation=(representation,)))
    )
    assert writer.wait_for_readers(PATIENCE)
    c = codec(kind)
    writer.write_samples(c.encode_batch(batch_of(c, rows), representation=representation))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert_same([sample.row for sample in peer.take(topic, len(rows))], rows)


def test_final_type_as_xcdr2_to_cyclone(peer: CyclonePeer, node: Node) -> None:
    """Cyclone's reader of a final type takes XCDR1 and XCDR2."""
    rows, c = ROWS["Nested"], codec("Nested")
    peer.reader("xcdr2", cyclone_types.Nested)
    xcdr2 = DataRepresentation.XCDR2
    writer = node.create_writer(WriterSpec("xcdr2", "interop::Nested", qos(data_representation=(xcdr2,))))
    assert writer.wait_for_readers(PATIENCE)
    writer.write_samples(c.encode_batch(batch_of(c, rows), representation=xcdr2))
    assert_same([sample.row for sample in peer.take("xcdr2", len(rows))], rows)
