"""Options that are DDS QoS policies of an endpoint, on both sides of the wire."""

from __future__ import annotations

from typing import Final

from ...transport.limits import PARTITIONS_MAX
from .spec import AppliesTo, Kind, OptionSpec

_READ, _WRITE = AppliesTo.READ, AppliesTo.WRITE

#: A parameter's length has 16 bits on the wire, and is a multiple of 4; it holds a count besides.
_OCTETS_MAX: Final = (1 << 16) - 8

QOS_OPTIONS: Final[tuple[OptionSpec, ...]] = (
    OptionSpec(
        "qos.profile",
        Kind.TEXT,
        None,
        "Defaults for the QoS options; what is set by itself wins. Without `qos.file` one of ROS 2's: `default`, "
        "`sensor_data`, `services_default`, `parameters`, `parameter_events`, `system_default` (the defaults of "
        "this table), `best_available` (a reader requests `best_effort` and `volatile`, which every writer "
        "offers; a writer offers `reliable` and `transient_local`, which suit every reader). With `qos.file` a "
        "profile of that file, as `name` or `library::name`.",
    ),
    OptionSpec(
        "qos.file",
        Kind.TEXT,
        None,
        "XML file with QoS profiles on the driver, as RTI Connext and the OMG write them (`qos_library`) or as "
        "Fast DDS does (`profiles`). Without `qos.profile` the one it marks as default, or its only one. What it "
        "says that has no option here is named in a warning.",
    ),
    OptionSpec(
        "reliability",
        Kind.WORD,
        "reliable",
        "RELIABILITY. A `reliable` reader does not match `best_effort` writers (ROS 2 sensor data): the "
        "receiver says so on stderr.",
        choices=("reliable", "best_effort"),
    ),
    OptionSpec(
        "durability",
        Kind.WORD,
        "volatile",
        "DURABILITY. A reader of a kind other than `volatile` gets the history writers keep, and does not match "
        "writers of a weaker kind. Our writers keep theirs in memory whichever it is: `transient` and "
        "`persistent` are there to match with.",
        choices=("volatile", "transient_local", "transient", "persistent"),
    ),
    OptionSpec(
        "history",
        Kind.WORD,
        "keep_all",
        "HISTORY. A `keep_last` writer keeps the last `history.depth` samples of each instance for late joiners "
        "of a `transient_local` topic; what matched readers have not acknowledged it keeps too. A `keep_last` "
        "reader takes at most so many samples of an instance out of one DATA_BATCH, which arrives at once: the others "
        "are lost, and counted. Samples that arrive one by one go to the log as they come.",
        choices=("keep_all", "keep_last"),
    ),
    OptionSpec("history.depth", Kind.INTEGER, "1", "HISTORY depth; implies `history=keep_last`.", minimum=1),
    OptionSpec(
        "resource_limits.max_samples",
        Kind.COUNT,
        "unlimited",
        "RESOURCE_LIMITS max_samples. Of a writer with `history=keep_all`: how many samples may wait for "
        "acknowledgements, then writing waits too; with `keep_last` of a keyed, `transient_local` topic: how "
        "many are kept for late joiners, of all instances together. A batch never holds more. Of a reader: what "
        "goes beyond in one DATA_BATCH is rejected and counted.",
        minimum=1,
    ),
    OptionSpec(
        "resource_limits.max_instances",
        Kind.COUNT,
        "unlimited",
        "RESOURCE_LIMITS max_instances, of keyed topics. A reader rejects samples of instances that find no room.",
        minimum=1,
    ),
    OptionSpec(
        "resource_limits.max_samples_per_instance",
        Kind.COUNT,
        "unlimited",
        "RESOURCE_LIMITS max_samples_per_instance, of keyed topics. A batch holds no more of one instance; what "
        "goes beyond in one DATA_BATCH a reader rejects.",
        minimum=1,
    ),
    OptionSpec("deadline", Kind.DURATION, "infinite", "DEADLINE period, offered or requested.", minimum=1),
    OptionSpec(
        "latency_budget",
        Kind.DURATION,
        "0s",
        "LATENCY_BUDGET duration, offered or requested. `earliest_deadline_first` flow controllers go by it.",
    ),
    OptionSpec(
        "lifespan",
        Kind.DURATION,
        "infinite",
        "LIFESPAN of what is written; readers drop what is older.",
        _WRITE,
        minimum=1,
    ),
    OptionSpec(
        "liveliness",
        Kind.WORD,
        "automatic",
        "LIVELINESS kind, offered or requested. A sink asserts the manual kinds by writing, and no other way.",
        choices=("automatic", "manual_by_participant", "manual_by_topic"),
    ),
    OptionSpec(
        "liveliness.lease_duration",
        Kind.DURATION,
        "infinite",
        "LIVELINESS lease_duration, offered or requested.",
        minimum=1,
    ),
    OptionSpec(
        "ownership",
        Kind.WORD,
        "shared",
        "OWNERSHIP; both sides must agree. An `exclusive` reader takes an instance from its strongest live "
        "writer only.",
        choices=("shared", "exclusive"),
    ),
    OptionSpec(
        "ownership.strength",
        Kind.INTEGER,
        "0",
        "OWNERSHIP_STRENGTH of the writer.",
        _WRITE,
        minimum=0,
        maximum=(1 << 31) - 1,
    ),
    OptionSpec(
        "destination_order",
        Kind.WORD,
        "by_reception_timestamp",
        "DESTINATION_ORDER, offered or requested. A reader that requests `by_source_timestamp` drops samples of "
        "an instance that are older than what it has.",
        choices=("by_reception_timestamp", "by_source_timestamp"),
    ),
    OptionSpec(
        "presentation.access_scope",
        Kind.WORD,
        "instance",
        "PRESENTATION access_scope, offered or requested. A query is a publisher or subscriber of one topic, so "
        "`group` does no more than `topic`.",
        choices=("instance", "topic", "group"),
    ),
    OptionSpec(
        "presentation.coherent_access",
        Kind.BOOLEAN,
        "false",
        "PRESENTATION coherent_access: a coherent set becomes visible whole or not at all. What a sink's task "
        "writes is one set.",
    ),
    OptionSpec(
        "presentation.ordered_access",
        Kind.BOOLEAN,
        "false",
        "PRESENTATION ordered_access, offered or requested. Samples of one writer are in its order either way.",
    ),
    OptionSpec(
        "time_based_filter",
        Kind.DURATION,
        "0s",
        "TIME_BASED_FILTER minimum_separation: at most one sample of an instance in so long.",
        _READ,
    ),
    OptionSpec(
        "partition",
        Kind.LIST,
        None,
        "PARTITION names; POSIX wildcards allowed.",
        maximum=PARTITIONS_MAX,
    ),
    OptionSpec(
        "user_data", Kind.OCTETS, None, "USER_DATA, shown to peers by discovery.", maximum=_OCTETS_MAX
    ),
    OptionSpec(
        "topic_data", Kind.OCTETS, None, "TOPIC_DATA, shown to peers by discovery.", maximum=_OCTETS_MAX
    ),
    OptionSpec(
        "group_data", Kind.OCTETS, None, "GROUP_DATA, shown to peers by discovery.", maximum=_OCTETS_MAX
    ),
    OptionSpec(
        "max_blocking_time",
        Kind.DURATION,
        "30s",
        "RELIABILITY max_blocking_time: how long a write waits while readers are behind, before the task "
        "fails.",
        _WRITE,
    ),
)
