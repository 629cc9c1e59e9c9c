"""Whether the Spark of this process will find this package: its Python, and the version of PySpark.

All programs import this module: it imports neither PySpark nor the rest of this package, and rarely needed modules
only on use. ``typing`` alone would take longer than all of it.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # type checkers treat it as true, as they do that of typing
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any, Final

    from .transport.errors import PySparkVersionError

#: The oldest version with Python data sources for Arrow, and the newest that is tested.
OLDEST: Final = "4.0"
TESTED: Final = "4.3"


def prepare_spark() -> None:
    """Let a Spark that this process starts run its Python code with this Python; called by ``import spark_rtps``.

    Spark runs the ``python3`` of PATH unless PYSPARK_PYTHON is set. Where that is another Python than this one, as in
    notebooks, in IDEs and in ``venv/bin/python script.py``, PYSPARK_PYTHON is set. Where Spark runs already, and with
    another Python, a warning says what to do.
    """
    context = _running_context()
    if context is not None:
        if not _is_this_python(context.pythonExec):
            _warn(
                f"Spark runs already, and its Python is {context.pythonExec!r}, where spark-rtps may not be installed: "
                f"if format('rtps') ends in DATA_SOURCE_NOT_FOUND, restart this program with `import spark_rtps` "
                f"before the session is made, or with PYSPARK_PYTHON={sys.executable} in its environment"
            )
    elif "PYSPARK_PYTHON" not in os.environ and sys.executable and not _is_this_python("python3"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    if (trouble := _trouble()) is not None:
        _warn(trouble)


def require_pyspark() -> None:
    """Raises PySparkVersionError if PySpark is missing or too old; called before PySpark's data sources are used."""
    from .transport.errors import PySparkVersionError

    if _spec() is None:
        raise PySparkVersionError(
            f"this needs PySpark {OLDEST} or newer, which is not installed: pip install pyspark"
        )
    if (trouble := _trouble()) is not None:
        raise PySparkVersionError(trouble)


def too_new(error: ImportError) -> PySparkVersionError:
    """The error for a PySpark in which an internal name has moved."""
    from .transport.errors import PySparkVersionError

    return PySparkVersionError(
        f"this spark-rtps supports PySpark {OLDEST} to {TESTED}, and {_version()} is installed, which lacks "
        f"something expected ({error}): install a newer spark-rtps, or PySpark {TESTED}"
    )


def _trouble() -> str | None:
    """The fault of the installed PySpark; None: it is fine, or there is none."""
    folder = _folder()
    # Spark's workers load it from an archive, in the version of the process that started them
    if (
        folder is None
        or not os.path.isdir(folder)
        or os.path.exists(os.path.join(folder, "sql", "datasource.py"))
    ):
        return None
    return (
        f"format('rtps') needs PySpark {OLDEST} or newer, and {_version()} is installed: upgrade the cluster and "
        f"PySpark; the Python API without Spark works"
    )


def _folder() -> str | None:
    """Where PySpark is installed."""
    try:
        found = _spec()
    except ImportError:  # its import may be blocked
        return None
    return None if found is None or found.origin is None else os.path.dirname(found.origin)


def _spec() -> ModuleSpec | None:
    """As ``importlib.util.find_spec("pyspark")``, without loading ``importlib.util``."""
    if "pyspark" in sys.modules:
        return getattr(sys.modules["pyspark"], "__spec__", None)
    specs = (finder.find_spec("pyspark", None) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)


def _version() -> str:
    try:
        with open(os.path.join(_folder() or "", "version.py"), encoding="utf-8") as file:
            found = next((line.rpartition("=")[2] for line in file if line.startswith("__version__")), "")
    except OSError:
        found = ""
    return found.strip(" \n'\"") or "another version"


def _warn(sentence: str) -> None:
    """Warn the program that imports the package."""
    import warnings

    warnings.warn(sentence, stacklevel=4)


def _running_context() -> Any:
    """The SparkContext of this process, if it has one."""
    core = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark.context")
    return getattr(getattr(core, "SparkContext", None), "_active_spark_context", None)


def _is_this_python(command: str) -> bool:
    """Whether a command runs the Python of this environment (a venv's own links count; their targets do not)."""
    folders = [""] if os.path.dirname(command) else os.environ.get("PATH", os.defpath).split(os.pathsep)
    paths = (os.path.join(folder, command) for folder in folders)
    found = next((path for path in paths if os.access(path, os.X_OK)), "")
    return bool(found) and os.path.dirname(os.path.abspath(found)) == os.path.dirname(
        os.path.abspath(sys.executable)
    )
