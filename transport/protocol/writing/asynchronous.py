"""Asynchronous publishing: datagrams of a writer wait for tokens of the bucket that its flow controller names.

These are RTI's PUBLISH_MODE and FlowControllers. Everything that such a writer sends goes through its bucket in order,
HEARTBEATs and repairs too: if a HEARTBEAT overtook its data, readers would request that data.

The queue is bounded. A writer takes no more samples while half of FLOW_CONTROLLER_BYTES_MAX waits. Datagrams of a
reliable writer are dropped while more than twice FLOW_CONTROLLER_BYTES_MAX waits; its readers request them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...limits import FLOW_CONTROLLER_BYTES_MAX
from ...structure import Guid
from ..outgoing import Outgoing
from ..policies import FlowControllerPolicy
from .flow import TokenBucket
from .writer import StatefulWriter

#: Estimated memory of a waiting datagram besides its bytes.
_DATAGRAM_OVERHEAD: Final = 1_024


class AsynchronousPublishing:
    """The token bucket of each flow controller of a participant, by name, and which writers use it."""

    def __init__(self) -> None:
        self._buckets: dict[str, TokenBucket] = {}
        #: By GUID: the writer, its bucket and its priority.
        self._writers: dict[Guid, tuple[StatefulWriter, TokenBucket, int]] = {}

    def add_writer(self, writer: StatefulWriter, policy: FlowControllerPolicy, priority: int) -> None:
        """Let ``writer`` publish asynchronously. The first writer that names a flow controller sets its policy."""
        bucket = self._buckets.setdefault(policy.name, TokenBucket(policy))
        self._writers[writer.guid] = writer, bucket, priority
        writer.state.is_asynchronous = True

    def forget_writer(self, writer: Guid) -> None:
        entry = self._writers.pop(writer, None)
        if entry is not None:
            entry[1].forget_writer(writer)

    def pass_on(self, writer: StatefulWriter, now: int) -> Iterable[Outgoing]:
        """Return the datagrams that the writer sends at once; those of an asynchronous writer are queued instead."""
        outgoing = writer.outgoing()
        entry = self._writers.get(writer.guid)
        if entry is None or not outgoing:
            return outgoing
        _, bucket, priority = entry
        if writer.qos.is_reliable and _backlog(bucket, writer.guid) > 2 * FLOW_CONTROLLER_BYTES_MAX:
            writer.counters.flow_controller_overflow += len(outgoing)
            return ()
        deadline = now + writer.qos.latency_budget
        bucket.enqueue(writer.guid, outgoing, deadline=deadline, priority=priority, now=now)
        return ()

    def release(self, now: int) -> Iterable[Outgoing]:
        """The datagrams for which the buckets have tokens now."""
        for bucket in self._buckets.values():
            yield from bucket.release(now)
        for writer, bucket, _ in self._writers.values():
            if (backlog := _backlog(bucket, writer.guid)) != writer.state.backlog:
                writer.waits(backlog, now)

    def get_timer(self) -> int | None:
        timers = [bucket.get_timer() for bucket in self._buckets.values()]
        return min((timer for timer in timers if timer is not None), default=None)

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for tokens."""
        return sum(bucket.queued_bytes for bucket in self._buckets.values())

    def queued_bytes_of(self, writer: Guid) -> int:
        """Bytes of one writer that wait for tokens."""
        entry = self._writers.get(writer)
        return 0 if entry is None else entry[1].queued_bytes_of(writer)


def _backlog(bucket: TokenBucket, writer: Guid) -> int:
    return bucket.queued_bytes_of(writer) + _DATAGRAM_OVERHEAD * bucket.queued_datagrams_of(writer)
