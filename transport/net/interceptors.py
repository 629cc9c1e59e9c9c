"""Interceptors of batches: the user's own code, named by an option and called before each sample is queued."""

from __future__ import annotations

import importlib

from ..errors import OptionError
from ..protocol.writing.batching import Interceptor


def load_interceptor(name: str) -> Interceptor:
    """The callable that ``module:callable`` names. Raises OptionError when there is none."""
    module_name, _, attribute = name.partition(":")
    try:
        found: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # the user's module may raise anything
        fix = (
            f"cannot be loaded where the task runs: {type(error).__name__}: {error}; it is module:callable, and its "
            "module has to be on the workers (--py-files)"
        )
        raise OptionError("batch.interceptor", name, fix) from error
    if not callable(found):
        raise OptionError("batch.interceptor", name, "is no callable")
    return found
