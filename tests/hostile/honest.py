"""An honest participant in a process of its own: ``python -m tests.hostile.honest '{"domain": …}'``.

It reads requests from its standard input and answers on its standard output, one JSON object a line, and ends with its
standard input. It needs nothing of the tests, and runs with older versions of the product too: whatever they call
things.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

NS = 1_000_000_000
#: In the rows that attackers write, where honest ones have the number of their writer.
FORGED = 0xEEEEEEEE


def make_node(domain: int, **config: Any) -> Any:
    from spark_rtps.transport.net.node import Node

    try:
        from spark_rtps.transport.net.node_config import NodeConfig
    except ImportError:  # before there were rooms
        from spark_rtps.transport.net.node import NodeConfig  # type: ignore[attr-defined]

        return Node(NodeConfig(domain=domain, interface="lo", **config)).open()  # type: ignore[call-arg]
    return Node.open(NodeConfig(domain=domain, interface="lo", **config))


def make_reader(node: Any, topic: str, qos: Any, recipient: Rows) -> Any:
    try:
        from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec
    except ImportError:
        reader = node.create_reader(topic, "T", qos, keyed=False)
        node.on_received = lambda: recipient.deliver(reader, reader.take())
        return reader
    return node.create_reader(ReaderSpec(topic, "T", qos), recipient)


def make_writer(node: Any, topic: str, qos: Any) -> Any:
    try:
        from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
    except ImportError:
        return node.create_writer(topic, "T", qos)
    return node.create_writer(WriterSpec(topic, "T", qos))


def reliable_qos(**policies: Any) -> Any:
    from spark_rtps.transport.qos import (
        DestinationOrderKind,
        DurabilityKind,
        HistoryKind,
        Qos,
        ReliabilityKind,
    )

    kinds = {"destination_order": DestinationOrderKind, "durability": DurabilityKind}
    policies = {name: kinds[name](value) if name in kinds else value for name, value in policies.items()}
    return Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL, **policies)


class Rows:
    """What a reader got."""

    def __init__(self) -> None:
        self.rows = self.forged = self.again = 0
        self.next = 0
        self.lost = 0
        self.gap = 0.0
        self._at = time.monotonic()

    def room(self) -> int:
        return sys.maxsize

    def deliver(self, reader: object, runs: list[Any]) -> None:
        for run in runs:
            samples = run.samples()
            data, at = samples.data, samples.all_offsets()
            words = data[at[:, None] + np.arange(4, 12)].copy().view("<u4").reshape(-1, 2)
            honest = words[words[:, 0] != FORGED, 1].astype(np.int64)
            self.forged += len(words) - len(honest)
            new = honest[honest >= self.next]
            self.again += len(honest) - len(new)
            if len(new):
                now = time.monotonic()
                self.gap = max(self.gap, now - self._at)
                self._at = now
                self.lost += int(new[-1]) + 1 - self.next - len(new)
                self.next = int(new[-1]) + 1
                self.rows += len(new)

    def begin(self) -> None:
        """Measure the longest time without a row from now on."""
        self.gap, self._at = 0.0, time.monotonic()

    def longest(self) -> float:
        return max(self.gap, time.monotonic() - self._at)


class Honest:
    """The participant, and what it can be asked."""

    def __init__(
        self, domain: int, writes: str, reads: str, qos: dict[str, Any] | None = None, **config: Any
    ) -> None:
        policies = reliable_qos(**(qos or {}))
        self.node = make_node(domain, **config)
        self.topic = writes
        self.sent_bytes = 0
        send = self.node.sockets.send

        def counted(datagrams: Any) -> Any:
            datagrams = list(datagrams)
            for each in datagrams:
                size = sum(memoryview(buffer).nbytes for buffer in each.buffers)
                self.sent_bytes += size * len(each.destinations)
            return send(datagrams)

        self.node.sockets.send = counted
        self.node.start()
        self.rows = Rows()
        self.reader = make_reader(self.node, reads, policies, self.rows)
        self.writer = make_writer(self.node, writes, policies)
        self.written = 0
        self._streaming = False
        self._stream: threading.Thread | None = None

    def info(self) -> dict[str, Any]:
        sockets = self.node.sockets
        return {
            "prefix": self.node.guid_prefix.hex(),
            "metatraffic": sockets.metatraffic_unicast[0].port,
            "user": sockets.default_unicast[0].port,
            "writer": self.writer.guid.entity.hex(),
            "reader": self.reader.guid.entity.hex(),
            "pid": os.getpid(),
        }

    def matched(self) -> dict[str, int]:
        """Readers that are ready for rows of ours, and writers."""
        with self.node.lock:
            ready = [each for each in self.writer.writer.readers.values() if each.is_ready]
            return {"readers": len(ready), "writers": len(self.reader.writers)}

    def state(self) -> dict[str, Any]:
        with open("/proc/self/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        rows = self.rows
        return {
            "cpu": time.process_time(),
            "rss": int(fields["VmRSS"].split()[0]) * 1024,
            "peak": int(fields["VmHWM"].split()[0]) * 1024,
            "rows": rows.rows,
            "lost": rows.lost,
            "again": rows.again,
            "forged": rows.forged,
            "longest": rows.longest(),
            "written": self.written,
            "sent_bytes": self.sent_bytes,
            "drops": {str(k.value): n for k, n in dict(self.node.participant.drops).items()},
        }

    def begin(self) -> None:
        self.rows.begin()

    def participants(self) -> list[dict[str, Any]]:
        """All that are known, for an attacker to aim at."""
        with self.node.lock:
            known = dict(self.node.participant.database.participants)
        return [
            {
                "prefix": prefix.hex(),
                "name": data.name,
                "metatraffic": data.metatraffic_unicast[0].port,
                "user": data.default_unicast[0].port,
            }
            for prefix, data in known.items()
            if data.default_unicast
        ]

    def writers(self) -> list[str]:
        """The GUIDs of all remote ones, as hex."""
        with self.node.lock:
            known = list(self.node.participant.database.endpoints)
        return [(each.guid.prefix + each.guid.entity).hex() for each in known if each.kind == "writer"]

    def write(self, count: int, size: int = 12, timeout: float = 5.0) -> dict[str, Any]:
        """How many rows are taken in time; ``error``: why no more."""
        before, error = self.written, ""
        deadline = time.monotonic() + timeout
        while self.written - before < count and not error:
            n = min(256, count - (self.written - before))
            try:
                self.writer.write_samples(
                    rows_of(self.written, n, size), timeout=max(0.0, deadline - time.monotonic())
                )
                self.written += n
            except Exception as failure:  # noqa: BLE001 - whatever it is, it is the answer
                error = f"{type(failure).__name__}: {failure}"
        return {"written": self.written - before, "error": error}

    def acknowledged(self, timeout: float) -> bool:
        """Whether the writer reports that all readers have everything."""
        return not self.writer.wait_for_acknowledgments(timeout)

    def stream(self, rate: int, size: int = 12) -> None:
        """Write so many rows a second from now on."""
        self._streaming = True

        def run() -> None:
            began, first = time.monotonic(), self.written
            while self._streaming:
                due = first + int((time.monotonic() - began) * rate) - self.written
                if due < rate // 200:
                    time.sleep(0.005)
                    continue
                try:
                    self.writer.write_samples(rows_of(self.written, due, size), timeout=2)
                except Exception:  # noqa: BLE001 - nobody reads, or the window is shut
                    time.sleep(0.1)
                    continue
                self.written += due

        self._stream = threading.Thread(target=run, daemon=True)
        self._stream.start()

    def end_stream(self) -> int:
        self._streaming = False
        if self._stream is not None:
            self._stream.join(60)
        return self.written

    def close(self) -> None:
        self.node.close()


def rows_of(first: int, count: int, size: int) -> Any:
    from spark_rtps.transport.wire.samples import Samples

    rows = np.zeros((count, size), np.uint8)
    rows[:, 1] = 1
    rows[:, 4] = 1
    rows[:, 8:12] = np.arange(first, first + count, dtype="<u4").view(np.uint8).reshape(count, 4)
    return Samples.uniform(rows.reshape(-1), count, size)


class Receiver:
    """A receiver process, as Spark's source starts it, and its log."""

    def __init__(
        self, directory: str, domain: int, topic: str, type_name: str | None = "T", **policies: Any
    ) -> None:
        from spark_rtps.transport.receiver.config import ReceiverConfig

        try:
            from spark_rtps.transport.net.node_config import NodeConfig
        except ImportError:
            from spark_rtps.transport.net.node import NodeConfig  # type: ignore[attr-defined]
        self.config = ReceiverConfig(
            directory,
            topic,
            type_name,
            None if type_name is None else False,
            reliable_qos(**policies),
            node=NodeConfig(domain=domain, interface="lo", participant_name="receiver"),
            log_max_bytes=64 << 20,
            log_segment_bytes=4 << 20,
        )
        self.start()

    def start(self) -> None:
        from spark_rtps.transport.receiver.process import ReceiverProcess

        self.process = ReceiverProcess.start(self.config)

    def restart(self) -> None:
        self.process.stop(dispose=False)
        self.start()

    def rows(self) -> dict[str, int]:
        """Honest rows in the log, and forged ones."""
        from spark_rtps.transport.log.log_view import Cursor, LogView

        view, end = LogView(Path(self.config.log_directory)), self.process.cursor()
        rows = Rows()
        if end > Cursor(0):
            for frame in view.frames(Cursor(0), end):
                if hasattr(frame, "run"):
                    rows.deliver(None, [frame.run])
        return {"rows": rows.rows, "forged": rows.forged, "again": rows.again}

    def state(self) -> dict[str, int]:
        return dict(self.process.counters())

    def pid(self) -> int:
        return int(self.process.pid)

    def close(self) -> None:
        self.process.stop()


def main() -> None:
    asked = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    it: Any = (Receiver if "directory" in asked else Honest)(**asked)
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        method, arguments = json.loads(line)
        try:
            answer = {"ok": getattr(it, method)(**arguments)}
        except Exception as error:  # noqa: BLE001 - whatever it is, the other end is told
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    with contextlib.suppress(Exception):
        it.close()


if __name__ == "__main__":
    main()
