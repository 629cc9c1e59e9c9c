"""QoS that readers adopt from the writers of their topic: RELIABILITY and DURABILITY, as they are offered."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ..net.receiving_node import NamedType, ReceivingNode
from ..qos import DurabilityKind, ReliabilityKind, best_available
from .config import ReceiverConfig

#: Key in the metadata of a log: the adopted policies.
REQUESTED: Final = "requested"
#: How long to wait for more writers than the first.
_SETTLE_NS: Final = 200_000_000
_KINDS: Final = {"reliability": ReliabilityKind, "durability": DurabilityKind}


class LeftToWriters:
    """Decides once for each topic, shortly after its first writer was found."""

    def __init__(self, config: ReceiverConfig, node: ReceivingNode) -> None:
        self._config = config
        self._node = node
        self._policies = () if config.spy else config.left_to_writers
        self._decides_at: dict[str, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no policy is left to the writers."""
        return not self._policies

    @property
    def waits(self) -> bool:
        """Whether some topic will be decided without a further event."""
        return bool(self._decides_at)

    def decide(self, topic: str, named: NamedType) -> dict[str, str] | None:
        """The adopted policies and their values, empty if nothing is left to the writers; None: not decided yet."""
        if self.is_empty:
            return {}
        offers = self._node.directory.offers(topic, self._config.qos, named.type_name)
        if not offers:
            return None
        now = time.monotonic_ns()
        if now < self._decides_at.setdefault(topic, now + _SETTLE_NS):
            return None
        del self._decides_at[topic]
        qos = best_available(self._config.qos, self._policies, offers)
        return {each: getattr(qos, each).name for each in self._policies}


def requesting(config: ReceiverConfig, requested: Mapping[str, Any]) -> ReceiverConfig:
    """The configuration with the policies adopted from the writers of its topic."""
    names = [each for each in config.left_to_writers if each in requested]
    decided: dict[str, Any] = {each: _KINDS[each][str(requested[each])] for each in names}
    return replace(config, qos=replace(config.qos, **decided)) if decided else config
