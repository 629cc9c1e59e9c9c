"""Sessions for scripts, notebooks and IDEs, where ``python3`` on PATH is another Python than the one that runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from spark_rtps.java import find_java_home
from tests.spark.spark_streams import DOMAIN
from tests.support.child_environment import child_environment

SCRIPT = """
import sys
from spark_rtps.session import session_builder

spark = (
    session_builder("script")
    .master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
options = {"domain": sys.argv[1], "interface": "lo", "read.timeout": "1s", "log.dir": sys.argv[2]}
print("rows:", spark.read.format("rtps").schema("id INT").options(**options).load("Nobody").count())
print("batches:", spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch"))
"""


def test_a_script_needs_no_pyspark_python(tmp_path: Path) -> None:
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = f"{other.parent}{os.pathsep}{os.environ['PATH']}"
    environment = child_environment(PATH=path, JAVA_HOME=str(find_java_home()))
    environment.pop("PYSPARK_PYTHON", None)
    done = subprocess.run(
        [sys.executable, str(script), str(DOMAIN), str(tmp_path / "log")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    assert "rows: 0" in done.stdout
    assert "batches: 2147483647" in done.stdout
