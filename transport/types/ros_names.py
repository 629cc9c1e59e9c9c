"""The type names of ROS 2's middleware (rmw_cyclonedds, rmw_fastrtps) on the wire."""

from __future__ import annotations

import re
from typing import Final

from ..errors import TypeDefinitionError

_ROS_NAME: Final = re.compile(r"(\w+)/(?:(msg|srv|action)/)?(\w+)", re.ASCII)
_DDS_NAME: Final = re.compile(r"(\w+)::(msg|srv|action)::(?:dds_::(\w+)_|(\w+))", re.ASCII)


def ros_type_name(name: str) -> str:
    """``sensor_msgs/msg/Imu`` for any form of the name: this one, ``sensor_msgs/Imu``, ``sensor_msgs::msg::Imu`` or
    DDS's ``sensor_msgs::msg::dds_::Imu_``.

    Raises TypeDefinitionError for anything else.
    """
    if found := _ROS_NAME.fullmatch(name):
        package, kind, interface = found[1], found[2] or "msg", found[3]
    elif found := _DDS_NAME.fullmatch(name):
        package, kind, interface = found[1], found[2], found[3] or found[4]
    else:
        raise TypeDefinitionError(f"{name!r} is no name of a ROS 2 interface, such as sensor_msgs/msg/Imu")
    return f"{package}/{kind}/{interface}"


def dds_type_name(name: str) -> str:
    """The type name that ROS 2 announces, ``sensor_msgs::msg::dds_::Imu_``, for any form of the name."""
    package, kind, interface = ros_type_name(name).split("/")
    return f"{package}::{kind}::dds_::{interface}_"
