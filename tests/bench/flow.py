"""Flow control and log buffers: against a plain socket loop, with several readers, with many streams."""

from __future__ import annotations

import json
import multiprocessing
import socket
import time
from typing import Any, Final

from rich.table import Table

from tests.bench.figures import receiving, rows_per_second
from tests.bench.peers import Peer

#: RTPS messages of so many bytes: what fits an Ethernet frame (as Aeron's default), and 63 KiB.
MESSAGES: Final = (1_408, 64_512)
READERS: Final = (1, 4, 16)
STRATEGIES: Final = ("min", "max", "tagged")
STREAMS: Final = (1, 10, 100, 1_000)
#: Bytes of a sample, of DATA around it with the encapsulation header, and of the datagram's headers.
SAMPLE, DATA, HEADERS = 64, 28, 32
_SECONDS: Final = 4.0
_IP_UDP: Final = 28


def _send(size: int, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("127.0.0.1", port))
        payload = bytes(size)
        while True:
            s.send(payload)


def plain(size: int) -> float:
    """Datagrams a second that a plain unreliable send/receive loop in Python gets across."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)  # SO_RCVBUFFORCE
        s.bind(("127.0.0.1", 0))
        s.settimeout(1)
        sender = multiprocessing.Process(target=_send, args=(size, s.getsockname()[1]), daemon=True)
        sender.start()
        buffer, received = bytearray(size), 0
        try:
            s.recv_into(buffer)
            until = (started := time.monotonic()) + _SECONDS
            while time.monotonic() < until:
                for _ in range(200):
                    s.recv_into(buffer)
                received += 200
            return received / (time.monotonic() - started)
        finally:
            sender.kill()
            sender.join()


def against_plain(domain: int) -> dict[str, dict[str, float]]:
    """By size of the messages: samples a second, reliable, of the plain loop's datagrams full of samples, the ratio."""
    found = {}
    for i, size in enumerate(MESSAGES):
        loop = plain(size) * ((size - HEADERS) // (SAMPLE + DATA))
        rates = {}
        for mode in ("log", "data_batch"):
            how = {"mode": mode, "size": SAMPLE, "rate": 0, "block": 0, "mtu": size + _IP_UDP}
            with receiving(domain + i) as process:
                peer = Peer("policy_writer", domain + i, json.dumps(how))
                rates[mode] = rows_per_second(process, _SECONDS)
                peer.stop()
        ratio = max(rates.values()) / loop
        found[str(size)] = {"plain": loop, **rates, "ratio": ratio}
    return found


def with_readers(domain: int) -> dict[str, dict[str, float]]:
    """Samples a second that every one of so many readers gets, by strategy."""
    found: dict[str, dict[str, float]] = {}
    for strategy in STRATEGIES:
        for count in READERS:
            readers = Peer("many_readers", domain, count)
            how = {"mode": strategy, "size": SAMPLE, "rate": 0, "block": 0, "readers": count}
            writer = Peer("policy_writer", domain, json.dumps(how))
            time.sleep(_SECONDS + 2)
            output = readers.stop()
            writer.stop()
            found.setdefault(strategy, {})[str(count)] = min(output["rows"]) / output["seconds"]
    return found


def by_group(domain: int) -> dict[str, dict[str, dict[str, float]]]:
    """With so many readers, a process each, by unicast and by a multicast group: samples a second that the slowest of
    them gets, datagrams of the writer for a thousand samples, CPU microseconds of the writer and of a reader for a
    thousand samples."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, group in (("unicast", "off"), ("multicast", "239.255.0.1")):
        for count in READERS:
            readers = [Peer("lone_reader", domain, group) for _ in range(count)]
            how = {"mode": "log", "size": SAMPLE, "rate": 0, "block": 0, "readers": count}
            writer = Peer("policy_writer", domain, json.dumps(how))
            time.sleep(_SECONDS + 2 + count / 4)
            wrote = writer.stop()  # first: without its readers it would write what it sends to nobody
            output = [reader.stop() for reader in readers]
            rows = sum(each["rows"] for each in output)
            found.setdefault(name, {})[str(count)] = {
                "samples": min(each["rows"] / each["seconds"] for each in output),
                "datagrams": 1_000 * wrote["datagrams"] / max(1, wrote["written"]),
                "writer": 1e9 * wrote["used"] / max(1, wrote["written"]),
                "reader": 1e9 * sum(each["used"] for each in output) / max(1, rows),
            }
    return found


def with_streams(domain: int) -> dict[str, dict[str, float]]:
    """By number of matched streams: part of a core that writers' and readers' process take idle, and samples a second
    of all together."""
    found = {}
    for count in STREAMS:
        how = {"count": count, "seconds": _SECONDS}
        readers = Peer("streams", domain, json.dumps({**how, "role": "read"}))
        writers = Peer("streams", domain, json.dumps({**how, "role": "write"}))
        time.sleep(2 * _SECONDS + 5 + count / 50)
        wrote, read = writers.stop(), readers.stop()
        found[str(count)] = {
            "idle_writers": wrote["idle"],
            "idle_readers": read["idle"],
            "samples": read["rate"],
        }
    return found


def flow(domain: int) -> dict[str, Any]:
    """All of it."""
    return {
        "plain": against_plain(domain),
        "readers": with_readers(domain + 2),
        "by_group": by_group(domain + 2),
        "streams": with_streams(domain + 3),
    }


def tables(found: dict[str, Any]) -> list[Table]:
    """What is printed."""
    plain_table = Table(title="reliable 64-byte samples against a plain socket loop, million/s")
    for column in ("message", "plain loop", "log", "batch.enable", "ratio", "wanted"):
        plain_table.add_column(column, justify="right")
    for size, row in found["plain"].items():
        rates = (f"{row[key] / 1e6:.2f}" for key in ("plain", "log", "data_batch"))
        plain_table.add_row(f"{size} B", *rates, f"{row['ratio']:.2f}", "≥ 0.6")
    readers = Table(title="each of so many readers gets, million samples/s")
    readers.add_column("strategy")
    for count in READERS:
        readers.add_column(str(count), justify="right")
    for strategy, row in found["readers"].items():
        readers.add_row(strategy, *(f"{row[str(count)] / 1e6:.2f}" for count in READERS))
    groups = Table(title="each of so many readers, a process each, gets, million samples/s")
    for column in ("sent by", "readers", "samples", "datagrams per 1,000", "writer: µs", "a reader: µs"):
        groups.add_column(column, justify="right")
    for name, of_name in found["by_group"].items():
        for count, row in of_name.items():
            costs = (f"{row[key]:.0f}" for key in ("writer", "reader"))
            groups.add_row(name, count, f"{row['samples'] / 1e6:.2f}", f"{row['datagrams']:.1f}", *costs)
    streams = Table(title="streams matched between two participants")
    for column in ("streams", "idle: writers", "idle: readers", "wanted", "million samples/s of all"):
        streams.add_column(column, justify="right")
    for count, row in found["streams"].items():
        idle = (f"{row[key] * 100:.1f} % of a core" for key in ("idle_writers", "idle_readers"))
        streams.add_row(count, *idle, "< 5 %", f"{row['samples'] / 1e6:.2f}")
    return [plain_table, readers, groups, streams]
