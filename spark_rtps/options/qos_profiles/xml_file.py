"""QoS profiles from XML files of RTI Connext, the OMG (DDS-XML 1.0) and Fast DDS.

A profile becomes the texts of options, which the options' parser checks. A setting for which there is no option is
named in a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from ...transport.errors import OptionError
from .profile import Profile, unknown_profile
from .xml_paths import DDS_PROPERTIES, DDS_READER, DDS_WRITER, FAST_READER, FAST_WRITER, Paths
from .xml_values import DDS_READS, FAST_READS, Read, value_text

_FILE_BYTES_MAX: Final = 16 << 20
_DEPTH_MAX: Final = 64
_PREDEFINED_FLOW_CONTROLLERS: Final = ("default", "fixed_rate", "on_demand")
_LIBRARIES: Final = ("qos_library", "qosLibrary")
#: Base profiles that are built into RTI Connext; their settings are not known here.
_BUILTIN: Final = re.compile(r"Builtin\w*::.*")


def read_profile(path: Path, name: str | None, *, writes: bool) -> Profile:
    """The profile of that name; without a name the default of the file, or its only profile.

    Raises:
        OptionError: the file cannot be read, is not a QoS file, or has no such profile.
    """
    root = _parse(path)
    if any(True for _ in _libraries(root)):
        return _DdsFile(path, root, writes).profile(name)
    profiles = next((e for e in root.iter() if e.tag == "profiles"), None)
    if profiles is None:
        raise OptionError("qos.file", str(path), "has neither a <qos_library> nor <profiles>")
    return _fast_profile(path, profiles, name, writes)


# --- XML --------------------------------------------------------------------------------------------


def _parse(path: Path) -> Element:
    """The root element; names lose their namespaces. A document type, and therefore entities, are refused."""
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise OptionError("qos.file", str(path), f"cannot be read: {error.strerror}") from None
    if len(data) > _FILE_BYTES_MAX:
        raise OptionError("qos.file", str(path), f"is larger than {_FILE_BYTES_MAX >> 20} MiB")
    builder, depth = TreeBuilder(), 0
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise OptionError("qos.file", str(path), "has a document type (<!DOCTYPE>); remove it")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEPTH_MAX:
            raise OptionError("qos.file", str(path), f"has elements nested deeper than {_DEPTH_MAX}")
        builder.start(tag.rpartition(":")[2], attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag.rpartition(":")[2])

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # the latter: encodings
        raise OptionError("qos.file", str(path), f"is not XML: {error}") from None
    return builder.close()


def _collect(
    element: Element, paths: Paths, reads: Mapping[str, Read], options: dict[str, str]
) -> Iterator[str]:
    """Add the options of all elements below one; yields the elements that could not be used."""

    def walk(parent: Element, prefix: str) -> Iterator[str]:
        for child in parent:
            path = prefix + _snake(child.tag)
            if path in paths:
                for option in paths[path]:
                    text = reads.get(option, value_text)(child)
                    if text is None:
                        yield f"{path} is not understood"
                    else:
                        options[option] = text
                continue
            shown = value_text(child)
            if shown is None and len(child):
                yield from walk(child, f"{path}/")
            else:
                yield f"{path}{'=' if shown else ''}{(shown or '')[:64]} has no option here"

    return walk(element, "")


def _snake(tag: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", tag).lower()


def _true(text: str | None) -> bool:
    return (text or "").strip().lower() in ("true", "1")


def _choose(path: Path, names: list[str], marked: list[str], what: str) -> str:
    """The profile to use if none is named."""
    for candidates in (marked, names):
        if len(candidates) == 1:
            return candidates[0]
    fix = f"name one {what} of {path} in qos.profile: {', '.join(names) or 'there are none'}"
    raise OptionError("qos.profile", None, fix)


def _profile(name: str, options: dict[str, str], unused: list[str]) -> Profile:
    flow = options.get("flow_controller.name", "default")
    if flow not in _PREDEFINED_FLOW_CONTROLLERS:
        unused.append(
            f"the tokens of flow controller {flow} are not in it; set flow_controller.token_bucket.*"
        )
    seen = dict.fromkeys(unused)
    return Profile(name, options, tuple(f"qos.profile {name}: {sentence}" for sentence in seen))


# --- RTI Connext, OMG -------------------------------------------------------------------------------


def _libraries(root: Element) -> Iterator[Element]:
    return (element for element in root.iter() if element.tag in _LIBRARIES)


class _DdsFile:
    """The libraries of one file, for a reader or for a writer."""

    def __init__(self, path: Path, root: Element, writes: bool) -> None:
        self._path = path
        self._sections = DDS_WRITER if writes else DDS_READER
        self._other_side = set(DDS_READER if writes else DDS_WRITER) - set(self._sections)
        self._profiles = {
            f"{library.get('name', '')}::{profile.get('name', '')}": profile
            for library in _libraries(root)
            for profile in library
            if profile.tag == "qos_profile"
        }

    def profile(self, name: str | None) -> Profile:
        if name is None:
            marked = [n for n, p in self._profiles.items() if _true(p.get("is_default_qos"))]
            name = _choose(self._path, list(self._profiles), marked, "profile")
        full = self._find(name, "")
        if full is None:
            raise unknown_profile(name, self._profiles, f"is not in {self._path}")
        options: dict[str, str] = {}
        unused: list[str] = []
        self._inherit(full, options, unused, ())
        return _profile(full, options, unused)

    def _find(self, name: str, library: str) -> str | None:
        """The full name: as given, in the same library, or in the only library that has it."""
        for full in (name, f"{library}::{name}"):
            if full in self._profiles:
                return full
        found = [full for full in self._profiles if full.rpartition("::")[2] == name]
        if len(found) > 1:
            raise OptionError("qos.profile", name, f"is in several libraries: {', '.join(found)}; name one")
        return found[0] if found else None

    def _inherit(
        self,
        full: str,
        options: dict[str, str],
        unused: list[str],
        heirs: tuple[str, ...],
        only: str | None = None,
    ) -> None:
        """The sections of the bases of a profile, then its own; if ``only`` is given, just that section of each."""
        profile = self._profiles[full]
        for base in _bases(profile):
            self._inherit_base(base, options, unused, (*heirs, full), only)
        for section in profile:
            if only not in (None, section.tag) or section.tag == "base_name":
                continue
            if section.tag in self._sections:
                self._read(section, full, options, unused, heirs)
            elif section.tag not in self._other_side:
                unused.append(f"{section.tag} has no options here")

    def _inherit_base(
        self, base: str, options: dict[str, str], unused: list[str], heirs: tuple[str, ...], only: str | None
    ) -> None:
        found = self._find(base, heirs[-1].rpartition("::")[0])
        if found in heirs:
            raise OptionError("qos.profile", heirs[0], f"is its own base: {' -> '.join((*heirs, base))}")
        if found is not None:
            self._inherit(found, options, unused, heirs, only)
        elif _BUILTIN.fullmatch(base):
            unused.append(f"its base {base} is built into RTI Connext and not known here")
        else:
            raise unknown_profile(base, self._profiles, f"is a base of {heirs[-1]}, but not in {self._path}")

    def _read(
        self, section: Element, full: str, options: dict[str, str], unused: list[str], heirs: tuple[str, ...]
    ) -> None:
        if section.get("topic_filter") not in (None, "*"):
            unused.append(f"{section.tag} with topic_filter={section.get('topic_filter')} is not used")
            return
        for base in _bases(section):
            self._inherit_base(base, options, unused, (*heirs, full), section.tag)
        plain = [child for child in section if child.tag not in ("base_name", "property")]
        rest = Element(section.tag)
        rest.extend(plain)
        found = _collect(rest, self._sections[section.tag], DDS_READS, options)
        unused += [f"{section.tag}/{sentence}" for sentence in found]
        for element in section.iterfind("property/value/element"):
            _read_property(element, options, unused)


def _bases(element: Element) -> list[str]:
    """``base_name`` as an attribute or as elements; later elements win."""
    named = [element.get("base_name", "")]
    for child in element:
        if child.tag == "base_name":
            named += [e.text or "" for e in child] or [child.text or ""]
    return [name.strip() for name in named if name.strip()]


def _read_property(element: Element, options: dict[str, str], unused: list[str]) -> None:
    name, value = (element.findtext("name") or "").strip(), element.find("value")
    option = DDS_PROPERTIES.get(name)
    text = None if value is None else value_text(value)
    if option is None or text is None:
        unused.append(f"property {name}={text or ''} has no option here")
    else:
        options[option] = text


# --- Fast DDS ---------------------------------------------------------------------------------------


def _fast_profile(path: Path, profiles: Element, name: str | None, writes: bool) -> Profile:
    tags = ("data_writer", "publisher") if writes else ("data_reader", "subscriber")
    known = {e.get("profile_name", ""): e for e in profiles if e.tag in tags}
    if name is None:
        marked = [n for n, e in known.items() if _true(e.get("is_default_profile"))]
        name = _choose(path, list(known), marked, f"<{tags[0]}>")
    if name not in known:
        raise unknown_profile(name, known, f"is no <{tags[0]}> of {path}")
    options: dict[str, str] = {}
    unused = list(_collect(known[name], FAST_WRITER if writes else FAST_READER, FAST_READS, options))
    return _profile(name, options, unused)
