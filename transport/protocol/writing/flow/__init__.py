"""How fast a writer may send: flow control by reports of readers (:mod:`.flow_control`), and token buckets
(:mod:`.token_bucket`)."""

from .flow_control import STRATEGIES, FlowControl, Receiver, flow_control_of, of_groups
from .token_bucket import PREDEFINED, TokenBucket

__all__ = [
    "FlowControl",
    "TokenBucket",
    "PREDEFINED",
    "Receiver",
    "STRATEGIES",
    "flow_control_of",
    "of_groups",
]
