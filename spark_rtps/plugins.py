"""The types for flow control strategies and congestion controls of your own; see docs/flow-control.md.

The options ``flow_control.strategy`` and ``congestion_control`` name them as ``module:class``. Each is made for one
stream, the samples of one writer, by a call with two arguments: the policy that the options make, and a `StreamInfo`.
"""

from __future__ import annotations

from .transport.protocol.endpoint_info import StreamInfo
from .transport.protocol.policies import CongestionControlPolicy, FlowControlPolicy
from .transport.protocol.reading.flow.congestion_control import (
    CongestionControl,
    Cubic,
    StaticWindow,
    WindowOutcome,
)
from .transport.protocol.writing.flow import FlowControl, Receiver

__all__ = [
    "CongestionControl",
    "CongestionControlPolicy",
    "Cubic",
    "FlowControl",
    "FlowControlPolicy",
    "Receiver",
    "StaticWindow",
    "StreamInfo",
    "WindowOutcome",
]
