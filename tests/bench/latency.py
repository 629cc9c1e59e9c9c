"""``python -m tests.bench.latency DOMAIN shipped|default``: latency and its floor, in a process of its own.

A second SparkSession of a process inherits settings of the first; and stopping a query inside its foreachBatch
makes Spark print pages of stack that say nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.bench import figures


def latency(domain: int, conf: str) -> dict[str, Any]:
    """``ours`` (p50, p99), Spark's ``floor`` and the ``phases`` of a micro-batch, in ms.

    With the ``shipped`` conf/spark-defaults.conf, or with Spark's ``default`` settings.
    """
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(domain), conf],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    with figures.spark_session(shipped_conf=sys.argv[2] == "shipped") as session:
        print(json.dumps(figures.latency(session, int(sys.argv[1]))))
