"""The options that a query of a recording may set."""

from __future__ import annotations

from typing import Final

from ..transport.errors import OptionError
from .receivers import timestamp
from .spec import AppliesTo
from .table import BY_KEY
from .table_recordings import RECORDING_OPTIONS
from .table_ros import ROS_OPTIONS
from .table_type import TYPE_OPTIONS
from .values import Values

#: Options allowed in addition to those about types, columns and recordings.
_OF_RECORDINGS: Final = frozenset(
    {
        *(
            "topic",
            "subscribe",
            "subscribePattern",
            "domain",
            "metadata",
            "payload",
            "failOnDataLoss",
            "minPartitions",
        ),
        "maxBytesPerTrigger",
        *(spec.name for spec in (*TYPE_OPTIONS, *RECORDING_OPTIONS, *ROS_OPTIONS)),
    }
)


def check_recordings(values: Values) -> None:
    """Raise OptionError for an option that needs ``recording``, or that has no meaning for a recording."""
    if not values.has("recording"):
        for spec in RECORDING_OPTIONS:
            if values.has(spec.name):
                fix = "applies to recordings; name their files by recording, or remove it"
                raise OptionError(spec.name, values.given(spec.name), fix)
        return
    if not values.names("recording"):
        raise OptionError("recording", values.given("recording"), "must name a file, such as drives/*.mcap")
    for one, other in (("startingTimestamp", "startingTime"), ("endingTimestamp", "endingTime")):
        if values.has(one):
            raise OptionError(one, values.given(one), f"applies to receiver services; set {other} instead")
    for spec in BY_KEY.values():
        if (
            spec.applies_to is not AppliesTo.WRITE
            and values.has(spec.name)
            and spec.name not in _OF_RECORDINGS
        ):
            fix = "applies to a live topic, and recording names files; remove one of them"
            raise OptionError(spec.name, values.given(spec.name), fix)
    begin, end = (timestamp(name, values.text(name)) for name in ("startingTime", "endingTime"))
    if begin is not None and end is not None and begin > end:
        given = values.given("endingTime")
        raise OptionError("startingTime", values.given("startingTime"), f"is later than endingTime={given}")
