"""Congestion controls by their names, or by the module and callable of a plugin."""

from __future__ import annotations

from typing import Final

from ..errors import Plugin, PluginError
from ..protocol.endpoint_info import StreamInfo, WriterInfo
from ..protocol.policies import CongestionControlPolicy
from ..protocol.reading.flow.congestion_control import CongestionControl, CongestionControlFactory, built_in
from ..structure import Guid
from .plugins import load_callable

_NOBODY: Final = Guid(bytes(12), bytes(4))
_METHODS: Final = ("on_track_rebuild", "on_rtt_measurement")


def load_congestion_control(kind: str, topic: str = "") -> CongestionControlFactory:
    """What makes the congestion control of one stream of a topic: ``static``, ``cubic``, or the callable that
    ``module:callable`` names. That is called once here, to see that it makes one. Raises PluginError."""
    if kind in ("static", "cubic"):
        return built_in
    if ":" not in kind:
        raise PluginError.of(Plugin.CONGESTION_CONTROL, kind, "is none of static, cubic and module:callable")
    make = load_callable(Plugin.CONGESTION_CONTROL, kind)
    try:
        made: object = make(CongestionControlPolicy(kind=kind), StreamInfo(topic, _NOBODY))
    except Exception as error:  # the user's code may raise anything
        reason = f"fails when it is called with (policy, stream): {type(error).__name__}: {error}"
        raise PluginError.of(Plugin.CONGESTION_CONTROL, kind, reason) from error
    if not all(callable(getattr(made, name, None)) for name in _METHODS):
        reason = f"makes no CongestionControl of its policy: that has the methods {' and '.join(_METHODS)}"
        raise PluginError.of(Plugin.CONGESTION_CONTROL, kind, reason)

    def factory(policy: CongestionControlPolicy, writer: WriterInfo) -> CongestionControl:
        stream = StreamInfo(topic, writer.guid, term_length=2 * writer.term_window)
        control: CongestionControl = make(policy, stream)
        return control

    return factory
