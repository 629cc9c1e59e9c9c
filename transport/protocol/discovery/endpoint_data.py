"""DiscoveredWriterData and DiscoveredReaderData and their parameter list (RTPS 2.5 §8.5.4.4, table 9.14)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from ...errors import DecodeError, DropReason
from ...limits import MESSAGE_SIZE_LEAST, TERM_WINDOW_LEAST, UDP_PAYLOAD_MAX
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
from ...structure import (
    ENTITYID_PARTICIPANT,
    PROTOCOL_VERSION,
    VENDOR_ID,
    Guid,
    Locator,
    is_builtin,
    is_writer,
)
from ...types.model import Struct
from ...types.xtypes.information import TypeInformation, decode_type_information, encode_type_information
from ...types.xtypes.type_object_v1 import decompress_type_object, struct_of_v1
from ...wire import parameters as p
from ..endpoint_info import NO_ABILITIES, Abilities, ContentFilterProperty
from .participant_data import locators_of, refuse_not_understood, required

#: Ours, so vendor-specific (RTPS 2.5 §9.6.4): u32 flags, u32 message_size_max, u32 term window. Other vendors skip it.
_PID_ABILITIES: Final = 0x8A01
_BATCHES, _NO_POSITIVE_ACKS, _STATUS_MESSAGES = 0x1, 0x8, 0x10
#: Ours: u64 token, and the name of the publication log as a string.
_PID_PUBLICATION_LOG: Final = 0x8A02
#: Types that another one is made of are listed up to here, so that an announcement fits one small datagram.
_DEPENDENTS_ANNOUNCED: Final = 8
_CODECS: Final = {0x2: "lz4", 0x4: "zstd"}

_UNDERSTOOD: Final = frozenset(
    {
        p.PID_ENDPOINT_GUID,
        p.PID_PARTICIPANT_GUID,
        p.PID_TOPIC_NAME,
        p.PID_TYPE_NAME,
        p.PID_PROTOCOL_VERSION,
        p.PID_VENDOR_ID,
        p.PID_UNICAST_LOCATOR,
        p.PID_MULTICAST_LOCATOR,
        p.PID_EXPECTS_INLINE_QOS,
        p.PID_RELIABILITY,
        p.PID_DURABILITY,
        p.PID_DURABILITY_SERVICE,
        p.PID_HISTORY,
        p.PID_RESOURCE_LIMITS,
        p.PID_DEADLINE,
        p.PID_LATENCY_BUDGET,
        p.PID_LIFESPAN,
        p.PID_LIVELINESS,
        p.PID_OWNERSHIP,
        p.PID_OWNERSHIP_STRENGTH,
        p.PID_DESTINATION_ORDER,
        p.PID_PRESENTATION,
        p.PID_PARTITION,
        p.PID_TIME_BASED_FILTER,
        p.PID_TRANSPORT_PRIORITY,
        p.PID_DATA_REPRESENTATION,
        p.PID_TYPE_CONSISTENCY_ENFORCEMENT,
        p.PID_TYPE_MAX_SIZE_SERIALIZED,
        p.PID_USER_DATA,
        p.PID_TOPIC_DATA,
        p.PID_GROUP_DATA,
        p.PID_GROUP_GUID,
        p.PID_GROUP_ENTITY_ID,
        p.PID_ENTITY_NAME,
        p.PID_PROPERTY_LIST,
        p.PID_KEY_HASH,
        p.PID_CONTENT_FILTER_PROPERTY,
        # Who does not understand a type compares its name.
        p.PID_TYPE_ID_V1,
        p.PID_TYPE_OBJECT_V1,
        p.PID_TYPE_INFORMATION,
    }
)


@dataclass(frozen=True, slots=True)
class TypeObjectV1:
    """A TypeObject as XTypes 1.1 announces it, and RTI Connext compressed; it is read when somebody wants the type."""

    value: bytes
    little_endian: bool
    compressed: bool

    def uncompressed(self) -> TypeObjectV1:
        """Raises DecodeError."""
        if not self.compressed:
            return self
        return TypeObjectV1(decompress_type_object(self.value, self.little_endian), self.little_endian, False)

    def struct(self) -> Struct:
        """Raises DecodeError."""
        return struct_of_v1(self.uncompressed().value, self.little_endian)


@dataclass(frozen=True, slots=True)
class EndpointData:
    """A reader or a writer of a topic; which one is in its entity id."""

    guid: Guid
    topic: str
    type_name: str
    qos: Qos
    unicast: tuple[Locator, ...] = ()  # none: the participant's default ones
    multicast: tuple[Locator, ...] = ()
    abilities: Abilities = NO_ABILITIES
    type_information: TypeInformation | None = None
    type_object_v1: TypeObjectV1 | None = None
    content_filter: ContentFilterProperty | None = None
    #: Why the type information that was there is of no use.
    type_error: str = ""

    @property
    def is_writer(self) -> bool:
        return is_writer(self.guid.entity)


def encode_endpoint(data: EndpointData) -> bytes:
    """The payload of an SEDP sample, encapsulation header included.

    All policies are always sent: what an absent one stands for is not agreed upon. Fast DDS 2.9 takes an
    absent DURABILITY for TRANSIENT_LOCAL. Type information only of a type that TypeLookup answers for: Cyclone DDS
    drops an endpoint whose type it cannot resolve, and compares the names when there is none.
    """
    qos, write = data.qos, p.encode_u32
    parameters: list[tuple[int, bytes]] = [
        (p.PID_ENDPOINT_GUID, p.encode_guid(data.guid)),
        (p.PID_PARTICIPANT_GUID, data.guid.prefix + ENTITYID_PARTICIPANT),
        (p.PID_TOPIC_NAME, p.encode_string(data.topic)),
        (p.PID_TYPE_NAME, p.encode_string(data.type_name)),
        (p.PID_PROTOCOL_VERSION, bytes(PROTOCOL_VERSION) + bytes(2)),
        (p.PID_VENDOR_ID, VENDOR_ID + bytes(2)),
        *((p.PID_UNICAST_LOCATOR, p.encode_locator(locator)) for locator in data.unicast),
        *((p.PID_MULTICAST_LOCATOR, p.encode_locator(locator)) for locator in data.multicast),
        (p.PID_RELIABILITY, write(qos.reliability) + p.encode_duration(qos.max_blocking_time)),
        (p.PID_DURABILITY, write(qos.durability)),
        (p.PID_HISTORY, write(qos.history) + p.encode_i32(qos.history_depth)),
        (
            p.PID_RESOURCE_LIMITS,
            p.encode_i32(qos.max_samples)
            + p.encode_i32(qos.max_instances)
            + p.encode_i32(qos.max_samples_per_instance),
        ),
        (p.PID_DEADLINE, p.encode_duration(qos.deadline)),
        (p.PID_LATENCY_BUDGET, p.encode_duration(qos.latency_budget)),
        (p.PID_LIVELINESS, write(qos.liveliness) + p.encode_duration(qos.liveliness_lease_duration)),
        (p.PID_OWNERSHIP, write(qos.ownership)),
        (p.PID_DESTINATION_ORDER, write(qos.destination_order)),
        (
            p.PID_PRESENTATION,
            write(qos.presentation_scope) + bytes((qos.coherent_access, qos.ordered_access, 0, 0)),
        ),
        (p.PID_PARTITION, p.encode_strings(qos.partition)),
        (p.PID_DATA_REPRESENTATION, p.encode_i16_sequence(qos.data_representation)),
        (p.PID_USER_DATA, p.encode_octets(qos.user_data)),
        (p.PID_TOPIC_DATA, p.encode_octets(qos.topic_data)),
        (p.PID_GROUP_DATA, p.encode_octets(qos.group_data)),
    ]
    if data.is_writer:
        parameters.append((p.PID_LIFESPAN, p.encode_duration(qos.lifespan)))
        parameters.append((p.PID_OWNERSHIP_STRENGTH, p.encode_i32(qos.ownership_strength)))
    else:
        parameters.append((p.PID_TIME_BASED_FILTER, p.encode_duration(qos.time_based_filter)))
        parameters.append(
            (p.PID_TYPE_CONSISTENCY_ENFORCEMENT, _encode_type_consistency(qos.type_consistency))
        )
        if (given := data.content_filter) is not None:
            texts = (given.name, given.related_topic, given.filter_class, given.expression)
            parameters.append(
                (p.PID_CONTENT_FILTER_PROPERTY, p.encode_content_filter(texts, given.parameters))
            )
    if data.type_information is not None:
        parameters.append((p.PID_TYPE_INFORMATION, _encode_type_information(data.type_information)))
    if data.abilities != NO_ABILITIES:
        parameters.append((_PID_ABILITIES, _encode_abilities(data.abilities)))
    if log := data.abilities.publication_log:
        token = data.abilities.publication_token.to_bytes(8, "little")
        parameters.append((_PID_PUBLICATION_LOG, token + p.encode_string(log)))
    return p.encode_parameter_payload(parameters)


def decode_endpoint(payload: bytes | memoryview, *, writer: bool) -> EndpointData:
    """What the payload of an SEDP publication (``writer``) or subscription says. Raises DecodeError."""
    parameters = p.decode_parameter_payload(memoryview(payload))
    refuse_not_understood(parameters, _UNDERSTOOD)
    little = parameters.little_endian
    guid = p.decode_guid(required(parameters, p.PID_ENDPOINT_GUID))
    if is_builtin(guid.entity) or is_writer(guid.entity) != writer:
        raise DecodeError(DropReason.BAD_PARAMETER, f"endpoint {guid} on the wrong topic")
    information, error = _decode_type_information(parameters)
    return EndpointData(
        guid,
        p.decode_string(required(parameters, p.PID_TOPIC_NAME), little),
        p.decode_string(required(parameters, p.PID_TYPE_NAME), little),
        _decode_qos(parameters, writer),
        locators_of(parameters, p.PID_UNICAST_LOCATOR),
        locators_of(parameters, p.PID_MULTICAST_LOCATOR),
        _decode_abilities(parameters),
        information,
        _type_object_v1(parameters),
        _decode_content_filter(parameters),
        error,
    )


def encode_endpoint_key(guid: Guid) -> bytes:
    """The serialized key of an endpoint: what a dispose carries (RTPS 2.5 §9.6.2.1)."""
    return p.encode_parameter_payload([(p.PID_ENDPOINT_GUID, p.encode_guid(guid))])


def decode_endpoint_key(payload: bytes | memoryview) -> Guid:
    """Which endpoint a dispose means. Raises DecodeError."""
    return p.decode_guid(required(p.decode_parameter_payload(memoryview(payload)), p.PID_ENDPOINT_GUID))


# --- what only ours say ---------------------------------------------------------------------------


def _encode_abilities(abilities: Abilities) -> bytes:
    flags = (_BATCHES if abilities.batches else 0) | (_NO_POSITIVE_ACKS if abilities.no_positive_acks else 0)
    flags |= _STATUS_MESSAGES if abilities.status_messages else 0
    flags |= sum(bit for bit, codec in _CODECS.items() if codec in abilities.codecs)
    window = min(abilities.term_window, 0xFFFF_FFFF)
    return p.encode_u32(flags) + p.encode_u32(abilities.message_size_max) + p.encode_u32(window)


def _decode_abilities(parameters: p.ParameterList) -> Abilities:
    value, little = parameters.get(_PID_ABILITIES), parameters.little_endian
    vendor = parameters.get(p.PID_VENDOR_ID)
    if value is None or len(value) < 8 or vendor is None or bytes(vendor[:2]) != VENDOR_ID:
        return NO_ABILITIES
    flags, log, token = p.decode_u32(value, little), "", 0
    if (named := parameters.get(_PID_PUBLICATION_LOG)) is not None and len(named) > 8:
        log, token = p.decode_string(named[8:], little), int.from_bytes(named[:8], "little")
    return Abilities(
        bool(flags & _BATCHES),
        frozenset(codec for bit, codec in _CODECS.items() if flags & bit),
        max(MESSAGE_SIZE_LEAST, min(p.decode_u32(value[4:8], little), UDP_PAYLOAD_MAX)),
        bool(flags & _NO_POSITIVE_ACKS),
        bool(flags & _STATUS_MESSAGES),
        _decode_term_window(value, little),
        log,
        token,
    )


def _decode_term_window(value: bytes, little: bool) -> int:
    """However small it is said to be: nobody is told of every few bytes."""
    window = p.decode_u32(value[8:12], little) if len(value) >= 12 else 0
    return max(window, TERM_WINDOW_LEAST) if window else 0


# --- types and filters ----------------------------------------------------------------------------


def _encode_type_information(information: TypeInformation) -> bytes:
    """All dependencies are counted; who wants to know the others asks for them."""
    minimal, complete = (
        None if form is None else replace(form, dependents=form.dependents[:_DEPENDENTS_ANNOUNCED])
        for form in (information.minimal, information.complete)
    )
    return encode_type_information(TypeInformation(minimal, complete))


def _decode_type_information(parameters: p.ParameterList) -> tuple[TypeInformation | None, str]:
    """The type information, or why it cannot be used: Fast DDS 2 sends some in an encoding of its own."""
    value = parameters.get(p.PID_TYPE_INFORMATION)
    if value is None:
        return None, ""
    try:
        return decode_type_information(value), ""
    except DecodeError as error:
        return None, error.detail or str(error)


def _type_object_v1(parameters: p.ParameterList) -> TypeObjectV1 | None:
    for pid in (p.PID_TYPE_OBJECT_V1, p.PID_TYPE_OBJECT_COMPRESSED):
        if (value := parameters.get(pid)) is not None:
            return TypeObjectV1(value, parameters.little_endian, pid == p.PID_TYPE_OBJECT_COMPRESSED)
    return None


def _decode_content_filter(parameters: p.ParameterList) -> ContentFilterProperty | None:
    """None also for one that cannot be read: whoever filters is the reader, and it filters again."""
    value = parameters.get(p.PID_CONTENT_FILTER_PROPERTY)
    if value is None:
        return None
    try:
        texts, arguments = p.decode_content_filter(value, parameters.little_endian)
    except DecodeError:
        return None
    return ContentFilterProperty(*texts, arguments)


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
    """Kinds that vendors add (RTI: AUTO_TYPE_COERCION) are taken as the default one."""
    number, flags = p.decode_type_consistency(value, little)
    disallowed = number == TypeConsistencyKind.DISALLOW_TYPE_COERCION
    return TypeConsistency(TypeConsistencyKind(not disallowed), *flags)


# --- QoS ------------------------------------------------------------------------------------------

_E = TypeVar("_E", bound=enum.IntEnum)


def _decode_qos(parameters: p.ParameterList, writer: bool) -> Qos:
    """The policies that are there; an absent one has its DDS default (RTPS 2.5 §9.6.2.2.1)."""
    little, get = parameters.little_endian, parameters.get
    qos = Qos(reliability=ReliabilityKind.RELIABLE if writer else ReliabilityKind.BEST_EFFORT)

    def kind(value: bytes, of: type[_E]) -> _E:
        number = p.decode_u32(value, little)
        try:
            return of(number)
        except ValueError:
            raise DecodeError(DropReason.BAD_PARAMETER, f"{of.__name__} {number}") from None

    def duration(pid: int, default: int) -> int:
        value = get(pid)
        return default if value is None else p.decode_duration(value, little)

    def octets(pid: int) -> bytes:
        value = get(pid)
        return b"" if value is None else p.decode_octets(value, little)

    qos = replace(
        qos,
        deadline=duration(p.PID_DEADLINE, qos.deadline),
        latency_budget=duration(p.PID_LATENCY_BUDGET, qos.latency_budget),
        lifespan=duration(p.PID_LIFESPAN, qos.lifespan),
        time_based_filter=duration(p.PID_TIME_BASED_FILTER, qos.time_based_filter),
        user_data=octets(p.PID_USER_DATA),
        topic_data=octets(p.PID_TOPIC_DATA),
        group_data=octets(p.PID_GROUP_DATA),
    )
    if (value := get(p.PID_RELIABILITY)) is not None:
        qos = replace(
            qos,
            reliability=kind(value, ReliabilityKind),
            max_blocking_time=p.decode_duration(value[4:], little),
        )
    if (value := get(p.PID_DURABILITY)) is not None:
        qos = replace(qos, durability=kind(value, DurabilityKind))
    if (value := get(p.PID_HISTORY)) is not None:
        qos = replace(qos, history=kind(value, HistoryKind), history_depth=p.decode_i32(value[4:], little))
    if (value := get(p.PID_RESOURCE_LIMITS)) is not None:
        samples, instances, per_instance = (p.decode_i32(value[i : i + 4], little) for i in (0, 4, 8))
        qos = replace(
            qos, max_samples=samples, max_instances=instances, max_samples_per_instance=per_instance
        )
    if (value := get(p.PID_LIVELINESS)) is not None:
        qos = replace(
            qos,
            liveliness=kind(value, LivelinessKind),
            liveliness_lease_duration=p.decode_duration(value[4:], little),
        )
    if (value := get(p.PID_OWNERSHIP)) is not None:
        qos = replace(qos, ownership=kind(value, OwnershipKind))
    if (value := get(p.PID_OWNERSHIP_STRENGTH)) is not None:
        qos = replace(qos, ownership_strength=p.decode_i32(value, little))
    if (value := get(p.PID_DESTINATION_ORDER)) is not None:
        qos = replace(qos, destination_order=kind(value, DestinationOrderKind))
    if (value := get(p.PID_PRESENTATION)) is not None:
        qos = replace(
            qos,
            presentation_scope=kind(value, PresentationScope),
            coherent_access=p.decode_bool(value[4:5]),
            ordered_access=p.decode_bool(value[5:6]),
        )
    if (value := get(p.PID_PARTITION)) is not None:
        qos = replace(qos, partition=p.decode_strings(value, little))
    if (value := get(p.PID_DATA_REPRESENTATION)) is not None:
        qos = replace(qos, data_representation=p.decode_i16_sequence(value, little))
    if (value := get(p.PID_TYPE_CONSISTENCY_ENFORCEMENT)) is not None:
        qos = replace(qos, type_consistency=_decode_type_consistency(value, little))
    return qos
