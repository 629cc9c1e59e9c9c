"""Parsed options to ``Qos`` and the policies of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from ..transport.protocol.policies import (
    BATCH_POLICY,
    READER_POLICY,
    WRITER_POLICY,
    BatchPolicy,
    BatchWire,
    Compression,
    CongestionControlPolicy,
    FlowControllerPolicy,
    FlowControlPolicy,
    ReaderPolicy,
    Scheduling,
    WriterPolicy,
)
from ..transport.qos import (
    DataRepresentation,
    DestinationOrderKind,
    HistoryKind,
    LivelinessKind,
    OwnershipKind,
    PresentationScope,
    Qos,
    ReliabilityKind,
    TypeConsistency,
    TypeConsistencyKind,
)
from ..transport.structure import INFINITE
from .rules import durability, heartbeats_per_window, is_best_available, keeps_all
from .spec import AppliesTo
from .table import OPTIONS
from .values import Origin, Values

_NAMES: Final = frozenset(spec.name for spec in OPTIONS)


def option_names(policy: type[Any], *prefixes: str) -> Mapping[str, str]:
    """The option of each field of a policy, if there is one: the field's name with one of the prefixes."""
    found = {
        field.name: [p + field.name for p in prefixes if p + field.name in _NAMES] for field in fields(policy)
    }
    return {field: names[0] for field, names in found.items() if names}


READER_FIELDS: Final = option_names(ReaderPolicy, "reliable_reader.", "flow_control.", "")
WRITER_FIELDS: Final = option_names(WriterPolicy, "reliable_writer.")
BATCH_FIELDS: Final = option_names(BatchPolicy, "batch.", "")
FLOW_FIELDS: Final = option_names(FlowControllerPolicy, "flow_controller.", "flow_controller.token_bucket.")
FLOW_CONTROL_FIELDS: Final = option_names(FlowControlPolicy, "flow_control.", "publication.", "")
CONGESTION_FIELDS: Final = {
    "kind": "congestion_control",
    **option_names(CongestionControlPolicy, "congestion_control."),
}

TYPE_CONSISTENCY_FIELDS: Final = option_names(TypeConsistency, "type_consistency.")

#: Conversions of option values that differ from those of the policy; None is "no bound" for an option.
_CONVERSIONS: Final[Mapping[str, Callable[[Any], object]]] = {
    "batch.max_data_bytes": lambda size: INFINITE if size is None else size,  # the datagram bounds it
    "batch.wire": BatchWire,
    "batch.compression": Compression,
    "data_compression": Compression,
    "flow_controller.scheduling": Scheduling,
    "publication.term_window": lambda size: size or 0,
    "publication.ipc_term_window": lambda size: size or 0,
    "flow_control.multicast_strategy": lambda strategy: strategy or "auto",
    "congestion_control.initial_window": lambda size: size or 0,
    "reliable_writer.send_window_bytes": lambda size: size or 0,
}


def _of(values: Values, names: Mapping[str, str]) -> dict[str, Any]:
    plain: Callable[[Any], object] = lambda value: value  # noqa: E731
    return {field: _CONVERSIONS.get(name, plain)(values.value(name)) for field, name in names.items()}


def reader_policy(values: Values) -> ReaderPolicy:
    congestion_control = CongestionControlPolicy(**_of(values, CONGESTION_FIELDS))
    return replace(READER_POLICY, **{**_of(values, READER_FIELDS), "congestion_control": congestion_control})


def writer_policy(values: Values) -> WriterPolicy:
    policy = replace(WRITER_POLICY, **_of(values, WRITER_FIELDS))
    return replace(policy, heartbeats_per_max_samples=heartbeats_per_window(values))


def batch_policy(values: Values) -> BatchPolicy:
    return replace(BATCH_POLICY, **_of(values, BATCH_FIELDS))


def flow_control_policy(values: Values) -> FlowControlPolicy:
    return FlowControlPolicy(**_of(values, FLOW_CONTROL_FIELDS))


def flow_controller_policy(values: Values) -> FlowControllerPolicy | None:
    """The flow controller of an asynchronous writer; None: a synchronous writer sends in the writing thread."""
    if values.word("publish_mode") == "synchronous":
        return None
    from ..transport.protocol.writing.flow import PREDEFINED  # registration must not load NumPy

    base = PREDEFINED.get(values.text("flow_controller.name") or "", FlowControllerPolicy())
    set_here = {f: name for f, name in FLOW_FIELDS.items() if values.origin(name) is not Origin.DEFAULT}
    return replace(base, **_of(values, set_here))


def qos(values: Values, role: AppliesTo) -> Qos:
    both = Qos(
        reliability=ReliabilityKind[values.word("reliability").upper()],
        durability=durability(values),
        history=HistoryKind.KEEP_ALL if keeps_all(values) else HistoryKind.KEEP_LAST,
        history_depth=values.integer("history.depth"),
        max_samples=values.integer("resource_limits.max_samples"),
        max_instances=values.integer("resource_limits.max_instances"),
        max_samples_per_instance=values.integer("resource_limits.max_samples_per_instance"),
        deadline=values.integer("deadline"),
        latency_budget=values.integer("latency_budget"),
        liveliness=LivelinessKind[values.word("liveliness").upper()],
        liveliness_lease_duration=values.integer("liveliness.lease_duration"),
        ownership=OwnershipKind[values.word("ownership").upper()],
        destination_order=DestinationOrderKind[values.word("destination_order").upper()],
        presentation_scope=PresentationScope[values.word("presentation.access_scope").upper()],
        coherent_access=values.boolean("presentation.coherent_access"),
        ordered_access=values.boolean("presentation.ordered_access"),
        partition=values.names("partition"),
        user_data=values.octets("user_data"),
        topic_data=values.octets("topic_data"),
        group_data=values.octets("group_data"),
    )
    if role is AppliesTo.WRITE:
        one = representation(values.word("data_representation"))
        return replace(
            both,
            max_blocking_time=values.integer("max_blocking_time"),
            lifespan=values.integer("lifespan"),
            ownership_strength=values.integer("ownership.strength"),
            data_representation=() if one is None else (one,),
        )
    return replace(
        both,
        time_based_filter=values.integer("time_based_filter"),
        source_timestamp_tolerance=values.integer("destination_order.source_timestamp_tolerance"),
        data_representation=(DataRepresentation.XCDR1, DataRepresentation.XCDR2),
        type_consistency=TypeConsistency(
            TypeConsistencyKind[values.word("type_consistency.kind").upper()],
            **{f: values.boolean(name) for f, name in TYPE_CONSISTENCY_FIELDS.items() if f != "kind"},
        ),
    )


def left_to_writers(values: Values, role: AppliesTo) -> tuple[str, ...]:
    """The policies of a reader that ``qos.profile=best_available`` leaves to the topic's writers."""
    if role is AppliesTo.WRITE or not is_best_available(values):
        return ()
    names = () if values.has("startingOffsets") else ("durability",)
    return tuple(name for name in ("reliability", *names) if not values.has(name))


def representation(word: str) -> DataRepresentation | None:
    """DATA_REPRESENTATION of a writer; None: the one that its type needs."""
    return None if word == "auto" else DataRepresentation[word.upper()]
