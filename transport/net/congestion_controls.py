"""Congestion controls by the name an option gives them."""

from __future__ import annotations

from typing import Final

from ..errors import OptionError
from ..protocol.policies import CongestionControlPolicy
from ..protocol.reading.congestion_control import CongestionControlFactory, built_in
from .plugins import load_callable

_OPTION: Final = "congestion_control"
_METHODS: Final = ("on_track_rebuild", "on_rtt_measurement")


def load_congestion_control(kind: str) -> CongestionControlFactory:
    """What makes the congestion control of one stream: ``static``, ``cubic``, or the callable that
    ``module:callable`` names. That is called once here, to see that it makes one. Raises OptionError."""
    if kind in ("static", "cubic"):
        return built_in
    if ":" not in kind:
        raise OptionError(_OPTION, kind, "is none of static, cubic and module:callable")
    factory: CongestionControlFactory = load_callable(_OPTION, kind)
    try:
        made: object = factory(CongestionControlPolicy(kind=kind))
    except Exception as error:  # the user's code may raise anything
        raise OptionError(_OPTION, kind, f"fails: {type(error).__name__}: {error}") from error
    if not all(callable(getattr(made, name, None)) for name in _METHODS):
        fix = f"makes no CongestionControl of its policy: that has the methods {' and '.join(_METHODS)}"
        raise OptionError(_OPTION, kind, fix)
    return factory
