"""What readers and writers announce beside their topic: the type itself, and in a ROS graph its hash."""

from __future__ import annotations

from dataclasses import replace

from ..options import Settings
from ..transport.qos import Qos
from ..transport.types.model import Struct
from .topic_plan import TopicPlan


def announced_type(settings: Settings, plan: TopicPlan) -> Struct | None:
    """The type that peers are told; None: its name alone."""
    return plan.struct if plan.announced and settings.announces_type else None


def endpoint_qos(settings: Settings, plan: TopicPlan) -> Qos:
    """The QoS of a reader or writer: with ``ros=true`` its USER_DATA has the hash of its type, unless it has another
    content."""
    if settings.ros is None or settings.qos.user_data or plan.struct is None:
        return settings.qos
    from ..transport.types.ros_hash import user_data_of

    return replace(settings.qos, user_data=user_data_of(plan.struct))
