"""``python -m tests.bench.recovery DOMAIN``: how long a receiver service and its server are missed once killed.

A process of its own, like :mod:`.remote_batches`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.bench import figures
from tests.bench.peers import IDL, TOPIC, TYPE_NAME, Peer
from tests.bench.remote_batches import Fetching
from tests.support.receive_command import Receive
from tests.support.waiting import wait_until

_PAUSE_MS: Final = 20
_RUNS: Final = 5
#: Between two kills, so that none is a loop of crashes.
_REST_SECONDS: Final = 3.0
#: Until all tasks of a batch wait for a server that is stopped.
_STOPPED_SECONDS: Final = 1.0


def recovery(domain: int) -> dict[str, list[float]]:
    """Seconds, of some kills each: from that of the ``receiver`` to the next row in its log, and from that of the
    ``server`` to the end of the batch whose tasks wait for it."""
    command = [sys.executable, "-m", __name__, str(domain)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _measured(domain: int) -> dict[str, list[float]]:
    with figures.spark_session() as spark, figures.scratch() as directory:
        spark.dataSource.register(Fetching)
        idl = directory / "bench.idl"
        idl.write_text(IDL)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        receive = Receive(directory, domain, port)
        peer = Peer("cyclone_pinger", domain, _PAUSE_MS)
        try:
            receive.start(f'[subscriptions.bench]\ntopic = "{TOPIC}"\nreliability = "reliable"\n')
            frame = (
                spark.readStream.format("fetching")
                .option("domain", str(domain))
                .option("type.file", str(idl))
                .option("type", TYPE_NAME)
                .option("receivers", f"here=127.0.0.1:{port}")
                .option("receiver.token.file", str(receive.root / "token"))
                .load(TOPIC)
            )
            checkpoint = directory / "checkpoint"
            query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
            wait_until(lambda: _last(checkpoint / "commits") > 20, "batches")
            found: dict[str, list[float]] = {"receiver": [], "server": []}
            for _ in range(_RUNS):
                found["receiver"].append(_receiver_killed(receive))
                time.sleep(_REST_SECONDS)
                found["server"].append(_server_killed(receive, checkpoint))
                time.sleep(_REST_SECONDS)
            assert query.exception() is None
            query.stop()
            return found
        finally:
            peer.stop()
            receive.close()


def _receiver_killed(receive: Receive) -> float:
    (pid,) = receive.children()["receiver"]
    killed = _kill(pid)
    end = receive.position("bench")
    wait_until(lambda: receive.position("bench") > end, "a row")
    return time.monotonic() - killed


def _server_killed(receive: Receive, checkpoint: Path) -> float:
    (pid,) = receive.children()["serving"]
    batch = _stopped_at(pid, checkpoint)
    killed = _kill(pid)
    wait_until(lambda: _last(checkpoint / "commits") >= batch, "the end of the batch")
    return time.monotonic() - killed


def _stopped_at(server: int, checkpoint: Path) -> int:
    """The batch which waits for the server, which is stopped."""
    while True:
        batch = _last(checkpoint / "offsets")
        wait_until(lambda: _last(checkpoint / "offsets") > batch, "a batch", every=0.001)  # noqa: B023
        os.kill(server, signal.SIGSTOP)
        time.sleep(_STOPPED_SECONDS)
        if (batch := _last(checkpoint / "offsets")) > _last(checkpoint / "commits"):
            return batch
        os.kill(server, signal.SIGCONT)


def _kill(pid: int) -> float:
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    return killed


def _last(folder: Path) -> int:
    """The number of the last batch."""
    return max((int(path.name) for path in folder.glob("[0-9]*")), default=-1)


if __name__ == "__main__":
    print(json.dumps(_measured(int(sys.argv[1]))))
