"""The Python API in an environment of the wheel, NumPy and pyarrow alone: it reads from a live Cyclone DDS."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.interop import cyclone_types
from tests.interop.cyclone_peer import CyclonePeer
from tests.packaging.test_packaging import build_wheel, copy_of_source, pip
from tests.support import domains
from tests.support.waiting import PATIENCE

SITE = Path(sysconfig.get_path("purelib"))
#: What `pip install --no-deps spark-rtps numpy pyarrow` would bring.
PACKAGES = ("numpy", "numpy.libs", "pyarrow", "pyarrow.libs")

READ = """
import importlib.util
for name in ("pyspark", "typer", "rich", "lark", "cyclonedds"):
    assert importlib.util.find_spec(name) is None, name
import spark_rtps as rtps
with rtps.Participant({domain}, interface="lo") as participant:
    with participant.subscribe("t", durability="transient_local") as subscription:
        table = subscription.take(max_rows=3, timeout={patience})
print(table.to_pydict())
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a Python that finds nothing but its standard library, the wheel, NumPy and pyarrow."""
    site = tmp_path_factory.mktemp("site")
    source = copy_of_source(tmp_path_factory.mktemp("source"))
    wheel = build_wheel(source, tmp_path_factory.mktemp("wheel"), source)
    pip("install", "--no-deps", "--no-index", "--target", site, wheel, cwd=site)
    for name in PACKAGES:
        if (SITE / name).exists():
            (site / name).symlink_to(SITE / name)
    return {**os.environ, "PYTHONPATH": str(site)}


def test_a_topic_is_read(environment: dict[str, str], tmp_path: Path) -> None:
    rows = [{"id": number, "note": f"number {number}", "speed": number / 2} for number in range(3)]
    with CyclonePeer(domains.PACKAGING) as peer:
        peer.writer("t", cyclone_types.Vehicle, transient_local=True)
        peer.write("t", rows)
        script = READ.format(domain=domains.PACKAGING, patience=PATIENCE)
        done = subprocess.run(
            [sys.executable, "-S", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str({name: [row[name] for row in rows] for name in rows[0]})
