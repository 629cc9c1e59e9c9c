"""The type of one or several topics, whose writers announced theirs to receiver services."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Final

from ..columns.type_sources import TopicType, one_for_all
from ..options import Settings
from ..transport.errors import LogLostError, OptionError, UsageError
from ..transport.receiver.writer_types import AnnouncedTypes, WriterTopic
from ..transport.structure import NANOSECONDS, Guid
from ..transport.types.model import Struct
from ..transport.value_classes import slotted
from .receiver_services import Connect, ReceiverService, connect, receiver_services

_POLL_SECONDS: Final = 0.1
_FIX: Final = "set type or type.file, or give the columns with .schema(...)"
#: Stands for the topic where a log has only one.
_THE_TOPIC: Final = WriterTopic()


@slotted
class _AnnouncedTypes:
    """The types that writers announced to all receivers."""

    #: The receivers to which writers announced a type.
    structs: dict[Struct, dict[str, None]] = field(default_factory=dict)
    #: The type names of writers whose topics share a log, and the topics with any announced type.
    type_names: set[str | None] = field(default_factory=set)
    topics: set[str | None] = field(default_factory=set)


def receiver_service_type(settings: Settings, make: Connect = connect) -> TopicType | None:
    """Of the types announced to any receiver, the one with most members, as which all the others can be read.

    Topics that are read together have no common type if theirs differ. The call waits for a first writer (of a list of
    topics, one of each) as long as type.discovery_timeout. Raises OptionError if no type is announced by then, or if
    the types of one topic contradict each other.
    """
    receivers = receiver_services(settings, make)
    deadline = time.monotonic() + settings.type_discovery_timeout / NANOSECONDS
    names = frozenset() if settings.topics is None else frozenset(settings.topics.names)
    try:
        while True:
            announced = _announced(receivers.values(), settings)
            if (announced.structs and names <= announced.topics) or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_SECONDS)
    finally:
        for each in receivers.values():
            each.client.close()
    if not announced.structs:
        binary = "" if settings.topics is None else ", or set payload=binary"
        why = f"no writer has announced its type to the receivers yet: {_FIX}{binary}"
        raise OptionError("type.file", None, why)
    if len(announced.type_names) > 1:
        return None
    try:
        struct = _widest(announced, settings)
    except OptionError:
        if settings.topics is None:
            raise
        return None
    return TopicType(announced.type_names.pop() or struct.name, struct.is_keyed, struct, inferred=True)


def _announced(receivers: Iterable[ReceiverService], settings: Settings) -> _AnnouncedTypes:
    found, wanted = _AnnouncedTypes(), settings.type_name or settings.type
    for each in receivers:
        try:
            types = each.client.writer_types(each.find().log)
        except LogLostError:  # its receiver is starting
            continue
        for writer, struct in types.by_writer.items():
            if struct is None:
                continue
            for topic in _topics(types, writer, settings):
                found.topics.add(topic.topic)
                if settings.topics is None or wanted in (None, topic.type_name):
                    found.type_names.add(topic.type_name)
                    found.structs.setdefault(struct, {})[each.name] = None
    return found


def _topics(types: AnnouncedTypes, writer: Guid, settings: Settings) -> Sequence[WriterTopic]:
    """The topics of a writer that the query reads."""
    selection = settings.topics
    if selection is None:
        return [_THE_TOPIC]
    found = types.topics.get(writer, ())
    return [each for each in found if each.topic is not None and selection.selects(each.topic)]


def _widest(announced: _AnnouncedTypes, settings: Settings) -> Struct:
    """As transport.net.topic_types does with the types of a topic's peers for a query with its own receiver."""
    try:
        found, clash = one_for_all(announced.structs, settings.qos.type_consistency)
    except UsageError as error:
        raise OptionError("type.file", None, f"writers announced to the receivers {error}: {_FIX}") from None
    if clash is None:
        return found
    reader, writer, reasons = clash
    why = (
        f"writers announced {len(announced.structs)} types that no one type can stand for: {_named(reader, announced)} "
        f"does not read {_named(writer, announced)} ({'; '.join(reasons)})"
    )
    raise OptionError("type.file", None, f"{why}: {_FIX}")


def _named(struct: Struct, announced: _AnnouncedTypes) -> str:
    names = list(announced.structs[struct])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{struct.name} at {', '.join(names[:8])}{more}"
