"""A local Spark as the command line needs it: the settings of ``conf/``, and readable output."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .java import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The configuration files, in the wheel as in the source tree.
CONF = Path(__file__).parent / "conf"


def spark_defaults(path: Path = CONF / "spark-defaults.conf") -> dict[str, str]:
    """The settings of a ``spark-defaults.conf``."""
    settings = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        key, _, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            settings[key] = value.strip()
    return settings


def quiet_session(name: str, *, cores: int = 2) -> SparkSession:
    """Start a local Spark that logs warnings only. Raises JavaMissingError."""
    use_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    for key, value in spark_defaults().items():
        builder = builder.config(key, value)
    log4j = (CONF / "log4j2.properties").as_uri()
    return (
        builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log4j}")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
