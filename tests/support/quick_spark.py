"""What makes the Sparks of the tests start with half the CPU time: their Javas and Pythons are mostly starting.

``python -m tests.support.quick_spark`` makes an archive of Spark's classes as a Java wants them in memory, beside the
PySpark that they are of. A Java for which it is not, or of another Spark, starts without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ARCHIVE: Final = Path(sys.prefix, "spark-classes.jsa")
_HOME: Final = Path(sys.prefix, "spark-home")
_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"

#: The Javas of the tests live for seconds: code that is compiled well, and a collector with many threads, cost more
#: than they bring.
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment() -> dict[str, str]:
    """Of the tests, and of what they start."""
    archive = f" -XX:SharedArchiveFile={ARCHIVE} {_QUIET}" if ARCHIVE.exists() else ""
    return {"JDK_JAVA_OPTIONS": _SHORT_LIVED + archive, "SPARK_HOME": str(spark_home())}


def spark_home() -> Path:
    """A SPARK_HOME that is the installed PySpark without ``pyspark.zip``.

    Spark puts that first on the path of its Python processes. In a zip there are no compiled modules, so that each
    process would compile those that it imports: half a second, for what is installed and compiled beside it.
    """
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None
    package = Path(found.origin).parent
    if not _HOME.exists() or (_HOME / "jars").resolve() != package / "jars":
        unready = Path(tempfile.mkdtemp(dir=sys.prefix))
        for name in ("bin", "sbin", "jars", "data"):
            (unready / name).symlink_to(package / name)
        if _HOME.exists():
            _HOME.rename(unready / "before")
        unready.rename(_HOME)
    return _HOME


def make() -> None:
    """Make the archive of a Java that has run a query."""
    from spark_rtps.session import session_builder

    unready = ARCHIVE.with_suffix(f".{os.getpid()}")
    os.environ.update(JDK_JAVA_OPTIONS=_SHORT_LIVED, SPARK_HOME=str(spark_home()))
    with tempfile.TemporaryDirectory() as name:
        spark = (
            session_builder("classes")
            .master("local[2]")
            .config("spark.driver.extraJavaOptions", f"-XX:ArchiveClassesAtExit={unready} {_QUIET}")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .getOrCreate()
        )
        numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
        query = (
            numbers.mapInArrow(lambda batches: batches, numbers.schema)
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{name}/checkpoint")
            .trigger(processingTime="0 seconds")
            .start(f"{name}/output")
        )
        while not query.lastProgress or query.lastProgress["batchId"] < 3:
            query.awaitTermination(0.1)
        query.stop()
        rows = spark.read.parquet(f"{name}/output").where("value > 3")
        rows.orderBy("value").toArrow()
        rows.groupBy().count().collect()
        java = spark.sparkContext._gateway.proc
        spark.stop()
    java.stdin.close()  # which ends it
    java.wait()
    command = [
        os.environ["JAVA_HOME"] + "/bin/java",
        f"-XX:SharedArchiveFile={unready}",
        *_QUIET.split(),
        "-version",
    ]
    output = subprocess.run(command, capture_output=True, text=True)
    if output.returncode or output.stdout or not unready.exists():
        raise RuntimeError(f"{output.stdout}{output.stderr}")
    unready.replace(ARCHIVE)


if __name__ == "__main__":
    make()
