"""What readers and writers announce in a ROS graph beside their QoS."""

from __future__ import annotations

from dataclasses import replace

from ..options import Settings
from ..transport.qos import Qos
from .topic_plan import TopicPlan


def endpoint_qos(settings: Settings, plan: TopicPlan) -> Qos:
    """The QoS of a reader or writer: with ``ros=true`` its USER_DATA has the hash of its type, unless it has another
    content."""
    if settings.ros is None or settings.qos.user_data or plan.struct is None:
        return settings.qos
    from ..transport.types.ros_hash import user_data_of

    return replace(settings.qos, user_data=user_data_of(plan.struct))
