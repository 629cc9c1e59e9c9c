"""``spark-submit --py-files``: streams start in a process that does not have our zip on its path.

Spark runs a stream's source in a process whose include directory is ``<SparkFiles root>/streaming_job``,
while files shipped with ``--py-files`` lie in the root itself. What that process gets from us is a pickled
data source; when the package comes from a zip or folder in the root, the pickle first puts that on the path.
"""

from __future__ import annotations

import copyreg
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource


def reduce(source: DataSource) -> tuple[Any, ...]:
    """How to pickle a data source so that a process without the package on its path can load it."""
    path = shipped_path()
    if path is None:
        return (copyreg.__newobj__, (type(source),), source.__dict__)  # type: ignore[attr-defined]
    return (_by_value(_load), (path, type(source).__module__, type(source).__qualname__, source.__dict__))


def shipped_path() -> str | None:
    """The sys.path entry below the SparkFiles root that this package was imported from, if it was."""
    from pyspark.core.files import SparkFiles

    root = getattr(SparkFiles, "_root_directory", None)
    if not root:
        return None
    entry = Path(__file__).absolute().parents[2]  # <entry>/spark_rtps/datasource/shipping.py
    return str(entry) if entry.is_relative_to(Path(root).absolute()) else None


def _load(path: str, module: str, name: str, state: dict[str, Any]) -> Any:
    """Runs where this module cannot be imported: uses nothing of it."""
    import importlib
    import sys

    if path not in sys.path:
        sys.path.insert(1, path)
    cls = getattr(importlib.import_module(module), name)
    source = cls.__new__(cls)
    source.__dict__.update(state)
    return source


def _by_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """A twin that cloudpickle ships as code, as it does with what is defined in ``__main__``."""
    twin = types.FunctionType(function.__code__, {"__builtins__": __builtins__}, function.__name__)
    twin.__module__ = "__main__"
    return twin
