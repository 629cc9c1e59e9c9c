"""Names of ROS 2 in DDS: what its middleware (rmw_cyclonedds, rmw_fastrtps) calls topics and types on the wire."""

from __future__ import annotations

import re
from typing import Final

from ..errors import TypeDefinitionError

_ROS_NAME: Final = re.compile(r"(\w+)/(?:(msg|srv|action)/)?(\w+)", re.ASCII)
_DDS_NAME: Final = re.compile(r"(\w+)::(msg|srv|action)::(?:dds_::(\w+)_|(\w+))", re.ASCII)

#: Prefix and suffix of a topic's name, by what it carries.
_TOPICS: Final = {"message": ("rt", ""), "request": ("rq", "Request"), "response": ("rr", "Reply")}


def ros_type_name(name: str) -> str:
    """``sensor_msgs/msg/Imu``, of that, of ``sensor_msgs/Imu``, ``sensor_msgs::msg::Imu`` or DDS's
    ``sensor_msgs::msg::dds_::Imu_``.

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
    """The type name ROS 2 announces: ``sensor_msgs::msg::dds_::Imu_``, of any form that :func:`ros_type_name` reads."""
    package, kind, interface = ros_type_name(name).split("/")
    return f"{package}::{kind}::dds_::{interface}_"


def dds_topic_name(name: str, carries: str = "message") -> str:
    """DDS's name of a ROS topic, ``rt/imu`` of ``/imu``; or of a service's ``request`` or ``response`` topic,
    ``rq/addRequest`` and ``rr/addReply`` of ``/add``."""
    prefix, suffix = _TOPICS[carries]
    return f"{prefix}/{name.removeprefix('/')}{suffix}"


def ros_topic_name(topic: str) -> str | None:
    """ROS's name of a DDS topic: ``/imu`` of ``rt/imu``, the service ``/add`` of ``rq/addRequest``; None of one that
    is not ROS's."""
    for prefix, suffix in _TOPICS.values():
        if topic.startswith(f"{prefix}/") and topic.endswith(suffix):
            return topic[len(prefix) : len(topic) - len(suffix)]
    return None
