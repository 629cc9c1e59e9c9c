"""Options that are DDS QoS policies of an endpoint, on both sides of the wire."""

from __future__ import annotations

from typing import Final

from ..transport.limits import PARTITIONS_MAX
from .spec import AppliesTo, OptionKind, OptionSpec

_READ, _WRITE = AppliesTo.READ, AppliesTo.WRITE

#: A parameter's length has 16 bits on the wire and is a multiple of 4; it includes a count.
_OCTETS_MAX: Final = (1 << 16) - 8

QOS_OPTIONS: Final[tuple[OptionSpec, ...]] = (
    OptionSpec(
        "qos.profile",
        OptionKind.TEXT,
        None,
        "Profile whose values replace the defaults of the QoS options; options that are set explicitly "
        "win. Without `qos.file`, a profile of ROS 2: `default`, `sensor_data`, `services_default`, "
        "`parameters`, `parameter_events`, `system_default` (the defaults of this page), or "
        "`best_available` (when a source finds the topic's first writers, it requests `reliable` and "
        "`transient_local` if all of them offer it, else `best_effort` and `volatile`; a "
        "writer offers `reliable` and `transient_local`, which suit every reader); or `rti`, the defaults of "
        "RTI Connext for batches and the reliable protocol; or `aeron`, those of Aeron for flow and "
        "congestion control. With `qos.file`, a profile of that file, as `name` or `library::name`.",
    ),
    OptionSpec(
        "qos.file",
        OptionKind.TEXT,
        None,
        "XML file with QoS profiles, on the driver, in the format of RTI Connext and the OMG "
        "(`qos_library`) or of Fast DDS (`profiles`). Without `qos.profile`, the profile that the file "
        "marks as default applies, or its only one. Settings in the file for which there is no option are "
        "named in a warning.",
    ),
    OptionSpec(
        "reliability",
        OptionKind.WORD,
        "reliable",
        "RELIABILITY kind. A `reliable` reader does not match `best_effort` writers, such as those of ROS "
        "2 sensor data; the receiver logs such a mismatch to stderr.",
        choices=("reliable", "best_effort"),
    ),
    OptionSpec(
        "durability",
        OptionKind.WORD,
        "volatile",
        "DURABILITY kind. A reader of any kind but `volatile` receives the history that writers keep, and "
        "does not match writers of a weaker kind. A sink keeps its history in memory for all kinds but "
        "`volatile`: it offers `transient` and `persistent` so that readers which request them match.",
        choices=("volatile", "transient_local", "transient", "persistent"),
    ),
    OptionSpec(
        "history",
        OptionKind.WORD,
        "keep_all",
        "HISTORY kind. A `keep_last` writer keeps the last `history.depth` samples of each instance for late joiners "
        "of a `transient_local` topic, in addition to the samples that matched readers have not yet acknowledged. A "
        "`keep_last` reader takes at most `history.depth` samples of an instance from one DATA_BATCH, because they "
        "arrive at once; the others are lost and counted. Samples that arrive one by one all go to the log.",
        choices=("keep_all", "keep_last"),
    ),
    OptionSpec(
        "history.depth",
        OptionKind.INTEGER,
        "1",
        "HISTORY depth. Setting it implies `history=keep_last`.",
        minimum=1,
        maximum=(1 << 31) - 1,
    ),
    OptionSpec(
        "resource_limits.max_samples",
        OptionKind.COUNT,
        "unlimited",
        "RESOURCE_LIMITS max_samples. For a writer with `history=keep_all`: the number of samples that "
        "may await acknowledgement before a write waits. For a writer of a keyed `transient_local` topic "
        "with `keep_last`: the number of samples kept for late joiners, over all instances. A batch never "
        "holds more. For a reader: samples beyond the limit in one DATA_BATCH are rejected and counted.",
        minimum=1,
    ),
    OptionSpec(
        "resource_limits.max_instances",
        OptionKind.COUNT,
        "unlimited",
        "RESOURCE_LIMITS max_instances, for keyed topics. A reader rejects samples of further instances and counts "
        "them. Whatever the value, a reader with a policy that distinguishes instances, such as `deadline` or "
        "`ownership=exclusive`, distinguishes at most 262,144 of them.",
        minimum=1,
    ),
    OptionSpec(
        "resource_limits.max_samples_per_instance",
        OptionKind.COUNT,
        "unlimited",
        "RESOURCE_LIMITS max_samples_per_instance, for keyed topics. A writer puts at most this many "
        "samples of one instance into a batch; a reader rejects and counts those beyond it in one "
        "DATA_BATCH.",
        minimum=1,
    ),
    OptionSpec(
        "deadline",
        OptionKind.DURATION,
        "infinite",
        "DEADLINE period that a sink offers or a source requests.",
        minimum=1,
    ),
    OptionSpec(
        "latency_budget",
        OptionKind.DURATION,
        "0s",
        "LATENCY_BUDGET duration that a sink offers or a source requests. Flow controllers with "
        "`earliest_deadline_first` derive their deadlines from it.",
    ),
    OptionSpec(
        "lifespan",
        OptionKind.DURATION,
        "infinite",
        "LIFESPAN of the samples that a sink writes. Readers drop samples that are older.",
        _WRITE,
        minimum=1,
    ),
    OptionSpec(
        "liveliness",
        OptionKind.WORD,
        "automatic",
        "LIVELINESS kind that a sink offers or a source requests. A sink asserts the manual kinds only by "
        "writing.",
        choices=("automatic", "manual_by_participant", "manual_by_topic"),
    ),
    OptionSpec(
        "liveliness.lease_duration",
        OptionKind.DURATION,
        "infinite",
        "LIVELINESS lease_duration that a sink offers or a source requests.",
        minimum=1,
    ),
    OptionSpec(
        "ownership",
        OptionKind.WORD,
        "shared",
        "OWNERSHIP kind; both sides must have the same. An `exclusive` reader takes the samples of an "
        "instance only from its strongest live writer.",
        choices=("shared", "exclusive"),
    ),
    OptionSpec(
        "ownership.strength",
        OptionKind.INTEGER,
        "0",
        "OWNERSHIP_STRENGTH of the writer.",
        _WRITE,
        minimum=0,
        maximum=(1 << 31) - 1,
    ),
    OptionSpec(
        "destination_order",
        OptionKind.WORD,
        "by_reception_timestamp",
        "DESTINATION_ORDER kind that a sink offers or a source requests. A reader that requests "
        "`by_source_timestamp` drops samples which are older than the newest one it has of the same "
        "instance.",
        choices=("by_reception_timestamp", "by_source_timestamp"),
    ),
    OptionSpec(
        "destination_order.source_timestamp_tolerance",
        OptionKind.DURATION,
        "30s",
        "DESTINATION_ORDER source_timestamp_tolerance: how far ahead of its reception a sample may be stamped, by the "
        "reader's clock. With `destination_order=by_source_timestamp`, the reader drops samples that are stamped "
        "later and counts them as `cache.tolerance_source_timestamp_dropped_sample_count`: otherwise a single such "
        "sample would exclude all others of its instance until that time. `time_based_filter` uses the time of "
        "reception of such a sample instead. If the clocks of writers and readers differ, set the tolerance to more "
        "than their difference.",
        _READ,
    ),
    OptionSpec(
        "presentation.access_scope",
        OptionKind.WORD,
        "instance",
        "PRESENTATION access_scope that a sink offers or a source requests. Each query is a publisher or "
        "subscriber of a single topic, so `group` has the same effect as `topic`; in the Python API a second "
        "topic with `group` and coherent or ordered access is refused.",
        choices=("instance", "topic", "group"),
    ),
    OptionSpec(
        "presentation.coherent_access",
        OptionKind.BOOLEAN,
        "false",
        "PRESENTATION coherent_access: a coherent set becomes visible as a whole or not at all. "
        "Everything that one task of a sink writes is one set.",
    ),
    OptionSpec(
        "presentation.ordered_access",
        OptionKind.BOOLEAN,
        "false",
        "PRESENTATION ordered_access that a sink offers or a source requests. Samples of one writer are "
        "in order with either value.",
    ),
    OptionSpec(
        "time_based_filter",
        OptionKind.DURATION,
        "0s",
        "TIME_BASED_FILTER minimum_separation: the reader takes at most one sample of each instance in "
        "this time.",
        _READ,
    ),
    OptionSpec(
        "partition",
        OptionKind.LIST,
        None,
        "PARTITION names of the publisher or subscriber; POSIX wildcards are allowed. Names that are empty "
        'or have commas are written as JSON: `["", "a,b"]`.',
        maximum=PARTITIONS_MAX,
        may_be_empty=True,
    ),
    OptionSpec(
        "user_data",
        OptionKind.OCTETS,
        None,
        "USER_DATA of the writer or reader, which discovery shows to peers.",
        maximum=_OCTETS_MAX,
    ),
    OptionSpec(
        "topic_data",
        OptionKind.OCTETS,
        None,
        "TOPIC_DATA of the topic, which discovery shows to peers.",
        maximum=_OCTETS_MAX,
    ),
    OptionSpec(
        "group_data",
        OptionKind.OCTETS,
        None,
        "GROUP_DATA of the publisher or subscriber, which discovery shows to peers.",
        maximum=_OCTETS_MAX,
    ),
    OptionSpec(
        "max_blocking_time",
        OptionKind.DURATION,
        "30s",
        "RELIABILITY max_blocking_time: how long a write waits for readers that are behind before the "
        "task fails.",
        _WRITE,
    ),
)
