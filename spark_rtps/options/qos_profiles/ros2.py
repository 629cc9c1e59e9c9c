"""The QoS profiles of ROS 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .documents import DOCUMENT_PROFILES
from .profile import Profile, unknown_profile


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
    # What every writer offers; a receiver requests what all writers that it finds offer (`left_to_writers`).
    "best_available": {"reliability": "best_effort", "durability": "volatile"},
}
_WRITER_BEST_AVAILABLE: Final = _queue(10, "reliable", "transient_local")


def ros2_profile(name: str, *, writes: bool) -> Profile:
    """The profile of that name, with or without ROS 2's prefix. Raises OptionError."""
    word = name.strip().lower().removeprefix("rmw_qos_profile_")
    if word not in ROS2_PROFILES:
        raise unknown_profile(
            name, [*ROS2_PROFILES, *DOCUMENT_PROFILES], "is no profile", "; for others give qos.file"
        )
    if word == "best_available" and writes:
        return Profile(word, _WRITER_BEST_AVAILABLE)
    return Profile(word, ROS2_PROFILES[word])
