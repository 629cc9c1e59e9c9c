"""The options that the elements of a QoS file set; other elements are named in a warning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Paths = Mapping[str, tuple[str, ...]]

_LIMITS: Final = ("max_samples", "max_instances", "max_samples_per_instance")
_PRESENTATION: Final = ("access_scope", "coherent_access", "ordered_access")

# --- RTI Connext and OMG DDS-XML 1.0 ----------------------------------------------------------------

_WRITER_PROTOCOL: Final = (
    "low_watermark",
    "high_watermark",
    "heartbeat_period",
    "fast_heartbeat_period",
    "late_joiner_heartbeat_period",
    "heartbeats_per_max_samples",
    "max_heartbeat_retries",
    "inactivate_nonprogressing_readers",
    "min_send_window_size",
    "max_send_window_size",
    "send_window_update_period",
    "send_window_increase_factor",
    "send_window_decrease_factor",
    "min_nack_response_delay",
    "max_nack_response_delay",
    "nack_suppression_duration",
    "multicast_resend_threshold",
    "max_bytes_per_nack_response",
    "disable_positive_acks_min_sample_keep_duration",
    "disable_positive_acks_max_sample_keep_duration",
    "disable_positive_acks_enable_adaptive_sample_keep_duration",
    "disable_positive_acks_decrease_sample_keep_duration_factor",
    "disable_positive_acks_increase_sample_keep_duration_factor",
)
_READER_PROTOCOL: Final = (
    "min_heartbeat_response_delay",
    "max_heartbeat_response_delay",
    "heartbeat_suppression_duration",
    "nack_period",
    "receive_window_size",
    "round_trip_time",
)
_BATCH: Final = (
    "enable",
    "max_data_bytes",
    "max_samples",
    "max_flush_delay",
    "source_timestamp_resolution",
    "thread_safe_write",
)

_ENDPOINT: Final[Paths] = {
    "reliability/kind": ("reliability",),
    "durability/kind": ("durability",),
    "history/kind": ("history",),
    "history/depth": ("history.depth",),
    **{f"resource_limits/{name}": (f"resource_limits.{name}",) for name in _LIMITS},
    "deadline/period": ("deadline",),
    "latency_budget/duration": ("latency_budget",),
    "liveliness/kind": ("liveliness",),
    "liveliness/lease_duration": ("liveliness.lease_duration",),
    "ownership/kind": ("ownership",),
    "destination_order/kind": ("destination_order",),
    "user_data/value": ("user_data",),
}
_GROUP: Final[Paths] = {
    **{f"presentation/{name}": (f"presentation.{name}",) for name in _PRESENTATION},
    "partition/name": ("partition",),
    "group_data/value": ("group_data",),
}
_TOPIC: Final[Paths] = {"topic_data/value": ("topic_data",)}

DDS_WRITER: Final[Mapping[str, Paths]] = {
    "datawriter_qos": {
        **_ENDPOINT,
        "reliability/max_blocking_time": ("max_blocking_time",),
        "lifespan/duration": ("lifespan",),
        "ownership_strength/value": ("ownership.strength",),
        "transport_priority/value": ("transport_priority",),
        "representation/value": ("data_representation",),
        **{f"batch/{name}": (f"batch.{name}",) for name in _BATCH},
        "protocol/disable_positive_acks": ("reliable_writer.disable_positive_acks",),
        "protocol/disable_inline_keyhash": ("disable_inline_keyhash",),
        **{
            f"protocol/rtps_reliable_writer/{name}": (f"reliable_writer.{name}",) for name in _WRITER_PROTOCOL
        },
        "writer_resource_limits/max_batches": ("max_batches",),
        "publish_mode/kind": ("publish_mode",),
        "publish_mode/flow_controller_name": ("flow_controller.name",),
    },
    "publisher_qos": {
        **_GROUP,
        "asynchronous_publisher/disable_asynchronous_batch": ("async_publisher.disable_asynchronous_batch",),
    },
    "topic_qos": _TOPIC,
}
DDS_READER: Final[Mapping[str, Paths]] = {
    "datareader_qos": {
        **_ENDPOINT,
        "time_based_filter/minimum_separation": ("time_based_filter",),
        "destination_order/source_timestamp_tolerance": ("destination_order.source_timestamp_tolerance",),
        "protocol/disable_positive_acks": ("reliable_reader.disable_positive_acks",),
        **{
            f"protocol/rtps_reliable_reader/{name}": (f"reliable_reader.{name}",) for name in _READER_PROTOCOL
        },
    },
    "subscriber_qos": _GROUP,
    "topic_qos": _TOPIC,
}
#: Names in property lists.
DDS_PROPERTIES: Final[Mapping[str, str]] = {
    "dds.data_writer.enable_turbo_mode": "turbo_mode",
    "dds.data_reader.accept_writer_removed_batch_samples": "accept_writer_removed_batch_samples",
}

# --- Fast DDS; its 2.x writes camelCase, its 3.x snake_case -------------------------------------------

_FAST: Final[Paths] = {
    "topic/history_qos/kind": ("history",),
    "topic/history_qos/depth": ("history.depth",),
    **{f"topic/resource_limits_qos/{name}": (f"resource_limits.{name}",) for name in _LIMITS},
    "qos/reliability/kind": ("reliability",),
    "qos/durability/kind": ("durability",),
    "qos/deadline/period": ("deadline",),
    "qos/latency_budget/duration": ("latency_budget",),
    "qos/lifespan/duration": ("lifespan",),
    "qos/liveliness/kind": ("liveliness",),
    "qos/liveliness/lease_duration": ("liveliness.lease_duration",),
    "qos/ownership/kind": ("ownership",),
    "qos/destination_order/kind": ("destination_order",),
    **{f"qos/presentation/{name}": (f"presentation.{name}",) for name in _PRESENTATION},
    "qos/partition/names": ("partition",),
    "qos/user_data/value": ("user_data",),
    "qos/topic_data/value": ("topic_data",),
    "qos/group_data/value": ("group_data",),
}
_KEEP: Final = "reliable_writer.disable_positive_acks_{}_sample_keep_duration"

FAST_WRITER: Final[Paths] = {
    **_FAST,
    "qos/reliability/max_blocking_time": ("max_blocking_time",),
    "qos/ownership_strength/value": ("ownership.strength",),
    "qos/transport_priority/value": ("transport_priority",),
    "qos/publish_mode/kind": ("publish_mode",),
    "qos/publish_mode/flow_controller_name": ("flow_controller.name",),
    "qos/disable_positive_acks/enabled": ("reliable_writer.disable_positive_acks",),
    # one duration in the file, a minimum and a maximum in the options
    "qos/disable_positive_acks/duration": (_KEEP.format("min"), _KEEP.format("max")),
    "times/heartbeat_period": ("reliable_writer.heartbeat_period",),
    "times/nack_response_delay": (
        "reliable_writer.min_nack_response_delay",
        "reliable_writer.max_nack_response_delay",
    ),
    "times/nack_supression_duration": ("reliable_writer.nack_suppression_duration",),  # sic
    "times/nack_suppression_duration": ("reliable_writer.nack_suppression_duration",),
}
FAST_READER: Final[Paths] = {
    **_FAST,
    "qos/time_based_filter/minimum_separation": ("time_based_filter",),
    "qos/disable_positive_acks/enabled": ("reliable_reader.disable_positive_acks",),
    "times/heartbeat_response_delay": (
        "reliable_reader.min_heartbeat_response_delay",
        "reliable_reader.max_heartbeat_response_delay",
    ),
}
