"""The DDS types of recorded topics, from the schemas that recordings hold."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ..transport.errors import RecordingError, RtpsError, TypeDefinitionError
from ..transport.types.model import Extensibility, Struct
from ..transport.types.ros_names import ros_type_name

#: Between the definitions of a schema, and what each of them begins with.
_SEPARATOR: Final = re.compile(r"^={3,}[ \t]*$", re.MULTILINE)
_HEADING: Final = re.compile(r"\s*(?:MSG|IDL):[ \t]*(\S+)[ \t]*$", re.MULTILINE)
_INCLUDE: Final = re.compile(r"^[ \t]*#[ \t]*include\b.*$", re.MULTILINE)
_KNOWN: Final = "ros2msg, ros2idl and omgidl"
_FIX: Final = "give the type by the options type or type.file, or read payload=binary"


def struct_of_schema(name: str, encoding: str, text: str, path: str) -> Struct:
    """The type ``name`` that a schema defines; one without a text is a ROS 2 type that is known by its name.

    Raises RecordingError, which names the file ``path``.
    """
    try:
        if encoding == "ros2msg":
            from ..transport.types.ros import parse_msg

            return parse_msg(text, name)
        if encoding == "ros2idl":
            return _struct_of_idl(name, _idl_of(text), Extensibility.FINAL)
        if encoding == "omgidl":
            return _struct_of_idl(name, text, Extensibility.APPENDABLE)
        if not encoding:
            from ..transport.types.ros import ros_type

            return ros_type(name)
    except RtpsError as error:
        raise RecordingError(f"the type {name!r} cannot be read: {error}; {_FIX}", path=path) from None
    why = f"the type {name!r} is defined in {encoding!r}, which is not read; read are {_KNOWN}"
    raise RecordingError(f"{why}: {_FIX}", path=path)


@lru_cache(maxsize=64)
def hash_of_schema(name: str, encoding: str, text: str) -> str | None:
    """The hash that ROS 2 gives the message ``name`` of this definition; None: it is none, or cannot be read."""
    if encoding not in ("ros2msg", "ros2idl"):
        return None
    from ..transport.types.ros_hash import type_hash

    try:
        return type_hash(struct_of_schema(name, encoding, text, ""))
    except RtpsError:
        return None


def _idl_of(text: str) -> str:
    """The IDL of all definitions of a schema, those that others use first. Raises TypeDefinitionError for others."""
    sections: dict[str, str] = {}
    for i, section in enumerate(_SEPARATOR.split(text)):
        if not section.strip():
            continue
        heading = _HEADING.match(section)
        body = section[heading.end() :] if heading else section
        if heading and "MSG:" in heading[0]:
            raise TypeDefinitionError(f"{heading[1]} is defined as ROS 2's .msg among IDL")
        sections[heading[1] if heading else str(i)] = _INCLUDE.sub("", body)
    # the definition of the topic's own type comes first, and IDL wants what is used to be declared before
    return "\n".join(_in_order(sections))


def _in_order(sections: dict[str, str]) -> list[str]:
    """The texts, each behind those whose types it uses."""
    placed: dict[str, str] = {}

    def place(name: str, above: frozenset[str]) -> None:
        if name in placed or name in above:
            return
        for other in sections:
            last = other.rsplit("/", 1)[-1]
            if other != name and re.search(rf"\b{re.escape(last)}\b", sections[name]):
                place(other, above | {name})
        placed[name] = sections[name]

    for name in sections:
        place(name, frozenset())
    return list(placed.values())


def _struct_of_idl(name: str, text: str, extensibility: Extensibility) -> Struct:
    from ..transport.types.idl.parser import parse_idl

    found = {
        n: t for n, t in parse_idl(text, name, extensibility=extensibility).items() if isinstance(t, Struct)
    }
    wanted = {name, name.replace("/", "::")}
    try:
        wanted.add(ros_type_name(name).replace("/", "::"))
    except TypeDefinitionError:
        pass  # no name of ROS 2
    for each in found:
        if each in wanted:
            return found[each]
    raise TypeDefinitionError(f"its schema defines {', '.join(found) or 'nothing'}")
