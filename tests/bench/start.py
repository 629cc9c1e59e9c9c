"""``python -m tests.bench.start DOMAIN``: how long users wait for the first row, and for the command line."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.bench import figures
from tests.bench.peers import Peer

#: The first start also warms up the JVM.
_STARTS = 5
_PATIENCE = 60.0


def start(domain: int) -> dict[str, float]:
    """Seconds: ``.start()`` to the first row, of a topic and of a source that has rows at once; commands; imports."""
    with tempfile.TemporaryDirectory(prefix="rtps-bench-") as bytecode:
        environment = _with_bytecode(bytecode)
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(domain)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
            text=True,
            env=environment,
        )
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        module = [sys.executable, "-m", "spark_rtps"]
        for name, command in {
            "spark-rtps ls --wait 0s": [*module, "ls", "--wait", "0s", "-i", "lo", "-d", str(domain)],
            "spark-rtps --help": [*module, "--help"],
            "import spark_rtps": [sys.executable, "-c", "import spark_rtps"],
            "python alone": [sys.executable, "-c", ""],
        }.items():
            found[name] = _took(command, environment)
        return found


def _with_bytecode(directory: str) -> dict[str, str]:
    """The environment for programs that find their modules compiled, as pip installs them.

    Where bytecode may not be written, each start would spend most of its time on compiling.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": directory}


def lines(found: dict[str, float]) -> list[str]:
    return [f"{name}: {seconds:.2f} s" for name, seconds in found.items()]


def _took(command: list[str], environment: Mapping[str, str]) -> float:
    def once() -> float:
        began = time.monotonic()
        subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env=environment
        )
        return time.monotonic() - began

    once()  # compiles
    return statistics.median(once() for _ in range(_STARTS))


def _first_row(make: Callable[[Any], Any]) -> float:
    """Median seconds from ``.start()`` to the first row in a foreachBatch."""
    took: list[float] = []
    for _ in range(_STARTS):
        came = threading.Event()

        def collect(frame: Any, _: int, came: threading.Event = came) -> None:
            if frame.count():
                came.set()

        with figures.scratch() as directory:
            writer = make(directory).writeStream.foreachBatch(collect)
            began = time.monotonic()
            query = writer.option("checkpointLocation", figures.checkpoint_in(directory)).start()
            try:
                if not came.wait(_PATIENCE):
                    raise RuntimeError(f"no row in {_PATIENCE:g} s")
                took.append(time.monotonic() - began)
            finally:
                query.stop()
    return statistics.median(took[1:])


def _main(domain: int) -> None:
    with figures.spark_session() as spark:
        peer = Peer("cyclone_pinger", domain, 50)
        found = {
            ".start() to the first row": _first_row(lambda d: figures.source(spark, domain, d).load()),
            "the same, of a source with rows at once": _first_row(
                lambda _: spark.readStream.format("prebuilt").load()
            ),
        }
        peer.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _main(int(sys.argv[1]))
