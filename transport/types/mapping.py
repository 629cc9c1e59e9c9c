"""The choice between two Arrow types for a DDS type. It is not part of ``arrow``, because options need no PyArrow."""

from __future__ import annotations

from typing import Final

from ..value_classes import value


@value
class Mapping:
    """Which of two Arrow types a DDS type becomes. The first value of each field is the default.

    ``uint64``: ``decimal`` or ``long``; ``enums``: ``string`` or ``int``; ``bitmasks``: ``array`` or ``long``;
    ``times`` (ROS 2's builtin_interfaces Time and Duration): ``struct`` or ``timestamp``.
    """

    uint64: str = "decimal"
    enums: str = "string"
    bitmasks: str = "array"
    times: str = "struct"


DEFAULT_MAPPING: Final = Mapping()
