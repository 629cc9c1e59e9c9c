"""Options by which a source or sink takes part in a ROS 2 system."""

from __future__ import annotations

from typing import Final

from .spec import OptionKind, OptionSpec

ROS_OPTIONS: Final[tuple[OptionSpec, ...]] = (
    OptionSpec(
        "ros",
        OptionKind.BOOLEAN,
        "false",
        "Whether names are those of ROS 2: the topics `/imu` and `imu` are `rt/imu` on the wire, a name that begins "
        "with `rt/` is used unchanged, and `pkg/msg/Type` is announced as `pkg::msg::dds_::Type_`. Without "
        "`qos.profile` and `qos.file`, QoS is `qos.profile=best_available`. A source without columns and without a "
        "type looks up the definition of the name that the topic's writers give their type. The participant is a node "
        "of the ROS graph. The environment variables ROS_DOMAIN_ID, ROS_LOCALHOST_ONLY, "
        "ROS_AUTOMATIC_DISCOVERY_RANGE, ROS_STATIC_PEERS and ROS_DISTRO of the driver apply if no option is set. For "
        'a recording only names matter: `/imu` is what its files call `/imu` or `rt/imu`. `format("ros2")` is '
        '`format("rtps")` with `ros=true`.',
    ),
    OptionSpec(
        "ros.node",
        OptionKind.TEXT,
        "spark_rtps",
        "Name of the node that `ros2 node list` shows for the participant. Requires `ros=true`. The workers of one "
        "sink share it.",
    ),
    OptionSpec(
        "ros.namespace",
        OptionKind.TEXT,
        "/",
        "Namespace of the node, and of topics that are named without a leading slash. Requires `ros=true`.",
    ),
    OptionSpec(
        "ros.remap",
        OptionKind.LIST,
        None,
        "Names to replace, as `from:=to`, both relative to `ros.namespace` unless they begin with a slash: with "
        "`scan:=front/scan` the topic `scan` is `front/scan`. Requires `ros=true`.",
    ),
)
