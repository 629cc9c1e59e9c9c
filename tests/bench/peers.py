"""The processes a figure is measured between: each runs as ``python -m tests.bench.peers ROLE ARGUMENTS``.

A role prints one JSON line when it is ready and one when it has been told to stop (its standard input
closed), with what it counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import Any

TOPIC = "bench"
TYPE_NAME = "bench::Sample64"
IDL = "module bench { struct Sample64 { unsigned long id; unsigned long seq; double v[7]; }; };"
CYCLONE = (
    '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo"/></Interfaces></General>'
    "<Internal><SocketReceiveBufferSize min='8MB'/></Internal></Domain></CycloneDDS>"
)


class _Rows:
    """A recipient which counts samples."""

    def __init__(self) -> None:
        self.count = 0

    def room(self) -> int:
        return sys.maxsize

    def deliver(self, reader: object, runs: list[Any]) -> None:
        self.count += sum(run.count for run in runs)


class Peer:
    """A role running in a process of its own."""

    def __init__(self, role: str, *arguments: object, module: str = "tests.bench.peers") -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", module, role, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "CYCLONEDDS_URI": CYCLONE},
            text=True,
        )
        self.ready: dict[str, Any] = self._answer()

    @property
    def pid(self) -> int:
        return self._child.pid

    def stop(self) -> dict[str, Any]:
        """End the role; returns what it counted."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        answer = self._answer()
        self._child.wait(10)
        assert self._child.stdout is not None
        self._child.stdout.close()
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended with {self._child.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def say(**message: object) -> None:
    """Answer whoever started this role."""
    print(json.dumps(message), flush=True)


def stopping() -> threading.Event:
    """Set when standard input ends."""
    event = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        event.set()

    threading.Thread(target=watch, daemon=True).start()
    return event


def our_writer(domain: int, rate: int) -> None:
    """Write 64-byte samples with our own writer, as fast as it goes or at ``rate`` samples a second."""
    import numpy as np

    from spark_rtps.transport.net.node import Node
    from spark_rtps.transport.net.node_config import NodeConfig
    from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
    from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
    from spark_rtps.transport.wire.samples import Samples

    node = Node.open(NodeConfig(domain=domain, interface="lo")).start()
    qos = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
    writer = node.create_writer(WriterSpec(TOPIC, TYPE_NAME, qos, policy=_policy("log")))
    count = 20_000
    rows = np.zeros((count, 68), np.uint8)
    rows[:, 1] = 1  # CDR_LE
    fields = rows[:, 4:12].reshape(-1).view("<u4").reshape(count, 2)
    written, stopped = 0, stopping()
    say(ready=True)
    while not stopped.is_set() and not writer.wait_for_readers(1):
        pass
    started = time.monotonic()
    while not stopped.is_set():
        fields = np.arange(written, written + count, dtype="<u4")  # type: ignore[assignment]
        rows[:, 4:8] = (fields % 97).astype("<u4").view(np.uint8).reshape(count, 4)
        rows[:, 8:12] = fields.view(np.uint8).reshape(count, 4)
        try:
            writer.write_samples(Samples.uniform(rows.reshape(-1), count, 68), timeout=60)
        except Exception:
            if stopped.is_set() or not writer.readers.has_ready():
                break
            raise
        written += count
        if rate:
            time.sleep(max(0.0, started + written / rate - time.monotonic()))
    say(written=written, seconds=time.monotonic() - started, cpu=time.process_time())
    node.close()


def policy_writer(domain: int, how: str) -> None:
    """Write samples the way ``how`` (JSON: mode, size, rate, block) says; rate 0 is as fast as it goes."""
    import numpy as np

    from spark_rtps.transport.net.node import Node
    from spark_rtps.transport.net.node_config import NodeConfig
    from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
    from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
    from spark_rtps.transport.wire.samples import Samples

    asked = json.loads(how)
    size, rate = asked["size"] + 4, asked["rate"]
    count = asked["block"] or max(256, min(20_000, (1 << 21) // size))
    node = Node.open(NodeConfig(domain=domain, interface="lo", mtu=asked.get("mtu"))).start()
    qos = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
    writer = node.create_writer(WriterSpec(TOPIC, TYPE_NAME, qos, policy=_policy(asked["mode"])))
    rows = np.zeros((count, size), np.uint8)
    rows[:, 1] = 1  # CDR_LE
    # half noise, half slowly changing: as telemetry is
    rows[:, 4 : 4 + (size - 4) // 2] = np.random.default_rng(1).integers(0, 256, (count, (size - 4) // 2))
    samples = Samples.uniform(rows.reshape(-1), count, size)
    written, stopped = 0, stopping()
    say(ready=True)
    while not stopped.is_set() and not writer.wait_for_readers(1):
        pass
    while len(writer.readers.ready_reliable()) < asked.get("readers", 0) and not stopped.wait(0.02):
        pass
    started, used = time.monotonic(), time.process_time()
    while not stopped.is_set():
        rows[:, size - 4 :] = np.array([written], "<u4").view(np.uint8)
        try:
            writer.write_samples(samples, timeout=2)
        except Exception:
            if stopped.is_set() or not writer.readers.has_ready():
                break
            raise
        written += count
        if rate:
            time.sleep(max(0.0, started + written / rate - time.monotonic()))
    counters = writer.writer.counters
    used = time.process_time() - used
    say(written=written, datagrams=node.sockets.sent, acknacks=counters.acknacks, used=used)
    node.close()


def _policy(mode: str) -> Any:
    from spark_rtps.transport.protocol.policies import (
        BatchPolicy,
        Compression,
        FlowControlPolicy,
        PublicationPolicy,
        WriterPolicy,
    )

    name, _, limit = mode.partition(":")
    batch = BatchPolicy(enable=True, max_data_bytes=int(limit or sys.maxsize), max_flush_delay=10_000_000)
    if name.endswith("_w256"):  # a send window of 256 samples, of which a batch is one
        window = WriterPolicy(min_send_window_size=256, max_send_window_size=256)
        return replace(_policy(name.removesuffix("_w256")), writer=window)
    return {
        "unbatched": PublicationPolicy(coalescing=False),
        "coalesced": PublicationPolicy(),
        "data_batch": PublicationPolicy(batch=batch),
        "compressed": PublicationPolicy(batch=replace(batch, compression=Compression.LZ4)),
        "turbo": PublicationPolicy(batch=BatchPolicy(turbo_mode=True)),
        "log": PublicationPolicy(flow_control=FlowControlPolicy(term_length=32 << 20)),
        "ipc": PublicationPolicy(flow_control=FlowControlPolicy(term_length=16 << 20, ipc=True)),
        **{
            strategy: PublicationPolicy(
                flow_control=FlowControlPolicy(strategy=strategy, group_tag=1, term_length=16 << 20)
            )
            for strategy in ("unicast", "min", "max", "tagged")
        },
    }[name]


def many_readers(domain: int, count: int) -> None:
    """Receive with ``count`` participants in one process, each with a reader; rows of each at the end."""
    from spark_rtps.transport.net.node import Node
    from spark_rtps.transport.net.node_config import NodeConfig
    from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec
    from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind

    qos = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
    nodes = [
        Node.open(NodeConfig(domain=domain, interface="lo", receive_buffer=8 << 20)) for _ in range(count)
    ]
    counts, stopped = [_Rows() for _ in nodes], stopping()
    for node, rows in zip(nodes, counts, strict=True):
        node.create_reader(ReaderSpec(TOPIC, TYPE_NAME, qos), rows)
    say(ready=True)
    began, counted = 0.0, [0] * count
    while not stopped.is_set():
        busy = sum(node.do_work() for node in nodes)
        if not busy:
            nodes[0].run_once(0.0005)
        if not began and min(rows.count for rows in counts) > 0:
            began, counted = time.monotonic(), [rows.count for rows in counts]
    seconds = time.monotonic() - began
    received = [rows.count - before for rows, before in zip(counts, counted, strict=True)]
    say(rows=received, seconds=seconds)
    for node in nodes:
        node.close()


def lone_reader(domain: int, group: str) -> None:
    """Receive with one reader, by a multicast group if ``group`` is not ``off``; rows and CPU seconds at the end."""
    from spark_rtps.transport.net.node import Node
    from spark_rtps.transport.net.node_config import NodeConfig
    from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec
    from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind

    qos = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
    node = Node.open(NodeConfig(domain=domain, interface="lo", multicast_receive=group))
    rows, stopped = _Rows(), stopping()
    node.create_reader(ReaderSpec(TOPIC, TYPE_NAME, qos), rows)
    say(ready=True)
    while not stopped.is_set() and not rows.count:
        node.cycle(0.1)
    began, counted, used = time.monotonic(), rows.count, time.process_time()
    until, seen = began, counted
    while not stopped.is_set():
        node.cycle(0.1)
        if rows.count > seen:
            until, seen = time.monotonic(), rows.count
    say(rows=seen - counted, seconds=until - began, used=time.process_time() - used)
    node.close()


def streams(domain: int, how: str) -> None:
    """``count`` writers, or readers (JSON: role, count, seconds): idle first, then a small block to each in turn."""
    import numpy as np

    from spark_rtps.transport.net.node import Node
    from spark_rtps.transport.net.node_config import NodeConfig
    from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
    from spark_rtps.transport.protocol.policies import FlowControlPolicy, PublicationPolicy
    from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
    from spark_rtps.transport.wire.samples import Samples

    asked = json.loads(how)
    qos = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
    policy = PublicationPolicy(flow_control=FlowControlPolicy(term_length=64 << 10))
    node, rows, stopped = Node.open(NodeConfig(domain=domain, interface="lo")).start(), _Rows(), stopping()
    topics = [f"{TOPIC}{i}" for i in range(asked["count"])]
    if asked["role"] == "read":
        readers = [node.create_reader(ReaderSpec(topic, TYPE_NAME, qos), rows) for topic in topics]
        are_matched: Any = lambda: all(reader.writers for reader in readers)  # noqa: E731
        writers = []
    else:
        writers = [node.create_writer(WriterSpec(topic, TYPE_NAME, qos, policy=policy)) for topic in topics]
        are_matched = lambda: all(writer.readers.has_ready() for writer in writers)  # noqa: E731
    say(ready=True)
    while not are_matched() and not stopped.wait(0.05):
        pass
    stopped.wait(2)
    cpu, started = time.process_time(), time.monotonic()
    stopped.wait(asked["seconds"])
    idle = (time.process_time() - cpu) / (time.monotonic() - started)
    samples = Samples.uniform(np.zeros(50 * 68, np.uint8), 50, 68)
    started, written = time.monotonic(), 0
    while not stopped.is_set() and time.monotonic() - started < asked["seconds"]:
        for writer in writers:
            writer.write_samples(samples, timeout=5)
            written += samples.count
        if not writers:
            stopped.wait(0.1)
    busy = time.monotonic() - started
    stopped.wait(1)
    say(idle=idle, rate=max(written, rows.count) / busy)
    stopped.wait(60)
    node.close()


def cyclone_writer(domain: int, rate: int) -> None:
    """Write 64-byte samples with Cyclone DDS, one sample a datagram; serialized once, written raw."""
    from cyclonedds import _clayer

    writer, sample = _cyclone_endpoint(domain, writer=True)
    raw = sample.serialize(use_version_2=False)
    written, stopped = 0, stopping()
    say(ready=True)
    while not stopped.is_set() and not writer.get_matched_subscriptions():
        time.sleep(0.01)
    time.sleep(0.5)
    started = time.monotonic()
    while not stopped.is_set():
        for _ in range(200):
            if _clayer.ddspy_write(writer._ref, raw) < 0:
                time.sleep(0.001)  # back-pressure: max_blocking_time passed
                continue
            written += 1
        if rate:
            time.sleep(max(0.0, started + written / rate - time.monotonic()))
    say(written=written, seconds=time.monotonic() - started, cpu=time.process_time())


def cyclone_pinger(domain: int, rate: int) -> None:
    """Write the time of writing (ns since the epoch, in two words) ``rate`` times a second."""
    writer, sample = _cyclone_endpoint(domain, writer=True)
    written, stopped = 0, stopping()
    say(ready=True)
    while not stopped.is_set() and not writer.get_matched_subscriptions():
        time.sleep(0.01)
    while not stopped.wait(1 / rate):
        now = time.time_ns()
        sample.id, sample.seq = now >> 32, now & 0xFFFF_FFFF
        writer.write(sample)
        written += 1
    say(written=written)


def cyclone_reader(domain: int, batch: int) -> None:
    """What a user writes today: take() into objects, objects into tuples, tuples into an Arrow table."""
    import pyarrow as pa

    reader, sample = _cyclone_endpoint(domain, writer=False)
    kind = type(sample)
    rows, stopped = 0, stopping()
    say(ready=True)
    started = 0.0
    while not stopped.is_set():
        samples = [s for s in reader.take(batch) if isinstance(s, kind)]
        if not samples:
            time.sleep(0.0005)
            continue
        table = pa.table(
            {
                "id": pa.array([s.id for s in samples], pa.int64()),
                "seq": pa.array([s.seq for s in samples], pa.int64()),
                "v": pa.array([s.v for s in samples], pa.list_(pa.float64())),
            }
        )
        started = started or time.monotonic()
        rows += len(table)
    say(rows=rows, seconds=time.monotonic() - started)


def _cyclone_endpoint(domain: int, *, writer: bool) -> tuple[Any, Any]:
    from cyclonedds.core import Policy
    from cyclonedds.core import Qos as CycloneQos
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.pub import DataWriter
    from cyclonedds.sub import DataReader
    from cyclonedds.topic import Topic
    from cyclonedds.util import duration

    from tests.bench.cyclone_type import Sample64

    qos = CycloneQos(Policy.Reliability.Reliable(duration(seconds=1)), Policy.History.KeepAll)
    participant = DomainParticipant(domain)
    topic = Topic(participant, TOPIC, Sample64)
    endpoint = DataWriter(participant, topic, qos) if writer else DataReader(participant, topic, qos)
    endpoint._keep = (participant, topic)
    return endpoint, Sample64(id=1, seq=2, v=[float(i) for i in range(7)])


def range_puller(port: int, log: str) -> None:
    """Fetch a log of a log server at 500 MB/s."""
    from tests.bench.serving import pull

    stopped = stopping()
    say(ready=True)
    say(rate=pull(port, log, stopped))


ROLES = {
    f.__name__: f
    for f in (
        our_writer,
        policy_writer,
        many_readers,
        lone_reader,
        streams,
        cyclone_writer,
        cyclone_pinger,
        cyclone_reader,
        range_puller,
    )
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*(int(a) if a.isdigit() else a for a in sys.argv[2:]))
