"""The type of a topic: from the options, otherwise from the topic's peers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ..options import Payload, Settings
from ..transport.errors import OptionError, TypeDefinitionError, UnknownTypeError, UsageError
from ..transport.qos import TypeConsistency
from ..transport.structure import is_keyed
from ..transport.types.model import Extensibility, Primitive, PrimitiveKind, Struct, traverse
from ..transport.types.ros_names import dds_type_name
from ..transport.value_classes import value
from .type_files import struct_of_file

if TYPE_CHECKING:
    from ..transport.net.node import Node
    from ..transport.net.topic_types import AnnouncedType
    from ..transport.protocol.discovery.topic_selection import TopicSelection
    from ..transport.protocol.participant.participant import RemoteEndpoint

#: sensor_msgs/msg/Imu, sensor_msgs/Imu, and the DDS name of such a type.
_ROS_NAME: Final = re.compile(r"\w+/((msg|srv|action)/)?\w+|\w+::(msg|srv|action)::dds_::\w+_")


@value
class TopicType:
    """A topic's type and its name for peers. ``struct`` is None if payloads are not decoded.

    ``certain``: every annotation of the type is known, so that it can be announced to peers that compare types.
    ``writer_types``: it stands for all types that the writers of a log announced, which may differ.
    """

    type_name: str
    keyed: bool
    struct: Struct | None
    certain: bool = True
    inferred: bool = False


def given_type(settings: Settings) -> TopicType | None:
    """The type of ``type.file``, or of a ROS 2 name in ``type``; None if neither is set."""
    if settings.type_file is not None:
        found = type_of_file(
            settings.type_file,
            settings.type,
            settings.type_extensibility,
            settings.type_name,
            include_path=settings.type_include_path,
        )
        if settings.ros is None or settings.type_name is not None:
            return found
        return replace(found, type_name=_ros_spelling(found.type_name))
    if settings.type is None or not is_ros_name(settings.type):
        return None
    from ..transport.types.ros import ros_type

    return _named(ros_type(settings.type, settings.ros_distribution), settings.type_name)


def _ros_spelling(name: str) -> str:
    """The type name that ROS 2 announces for an IDL struct, if the struct is a message of ROS 2."""
    try:
        return dds_type_name(name)
    except TypeDefinitionError:
        return name


def is_ros_name(text: str) -> bool:
    """Whether a text is the name of a ROS 2 type, as ROS 2 or DDS spells it."""
    return _ROS_NAME.fullmatch(text) is not None


def type_of_file(
    file: str,
    wanted: str | None,
    default: Extensibility | None = None,
    type_name: str | None = None,
    *,
    include_path: Iterable[str] = (),
) -> TopicType:
    """The struct ``wanted`` of a file.

    ``default`` is the extensibility of types that declare none. Without it they count as appendable, and the type is
    not certain.
    """
    folders = tuple(include_path)
    struct = struct_of_file(file, wanted, default or Extensibility.APPENDABLE, folders)
    certain = default is not None or struct == struct_of_file(file, wanted, Extensibility.FINAL, folders)
    return _named(struct, type_name, certain=certain)


def _named(struct: Struct, type_name: str | None, *, certain: bool = True) -> TopicType:
    if "::dds_::" in struct.name:
        # rosidl maps `byte` to octet, but rmw_cyclonedds announces uint8: such types match by name
        certain = not any(isinstance(t, Primitive) and t.kind is PrimitiveKind.BYTE for t in traverse(struct))
    return TopicType(type_name or struct.name, struct.is_keyed, struct, certain)


def discovered_type(settings: Settings) -> TopicType:
    """The type that the topic's peers announce; waits for them with a temporary participant.

    Raises OptionError, which describes what is on the domain instead.
    """
    from ..options.participants import node_config
    from ..transport.net.node import Node
    from ..transport.receiver.addresses import with_reserved_ports

    config = replace(node_config(settings), resolve_types=True, ros=None)
    node = Node.open(with_reserved_ports(config, settings.log_dir)).start()
    try:
        found = type_announced_to(node, settings)
    finally:
        node.close()
    if found.struct is not None:
        _check_printable(found.struct)
    return found


def common_type_of_topics(settings: Settings) -> TopicType | None:
    """The type of all topics that are read together, as their peers announce it; None: their types differ.

    Waits for the peers with a temporary participant. Raises OptionError if no peer announces a type.
    """
    from ..options.explanations import hint_of
    from ..options.participants import node_config
    from ..transport.net.node import Node
    from ..transport.net.topic_types import common_type
    from ..transport.receiver.addresses import with_reserved_ports

    assert settings.topics is not None
    config = replace(node_config(settings), resolve_types=True, ros=None)
    node = Node.open(with_reserved_ports(config, settings.log_dir)).start()
    try:
        found = common_type(_announced_of_topics(node, settings, settings.topics), settings.topics)
    except UnknownTypeError as error:
        error.hint = f"{hint_of(error)}, or set payload=binary"
        raise OptionError("type.file", None, str(error)) from None
    finally:
        node.close()
    if found is None or found.struct is None:
        return None
    _check_printable(found.struct)
    return TopicType(found.type_name, found.keyed, found.struct)


def _announced_of_topics(node: Node, settings: Settings, topics: TopicSelection) -> list[AnnouncedType]:
    """The types that peers on the topics announce. Those of ROS 2 announce names and hashes of known definitions."""
    from ..options.texts import seconds
    from ..transport.net.topic_types import await_types

    wait = partial(
        await_types,
        node.directory,
        topics,
        timeout=seconds(settings.type_discovery_timeout),
        type_name=settings.type_name or settings.type,
        stopping=lambda: node.is_closed,
    )
    if settings.ros is not None:
        named = wait(need_struct=False)
        if len({each.type_name for each in named}) > 1:
            return named
        named = [
            each if each.struct is not None else _known(each, settings.ros_distribution) for each in named
        ]
        if all(each.struct is not None for each in named):
            return named
    return wait()


def _known(writer_types: AnnouncedType, distribution: str) -> AnnouncedType:
    found = known_by_name(writer_types.endpoint, distribution)
    return writer_types if found is None else replace(writer_types, struct=found.struct)


def type_announced_to(node: Node, settings: Settings) -> TopicType:
    """The type that the topic's peers announce to a participant which asks for types (``resolve_types``); waits.

    Raises OptionError saying what was seen on the domain instead.
    """
    from ..options.explanations import hint_of
    from ..options.texts import seconds
    from ..transport.net.topic_types import await_type

    need_struct = settings.payload is Payload.CDR
    wait = partial(
        await_type,
        node.directory,
        settings.topic,
        timeout=seconds(settings.type_discovery_timeout),
        type_name=settings.type_name or settings.type,
        stopping=lambda: node.is_closed,
    )
    try:
        if need_struct and settings.ros is not None:
            named = wait(need_struct=False)
            if (
                named.struct is None
                and (known := known_by_name(named.endpoint, settings.ros_distribution)) is not None
            ):
                return known
        found = wait(need_struct=need_struct)
    except UnknownTypeError as error:
        option = "type" if settings.type is not None else "type.file"
        error.hint = hint_of(error)
        raise OptionError(option, settings.type, str(error)) from None
    return TopicType(found.type_name, found.keyed, found.struct)


def known_by_name(peer: RemoteEndpoint, distribution: str) -> TopicType | None:
    """The ROS 2 definition with the type name and the hash that a peer announces; None: rosbags does not know the
    name.

    Raises OptionError if the name is known but no definition has that hash.
    """
    from ..transport.types.ros import distributions, ros_type
    from ..transport.types.ros_hash import hash_in, type_hash

    name, announced = peer.type_name, hash_in(peer.qos.user_data)
    try:
        releases = [distribution, *reversed(distributions())]
    except ImportError:
        return None
    seen = False
    for release in releases if is_ros_name(name) else ():
        try:
            struct = ros_type(name, release)
        except TypeDefinitionError:
            continue
        if announced is None or type_hash(struct) == announced:
            return replace(_named(struct, name), keyed=is_keyed(peer.guid.entity))
        seen = True
    if not seen:
        return None
    who = peer.participant_name or peer.guid
    fix = f"no ROS 2 distribution has the {name} that {who} announces, {announced}: give its .msg file"
    raise OptionError("type.file", None, fix)


def _check_printable(struct: Struct) -> None:
    """Raise OptionError if IDL, in which receivers get types, cannot express it: names that differ only in case."""
    from ..transport.types.idl.parser import parse_idl
    from ..transport.types.idl.printer import print_idl

    try:
        parse_idl(print_idl(struct), struct.name)
    except TypeDefinitionError as error:
        raise OptionError(
            "payload", "cdr", f"IDL cannot express the topic's type: {error}; use binary"
        ) from None


# --- one type for a topic whose writers have several ----------------------------------------------

#: Maximum number of types of one topic that are compared with each other.
TYPES_MAX: Final = 32
#: A reader's and a writer's type, and why the reader cannot read the writer.
Clash = tuple[Struct, Struct, tuple[str, ...]]


def one_for_all(writer_types: Iterable[Struct], consistency: TypeConsistency) -> tuple[Struct, Clash | None]:
    """The type with most members as which all other types can be read; the first clash if there is no such type.

    Raises UsageError for more than ``TYPES_MAX`` types.
    """
    from ..transport.types.xtypes.assignability import incompatibilities_of_types

    candidates = sorted(writer_types, key=lambda struct: -len(struct.members))
    if len(candidates) > TYPES_MAX:
        raise UsageError(f"{len(candidates)} types: at most {TYPES_MAX} can be compared")
    clashes: list[Clash] = []
    for reader in candidates:
        for writer in candidates:
            if found := incompatibilities_of_types(writer, reader, consistency):
                clashes.append((reader, writer, tuple(found)))
                break
        else:
            return reader, None
    return candidates[0], clashes[0]
