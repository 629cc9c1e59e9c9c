"""The values of elements of a QoS file as the texts of options."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Final
from xml.etree.ElementTree import Element

from ...transport.structure import NANOSECONDS
from ..spec import duration_text
from ..texts import list_text

_CONSTANTS: Final[Mapping[str, str]] = {
    "DURATION_INFINITE": "infinite",
    "DURATION_INFINITY": "infinite",
    "DURATION_ZERO": "0s",
    "LENGTH_UNLIMITED": "unlimited",
    "BOOLEAN_TRUE": "true",
    "BOOLEAN_FALSE": "false",
    "DEFAULT_FLOW_CONTROLLER_NAME": "default",
    "FIXED_RATE_FLOW_CONTROLLER_NAME": "fixed_rate",
    "ON_DEMAND_FLOW_CONTROLLER_NAME": "on_demand",
    "AUTO_DATA_REPRESENTATION": "xcdr1",
    "XCDR_DATA_REPRESENTATION": "xcdr1",
    "XCDR1_DATA_REPRESENTATION": "xcdr1",
    "XCDR2_DATA_REPRESENTATION": "xcdr2",
}
_INFINITE_PARTS: Final = re.compile(r"(DDS_)?DURATION_INFINIT[EY](_N?SEC|_NANOSEC)?")
#: Seconds that mean infinite: the largest number in the 32 bits on the wire.
_INFINITE_SECONDS: Final = (1 << 31) - 1
_DECIMAL_OCTETS: Final = re.compile(
    r"(0x[0-9a-f]{1,2}|\d{1,3})(\s*,\s*(0x[0-9a-f]{1,2}|\d{1,3}))*", re.IGNORECASE
)
_DOTTED_OCTETS: Final = re.compile(r"[0-9a-f]{1,2}(\.[0-9a-f]{1,2})*", re.IGNORECASE)


def value_text(element: Element) -> str | None:
    """A constant, a number, a duration in seconds and nanoseconds, or a list; None for anything else."""
    if len(element) == 0:
        text = (element.text or "").strip().removeprefix("DDS_")
        return None if text.endswith("_AUTO") else _CONSTANTS.get(text, text)
    tags = {child.tag for child in element}
    if tags <= {"sec", "nanosec", "nsec"}:
        return _duration(element)
    if tags <= {"element", "name"} and not any(len(child) for child in element):
        return list_text(value_text(child) or "" for child in element)
    return None


def _duration(element: Element) -> str | None:
    parts = {child.tag: (child.text or "").strip() for child in element}
    if any(_INFINITE_PARTS.fullmatch(part) for part in parts.values()):
        return "infinite"
    seconds, fraction = parts.get("sec", "0"), parts.get("nanosec", parts.get("nsec", "0"))
    constants = {f"DURATION_ZERO_{unit}": "0" for unit in ("SEC", "NSEC", "NANOSEC")}
    seconds, fraction = (constants.get(p.removeprefix("DDS_"), p) for p in (seconds, fraction))
    if not (seconds.isdecimal() and fraction.isdecimal()) or len(seconds) + len(fraction) > 40:
        return None
    if int(seconds) >= _INFINITE_SECONDS:
        return "infinite"
    return duration_text(int(seconds) * NANOSECONDS + int(fraction))


def names_text(element: Element) -> str | None:
    """Names, which are never read as constants; several names become a list."""
    if any(len(child) for child in element):
        return None
    return list_text((each.text or "").strip() for each in (element if len(element) else [element]))


def octets_text(element: Element) -> str | None:
    """Octets: numbers with commas (RTI), hexadecimal with dots (Fast DDS), or base64 (OMG)."""
    text = (value_text(element) or "").strip()
    if _DECIMAL_OCTETS.fullmatch(text):
        numbers = [int(part.strip(), 0 if "x" in part.lower() else 10) for part in text.split(",")]
        return "0x" + bytes(numbers).hex() if max(numbers) < 256 else None
    try:
        return "0x" + base64.b64decode("".join(text.split()), validate=True).hex()
    except (binascii.Error, ValueError):
        return None


def dotted_octets_text(element: Element) -> str | None:
    """Octets as Fast DDS writes them: ``3.a.4``."""
    text = (value_text(element) or "").strip()
    if not _DOTTED_OCTETS.fullmatch(text):
        return None
    return "0x" + bytes(int(part, 16) for part in text.split(".")).hex()


def positive_text(element: Element) -> str | None:
    """A number; zero and less mean unlimited, as in Fast DDS."""
    text = value_text(element)
    return "unlimited" if text is not None and re.fullmatch(r"0|-\d+", text) else text


def first_text(element: Element) -> str | None:
    """The first element of a list: the representation that a writer offers."""
    text = value_text(element)
    return None if text is None else text.partition(",")[0]


Read = Callable[[Element], "str | None"]
DDS_READS: Final[Mapping[str, Read]] = {
    "user_data": octets_text,
    "topic_data": octets_text,
    "group_data": octets_text,
    "data_representation": first_text,
    "partition": names_text,
}
FAST_READS: Final[Mapping[str, Read]] = {
    "user_data": dotted_octets_text,
    "topic_data": dotted_octets_text,
    "group_data": dotted_octets_text,
    "partition": names_text,
    "resource_limits.max_samples": positive_text,
    "resource_limits.max_instances": positive_text,
    "resource_limits.max_samples_per_instance": positive_text,
}
