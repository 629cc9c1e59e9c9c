"""The packages that read containers and compressions: ``pip install 'spark-rtps[recordings]'`` has them all."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from ..transport.errors import RecordingError


def needed(module: str, path: str) -> ModuleType:
    """A module that reading ``path`` needs. Raises RecordingError, with what to install, if it is not there."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        fix = "pip install 'spark-rtps[recordings]', on the driver and where tasks run"
        raise RecordingError(f"reading it needs the package {package}: {fix}", path=path) from None
