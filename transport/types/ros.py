"""ROS 2 interface definitions: ``.msg``, ``.srv`` and ``.action`` texts, and those of ROS 2 distributions by name.

Structs are named as ROS 2 announces them (:func:`~.ros_names.dds_type_name`). They are FINAL and have no key. As in
rosidl, ``byte`` is an octet, ``char`` is an uint8, and a message without fields gets one, because IDL has no empty
structs. Definitions of ROS 1 are read too, as far as ROS 2 has the types they use.

What ROS 2 writes differs from these types in two points. In XCDR1 it encodes a wstring as a count of characters with 32
bits for each, which the codec does not read: the codec's wstrings are those of XTypes. And rmw_cyclonedds writes 16
bytes, the client's id and a number, before each request and response.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ..errors import TypeDefinitionError, UsageError
from .model import (
    LENGTH_MAX,
    Array,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    WString,
)
from .ros_names import dds_type_name, ros_type_name
from .ros_values import check_value, default_note
from .type_size import TOO_LARGE, TypeSizes

if TYPE_CHECKING:
    from rosbags.typesys.store import Typestore

__all__ = ["distributions", "parse_definition", "parse_msg", "ros_type"]

#: The text of a message by name (``geometry_msgs/msg/Pose``); None if it is not known.
Definitions = Callable[[str], str | None]

PRIMITIVES: Final = {
    "bool": PrimitiveKind.BOOLEAN,
    "byte": PrimitiveKind.BYTE,
    "char": PrimitiveKind.UINT8,
    "int8": PrimitiveKind.INT8,
    "uint8": PrimitiveKind.UINT8,
    "int16": PrimitiveKind.INT16,
    "uint16": PrimitiveKind.UINT16,
    "int32": PrimitiveKind.INT32,
    "uint32": PrimitiveKind.UINT32,
    "int64": PrimitiveKind.INT64,
    "uint64": PrimitiveKind.UINT64,
    "float32": PrimitiveKind.FLOAT32,
    "float64": PrimitiveKind.FLOAT64,
}
#: Types that fields may name without a package, besides the messages of their own package.
_SHORT_NAMES: Final = {
    "Header": "std_msgs/msg/Header",
    "time": "builtin_interfaces/msg/Time",
    "duration": "builtin_interfaces/msg/Duration",
}
_EMPTY: Final = (Member("structure_needs_at_least_one_member", Primitive(PrimitiveKind.UINT8), 0),)

_LINE: Final = re.compile(r"(?P<type>[^\s#]+)\s+(?P<name>[A-Za-z]\w*)\s*(?P<rest>.*)", re.ASCII)
_TYPE: Final = re.compile(
    r"(?P<name>[A-Za-z]\w*(?:/\w+){0,2})(?:<=(?P<bound>\d+))?(?P<many>\[(?:(?P<most><=)?(?P<length>\d+))?\])?",
    re.ASCII,
)
_CONSTANT_NAME: Final = re.compile(r"[A-Z](_?[A-Z0-9])*_?", re.ASCII)

#: The line between the definitions of one text in MCAP files and rosbag2, and the heading of a definition.
_SEPARATOR: Final = re.compile(r"^={3,}[ \t]*$", re.MULTILINE)
_HEADING: Final = re.compile(r"\s*(MSG|IDL):[ \t]*(\S+)[ \t]*$", re.MULTILINE)
#: The line between the parts of a service or an action.
_PART: Final = re.compile(r"^---+[ \t]*$", re.MULTILINE)
_PARTS: Final = {"srv": ("Request", "Response"), "action": ("Goal", "Result", "Feedback")}
#: The event message that rosidl generates for a service, as a definition ({0} is package/kind/Name).
_SERVICE_EVENT: Final = (
    "service_msgs/ServiceEventInfo info\n{0}_Request[<=1] request\n{0}_Response[<=1] response\n"
)
#: The messages that rosidl generates for an action, which are those on the wire.
_ACTION_MESSAGES: Final = {
    "SendGoal_Request": "unique_identifier_msgs/UUID goal_id\n{0}_Goal goal\n",
    "SendGoal_Response": "bool accepted\nbuiltin_interfaces/Time stamp\n",
    "GetResult_Request": "unique_identifier_msgs/UUID goal_id\n",
    "GetResult_Response": "int8 status\n{0}_Result result\n",
    "FeedbackMessage": "unique_identifier_msgs/UUID goal_id\n{0}_Feedback feedback\n",
}


def parse_msg(text: str, name: str, *, definitions: Definitions | None = None) -> Struct:
    """The struct of a ``.msg`` text, called ``name`` (``my_package/msg/Status``).

    The text may hold the definitions it uses after lines of ``=``, each headed ``MSG: package/Name``, as in MCAP files
    and rosbag2. Other messages are those of ``definitions``, and then of ROS 2 Jazzy, if rosbags is installed.

    Raises TypeDefinitionError naming the definition and the line.
    """
    name = ros_type_name(name)
    own, others = _sections(text)
    return _read({name: own, **others}, name, definitions)


def parse_definition(
    text: str, name: str, wanted: str | None = None, *, definitions: Definitions | None = None
) -> Struct:
    """A struct of a ``.msg``, ``.srv`` or ``.action`` file; ``name``, ``my_package/srv/Add``, decides which.

    ``wanted`` names the struct: ``Add_Request``, ``Add_Response``, ``Add_Event``; ``Go_Goal``, ``Go_Result``,
    ``Go_Feedback`` and what travels, ``Go_SendGoal_Request``, ``Go_FeedbackMessage``, ...; a message file needs none.
    With a package before it, that is the file's package. Other messages: as for :func:`parse_msg`.

    Raises TypeDefinitionError naming the definition and the line.
    """
    package, kind, interface = ros_type_name(name).split("/")
    if wanted is not None and not wanted.isidentifier():
        package, _, wanted = ros_type_name(wanted).split("/")
    name = f"{package}/{kind}/{interface}"
    own, others = _sections(text)
    texts = {name: own} if kind == "msg" else _parts(own, name)
    found = f"{package}/{kind}/{wanted}" if wanted is not None else name
    if found not in texts:
        spelled = [each.split("/")[-1] for each in texts]
        hint = "" if wanted is None or wanted == interface else _nearest(wanted, spelled)
        raise TypeDefinitionError(f"{name} defines {', '.join(spelled)}: name one{hint}")
    return _read({**texts, **others}, found, definitions)


def ros_type(name: str, distribution: str = "jazzy") -> Struct:
    """A message of a ROS 2 distribution: ``sensor_msgs/msg/Imu``, ``sensor_msgs/Imu`` or DDS's
    ``sensor_msgs::msg::dds_::Imu_``.

    Raises UsageError if rosbags, which knows them, is not installed or does not know the distribution;
    TypeDefinitionError for a message it does not know.
    """
    try:
        known = distributions()
    except ImportError:
        raise UsageError(
            f"{name}: rosbags knows ROS 2's messages: pip install 'spark-rtps[ros]', or give the .msg file"
        ) from None
    if distribution not in known:
        raise UsageError(f"ROS 2 {distribution!r} is not known; known are {', '.join(known)}")
    wanted = ros_type_name(name)
    struct = _stored(wanted, distribution)
    if struct is None:
        hint = _nearest(wanted, _typestore(distribution).fielddefs)
        raise TypeDefinitionError(
            f"rosbags knows no message {wanted} of ROS 2 {distribution}; give the file that defines it{hint}"
        )
    return struct


def distributions() -> tuple[str, ...]:
    """The ROS 2 distributions rosbags knows, oldest first. Raises ImportError if it is not installed."""
    from rosbags.typesys import Stores

    return tuple(store.value.removeprefix("ros2_") for store in Stores if store.value.startswith("ros2_"))


def _nearest(wanted: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(wanted, list(names), n=1, cutoff=0.4)
    return f"; did you mean {near[0]}?" if near else ""


# --- texts -----------------------------------------------------------------------------------------


def _sections(text: str) -> tuple[str, dict[str, str]]:
    """The first definition, and the definitions with headings after it, by name."""
    first, *others = _SEPARATOR.split(text)
    heading = _HEADING.match(first)
    headed: dict[str, str] = {}
    for section in others:
        found = _HEADING.match(section)
        if found is None:
            raise TypeDefinitionError("a definition after a line of = must begin with MSG: package/Name")
        if found[1] == "MSG":  # definitions in IDL cannot be used; the error then names them as missing
            headed[ros_type_name(found[2])] = section[found.end() :]
    return first[heading.end() :] if heading else first, headed


def _parts(text: str, name: str) -> dict[str, str]:
    """The messages of a service or an action by name, including those that rosidl generates."""
    kind = name.split("/")[1]
    parts = _PART.split(text)
    if len(parts) != len(_PARTS[kind]):
        raise TypeDefinitionError(f"{name}: expected {' --- '.join(_PARTS[kind])}, found {len(parts)} parts")
    texts = {f"{name}_{part}": part_text for part, part_text in zip(_PARTS[kind], parts, strict=True)}
    services = [name]
    if kind == "action":
        services = [f"{name}_SendGoal", f"{name}_GetResult"]
        texts |= {f"{name}_{suffix}": text.format(name) for suffix, text in _ACTION_MESSAGES.items()}
    return texts | {f"{service}_Event": _SERVICE_EVENT.format(service) for service in services}


def _read(texts: dict[str, str], name: str, definitions: Definitions | None) -> Struct:
    def known(other: str) -> str | None:
        text = texts.get(other)
        return definitions(other) if text is None and definitions is not None else text

    try:
        return _MessageReader(known).struct(name, name)
    except RecursionError:
        raise TypeDefinitionError(f"{name}: nested too deeply") from None


class _MessageReader:
    """Reads messages and the messages that they use, each once."""

    def __init__(self, definitions: Definitions) -> None:
        self.definitions = definitions
        #: None while it is being read.
        self.structs: dict[str, Struct | None] = {}
        self.sizes = TypeSizes()

    def struct(self, name: str, where: str) -> Struct:
        """The message called ``name``, which is referred to at ``where``."""
        if name in self.structs:
            struct = self.structs[name]
            if struct is None:
                raise TypeDefinitionError(f"{where}: {name} contains itself")
            return struct
        self.structs[name] = None
        text = self.definitions(name)
        if text is not None:
            struct = Struct(dds_type_name(name), self.members(text, name))
            if self.sizes.is_too_large(struct):
                raise TypeDefinitionError(f"{name} is too large a type: {TOO_LARGE}")
        else:
            try:
                struct = _stored(name, "jazzy")
            except ImportError:
                struct = None
        if struct is None:
            raise TypeDefinitionError(
                f"{where}: {name} is not defined; lay its package beside this one's, as <package>/msg/<Name>.msg, "
                "or pip install 'spark-rtps[ros]' for ROS 2's own messages"
            )
        self.structs[name] = struct
        return struct

    def members(self, text: str, name: str) -> tuple[Member, ...]:
        members: list[Member] = []
        taken: set[str] = set()
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            where = f"{name}:{number}"
            found = _LINE.fullmatch(line)
            if found is None:
                raise TypeDefinitionError(f"{where}: {line!r} is neither a field nor a constant")
            if found["name"] in taken:
                raise TypeDefinitionError(f"{where}: {found['name']} is defined twice")
            taken.add(found["name"])
            t = self.type(found["type"], name, where)
            if found["rest"].startswith("="):
                _check_constant(t, found["name"], found["rest"][1:], where)
            else:
                note = default_note(t, found["rest"], where)
                notes = () if note is None else (("default", note),)
                members.append(Member(found["name"], t, len(members), notes=notes))
        return tuple(members) or _EMPTY

    def type(self, text: str, user: str, where: str) -> Type:
        found = _TYPE.fullmatch(text)
        if found is None:
            raise TypeDefinitionError(f"{where}: {text!r} is no type")
        bound = _size(found["bound"], where)
        name = found["name"]
        t: Type
        if name == "string":
            t = String(bound)
        elif name == "wstring":
            t = WString(bound)
        elif bound:
            raise TypeDefinitionError(f"{where}: {name} cannot have a bound")
        elif name in PRIMITIVES:
            t = Primitive(PRIMITIVES[name])
        else:
            t = self.struct(self.qualified(name, user), where)
        if found["many"] is None:
            return t
        length = _size(found["length"], where)
        return Array(t, (length,)) if length and not found["most"] else Sequence(t, length)

    def qualified(self, name: str, user: str) -> str:
        """The qualified name of the type that a field of ``user`` refers to."""
        if "/" in name:
            return ros_type_name(name)
        own = f"{user.split('/')[0]}/msg/{name}"
        if name in _SHORT_NAMES and own != user and self.definitions(own) is None:
            return _SHORT_NAMES[name]
        return own


def _size(text: str | None, where: str) -> int:
    """A length or a bound; 0 without one."""
    if text is None:
        return 0
    if not 0 < int(text[:11]) <= LENGTH_MAX:
        raise TypeDefinitionError(f"{where}: {text} is no size; it must be at least 1, and less than 2^31")
    return int(text)


def _check_constant(t: Type, name: str, value: str, where: str) -> None:
    if _CONSTANT_NAME.fullmatch(name) is None:
        raise TypeDefinitionError(f"{where}: constant {name} must be in capitals")
    if not isinstance(t, Primitive | String | WString):
        raise TypeDefinitionError(f"{where}: constant {name} must be a number, a bool or a string")
    check_value(t, value, where)


# --- rosbags ---------------------------------------------------------------------------------------


@cache
def _typestore(distribution: str) -> Typestore:
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores(f"ros2_{distribution}"))


@cache
def _stored(name: str, distribution: str) -> Struct | None:
    """A message that rosbags knows. Raises ImportError if it is not installed."""
    fields = _typestore(distribution).fielddefs.get(name)
    if fields is None:
        return None
    members = [
        Member(field, _stored_type(description, distribution), i)
        for i, (field, description) in enumerate(fields[1])
    ]
    return Struct(dds_type_name(name), tuple(members) or _EMPTY)


def _stored_type(description: Any, distribution: str) -> Type:
    """``description``: rosbags' (kind of node, what it is)."""
    from rosbags.interfaces import Nodetype

    node, value = description
    if node == Nodetype.NAME:
        struct = _stored(value, distribution)
        if struct is None:
            raise TypeDefinitionError(f"rosbags refers to {value}, but does not define it")
        return struct
    if node == Nodetype.BASE:
        name, bound = value
        return String(bound) if name == "string" else Primitive(PRIMITIVES[name])
    element, length = _stored_type(value[0], distribution), value[1]
    return Array(element, (length,)) if node == Nodetype.ARRAY else Sequence(element, length)
