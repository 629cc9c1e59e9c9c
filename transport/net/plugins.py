"""Loads the user's own code, named as ``module:callable`` and imported where it runs."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, cast

from ..errors import Plugin, PluginError
from ..protocol.endpoint_info import StreamInfo, WriterInfo
from ..protocol.participant.endpoint_specs import WriterSpec
from ..protocol.policies import CongestionControlPolicy, FlowControlPolicy
from ..protocol.reading.flow.congestion_control import CongestionControl, CongestionControlFactory, built_in
from ..protocol.writing.batching import BatchRequest, Interceptor
from ..protocol.writing.flow import STRATEGIES, FlowControl, flow_control_of
from ..structure import GUID_UNKNOWN, Guid
from ..types.model import Struct
from ..wire.samples import Samples

if TYPE_CHECKING:
    from ..types.cdr.codec import Codec

#: Environment variable with the interceptor of a whole worker (``spark.executorEnv.`` in Spark), as
#: ``module:callable``.
INTERCEPTOR_VARIABLE: Final = "SPARK_RTPS_BATCH_INTERCEPTOR"

_CONGESTION_CONTROL_METHODS: Final = ("on_track_rebuild", "on_rtt_measurement")

#: The interceptor given to :func:`set_worker_interceptor`.
_of_worker: Callable[[BatchRequest], object] | None = None


def load_callable(plugin: Plugin, name: str) -> Callable[..., Any]:
    """The object that ``module:callable`` names, for ``plugin``. Raises PluginError if there is none."""
    module_name, _, attribute = name.partition(":")
    try:
        found: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # the user's module may raise anything
        reason = f"cannot be loaded where the task runs: {type(error).__name__}: {error}"
        raise PluginError.for_plugin(plugin, name, reason, is_loaded=False) from error
    if not callable(found):
        raise PluginError.for_plugin(plugin, name, "is not callable")
    return found


def load_interceptor(name: str) -> Callable[[BatchRequest], object]:
    """The batch interceptor of that name. Raises PluginError, also for a callable that does not take a request."""
    return checked_interceptor(load_callable(Plugin.INTERCEPTOR, name), name)


def checked_interceptor(decide: Callable[..., object], name: str) -> Callable[[BatchRequest], object]:
    """The same callable; raises PluginError if it cannot be called with a request alone."""
    try:
        inspect.signature(decide).bind(None)
    except TypeError as error:
        reason = (
            f"is not called as interceptor(request): {error}. The request has topic, writer, size, queued_samples, "
            "queued_bytes, key and row(); decide on it by enqueue(), hold(), drop() or flush()"
        )
        raise PluginError.for_plugin(Plugin.INTERCEPTOR, name, reason) from error
    except ValueError:  # a callable without a readable signature
        pass
    return decide


def set_worker_interceptor(decide: Callable[[BatchRequest], object] | None) -> None:
    """Set the interceptor of all writers of this process that send batches and have none of their own; None: only the
    one that the environment names. Writers that exist already keep theirs. Raises PluginError."""
    global _of_worker
    _of_worker = None if decide is None else checked_interceptor(decide, getattr(decide, "__qualname__", ""))


def interceptor_of(spec: WriterSpec) -> Interceptor | None:
    """The interceptor of a writer: its own, or that of the process. Raises PluginError."""
    policy = spec.policy
    if policy.interceptor is not None:
        decide = load_interceptor(policy.interceptor)
    elif not policy.batch.batches:
        return None
    elif _of_worker is not None:
        decide = _of_worker
    elif name := os.environ.get(INTERCEPTOR_VARIABLE, "").strip():
        decide = load_interceptor(name)
    else:
        return None
    return Interceptor(decide, spec.topic, None if spec.type is None else partial(_row, spec.type))


def _row(struct: Struct, samples: Samples) -> Mapping[str, Any]:
    """The columns of one sample."""
    return cast("dict[str, Any]", _codec(struct).decode_samples(samples).batch.to_pylist()[0])


@lru_cache(maxsize=16)
def _codec(struct: Struct) -> Codec:
    """Loaded and made when the first row is requested."""
    from ..types.cdr.codec import Codec

    return Codec(struct)


def load_flow_control(
    policy: FlowControlPolicy, topic: str, *, channel: str = "unicast"
) -> Callable[[Guid], FlowControl]:
    """The factory of a writer's flow control strategy, while it sends by that channel: a built-in one, or the user's
    callable, which is called with policy and stream. Raises PluginError if there is no such callable, or it makes
    none."""
    if policy.strategy in STRATEGIES:
        return lambda writer: flow_control_of(policy)
    make = load_callable(Plugin.FLOW_CONTROL, policy.strategy)

    def strategy_of(writer: Guid) -> FlowControl:
        try:
            strategy = make(policy, StreamInfo(topic, writer, channel, policy.term_length))
        except Exception as error:  # the user's code may raise anything
            reason = f"fails when it is called with (policy, stream): {type(error).__name__}: {error}"
            raise PluginError.for_plugin(Plugin.FLOW_CONTROL, policy.strategy, reason) from error
        if not isinstance(strategy, FlowControl):
            raise PluginError.for_plugin(
                Plugin.FLOW_CONTROL, policy.strategy, "makes no spark_rtps FlowControl of its policy"
            )
        return strategy

    return strategy_of


def load_congestion_control(kind: str, topic: str = "") -> CongestionControlFactory:
    """The factory of the congestion control of one stream of a topic: ``static``, ``cubic``, or the callable that
    ``module:callable`` names. That is called once here, to check its result. Raises PluginError."""
    if kind in ("static", "cubic"):
        return built_in
    if ":" not in kind:
        raise PluginError.for_plugin(
            Plugin.CONGESTION_CONTROL, kind, "is none of static, cubic and module:callable"
        )
    make = load_callable(Plugin.CONGESTION_CONTROL, kind)
    try:
        made: object = make(CongestionControlPolicy(kind=kind), StreamInfo(topic, GUID_UNKNOWN))
    except Exception as error:  # the user's code may raise anything
        reason = f"fails when it is called with (policy, stream): {type(error).__name__}: {error}"
        raise PluginError.for_plugin(Plugin.CONGESTION_CONTROL, kind, reason) from error
    if not all(callable(getattr(made, name, None)) for name in _CONGESTION_CONTROL_METHODS):
        methods = " and ".join(_CONGESTION_CONTROL_METHODS)
        reason = f"makes no CongestionControl of its policy: that has the methods {methods}"
        raise PluginError.for_plugin(Plugin.CONGESTION_CONTROL, kind, reason)

    def factory(policy: CongestionControlPolicy, writer: WriterInfo) -> CongestionControl:
        stream = StreamInfo(topic, writer.guid, term_length=2 * writer.term_window)
        control: CongestionControl = make(policy, stream)
        return control

    return factory
