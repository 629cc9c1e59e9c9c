"""Two processes on one host: samples by the publication log against samples by UDP loopback."""

from __future__ import annotations

import json

from .figures import _rows_per_second, scratch
from .peers import TOPIC, TYPE_NAME, Peer

#: Bytes of a sample.
SIZE = 64


def ipc(domain: int) -> dict[str, float]:
    """Samples a second of our writer → our receiver's stream log, reliable: ``udp``, ``ipc`` and their ``ratio``."""
    rates = {"udp": _rate(domain, "log"), "ipc": _rate(domain + 1, "ipc")}
    return {**rates, "ratio": rates["ipc"] / rates["udp"]}


def _rate(domain: int, mode: str) -> float:
    from spark_rtps.transport.net.node import NodeConfig
    from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
    from spark_rtps.transport.receiver.config import ReceiverConfig
    from spark_rtps.transport.receiver.process import ReceiverProcess

    with scratch() as directory:
        process = ReceiverProcess.start(
            ReceiverConfig(
                log_directory=str(directory / "log"),
                topic=TOPIC,
                type_name=TYPE_NAME,
                keyed=False,
                qos=Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL),
                node=NodeConfig(domain=domain, interface="lo", ipc=mode == "ipc"),
            )
        )
        try:
            how = {"mode": mode, "size": SIZE, "rate": 0, "block": 0}
            peer = Peer("policy_writer", domain, json.dumps(how))
            rate = _rows_per_second(process)
            lost = process.counters().get("reader.lost_samples", 0)
            peer.stop()
        finally:
            process.stop()
    if lost:
        raise RuntimeError(f"{lost} samples lost on a reliable topic")
    return rate


if __name__ == "__main__":
    print(json.dumps(ipc(98)))
