"""``python -m tests.cluster [arguments of pytest]`` runs the tests of ``tests/spark``, or those named, on a cluster.

The tests are the driver. Tasks run on two hosts that do not see the stream logs (:mod:`tests.cluster.standalone`).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.cluster.standalone import DRIVER_ADDRESS, INTERFACE, NoNamespaces, cluster

#: As that of loopback: some tests count what fits into a datagram.
_MTU: Final = 65_535


def main(arguments: list[str]) -> int:
    tests = arguments if any(not each.startswith("-") for each in arguments) else ["tests/spark", *arguments]
    with tempfile.TemporaryDirectory(prefix="rtps-cluster-") as name:
        folder = Path(name)
        try:
            with cluster(folder, cores=2, mtu=_MTU) as made:
                return made.run(
                    sys.executable,
                    *("-m", "pytest", "-p", "no:xdist", f"--basetemp={folder / 'tests'}", *tests),
                    SPARK_RTPS_TEST_NETWORK="host",  # of the cluster
                    SPARK_RTPS_TEST_INTERFACE=INTERFACE,
                    SPARK_RTPS_TEST_MASTER=made.master,
                    SPARK_RTPS_TEST_ADDRESS=DRIVER_ADDRESS,
                    SPARK_RTPS_TEST_LOGS=str(made.log_dir),
                    SPARK_RTPS_TEST_EXECUTORS=name,
                )
        except NoNamespaces as error:
            print(f"network namespaces are not permitted here: {error}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
