"""The writers of the curves, each set in a process: ``python -m tests.bench.growth.peers ROLE DOMAIN HOW``."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Final

import numpy as np

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import FlowControlPolicy, PublicationPolicy
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, OwnershipKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import NANOSECONDS, metatraffic_unicast_port
from spark_rtps.transport.wire.samples import Samples
from tests.bench.peers import TOPIC, TYPE_NAME, say, stopping

KEYED_TYPE: Final = "bench::Keyed64"
KEYED_IDL: Final = (
    "module bench { struct Keyed64 { @key unsigned long id; unsigned long seq; double v[7]; }; };"
)
#: Long enough for a thousand writers to be matched.
_PATIENCE: Final = 60.0
_BYTES: Final = 68
#: Written at once.
_ROWS: Final = 10_000
_DEADLINE: Final = NANOSECONDS


def keyed_qos(rule: str) -> tuple[Qos, Qos]:
    """What writer and reader have where this rule (``none``, ``exclusive``, ``deadline``, ``keep_last``) counts."""
    plain: dict[str, Any] = {"reliability": ReliabilityKind.RELIABLE, "history": HistoryKind.KEEP_ALL}
    if rule == "exclusive":
        plain["ownership"] = OwnershipKind.EXCLUSIVE
    elif rule == "deadline":
        plain["deadline"] = _DEADLINE
    elif rule == "keep_last":
        kept = {"durability": DurabilityKind.TRANSIENT_LOCAL, "history": HistoryKind.KEEP_LAST}
        return Qos(**{**plain, **kept, "history_depth": 1}), Qos(**plain)
    return Qos(**plain), Qos(**plain)


def writers(domain: int, how: str) -> None:
    """Writers of one topic (JSON: participants, each, block), which write a small block in turn once all are matched.

    The participants do not announce themselves to one another, but to the receiver alone, the first on this host.
    """
    asked = json.loads(how)
    qos = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
    policy = PublicationPolicy(flow_control=FlowControlPolicy(term_length=64 << 10))
    peer = f"127.0.0.1:{metatraffic_unicast_port(domain, 0)}"
    config = NodeConfig(domain, "lo", peers=(peer,), multicast=False, receive_buffer=1 << 20)
    began = time.monotonic()
    nodes = [Node.open(config).start() for _ in range(asked["participants"])]
    made = [
        node.create_writer(WriterSpec(TOPIC, TYPE_NAME, qos, policy=policy))
        for _ in range(asked["each"])
        for node in nodes
    ]
    stopped = stopping()
    for writer in made:
        while not writer.wait_for_readers(1):
            if stopped.is_set() or time.monotonic() > began + _PATIENCE:
                raise RuntimeError(f"not all of {len(made)} writers are matched after {_PATIENCE:g} s")
    say(matched=time.monotonic() - began)
    rows = np.zeros((asked["block"], _BYTES), np.uint8)
    rows[:, 1] = 1  # CDR_LE
    samples, written = Samples.uniform(rows.reshape(-1), len(rows), _BYTES), 0
    while not stopped.is_set():
        for writer in made:
            if stopped.is_set():
                break
            writer.write_samples(samples, timeout=20)
            written += samples.count
    say(written=written)
    for node in nodes:
        node.abandon()  # a dispose of each one is not measured


def keyed_writer(domain: int, how: str) -> None:
    """Write samples of ``keys`` instances under a ``rule`` (JSON): of each one first, then of any as chance has it."""
    asked = json.loads(how)
    random = np.random.default_rng(1)
    count = _ROWS
    node = Node.open(NodeConfig(domain, "lo")).start()
    policy = PublicationPolicy(flow_control=FlowControlPolicy(term_length=16 << 20))
    spec = WriterSpec(TOPIC, KEYED_TYPE, keyed_qos(asked["rule"])[0], keyed=True, policy=policy)
    writer = node.create_writer(spec)
    rows = np.zeros((count, _BYTES), np.uint8)
    rows[:, 1] = 1  # CDR_LE
    hashes = np.zeros((count, 16), np.uint8)
    first, written, stopped = random.permutation(asked["keys"]), 0, stopping()
    say(ready=True)
    while not stopped.is_set() and not writer.wait_for_readers(1):
        pass
    while not stopped.is_set():
        ids = first[written : written + count]
        if len(ids) < count:
            ids = np.append(ids, random.integers(0, asked["keys"], count - len(ids)))
        rows[:, 4:8] = ids.astype("<u4").view(np.uint8).reshape(count, 4)
        hashes[:, :4] = ids.astype(">u4").view(np.uint8).reshape(count, 4)
        samples = Samples.uniform(rows.reshape(-1), count, _BYTES)
        try:
            writer.write_samples(samples, key_hashes=hashes, timeout=20)
        except Exception:
            if stopped.is_set() or not writer.readers.has_ready():
                break
            raise
        written += count
    say(written=written)
    node.close()


ROLES: Final = {f.__name__: f for f in (writers, keyed_writer)}

if __name__ == "__main__":
    ROLES[sys.argv[1]](int(sys.argv[2]), sys.argv[3])
