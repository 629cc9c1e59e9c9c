"""``spark-submit --py-files`` and ``addPyFile``: a stream's process starts without the shipped files on its path.

Spark runs a stream's source in a process whose include directory is ``<SparkFiles root>/streaming_job``,
while files shipped with ``--py-files`` lie in the root itself. That process gets a pickled data source; if the package
comes from a zip or folder in the root, the pickle first puts that on the path. Modules of the user's, which options
comes from a zip or folder in the root, the pickle first puts that on the path. The user's modules, which options
name as ``module:class``, are put there before an object is made that imports them: a receiver has the path of the
"""

from __future__ import annotations

import copyreg
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..columns.type_files import path_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

#: The folder below SparkFiles' root that Spark names to the process of a stream's source.
_OF_STREAMS: Final = "streaming_job"
#: As in ``SparkContext.PACKAGE_EXTENSIONS``.
_ARCHIVES: Final = (".zip", ".egg", ".jar")


def reduce(source: DataSource) -> tuple[Any, ...]:
    """How to pickle a data source so that a process without the package on its path can load it."""
    path = shipped_path()
    if path is None:
        return (copyreg.__newobj__, (type(source),), source.__getstate__())  # type: ignore[attr-defined]
    # pickle loads the state, which has classes of ours, after the object is there
    return (
        _by_value(_load),
        (path, type(source).__module__, type(source).__qualname__),
        source.__getstate__(),
    )


def shipped_path() -> str | None:
    """The sys.path entry below the SparkFiles root that this package was imported from, if it was."""
    from pyspark.core.files import SparkFiles

    root = getattr(SparkFiles, "_root_directory", None)
    if not root:
        return None
    entry = Path(__file__).absolute().parents[2]  # <entry>/spark_rtps/datasource/shipping.py
    return str(entry) if entry.is_relative_to(Path(root).absolute()) else None


def find_shipped_modules() -> None:
    """Have this process, and those that it starts, find the modules that were shipped, behind all others."""
    from pyspark.core.files import SparkFiles

    given = getattr(SparkFiles, "_root_directory", None)
    if not given:
        return  # no Spark runs in this process, or Spark Connect
    root = Path(given).absolute()
    root = root.parent if root.name == _OF_STREAMS else root
    archives = sorted(path for path in root.glob("*") if path.suffix in _ARCHIVES)
    sys.path += [entry for entry in map(str, (root, *archives)) if entry not in sys.path]


def shipped_file(name: str) -> str:
    """The path ``name``; if there is no such file here, the path of the file of that name from ``--files``."""
    path = path_of(name)
    if path.exists() or path.is_absolute():
        return str(path)
    from pyspark.core.files import SparkFiles

    try:
        shipped = Path(SparkFiles.get(name))
    except (AttributeError, AssertionError):  # no Spark runs in this process
        return str(path)
    return str(shipped if shipped.exists() else path)


def _load(path: str, module: str, name: str) -> Any:
    """Runs where this module cannot be imported, so it uses nothing from it."""
    import importlib
    import sys

    if path not in sys.path:
        sys.path.insert(1, path)
    cls = getattr(importlib.import_module(module), name)
    return cls.__new__(cls)


def _by_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy that cloudpickle ships as code, as it does with functions that ``__main__`` defines."""
    twin = types.FunctionType(function.__code__, {"__builtins__": __builtins__}, function.__name__)
    twin.__module__ = "__main__"
    return twin
