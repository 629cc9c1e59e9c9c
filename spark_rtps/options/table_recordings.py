"""Options about recordings: which files, and which part of them."""

from __future__ import annotations

from typing import Final

from .spec import AppliesTo, OptionKind, OptionSpec

_READ: Final = AppliesTo.READ

RECORDING_OPTIONS: Final = (
    OptionSpec(
        "recording",
        OptionKind.LIST,
        None,
        "Files to read the topic from, instead of joining a DDS network: MCAP files (`.mcap`), ROS 2 bags (`.db3`) "
        "and captures of a network (`.pcap`, `.pcapng`), as paths, patterns such as `drives/*.mcap`, or folders. The "
        "topic has the name that the files give it, such as `/imu`; `subscribe` and `subscribePattern` read "
        "several. The path has to be the same wherever tasks run. Default: the topic is read live.",
        _READ,
        maximum=256,
    ),
    OptionSpec(
        "startingTime",
        OptionKind.TEXT,
        None,
        "Where a recording is read from: the first sample that was logged at or after this time, which is ISO 8601 "
        "(UTC unless it says otherwise) or milliseconds since 1970.",
        _READ,
    ),
    OptionSpec(
        "endingTime",
        OptionKind.TEXT,
        None,
        "Where reading a recording ends: before the first sample that was logged at or after this time, written as for "
        "`startingTime`.",
        _READ,
    ),
    OptionSpec(
        "log_time",
        OptionKind.BOOLEAN,
        "false",
        "Adds the column `log_time` (TIMESTAMP) to a recording: the time at which the sample was logged. "
        "`startingTime` and `endingTime` skip parts of files by it, which `where` does not.",
        _READ,
    ),
)
