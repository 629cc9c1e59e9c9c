"""The user's own code, named as ``module:callable`` and imported where it runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ..errors import Plugin, PluginError
from ..protocol.endpoint_info import StreamInfo
from ..protocol.policies import FlowControlPolicy
from ..protocol.writing.batching import Interceptor
from ..protocol.writing.flow import STRATEGIES, FlowControl, flow_control_of
from ..structure import Guid


def load_callable(plugin: Plugin, name: str) -> Callable[..., Any]:
    """What ``module:callable`` names, to become ``plugin``. Raises PluginError when there is none."""
    module_name, _, attribute = name.partition(":")
    try:
        found: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # the user's module may raise anything
        reason = f"cannot be loaded where the task runs: {type(error).__name__}: {error}"
        raise PluginError.of(plugin, name, reason, is_loaded=False) from error
    if not callable(found):
        raise PluginError.of(plugin, name, "is no callable")
    return found


def load_interceptor(name: str) -> Interceptor:
    """The batch interceptor of that name."""
    return load_callable(Plugin.INTERCEPTOR, name)


def load_flow_control(policy: FlowControlPolicy, topic: str) -> Callable[[Guid], FlowControl]:
    """What makes the strategy of a writer of a topic: one of ours, or what the user's callable makes of policy and
    stream. Raises PluginError when there is no such callable, or where it makes none."""
    if policy.strategy in STRATEGIES:
        return lambda writer: flow_control_of(policy)
    make = load_callable(Plugin.FLOW_CONTROL, policy.strategy)

    def strategy_of(writer: Guid) -> FlowControl:
        try:
            strategy = make(policy, StreamInfo(topic, writer, term_length=policy.term_length))
        except Exception as error:  # the user's code may raise anything
            reason = f"fails when it is called with (policy, stream): {type(error).__name__}: {error}"
            raise PluginError.of(Plugin.FLOW_CONTROL, policy.strategy, reason) from error
        if not isinstance(strategy, FlowControl):
            raise PluginError.of(
                Plugin.FLOW_CONTROL, policy.strategy, "makes no spark_rtps FlowControl of its policy"
            )
        return strategy

    return strategy_of
