"""Spark sessions that run this Python with the settings of ``conf/``, for programs and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .java import use_java
from .spark_python import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The configuration files, in the wheel as in the source tree.
CONF = Path(__file__).parent / "conf"


def spark_defaults(path: Path = CONF / "spark-defaults.conf") -> dict[str, str]:
    """The settings of a ``spark-defaults.conf``, adapted to the installed version of PySpark."""
    from pyspark import __version__

    settings = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        key, _, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            settings[key] = value.strip()
            if __version__.startswith("4.0."):
                settings[key] = settings[key].replace(".streaming.checkpointing.", ".streaming.")
    return settings


def session_builder(name: str = "spark-rtps") -> SparkSession.Builder:
    """A builder for Spark sessions in scripts, notebooks and IDEs, with the settings of ``conf/spark-defaults.conf``.

    It also sets JAVA_HOME and, unless it is set already, PYSPARK_PYTHON in this process's environment. Spark starts its
    workers with PYSPARK_PYTHON, else with the ``python3`` of PATH, which may be a Python without this package. Call it
    before the first session of the process: a running Spark keeps its Python. Raises JavaMissingError, and
    PySparkVersionError.
    """
    require_pyspark()
    use_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in spark_defaults().items():
        builder = builder.config(key, value)
    return builder


def quiet_session(name: str, *, cores: int = 2) -> SparkSession:
    """Start a local Spark that logs warnings only. Raises JavaMissingError."""
    log4j = (CONF / "log4j2.properties").as_uri()
    return (
        session_builder(name)
        .master(f"local[{cores}]")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log4j}")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
