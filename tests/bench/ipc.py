"""Two processes on one host: samples by the publication log against samples by UDP loopback."""

from __future__ import annotations

import json

from tests.bench.figures import receiving, rows_per_second
from tests.bench.peers import Peer
from tests.support import domains

#: Bytes of a sample.
SIZE = 64


def ipc(domain: int) -> dict[str, float]:
    """Samples a second of our writer → our receiver's stream log, reliable: ``udp``, ``ipc`` and their ``ratio``."""
    rates = {"udp": _rate(domain, "log"), "ipc": _rate(domain + 1, "ipc")}
    return {**rates, "ratio": rates["ipc"] / rates["udp"]}


def _rate(domain: int, mode: str) -> float:
    how = {"mode": mode, "size": SIZE, "rate": 0, "block": 0}
    with receiving(domain, ipc=mode == "ipc") as process:
        peer = Peer("policy_writer", domain, json.dumps(how))
        rate = rows_per_second(process)
        lost = process.counters().get("reader.lost_samples", 0)
        peer.stop()
    if lost:
        raise RuntimeError(f"{lost} samples lost on a reliable topic")
    return rate


if __name__ == "__main__":
    print(json.dumps(ipc(domains.BENCH[0])))
