"""DiscoveredWriterData and DiscoveredReaderData and their parameter list (RTPS 2.5 §8.5.4.4, table 9.14)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...errors import DecodeError, DropReason
from ...limits import MESSAGE_SIZE_LEAST, TERM_WINDOW_LEAST, UDP_PAYLOAD_MAX
from ...qos import Qos
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
from ...value_classes import value
from ...wire import parameters as p
from ..endpoint_info import NO_ABILITIES, Abilities, ContentFilterProperty
from .participant_data import locators_of, refuse_not_understood, required
from .qos_parameters import QOS_PIDS, decode_qos, encode_qos

#: Our vendor-specific parameter (RTPS 2.5 §9.6.4): u32 flags, u32 message_size_max, u32 term window, u32 heartbeat
#: period in microseconds. Other vendors skip it; our older versions send fewer of these fields, and skip those unknown
#: to them.
_PID_ABILITIES: Final = 0x8A01
_BATCHES, _NO_POSITIVE_ACKS, _STATUS_MESSAGES = 0x1, 0x8, 0x10
#: Our vendor-specific parameter: u64 token, and the name of the publication log as a string.
_PID_PUBLICATION_LOG: Final = 0x8A02
#: Maximum number of listed types on which a type depends, so that an announcement fits one small datagram.
_DEPENDENTS_ANNOUNCED: Final = 8
_MICROSECOND: Final = 1_000
_CODECS: Final = {0x2: "lz4", 0x4: "zstd"}

_UNDERSTOOD: Final = QOS_PIDS | frozenset(
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
        p.PID_DURABILITY_SERVICE,
        p.PID_TRANSPORT_PRIORITY,
        p.PID_TYPE_MAX_SIZE_SERIALIZED,
        p.PID_GROUP_GUID,
        p.PID_GROUP_ENTITY_ID,
        p.PID_ENTITY_NAME,
        p.PID_PROPERTY_LIST,
        p.PID_KEY_HASH,
        p.PID_CONTENT_FILTER_PROPERTY,
        # A peer that does not understand a type compares its name.
        p.PID_TYPE_ID_V1,
        p.PID_TYPE_OBJECT_V1,
        p.PID_TYPE_INFORMATION,
    }
)


@value
class TypeObjectV1:
    """A TypeObject as in XTypes 1.1, which RTI Connext compresses; it is read only when the type is needed."""

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


@value
class EndpointData:
    """A reader or a writer of a topic; its entity id shows which of the two."""

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
    #: Why the announced type information cannot be used; empty if it can.
    type_error: str = ""

    @property
    def is_writer(self) -> bool:
        return is_writer(self.guid.entity)


def encode_endpoint(data: EndpointData) -> bytes:
    """The payload of an SEDP sample, encapsulation header included.

    All policies are always sent. Type information is sent only for types that our TypeLookup service can send: Cyclone
    DDS drops an endpoint whose type it cannot resolve, and compares names if there is no type information.
    """
    parameters: list[tuple[int, bytes]] = [
        (p.PID_ENDPOINT_GUID, p.encode_guid(data.guid)),
        (p.PID_PARTICIPANT_GUID, data.guid.prefix + ENTITYID_PARTICIPANT),
        (p.PID_TOPIC_NAME, p.encode_string(data.topic)),
        (p.PID_TYPE_NAME, p.encode_string(data.type_name)),
        (p.PID_PROTOCOL_VERSION, bytes(PROTOCOL_VERSION) + bytes(2)),
        (p.PID_VENDOR_ID, VENDOR_ID + bytes(2)),
        *((p.PID_UNICAST_LOCATOR, p.encode_locator(locator)) for locator in data.unicast),
        *((p.PID_MULTICAST_LOCATOR, p.encode_locator(locator)) for locator in data.multicast),
        *encode_qos(data.qos, writer=data.is_writer),
    ]
    if not data.is_writer and (given := data.content_filter) is not None:
        parameters.append((p.PID_CONTENT_FILTER_PROPERTY, _encode_content_filter(given)))
    if data.type_information is not None:
        parameters.append((p.PID_TYPE_INFORMATION, _encode_type_information(data.type_information)))
    if data.abilities != NO_ABILITIES:
        parameters.append((_PID_ABILITIES, _encode_abilities(data.abilities)))
    if log := data.abilities.publication_log:
        token = data.abilities.publication_token.to_bytes(8, "little")
        parameters.append((_PID_PUBLICATION_LOG, token + p.encode_string(log)))
    return p.encode_parameter_payload(parameters)


def decode_endpoint(payload: bytes | memoryview, *, writer: bool) -> EndpointData:
    """The endpoint that the payload of an SEDP publication (``writer``) or subscription holds. Raises DecodeError."""
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
        decode_qos(parameters, writer=writer),
        locators_of(parameters, p.PID_UNICAST_LOCATOR),
        locators_of(parameters, p.PID_MULTICAST_LOCATOR),
        _decode_abilities(parameters),
        information,
        _type_object_v1(parameters),
        _decode_content_filter(parameters),
        error,
    )


def encode_endpoint_key(guid: Guid) -> bytes:
    """The serialized key of an endpoint, as in a dispose message (RTPS 2.5 §9.6.2.1)."""
    return p.encode_parameter_payload([(p.PID_ENDPOINT_GUID, p.encode_guid(guid))])


def decode_endpoint_key(payload: bytes | memoryview) -> Guid:
    """The endpoint that a dispose refers to. Raises DecodeError."""
    return p.decode_guid(required(p.decode_parameter_payload(memoryview(payload)), p.PID_ENDPOINT_GUID))


# --- vendor-specific parameters of ours -----------------------------------------------------------


def _encode_abilities(abilities: Abilities) -> bytes:
    flags = (_BATCHES if abilities.batches else 0) | (_NO_POSITIVE_ACKS if abilities.no_positive_acks else 0)
    flags |= _STATUS_MESSAGES if abilities.status_messages else 0
    flags |= sum(bit for bit, codec in _CODECS.items() if codec in abilities.codecs)
    window = min(abilities.term_window, 0xFFFF_FFFF)
    period = min(-(-abilities.heartbeat_period // _MICROSECOND), 0xFFFF_FFFF)
    return b"".join(map(p.encode_u32, (flags, abilities.message_size_max, window, period)))


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
        p.decode_u32(value[12:16], little) * _MICROSECOND if len(value) >= 16 else 0,
        log,
        token,
    )


def _decode_term_window(value: bytes, little: bool) -> int:
    """The announced window, at least TERM_WINDOW_LEAST: a smaller one would need too many status messages."""
    window = p.decode_u32(value[8:12], little) if len(value) >= 12 else 0
    return max(window, TERM_WINDOW_LEAST) if window else 0


# --- types and filters ----------------------------------------------------------------------------


def announceable(given: ContentFilterProperty | None) -> ContentFilterProperty | None:
    """The filter if a parameter can hold it; None: only the reader itself filters."""
    return None if given is None or len(_encode_content_filter(given)) > p.VALUE_MAX else given


def _encode_content_filter(given: ContentFilterProperty) -> bytes:
    texts = (given.name, given.related_topic, given.filter_class, given.expression)
    return p.encode_content_filter(texts, given.parameters)


def _encode_type_information(information: TypeInformation) -> bytes:
    """Encode the count of all dependencies and a list of the first ones; peers can request the others."""
    minimal, complete = (
        None if form is None else replace(form, dependents=form.dependents[:_DEPENDENTS_ANNOUNCED])
        for form in (information.minimal, information.complete)
    )
    return encode_type_information(TypeInformation(minimal, complete))


def _decode_type_information(parameters: p.ParameterList) -> tuple[TypeInformation | None, str]:
    """The type information, or why it cannot be used: Fast DDS 2 sends some in its own encoding."""
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
    """None also for a filter that cannot be read: its reader filters anyway."""
    value = parameters.get(p.PID_CONTENT_FILTER_PROPERTY)
    if value is None:
        return None
    try:
        texts, arguments = p.decode_content_filter(value, parameters.little_endian)
    except DecodeError:
        return None
    return ContentFilterProperty(*texts, arguments)
