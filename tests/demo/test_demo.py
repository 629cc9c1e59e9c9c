"""The demonstration and an example, for real: Cyclone DDS, Spark, Cyclone DDS; spark-submit with conf/."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from spark_rtps.demo import CYCLONE_ON_LOOPBACK
from spark_rtps.java import find_java_home
from tests.support import domains
from tests.support.waiting import PATIENCE, wait_until

ROOT = Path(__file__).parents[2]
DEMO_DOMAIN, EXAMPLE_DOMAIN = domains.DEMO, domains.DEMO_EXAMPLE

#: A frame of ours in a trace, or a logger of ours at ERROR: what Spark's own say as it ends them is Spark's.
OURS = re.compile(
    rf'File "{re.escape(str(ROOT))}/(?:spark_rtps|transport|datasource|pyspark_rtps\.py)|ERROR spark_rtps'
)


@pytest.fixture
def environment() -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(find_java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "CYCLONEDDS_URI": CYCLONE_ON_LOOPBACK,
        "COLUMNS": "120",
    }


def children_of(marker: str) -> list[str]:
    """Command lines of all processes that carry a marker."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if marker in line:
            found.append(line)
    return found


def test_the_demo_brings_every_square_through_spark(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "spark_rtps", "demo", "--seconds", "6", "--domain", str(DEMO_DOMAIN)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every square arrived once" in done.stdout
    counts = {
        name: int(number.replace(",", ""))
        for name, number in re.findall(r"│ ([a-zA-Z ]+?)\s+│\s+([\d,]+) │", done.stdout)
    }
    assert counts["squares published by Cyclone DDS"] == counts["rows read by Spark"] > 1000
    assert counts["alerts received by Cyclone DDS"] >= 4
    assert not OURS.search(done.stderr), done.stderr
    wait_until(lambda: not children_of(f"--domain {DEMO_DOMAIN}"), "the end of its processes")


def test_an_example_runs_under_spark_submit(environment: dict[str, str], tmp_path: Path) -> None:
    publisher = subprocess.Popen(
        [sys.executable, "-m", "spark_rtps.demo.publisher", "--domain", str(EXAMPLE_DOMAIN)],
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    submit = Path(sys.executable).with_name("spark-submit")
    spark = ("--master", "local[2]", "--conf", "spark.ui.enabled=false")
    spark += ("--properties-file", str(ROOT / "conf" / "spark-defaults.conf"))  # type: ignore[assignment]
    spark += ("--driver-java-options", f"-Dlog4j2.configurationFile={ROOT / 'conf' / 'log4j2.properties'}")  # type: ignore[assignment]
    example = ROOT / "examples" / "shapes_to_console.py"
    output = tmp_path / "said"
    with output.open("w") as out:
        job = subprocess.Popen(
            [submit, *spark, example, "--domain", str(EXAMPLE_DOMAIN), "--interface", "lo"],
            env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
        )
    try:
        row = re.compile(r"\|RED +\|\d+ *\|\d+ *\|\d+ *\|\d{4}-\d\d-\d\d")
        wait_until(
            lambda: row.search(output.read_text()) or job.poll() is not None, output.read_text, 300, every=0.2
        )
        assert row.search(output.read_text()), output.read_text()
    finally:
        for process in (job, publisher):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            process.kill()
            process.wait()
