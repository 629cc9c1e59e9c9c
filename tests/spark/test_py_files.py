"""``spark-submit --py-files``: batch and streaming from a zip, where the package is not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from spark_rtps.java import find_java_home
from tests.spark.spark_streams import DOMAIN

ROOT = Path(__file__).parents[2]
JOB = """
import sys
from pyspark.sql import SparkSession
from spark_rtps import RtpsDataSource

domain, work = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(RtpsDataSource)
options = {"domain": domain, "interface": "lo", "read.timeout": "1s", "log.dir": work + "/log"}
print("batch:", spark.read.format("rtps").schema("id INT").options(**options).load("Nobody").count())
stream = spark.readStream.format("rtps").schema("id INT").options(**options).load("Nobody")
settings = {**options, "on_no_reader": "drop", "checkpointLocation": work + "/checkpoint"}
del settings["read.timeout"], settings["log.dir"]
query = stream.writeStream.format("rtps").options(**settings).trigger(availableNow=True).start("Elsewhere")
query.awaitTermination()
print("stream:", len(query.recentProgress), query.exception())
"""


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python with everything but this package."""
    site = tmp_path / "site"
    site.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "spark_rtps" not in entry.name and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}:$PYTHONPATH" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


def test_batch_and_streaming_from_a_zip(bare_python: Path, tmp_path: Path) -> None:
    package = tmp_path / "package"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "spark_rtps", package / "spark_rtps", ignore=ignore)  # follows the links
    archive = shutil.make_archive(str(tmp_path / "spark_rtps"), "zip", package)
    job = tmp_path / "job.py"
    job.write_text(JOB)
    submit = Path(sys.executable).with_name("spark-submit")
    done = subprocess.run(
        [str(submit), "--py-files", archive, str(job), str(DOMAIN), str(tmp_path)],
        env={
            **{k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
            "JAVA_HOME": str(find_java_home()),
            "PYSPARK_PYTHON": str(bare_python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
    )
    assert "batch: 0" in done.stdout, done.stderr[-3000:]
    assert "stream: " in done.stdout and "None" in done.stdout, done.stderr[-3000:]
