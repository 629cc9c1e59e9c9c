"""A reader that takes what it is allowed to, and no more; also as a process that can be killed or stopped.

``python paced_reader.py DOMAIN TOPIC TYPE CONFIG [PORT]``: it tells its GUID, and then how many samples it has,
one line each. CONFIG are fields of its NodeConfig as JSON; also ``keyed``, and ``rate``: so many
bytes a second are consumed, until SIGUSR1. PORT is that of a relay.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from shaped_link import relayed

from spark_rtps.transport.net import node as node_module
from spark_rtps.transport.net.node import Node, NodeConfig
from spark_rtps.transport.protocol.policies import ReaderPolicy
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.wire.samples import Run

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)


class PacedReader:
    """A reader with ``room`` for so many bytes of samples, which stay there until :meth:`consume` is called.

    ``number``, if given, makes a number of a payload, and ``numbers`` are those of all samples, as they came.
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
        policy: ReaderPolicy | None = None,
        number: Callable[[memoryview], int] | None = None,
    ) -> None:
        self.node = node
        self.room = room
        self.paced = paced
        self.held = 0
        self.count = 0
        self.nbytes = 0
        self.numbers: list[int] = []
        self._number = number
        with node.lock:
            self.reader = node.create_reader(topic, type_name, RELIABLE, keyed=keyed, policy=policy)
            self.reader.window = room
            node.before_receive = self._set_window
            node.on_received = self._take

    def consume(self, nbytes: int | None = None) -> None:
        """Make room for so many bytes more, or for all."""
        with self.node.lock:
            self.held = 0 if nbytes is None else max(0, self.held - nbytes)
            self._set_window()
            self._take()
        self.node.wake()

    def consume_from_now_on(self) -> None:
        """It is slow no more."""
        with self.node.lock:
            self.paced = False
            self.consume()

    def _set_window(self) -> None:
        self.reader.window = max(0, self.room - self.held)

    def _take(self) -> None:
        for run in self.reader.take():
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
        node_module.Sockets = relayed(lambda: int(port))  # type: ignore[misc]
    given: dict[str, Any] = json.loads(config)
    keyed = given.pop("keyed", False)
    rate = given.pop("rate", 0)
    node = Node(NodeConfig(domain=int(domain), **given)).start()
    reader = PacedReader(node, topic, type_name, paced=rate > 0, keyed=keyed)
    print(reader.reader.guid, flush=True)
    said = 0
    stopped: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: stopped.append(number))
    while True:
        time.sleep(0.01)
        if rate and not stopped:
            reader.consume(rate // 100)
        if reader.count != said:
            said = reader.count
            print(said, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
