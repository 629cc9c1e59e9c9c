"""A reader which takes no more than it has room for; also as a process which can be killed or stopped.

``python -m tests.support.paced_reader DOMAIN TOPIC TYPE CONFIG [PORT]`` prints its GUID, and then the number of
samples it has whenever that changes, a line each. CONFIG is JSON: fields of its NodeConfig, ``keyed``, and
``rate``, the bytes a second that it consumes until SIGUSR1, after which it consumes no more. PORT is the port of
a relay.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from spark_rtps.transport.net import node as node_module
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec
from spark_rtps.transport.protocol.policies import READER_POLICY, ReaderPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.wire.samples import Run
from tests.net.shaped_link import relayed

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)


class PacedReader:
    """A reader with ``room`` for so many bytes of samples.

    If it is ``paced``, samples take up room until :meth:`consume` is called. ``number``, if given, reads a number
    from a payload; ``numbers`` then holds the numbers of all samples in the order in which they came.
    """

    def __init__(
        self,
        node: Node,
        topic: str,
        type_name: str,
        *,
        room: int = 4 << 20,
        paced: bool = False,
        keyed: bool = False,
        policy: ReaderPolicy = READER_POLICY,
        number: Callable[[memoryview], int] | None = None,
    ) -> None:
        self.node = node
        self._bytes_max = room
        self.paced = paced
        self.held = 0
        self.count = 0
        self.nbytes = 0
        self.numbers: list[int] = []
        self._number = number
        with node.lock:
            spec = ReaderSpec(topic, type_name, RELIABLE, keyed=keyed, policy=policy)
            self.reader = node.create_reader(spec, self)

    def consume(self, nbytes: int | None = None) -> None:
        """Free ``nbytes`` of the room, or all of it."""
        with self.node.lock:
            self.held = 0 if nbytes is None else max(0, self.held - nbytes)
            self.node.offer_room(self.reader)
        self.node.wake()

    def consume_from_now_on(self) -> None:
        """Free the room, and take up none from now on."""
        with self.node.lock:
            self.paced = False
            self.consume()

    def room(self) -> int:
        return max(0, self._bytes_max - self.held)

    def deliver(self, reader: StatefulReader, runs: list[Run]) -> None:
        for run in runs:
            self.count += run.count
            self.nbytes += run.nbytes
            if self.paced:
                self.held += run.nbytes
            if self._number is not None:
                self.numbers += self._numbers(run, self._number)

    @staticmethod
    def _numbers(run: Run, number: Callable[[memoryview], int]) -> list[int]:
        samples = run.samples()
        return [number(memoryview(samples.payload(i))) for i in range(run.count)]


def main(domain: str, topic: str, type_name: str, config: str, port: str = "") -> None:
    if port:
        node_module.Sockets = relayed(lambda: int(port))  # type: ignore[attr-defined]
    given: dict[str, Any] = json.loads(config)
    keyed = given.pop("keyed", False)
    rate = given.pop("rate", 0)
    node = Node.open(NodeConfig(domain=int(domain), **given)).start()
    reader = PacedReader(node, topic, type_name, paced=rate > 0, keyed=keyed)
    print(reader.reader.guid, flush=True)
    output = 0
    stopped: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: stopped.append(number))
    while True:
        time.sleep(0.01)
        if rate and not stopped:
            reader.consume(rate // 100)
        if reader.count != output:
            output = reader.count
            print(output, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
