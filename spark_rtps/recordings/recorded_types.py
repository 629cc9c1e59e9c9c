"""The DDS types of recorded topics, from the schemas that recordings hold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Final

from ..transport.errors import RecordingError, RtpsError, TypeDefinitionError
from ..transport.types.model import Extensibility, Struct, without_aliases
from ..transport.types.ros_names import ros_type_name

#: Between the definitions of a schema, and what each of them begins with.
_SEPARATOR: Final = re.compile(r"^={3,}[ \t]*$", re.MULTILINE)
_HEADING: Final = re.compile(r"\s*(?:MSG|IDL):[ \t]*(\S+)[ \t]*$", re.MULTILINE)
_INCLUDE: Final = re.compile(r"^[ \t]*#[ \t]*include\b.*$", re.MULTILINE)
#: Of IDL: comments and texts; and typedefs, so that those inside of the others are none.
_TEXTS: Final = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TYPEDEFS: Final = re.compile(rf"{_TEXTS.pattern}|\btypedef\b[^;]*;", re.DOTALL)
#: Distributions of ROS 2: the default, and the last one whose bags lack definitions.
DISTRIBUTION: Final = "jazzy"
LAST_WITHOUT_DEFINITIONS: Final = "humble"
_KNOWN: Final = "ros2msg, ros2idl and omgidl"
_FIX: Final = "give the type by the options type or type.file, or read payload=binary"


def struct_of_schema(
    name: str,
    encoding: str,
    text: str,
    path: str,
    *,
    distributions: Iterable[str] = (DISTRIBUTION,),
    type_hash: str | None = None,
) -> Struct:
    """The type ``name`` that a schema defines; an empty text means a ROS 2 type that is known by its name.

    It is looked up in these distributions of ROS 2; if its hash is known, the type with this hash, in any.

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
            return _by_name(name, distributions, type_hash)
    except RtpsError as error:
        raise RecordingError(f"the type {name!r} cannot be read: {error}; {_FIX}", path=path) from None
    why = f"the type {name!r} is defined in {encoding!r}, which is not read; read are {_KNOWN}"
    raise RecordingError(f"{why}: {_FIX}", path=path)


@lru_cache(maxsize=64)
def hash_of_schema(name: str, encoding: str, text: str) -> str | None:
    """The hash that ROS 2 gives the message ``name`` of this definition; None: not a message, or unreadable."""
    if encoding not in ("ros2msg", "ros2idl"):
        return None
    from ..transport.types.ros_hash import type_hash

    try:
        struct = without_aliases(struct_of_schema(name, encoding, text, ""))
        return type_hash(struct) if isinstance(struct, Struct) else None
    except RtpsError:
        return None


def _by_name(name: str, distributions: Iterable[str], announced: str | None) -> Struct:
    """The ROS 2 type of this name. Raises TypeDefinitionError if there is none, or none of this hash."""
    from ..transport.types import ros
    from ..transport.types.ros_hash import type_hash

    wanted, seen = list(distributions), False
    if announced is not None:
        wanted += reversed(ros.distributions())
    for distribution in wanted:
        try:
            found = ros.ros_type(name, distribution)
        except TypeDefinitionError:
            continue
        if announced is None or type_hash(found) == announced:
            return found
        seen = True
    if seen:
        raise TypeDefinitionError(
            f"no ROS 2 distribution defines it with the hash that was recorded, {announced}"
        )
    return ros.ros_type(name, wanted[-1])  # raises what is known instead


def _idl_of(text: str) -> str:
    """The IDL of all definitions of a schema, used ones first. Raises TypeDefinitionError for other formats."""
    sections: dict[str, str] = {}
    for i, section in enumerate(_SEPARATOR.split(text)):
        if not section.strip():
            continue
        heading = _HEADING.match(section)
        body = section[heading.end() :] if heading else section
        if heading and "MSG:" in heading[0]:
            raise TypeDefinitionError(f"{heading[1]} is defined as ROS 2's .msg among IDL")
        sections[heading[1] if heading else str(i)] = _INCLUDE.sub("", body)
    # the definition of the topic's own type comes first, but IDL needs declarations before their use
    return "\n".join(_typedefs_once(_in_order(sections)))


def _in_order(sections: dict[str, str]) -> dict[str, str]:
    """The texts, each after those whose types it uses."""
    placed: dict[str, str] = {}
    bare = {name: _TEXTS.sub(" ", text) for name, text in sections.items()}

    def place(name: str, above: frozenset[str]) -> None:
        if name in placed or name in above:
            return
        for other in sections:
            if "/" in other and other != name and _names(other, name).search(bare[name]):
                place(other, above | {name})
        placed[name] = sections[name]

    for name in sections:
        place(name, frozenset())
    return placed


def _names(other: str, name: str) -> re.Pattern[str]:
    """How the definition ``name`` refers to the type ``other``: by its scope, which is optional in its own package."""
    package, *_, last = other.split("/")
    scope = rf"{re.escape(package)}\s*::\s*(?:\w+\s*::\s*)?"
    is_near = name.split("/")[0] == package
    return re.compile(rf"\b(?:{scope}){'?' if is_near else ''}{re.escape(last)}\b")


def _typedefs_once(sections: dict[str, str]) -> list[str]:
    """The texts in which no typedef of a package comes twice: rosidl has those of arrays in each file that needs them,
    and a file does not include what it defines itself."""
    seen: set[tuple[str, str]] = set()

    def once(package: str, found: re.Match[str]) -> str:
        if not found[0].startswith("typedef"):
            return found[0]
        key = package, " ".join(found[0].split())
        if key in seen:
            return ""
        seen.add(key)
        return found[0]

    return [_TYPEDEFS.sub(partial(once, name.rpartition("/")[0]), text) for name, text in sections.items()]


def _struct_of_idl(name: str, text: str, extensibility: Extensibility) -> Struct:
    from ..transport.types.idl.parser import parse_idl

    found = {
        n: t for n, t in parse_idl(text, name, extensibility=extensibility).items() if isinstance(t, Struct)
    }
    wanted = {name, name.replace("/", "::")}
    try:
        wanted.add(ros_type_name(name).replace("/", "::"))
    except TypeDefinitionError:
        pass  # not a name of ROS 2
    for each in found:
        if each in wanted:
            return found[each]
    raise TypeDefinitionError(f"its schema defines {', '.join(found) or 'nothing'}")
