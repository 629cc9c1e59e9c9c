"""``python -m tests.bench.remote_batches DOMAIN``: how long micro-batches of a receiver service take, and local ones.

The same writer sends to both. The rows of the receiver service are fetched, although its log lies on this host. It is
a process of its own, since a second SparkSession of one inherits settings of the first.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from spark_rtps import RtpsDataSource
from spark_rtps.datasource.range_calculator import LogPartition
from spark_rtps.datasource.receiver_service_stream_reader import ReceiverServiceStreamReader
from tests.bench import figures
from tests.bench.peers import IDL, TOPIC, TYPE_NAME, Peer
from tests.support.receive_command import Receive

_PAUSE_MS: Final = 20
_RUNS: Final = 5
_WARM_UP_BATCHES: Final = 30
_BATCHES: Final = 100
_PATIENCE_SECONDS: Final = 120.0


def remote_batches(domain: int) -> dict[str, list[float]]:
    """Milliseconds of the median micro-batch with rows in each of some runs: ``local`` and ``remote``, in turn."""
    command = [sys.executable, "-m", __name__, str(domain)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


class _FetchingReader(ReceiverServiceStreamReader):
    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        found = super().partitions(start, end)
        return [replace(each, place=None) if isinstance(each, LogPartition) else each for each in found]


class Fetching(RtpsDataSource):
    """Format ``fetching``: tasks of receiver services do as on another host."""

    @classmethod
    def name(cls) -> str:
        return "fetching"

    def streamReader(self, schema: StructType) -> Any:
        reader = super().streamReader(schema)
        reader.__class__ = _FetchingReader
        return reader


def _measured(domain: int) -> dict[str, list[float]]:
    with figures.spark_session() as spark, figures.scratch() as directory:
        spark.dataSource.register(Fetching)
        idl = directory / "bench.idl"
        idl.write_text(IDL)
        of_type = {"domain": str(domain), "type.file": str(idl), "type": TYPE_NAME}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        receive = Receive(directory, domain, port)
        peer = Peer("cyclone_pinger", domain, _PAUSE_MS)
        try:
            receive.start(f'[subscriptions.bench]\ntopic = "{TOPIC}"\nreliability = "reliable"\n')
            token = str(receive.root / "token")
            local = {**of_type, "interface": "lo", "reliability": "reliable"}
            remote = {**of_type, "receivers": f"here=127.0.0.1:{port}", "receiver.token.file": token}
            found: dict[str, list[float]] = {"local": [], "remote": []}
            for number in range(_RUNS):
                for name, kind, options in (("local", "rtps", local), ("remote", "fetching", remote)):
                    frame = spark.readStream.format(kind).options(**options).load(TOPIC)
                    found[name].append(_median(frame, directory / f"{name}-{number}"))
            return found
        finally:
            peer.stop()
            receive.close()


def _median(frame: Any, checkpoint: Path) -> float:
    """Of the batches with rows that come after the first ones."""
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    found: dict[int, int] = {}
    try:
        until = time.monotonic() + _PATIENCE_SECONDS
        while len(found) < _WARM_UP_BATCHES + _BATCHES and time.monotonic() < until:
            time.sleep(0.5)
            found |= {
                each["batchId"]: each["durationMs"]["triggerExecution"]
                for each in query.recentProgress
                if each["numInputRows"]
            }
        return float(statistics.median(list(found.values())[_WARM_UP_BATCHES:]))
    finally:
        query.stop()


if __name__ == "__main__":
    print(json.dumps(_measured(int(sys.argv[1]))))
