"""QoS profiles: defaults for many options under one name, ROS 2's or those of an XML file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..transport.errors import OptionError


@dataclass(frozen=True, slots=True)
class Profile:
    """Option texts by option names; explicit options win."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    #: What its file says that has no option.
    warnings: tuple[str, ...] = ()


NO_PROFILE: Final = Profile("")


def _queue(depth: int, reliability: str = "reliable", durability: str = "volatile") -> dict[str, str]:
    return {
        "reliability": reliability,
        "durability": durability,
        "history": "keep_last",
        "history.depth": str(depth),
    }


#: As in ROS 2's rmw/qos_profiles.h.
ROS2_PROFILES: Final[Mapping[str, Mapping[str, str]]] = {
    "default": _queue(10),
    "sensor_data": _queue(5, "best_effort"),
    "services_default": _queue(10),
    "parameters": _queue(1000),
    "parameter_events": _queue(1000),
    "system_default": {},
    # ROS 2 looks at the peers there are. Decided before there are any, this is what suits all of them.
    "best_available": _queue(10, "best_effort"),
}
_WRITER_BEST_AVAILABLE: Final = _queue(10, "reliable", "transient_local")


def find_profile(name: str | None, file: str | None, *, writes: bool) -> Profile:
    """The profile that ``qos.profile`` and ``qos.file`` name, for a writer or for a reader.

    Raises:
        OptionError: there is none of that name, or the file cannot be read.
    """
    if file is not None:
        from .qos_xml import read_profile

        path = Path(file.removeprefix("file://")).expanduser().absolute()
        return read_profile(path, name, writes=writes)
    if name is None:
        return NO_PROFILE
    word = name.strip().lower().removeprefix("rmw_qos_profile_")
    if word not in ROS2_PROFILES:
        raise unknown_profile(name, ROS2_PROFILES, "is no profile of ROS 2", "; for others give qos.file")
    if word == "best_available" and writes:
        return Profile(word, _WRITER_BEST_AVAILABLE)
    return Profile(word, ROS2_PROFILES[word])


def unknown_profile(name: str, known: Iterable[str], what: str, more: str = "") -> OptionError:
    """An error that names the nearest of the known profiles, and all of them."""
    names = list(known)
    by_word = {n.lower(): n for n in names} | {n.rpartition("::")[2].lower(): n for n in names}
    near = difflib.get_close_matches(name.strip().lower(), by_word, n=1, cutoff=0.5)
    hint = f"did you mean {by_word[near[0]]!r}? " if near else ""
    return OptionError("qos.profile", name, f"{what}; {hint}there are {', '.join(names) or 'none'}{more}")
