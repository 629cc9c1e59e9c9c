"""Profiles that are known by name: of ROS 2, and the defaults of RTI's and Aeron's documents where ours differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .profile import Profile, unknown_profile

_RTI_WRITER: Final = {
    "batch.max_data_bytes": "1024",
    "reliable_writer.heartbeat_period": "200ms",
    "reliable_writer.fast_heartbeat_period": "200ms",
    "reliable_writer.late_joiner_heartbeat_period": "200ms",
    "reliable_writer.low_watermark": "0",
    "reliable_writer.high_watermark": "1",
    "reliable_writer.max_heartbeat_retries": "150",
    "reliable_writer.heartbeats_per_max_samples": "8",
    "reliable_writer.max_nack_response_delay": "200ms",
    "reliable_writer.max_bytes_per_nack_response": "128KiB",
    "reliable_writer.disable_positive_acks_min_sample_keep_duration": "1ms",
}
_RTI_READER: Final = {
    "reliable_reader.max_heartbeat_response_delay": "500ms",
    "reliable_reader.heartbeat_suppression_duration": "62500us",
    "reliable_reader.round_trip_time": "0s",
    "reliable_reader.nack_period": "5s",
    "reliable_reader.receive_window_size": "256",
}
_AERON_WRITER: Final = {"flow_control.strategy": "max", "flow_control.receiver_timeout": "5s"}
_AERON_READER: Final = {"congestion_control.initial_window": "128KiB"}

#: The options of each profile, for writers and for readers. All other defaults of ours are those of the documents.
DOCUMENT_PROFILES: Final[Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]] = {
    "rti": (_RTI_WRITER, _RTI_READER),
    "aeron": (_AERON_WRITER, _AERON_READER),
}


def document_profile(name: str, *, writes: bool) -> Profile | None:
    """The profile of that name; None: there is none."""
    word = name.strip().lower()
    found = DOCUMENT_PROFILES.get(word)
    return None if found is None else Profile(word, found[not writes])


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
    # The QoS that a writer offers; a receiver requests the QoS that all writers it finds offer (`left_to_writers`).
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
