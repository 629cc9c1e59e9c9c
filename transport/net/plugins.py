"""The user's own code, named by an option as ``module:callable`` and imported where the task runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ..errors import OptionError
from ..protocol.policies import FlowControlPolicy
from ..protocol.writing.batching import Interceptor
from ..protocol.writing.flow_control import STRATEGIES, FlowControl, flow_control_of


def load_callable(option: str, name: str) -> Callable[..., Any]:
    """What ``module:callable`` names. Raises OptionError, for ``option``, when there is none."""
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
        raise OptionError(option, name, fix) from error
    if not callable(found):
        raise OptionError(option, name, "is no callable")
    return found


def load_interceptor(name: str) -> Interceptor:
    """The batch interceptor of that name."""
    return load_callable("batch.interceptor", name)


def load_flow_control(policy: FlowControlPolicy) -> FlowControl:
    """The strategy a policy names: one of ours, or what the user's callable makes of the policy."""
    if policy.strategy in STRATEGIES:
        return flow_control_of(policy)
    strategy = load_callable("flow_control.strategy", policy.strategy)(policy)
    if not isinstance(strategy, FlowControl):
        raise OptionError(
            "flow_control.strategy", policy.strategy, "makes no spark_rtps FlowControl of its policy"
        )
    return strategy
