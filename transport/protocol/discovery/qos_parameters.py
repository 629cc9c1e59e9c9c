"""QoS policies as parameters of discovery data: one table, read two ways (RTPS 2.5 table 9.14)."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ...errors import DecodeError, DropReason
from ...qos import (
    DestinationOrderKind,
    DurabilityKind,
    HistoryKind,
    LivelinessKind,
    OwnershipKind,
    PresentationScope,
    Qos,
    ReliabilityKind,
    TypeConsistency,
    TypeConsistencyKind,
)
from ...structure import INFINITE
from ...wire import parameters as p

#: LENGTH_UNLIMITED on the wire.
_LENGTH_UNLIMITED: Final = -1
#: RTI Connext's access scope of readers that accept whatever scope each writer offers.
_HIGHEST_OFFERED: Final = 3


class _Codec(NamedTuple):
    """How a value is encoded, and how it is decoded in the byte order ``little``."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes, bool], Any]
    #: Encoded bytes, if another value may follow.
    size: int = 0


class _Policy(NamedTuple):
    """A parameter, and the fields of Qos that it holds, in order."""

    pid: int
    fields: tuple[tuple[str, _Codec], ...]


def _kind(of: type[enum.IntEnum]) -> _Codec:
    def decode(value: bytes, little: bool) -> enum.IntEnum:
        number = p.decode_u32(value, little)
        try:
            return of(number)
        except ValueError:
            raise DecodeError(DropReason.BAD_PARAMETER, f"{of.__name__} {number}") from None

    return _Codec(p.encode_u32, decode, 4)


def _encode_type_consistency(policy: TypeConsistency) -> bytes:
    flags = (
        policy.ignore_sequence_bounds,
        policy.ignore_string_bounds,
        policy.ignore_member_names,
        policy.prevent_type_widening,
        policy.force_type_validation,
    )
    return p.encode_type_consistency(policy.kind, flags)


def _decode_type_consistency(value: bytes, little: bool) -> TypeConsistency:
    """Decode the policy; vendor-specific kinds (RTI: AUTO_TYPE_COERCION) count as the default kind."""
    number, flags = p.decode_type_consistency(value, little)
    disallowed = number == TypeConsistencyKind.DISALLOW_TYPE_COERCION
    return TypeConsistency(TypeConsistencyKind(not disallowed), *flags)


def _encode_limit(limit: int) -> bytes:
    return p.encode_i32(_LENGTH_UNLIMITED if limit == INFINITE else limit)


def _decode_limit(value: bytes, little: bool) -> int:
    limit = p.decode_i32(value, little)
    return INFINITE if limit == _LENGTH_UNLIMITED else limit


def _decode_scope(value: bytes, little: bool) -> int:
    number = p.decode_u32(value, little)
    return number if number == _HIGHEST_OFFERED else _kind(PresentationScope).decode(value, little)


_BOOLEAN: Final = _Codec(lambda flag: bytes((flag,)), lambda value, little: p.decode_bool(value), 1)
_LONG: Final = _Codec(p.encode_i32, p.decode_i32, 4)
_LIMIT: Final = _Codec(_encode_limit, _decode_limit, 4)
_DURATION: Final = _Codec(p.encode_duration, p.decode_duration, 8)
_OCTETS: Final = _Codec(p.encode_octets, p.decode_octets)
_SHORTS: Final = _Codec(p.encode_i16_sequence, p.decode_i16_sequence)
_STRINGS: Final = _Codec(p.encode_strings, p.decode_strings)
_TYPE_CONSISTENCY: Final = _Codec(_encode_type_consistency, _decode_type_consistency)

_OF_BOTH: Final = (
    _Policy(p.PID_RELIABILITY, (("reliability", _kind(ReliabilityKind)), ("max_blocking_time", _DURATION))),
    _Policy(p.PID_DURABILITY, (("durability", _kind(DurabilityKind)),)),
    _Policy(p.PID_HISTORY, (("history", _kind(HistoryKind)), ("history_depth", _LONG))),
    _Policy(
        p.PID_RESOURCE_LIMITS,
        (("max_samples", _LIMIT), ("max_instances", _LIMIT), ("max_samples_per_instance", _LIMIT)),
    ),
    _Policy(p.PID_DEADLINE, (("deadline", _DURATION),)),
    _Policy(p.PID_LATENCY_BUDGET, (("latency_budget", _DURATION),)),
    _Policy(
        p.PID_LIVELINESS, (("liveliness", _kind(LivelinessKind)), ("liveliness_lease_duration", _DURATION))
    ),
    _Policy(p.PID_OWNERSHIP, (("ownership", _kind(OwnershipKind)),)),
    _Policy(p.PID_DESTINATION_ORDER, (("destination_order", _kind(DestinationOrderKind)),)),
    _Policy(
        p.PID_PRESENTATION,
        (
            ("presentation_scope", _Codec(p.encode_u32, _decode_scope, 4)),
            ("coherent_access", _BOOLEAN),
            ("ordered_access", _BOOLEAN),
        ),
    ),
    _Policy(p.PID_PARTITION, (("partition", _STRINGS),)),
    _Policy(p.PID_DATA_REPRESENTATION, (("data_representation", _SHORTS),)),
    _Policy(p.PID_USER_DATA, (("user_data", _OCTETS),)),
    _Policy(p.PID_TOPIC_DATA, (("topic_data", _OCTETS),)),
    _Policy(p.PID_GROUP_DATA, (("group_data", _OCTETS),)),
)
_OF_WRITERS: Final = (
    _Policy(p.PID_LIFESPAN, (("lifespan", _DURATION),)),
    _Policy(p.PID_OWNERSHIP_STRENGTH, (("ownership_strength", _LONG),)),
)
_OF_READERS: Final = (
    _Policy(p.PID_TIME_BASED_FILTER, (("time_based_filter", _DURATION),)),
    _Policy(p.PID_TYPE_CONSISTENCY_ENFORCEMENT, (("type_consistency", _TYPE_CONSISTENCY),)),
)
_ALL: Final = (*_OF_BOTH, *_OF_WRITERS, *_OF_READERS)

QOS_PIDS: Final = frozenset(policy.pid for policy in _ALL)


def encode_qos(qos: Qos, *, writer: bool) -> list[tuple[int, bytes]]:
    """Encode all policies, because vendors disagree about the defaults of absent ones: Fast DDS 2.9 takes an absent
    DURABILITY for TRANSIENT_LOCAL."""
    return [
        (pid, b"".join(codec.encode(getattr(qos, name)) for name, codec in fields))
        for pid, fields in (*_OF_BOTH, *(_OF_WRITERS if writer else _OF_READERS))
    ]


def decode_qos(parameters: p.ParameterList, *, writer: bool) -> Qos:
    """The policies of a parameter list; an absent one has DDS's default (RTPS 2.5 §9.6.2.2.1). Raises DecodeError."""
    policies: dict[str, Any] = {}
    for pid, fields in _ALL:
        value = parameters.get(pid)
        if value is not None:
            for name, codec in fields:
                policies[name] = codec.decode(value, parameters.little_endian)
                value = value[codec.size :]
    if policies.get("presentation_scope") == _HIGHEST_OFFERED:
        if writer:
            raise DecodeError(DropReason.BAD_PARAMETER, f"PresentationScope {_HIGHEST_OFFERED} of a writer")
        policies["presentation_scope"] = PresentationScope.INSTANCE  # which every offer satisfies
    default = Qos(reliability=ReliabilityKind.RELIABLE if writer else ReliabilityKind.BEST_EFFORT)
    return replace(default, **policies)
