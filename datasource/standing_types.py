"""The type of a topic whose writers told theirs to standing receivers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from ..columns.several_types import one_for_all
from ..columns.type_sources import TopicType
from ..options import Settings
from ..transport.errors import OptionError, UsageError
from ..transport.structure import NANOSECONDS
from ..transport.types.model import Struct
from .standing_receivers import Connect, StandingReceiver, connect, standing_receivers

_POLL_SECONDS: Final = 0.1
_FIX: Final = "set type or type.file, or give the columns with .schema(...)"

#: The receivers to which writers told a type.
_Told = Mapping[Struct, list[str]]


def standing_type(settings: Settings, make: Connect = connect) -> TopicType:
    """The type with most members of those that writers told any receiver, as which all the others can be read.

    A first writer is waited for, as long as type.discovery_timeout says. Raises OptionError if there is no such type.
    """
    receivers = standing_receivers(settings, make)
    deadline = time.monotonic() + settings.type_discovery_timeout / NANOSECONDS
    try:
        while not (told := _told(receivers.values())) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
    finally:
        for each in receivers.values():
            each.client.close()
    if not told:
        raise OptionError("type.file", None, f"no writer has told its type to the receivers yet: {_FIX}")
    struct = _widest(told, settings)
    return TopicType(struct.name, struct.is_keyed, struct, told=True)


def _told(receivers: Iterable[StandingReceiver]) -> dict[Struct, list[str]]:
    found: dict[Struct, list[str]] = {}
    for each in receivers:
        types = each.client.writer_types(each.find().log)
        for struct in dict.fromkeys(types.by_writer.values()):
            if struct is not None:
                found.setdefault(struct, []).append(each.name)
    return found


def _widest(told: _Told, settings: Settings) -> Struct:
    """As the topic's peers are asked where a query has its own receiver (transport.net.topic_types)."""
    try:
        found, clash = one_for_all(told, settings.qos.type_consistency)
    except UsageError as error:
        raise OptionError("type.file", None, f"writers told the receivers {error}: {_FIX}") from None
    if clash is None:
        return found
    reader, writer, reasons = clash
    why = (
        f"writers told the receivers {len(told)} types that no one type can stand for: {_named(reader, told)} "
        f"does not read {_named(writer, told)} ({'; '.join(reasons)})"
    )
    raise OptionError("type.file", None, f"{why}: {_FIX}")


def _named(struct: Struct, told: _Told) -> str:
    names = told[struct]
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{struct.name} at {', '.join(names[:8])}{more}"
