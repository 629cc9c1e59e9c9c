"""Which readers' reports pace a writer: Aeron's flow control strategies, for RTPS readers.

A strategy gets the position up to which each reliable reader has consumed and the size of its window, and returns the
position up to which the writer may send. Our own readers report both in status messages; for all others both are
derived from their acknowledgements. Positions are those of the publication log, in bytes.

Invariant: a limit never falls, because data up to it may have been sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ....errors import UsageError
from ....structure import Guid
from ....value_classes import slotted
from ...endpoint_info import StreamInfo
from ...policies import FlowControlPolicy


@slotted
class Receiver:
    """One reader as flow control sees it: it has consumed up to ``position`` and can take ``window`` bytes more."""

    position: int
    window: int
    group_tag: int | None = None
    #: The reader has not reported yet; ``position`` and ``window`` are presumed.
    presumed: bool = False

    @property
    def limit(self) -> int:
        return self.position + self.window


class FlowControl:
    """The strategy ``min``, in which the slowest reader sets the pace; the base of all strategies.

    A user's own strategy is a subclass. It is created with ``(policy, stream)``: the `FlowControlPolicy` of the
    options, and a `StreamInfo`.
    """

    def __init__(self, policy: FlowControlPolicy, stream: StreamInfo | None = None) -> None:
        self.policy = policy
        #: Describes the writer; None for our own strategies, which do not use it.
        self.stream = stream

    def limit(self, receivers: Mapping[Guid, Receiver]) -> int:
        """The position up to which the writer may send; there is at least one receiver."""
        return min(receiver.limit for receiver in receivers.values())

    def acknowledged(self, receivers: Mapping[Guid, Receiver], acked: Mapping[Guid, int]) -> int:
        """The sequence number up to which samples count as acknowledged; there is at least one receiver."""
        return min(acked[guid] for guid in self.pacing(receivers))

    def pacing(self, receivers: Mapping[Guid, Receiver]) -> Mapping[Guid, Receiver]:
        """The receivers that the writer waits for: at least one."""
        return receivers

    def is_connected(self, receivers: Mapping[Guid, Receiver]) -> bool:
        """Whether there are enough receivers (``group_min_size``)."""
        return len(receivers) >= self.policy.group_min_size


class Unicast(FlowControl):
    """For a single reader, which is always enough. If there are several, the slowest sets the pace."""

    def is_connected(self, receivers: Mapping[Guid, Receiver]) -> bool:
        return True


class Max(FlowControl):
    """The fastest reader sets the pace. A slow one falls behind, is dropped, and rejoins at the newest sample."""

    def limit(self, receivers: Mapping[Guid, Receiver]) -> int:
        return max(receiver.limit for receiver in receivers.values())

    def pacing(self, receivers: Mapping[Guid, Receiver]) -> Mapping[Guid, Receiver]:
        fastest = max(receivers, key=lambda guid: receivers[guid].position)
        return {fastest: receivers[fastest]}

    def acknowledged(self, receivers: Mapping[Guid, Receiver], acked: Mapping[Guid, int]) -> int:
        return max(acked[guid] for guid in receivers)

    def is_connected(self, receivers: Mapping[Guid, Receiver]) -> bool:
        return True


class Tagged(FlowControl):
    """The slowest reader with the writer's group tag sets the pace; while there is none, the fastest reader does."""

    def __init__(self, policy: FlowControlPolicy) -> None:
        super().__init__(policy)
        self._without = Max(policy)

    def limit(self, receivers: Mapping[Guid, Receiver]) -> int:
        tagged = self._tagged(receivers)
        return super().limit(tagged) if tagged else self._without.limit(receivers)

    def pacing(self, receivers: Mapping[Guid, Receiver]) -> Mapping[Guid, Receiver]:
        return self._tagged(receivers) or self._without.pacing(receivers)

    def acknowledged(self, receivers: Mapping[Guid, Receiver], acked: Mapping[Guid, int]) -> int:
        tagged = self._tagged(receivers)
        return min(acked[guid] for guid in tagged) if tagged else self._without.acknowledged(receivers, acked)

    def is_connected(self, receivers: Mapping[Guid, Receiver]) -> bool:
        return len(self._tagged(receivers)) >= self.policy.group_min_size

    def _tagged(self, receivers: Mapping[Guid, Receiver]) -> dict[Guid, Receiver]:
        tag = self.policy.group_tag
        return {guid: receiver for guid, receiver in receivers.items() if receiver.group_tag == tag}


STRATEGIES: Final[dict[str, Callable[[FlowControlPolicy], FlowControl]]] = {
    "unicast": Unicast,
    "min": FlowControl,
    "max": Max,
    "tagged": Tagged,
}


def flow_control_of(policy: FlowControlPolicy) -> FlowControl:
    """The strategy that a policy names; a user's own strategy is passed in instead (`net.plugins`)."""
    if policy.strategy not in STRATEGIES:
        raise UsageError(
            f"unknown flow control strategy {policy.strategy!r}: choose one of {', '.join(STRATEGIES)}"
        )
    strategy = STRATEGIES[policy.strategy](policy)
    if policy.strategy == "tagged" and policy.group_tag is None:
        raise UsageError("flow control strategy 'tagged' has no tag to look for: set group_tag")
    return strategy


def of_groups(policy: FlowControlPolicy) -> FlowControlPolicy | None:
    """The policy while samples are sent to a multicast group; None if it is the same.

    Aeron, too, has a flow control supplier for each kind of channel.
    """
    if policy.multicast_strategy in ("auto", policy.strategy):
        return None
    return replace(policy, strategy=policy.multicast_strategy)
