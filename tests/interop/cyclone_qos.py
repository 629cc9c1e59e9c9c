"""QoS of Cyclone DDS endpoints by the names and values of our own :class:`Qos`: what a test says, it says to both.

Runs in the process of the Cyclone peer.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any, NamedTuple

from spark_rtps.transport.qos import LivelinessKind, PresentationScope


class EntityQos(NamedTuple):
    """Cyclone keeps policies where DDS has them: of a topic, a publisher or subscriber, a writer or reader."""

    topic: Any
    group: Any
    endpoint: Any


def cyclone_qos(
    *,
    reliable: bool = True,
    transient_local: bool = False,
    keep: int = 0,
    batching: bool = False,
    **more: Any,
) -> EntityQos:
    """``keep``: KEEP_LAST depth, 0 for KEEP_ALL; ``batching``: Cyclone's own policy of writers; ``more``: fields of
    our Qos, durations in ns."""
    from cyclonedds.core import Policy, Qos
    from cyclonedds.util import duration

    history = Policy.History.KeepLast(keep) if keep else Policy.History.KeepAll
    limits = [more.pop(name, -1) for name in ("max_samples", "max_instances", "max_samples_per_instance")]
    endpoint = [
        Policy.Reliability.Reliable(duration(seconds=20)) if reliable else Policy.Reliability.BestEffort,
        Policy.Durability.TransientLocal if transient_local else Policy.Durability.Volatile,
        history,
        # for late joiners Cyclone keeps what this one says
        Policy.DurabilityService(0, history, -1, -1, -1),
        Policy.WriterDataLifecycle(autodispose=False),
        Policy.ResourceLimits(*limits),
    ]
    topic, group = [], []  # type: ignore[var-annotated]
    if "liveliness_lease_duration" in more:
        lease = more.pop("liveliness_lease_duration")
        kinds = (
            Policy.Liveliness.Automatic,
            Policy.Liveliness.ManualByParticipant,
            Policy.Liveliness.ManualByTopic,
        )
        endpoint.append(kinds[more.pop("liveliness", LivelinessKind.AUTOMATIC)](lease))
    if "presentation_scope" in more:
        scope = {
            PresentationScope.INSTANCE: Policy.PresentationAccessScope.Instance,
            PresentationScope.TOPIC: Policy.PresentationAccessScope.Topic,
            PresentationScope.GROUP: Policy.PresentationAccessScope.Group,
        }[more.pop("presentation_scope")]
        group.append(scope(more.pop("coherent_access", False), more.pop("ordered_access", False)))
    order = (Policy.DestinationOrder.ByReceptionTimestamp, Policy.DestinationOrder.BySourceTimestamp)
    make = {
        "deadline": (endpoint, Policy.Deadline),
        "latency_budget": (endpoint, Policy.LatencyBudget),
        "lifespan": (endpoint, Policy.Lifespan),
        "ownership": (endpoint, (Policy.Ownership.Shared, Policy.Ownership.Exclusive).__getitem__),
        "ownership_strength": (endpoint, Policy.OwnershipStrength),
        "destination_order": (endpoint, order.__getitem__),
        "time_based_filter": (endpoint, Policy.TimeBasedFilter),
        "user_data": (endpoint, Policy.Userdata),
        "topic_data": (topic, Policy.Topicdata),
        "group_data": (group, Policy.Groupdata),
        "partition": (group, lambda names: Policy.Partition(list(names))),
    }
    for name, value in more.items():
        policies, policy = make[name]
        policies.append(policy(value))  # type: ignore[operator]
    if batching:
        endpoint.append(_writer_batching())
    return EntityQos(Qos(*topic), Qos(*group), Qos(*endpoint))


def plain_qos(qos: Any) -> dict[str, Any]:
    """The QoS of a discovered endpoint, by the names and values of ours."""
    from cyclonedds.core import Policy

    fields = {
        "user_data": (Policy.Userdata, "data"),
        "topic_data": (Policy.Topicdata, "data"),
        "group_data": (Policy.Groupdata, "data"),
        "partition": (Policy.Partition, "partitions"),
        "deadline": (Policy.Deadline, "deadline"),
        "latency_budget": (Policy.LatencyBudget, "budget"),
        "lifespan": (Policy.Lifespan, "lifespan"),
        "liveliness_lease_duration": (Policy.Liveliness, "lease_duration"),
        "ownership_strength": (Policy.OwnershipStrength, "strength"),
        "time_based_filter": (Policy.TimeBasedFilter, "filter_time"),
        "coherent_access": (Policy.PresentationAccessScope, "coherent_access"),
        "ordered_access": (Policy.PresentationAccessScope, "ordered_access"),
    }
    found = {name: getattr(qos[policy], field) for name, (policy, field) in fields.items() if policy in qos}
    kinds = {
        "liveliness": (Policy.Liveliness, ("Automatic", "ManualByParticipant", "ManualByTopic")),
        "ownership": (Policy.Ownership, ("Shared", "Exclusive")),
        "destination_order": (Policy.DestinationOrder, ("ByReceptionTimestamp", "BySourceTimestamp")),
        "presentation_scope": (Policy.PresentationAccessScope, ("Instance", "Topic", "Group")),
    }
    for name, (policy, names) in kinds.items():
        output = re.split("[.(]", repr(qos[policy]))[
            2
        ]  # Policy.Ownership.Shared, Policy.Liveliness.Automatic(...)
        found[name] = names.index(output)
    if Policy.TypeConsistency in qos:
        consistency = qos[Policy.TypeConsistency]
        flags = (
            "ignore_sequence_bounds",
            "ignore_string_bounds",
            "ignore_member_names",
            "prevent_type_widening",
        )
        found["type_consistency"] = {
            flag: getattr(consistency, flag) for flag in (*flags, "force_type_validation")
        }
    return found


def _writer_batching() -> Any:
    """The policy of the C library that the Python binding has no class for."""
    from cyclonedds.qos import BasePolicy, _CQos

    class WriterBatching(BasePolicy):
        __scope__ = "WriterBatching"

    def set_on(qos: Any, _: WriterBatching) -> None:
        _CQos._dll_handle.dds_qset_writer_batching(ctypes.c_void_p(qos), ctypes.c_bool(True))

    _CQos._set_p_writerbatching = set_on  # type: ignore[attr-defined]  # where the binding looks for it
    return WriterBatching()
