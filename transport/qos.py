"""DDS QoS policies of an endpoint, and whether an offer satisfies a request (DDS 1.4 §2.2.3).

All durations are integer nanoseconds; ``INFINITE`` is DURATION_INFINITE. Defaults are DDS 1.4's, except
that ``Qos()`` describes a reader's defaults; a writer's default reliability is RELIABLE: use
``Qos(reliability=ReliabilityKind.RELIABLE)``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .partitions import partitions_match
from .structure import INFINITE


class ReliabilityKind(enum.IntEnum):
    """RELIABILITY; the values are the wire's (RTPS 2.5 §9.3.2: 1 and 2)."""

    BEST_EFFORT = 1
    RELIABLE = 2


class DurabilityKind(enum.IntEnum):
    VOLATILE = 0
    TRANSIENT_LOCAL = 1
    TRANSIENT = 2
    PERSISTENT = 3


class HistoryKind(enum.IntEnum):
    KEEP_LAST = 0
    KEEP_ALL = 1


class LivelinessKind(enum.IntEnum):
    AUTOMATIC = 0
    MANUAL_BY_PARTICIPANT = 1
    MANUAL_BY_TOPIC = 2


class OwnershipKind(enum.IntEnum):
    SHARED = 0
    EXCLUSIVE = 1


class DestinationOrderKind(enum.IntEnum):
    BY_RECEPTION_TIMESTAMP = 0
    BY_SOURCE_TIMESTAMP = 1


class TypeConsistencyKind(enum.IntEnum):
    """Whether a writer's type may differ from the reader's (XTypes 1.3 §7.6.3.4)."""

    DISALLOW_TYPE_COERCION = 0
    ALLOW_TYPE_COERCION = 1


@dataclass(frozen=True, slots=True)
class TypeConsistency:
    """TYPE_CONSISTENCY_ENFORCEMENT of a reader; the defaults are XTypes 1.3's."""

    kind: TypeConsistencyKind = TypeConsistencyKind.ALLOW_TYPE_COERCION
    ignore_sequence_bounds: bool = True
    ignore_string_bounds: bool = True
    ignore_member_names: bool = False
    prevent_type_widening: bool = False
    force_type_validation: bool = False


class PresentationScope(enum.IntEnum):
    INSTANCE = 0
    TOPIC = 1
    GROUP = 2


class DataRepresentation(enum.IntEnum):
    """DATA_REPRESENTATION ids (XTypes 1.3 §7.6.3.1.1); an empty list means (XCDR1,)."""

    XCDR1 = 0
    XML = 1
    XCDR2 = 2


@dataclass(frozen=True, slots=True)
class Qos:
    """The policies of one reader or writer."""

    reliability: ReliabilityKind = ReliabilityKind.BEST_EFFORT
    max_blocking_time: int = 100_000_000
    durability: DurabilityKind = DurabilityKind.VOLATILE
    history: HistoryKind = HistoryKind.KEEP_LAST
    history_depth: int = 1
    max_samples: int = INFINITE
    max_instances: int = INFINITE
    max_samples_per_instance: int = INFINITE
    deadline: int = INFINITE
    latency_budget: int = 0
    lifespan: int = INFINITE
    liveliness: LivelinessKind = LivelinessKind.AUTOMATIC
    liveliness_lease_duration: int = INFINITE
    ownership: OwnershipKind = OwnershipKind.SHARED
    ownership_strength: int = 0
    destination_order: DestinationOrderKind = DestinationOrderKind.BY_RECEPTION_TIMESTAMP
    #: Of a reader: how far a source timestamp may lie ahead of reception (RTI Connext's extension, and its default).
    source_timestamp_tolerance: int = 30_000_000_000
    presentation_scope: PresentationScope = PresentationScope.INSTANCE
    coherent_access: bool = False
    ordered_access: bool = False
    partition: tuple[str, ...] = ()
    time_based_filter: int = 0
    data_representation: tuple[int, ...] = ()
    type_consistency: TypeConsistency = TypeConsistency()
    user_data: bytes = b""
    topic_data: bytes = b""
    group_data: bytes = b""

    @property
    def is_reliable(self) -> bool:
        return self.reliability is ReliabilityKind.RELIABLE

    @property
    def is_transient_local(self) -> bool:
        """Whether history is kept for late joiners; stronger kinds keep it in the writer, too."""
        return self.durability >= DurabilityKind.TRANSIENT_LOCAL

    @property
    def reports_instances(self) -> bool:
        """Whether a policy makes a reader distinguish instances."""
        return (
            self.ownership is OwnershipKind.EXCLUSIVE
            or self.destination_order is DestinationOrderKind.BY_SOURCE_TIMESTAMP
            or self.time_based_filter > 0
            or self.deadline < INFINITE
            or self.history is HistoryKind.KEEP_LAST
            or self.max_instances != INFINITE
            or self.max_samples_per_instance != INFINITE
        )


def best_available(qos: Qos, policies: Iterable[str], offers: Iterable[Qos]) -> Qos:
    """``qos`` with the strongest of the named policies, RELIABILITY and DURABILITY, that all offers satisfy.

    At most TRANSIENT_LOCAL is requested: with TRANSIENT and PERSISTENT a durability service would send the history.
    Without any offer the policies are unchanged.
    """
    offered = list(offers)
    if not offered:
        return qos
    durability = min(DurabilityKind.TRANSIENT_LOCAL, *(each.durability for each in offered))
    found = {"reliability": min(each.reliability for each in offered), "durability": durability}
    return replace(qos, **{name: found[name] for name in policies})  # type: ignore[arg-type]


def requested_by_reader(qos: Qos) -> Qos:
    """What our reader with this QoS requests: either representation, unless DATA_REPRESENTATION is set."""
    if qos.data_representation:
        return qos
    return replace(qos, data_representation=(DataRepresentation.XCDR1, DataRepresentation.XCDR2))


class QosPolicyId(enum.IntEnum):
    """QosPolicyId_t (DDS 1.4 §2.3.3; DATA_REPRESENTATION and TYPE_CONSISTENCY: XTypes 1.3 §7.6.3)."""

    USER_DATA = 1
    DURABILITY = 2
    PRESENTATION = 3
    DEADLINE = 4
    LATENCY_BUDGET = 5
    OWNERSHIP = 6
    OWNERSHIP_STRENGTH = 7
    LIVELINESS = 8
    TIME_BASED_FILTER = 9
    PARTITION = 10
    RELIABILITY = 11
    DESTINATION_ORDER = 12
    HISTORY = 13
    RESOURCE_LIMITS = 14
    ENTITY_FACTORY = 15
    WRITER_DATA_LIFECYCLE = 16
    READER_DATA_LIFECYCLE = 17
    TOPIC_DATA = 18
    GROUP_DATA = 19
    TRANSPORT_PRIORITY = 20
    LIFESPAN = 21
    DURABILITY_SERVICE = 22
    DATA_REPRESENTATION = 23
    TYPE_CONSISTENCY = 24


def policies_of(reasons: Iterable[str]) -> list[str]:
    """The subject of each mismatch reason, each once: the name of a policy, or TYPE, or KEY."""
    return list(dict.fromkeys(reason.replace(":", " ").split()[0] for reason in reasons if reason))


def incompatibilities(offered: Qos, requested: Qos) -> list[str]:
    """Why a reader that requests ``requested`` cannot match a writer that offers ``offered``.

    Returns one readable sentence per policy, none when they match (DDS 1.4 §2.2.3, RxO column;
    DATA_REPRESENTATION: XTypes 1.3 §7.6.3.1.1).
    """
    reasons: list[str] = []

    def need(ok: bool, policy: str, offer: object, request: object) -> None:
        if not ok:
            reasons.append(
                f"{policy}: the writer offers {_show(offer)}, the reader requests {_show(request)}"
            )

    need(
        offered.reliability >= requested.reliability,
        "RELIABILITY",
        offered.reliability,
        requested.reliability,
    )
    need(offered.durability >= requested.durability, "DURABILITY", offered.durability, requested.durability)
    need(offered.deadline <= requested.deadline, "DEADLINE", offered.deadline, requested.deadline)
    need(
        offered.latency_budget <= requested.latency_budget,
        "LATENCY_BUDGET",
        offered.latency_budget,
        requested.latency_budget,
    )
    need(offered.liveliness >= requested.liveliness, "LIVELINESS", offered.liveliness, requested.liveliness)
    need(
        offered.liveliness_lease_duration <= requested.liveliness_lease_duration,
        "LIVELINESS lease_duration",
        offered.liveliness_lease_duration,
        requested.liveliness_lease_duration,
    )
    need(offered.ownership == requested.ownership, "OWNERSHIP", offered.ownership, requested.ownership)
    need(
        offered.destination_order >= requested.destination_order,
        "DESTINATION_ORDER",
        offered.destination_order,
        requested.destination_order,
    )
    need(
        offered.presentation_scope >= requested.presentation_scope
        and offered.coherent_access >= requested.coherent_access
        and offered.ordered_access >= requested.ordered_access,
        "PRESENTATION",
        _presentation(offered),
        _presentation(requested),
    )
    offer = written_representation(offered)
    accepted = requested.data_representation or (DataRepresentation.XCDR1,)
    need(offer in accepted, "DATA_REPRESENTATION", _representations((offer,)), _representations(accepted))
    if not partitions_match(offered.partition, requested.partition):
        need(False, "PARTITION", list(offered.partition) or [""], list(requested.partition) or [""])
    return reasons


def written_representation(offered: Qos) -> int:
    """The representation of a writer's samples: the first one offered; XCDR1 by default (XTypes 1.3 §7.6.3.1.1)."""
    return (offered.data_representation or (DataRepresentation.XCDR1,))[0]


def _presentation(qos: Qos) -> str:
    access = [name for name in ("coherent", "ordered") if getattr(qos, f"{name}_access")]
    return f"{qos.presentation_scope.name} scope, {' and '.join(access) or 'no coherent or ordered'} access"


def _representations(ids: tuple[int, ...]) -> str:
    known = {int(r): r.name for r in DataRepresentation}
    return "[" + ", ".join(known.get(int(i), str(int(i))) for i in ids) + "]"


def _show(value: object) -> str:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, int) and not isinstance(value, bool):
        return "infinite" if value >= INFINITE else f"{value / 1e9:g}s"
    return str(value)
