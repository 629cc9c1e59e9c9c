"""Where tests of Spark run: on loopback in local mode, or on a cluster (``make test-cluster``).

``python -m tests.cluster`` sets the variables, which processes that tests start inherit.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

#: The interface of the DDS network, on all hosts.
INTERFACE: Final = os.environ.get("SPARK_RTPS_TEST_INTERFACE", "lo")
#: Spark's master, and the address at which the driver is reached.
MASTER: Final = os.environ.get("SPARK_RTPS_TEST_MASTER", "local[2,2]")
ADDRESS: Final = os.environ.get("SPARK_RTPS_TEST_ADDRESS", "127.0.0.1")
#: A folder that only the driver's host sees, for stream logs.
LOGS: Final = os.environ.get("SPARK_RTPS_TEST_LOGS")
#: Where executors have their folders.
EXECUTORS: Final = os.environ.get("SPARK_RTPS_TEST_EXECUTORS")
IS_CLUSTER: Final = not MASTER.startswith("local")


def spark_settings() -> dict[str, str]:
    """Two cores, on two hosts if there are as many; a task may fail once."""
    settings = {"spark.driver.bindAddress": ADDRESS, "spark.driver.host": ADDRESS}
    if IS_CLUSTER:
        settings |= {
            "spark.cores.max": "2",
            "spark.executor.cores": "1",
            "spark.executor.memory": "600m",
            "spark.task.maxFailures": "2",
        }
    return settings


def executors_stderr() -> list[Path]:
    """What executors on other hosts have said."""
    return sorted(Path(EXECUTORS).glob("*/app-*/*/stderr")) if EXECUTORS else []
