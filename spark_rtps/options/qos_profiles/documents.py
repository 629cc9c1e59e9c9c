"""Profiles of the defaults that the documents of RTI and Aeron give, where ours differ from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .profile import Profile

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

#: For writers and for readers. Beside these, ours are the documents' defaults.
DOCUMENT_PROFILES: Final[Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]] = {
    "rti": (_RTI_WRITER, _RTI_READER),
    "aeron": (_AERON_WRITER, _AERON_READER),
}


def document_profile(name: str, *, writes: bool) -> Profile | None:
    """The profile of that name; None: there is none."""
    word = name.strip().lower()
    found = DOCUMENT_PROFILES.get(word)
    return None if found is None else Profile(word, found[not writes])
