"""The types of a topic, or of topics that are read together, as the peers on a domain announce them."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..errors import TypeGap, UnknownTypeError
from ..protocol.discovery.topic_selection import TopicSelection
from ..protocol.participant.participant import RemoteEndpoint
from ..qos import TypeConsistency
from ..structure import is_keyed
from ..types.model import Struct
from ..types.xtypes.assignability import incompatibilities_of_types
from .directory import Directory

_LOOK_AGAIN_SECONDS: Final = 0.02
#: Peers, and the endpoints of a peer, appear one after the other: how long to wait for more after the first.
_SETTLE_SECONDS: Final = 0.5
#: Types of one topic that are compared with each other.
_TYPES_MAX: Final = 32
#: Names of one kind that an error lists.
_NAMES_MAX: Final = 12


@dataclass(frozen=True, slots=True)
class AnnouncedType:
    """The type that one endpoint of a topic announces. ``struct`` is None if it announces none, for which ``failure``
    has the reason, or if it has not been requested yet."""

    endpoint: RemoteEndpoint
    struct: Struct | None
    failure: str | None

    @property
    def type_name(self) -> str:
        return self.endpoint.type_name

    @property
    def keyed(self) -> bool:
        return is_keyed(self.endpoint.guid.entity)


def await_type(
    directory: Directory,
    topic: str,
    *,
    timeout: float,
    type_name: str | None = None,
    need_struct: bool = True,
    stopping: Callable[[], bool] = bool,
) -> AnnouncedType:
    """The type that all others on the topic can be read as; only of endpoints with ``type_name``, if that is given.

    It waits as :func:`await_types` does. Raises UnknownTypeError with the endpoints that were seen, or the types that
    contradict each other.
    """
    announced = await_types(
        directory,
        TopicSelection(names=(topic,)),
        timeout=timeout,
        type_name=type_name,
        need_struct=need_struct,
        stopping=stopping,
    )
    return widest(announced, topic)


def await_types(
    directory: Directory,
    selection: TopicSelection,
    *,
    timeout: float,
    type_name: str | None = None,
    need_struct: bool = True,
    stopping: Callable[[], bool] = bool,
) -> list[AnnouncedType]:
    """The types that endpoints on the selected topics announce, of those with ``type_name`` if that is given; only of
    writers, if there are any.

    ``need_struct``: members too, not only name and key. The node has to have ``resolve_types``. It waits until all
    topics of a list have a type, or the first one of a pattern, and a moment for others, but no longer than ``timeout``
    seconds. Raises UnknownTypeError with the endpoints that were seen, if no type is known by then.
    """
    deadline = time.monotonic() + timeout
    settled: float | None = None
    seen: list[AnnouncedType] = []
    changes = -1
    while True:
        if directory.changes != changes:
            changes = directory.changes
            seen = [each for each in _types(directory, selection) if type_name in (None, each.type_name)]
        announced = [each for each in seen if each.struct is not None or not need_struct]
        waits = need_struct and any(each.struct is None and each.failure is None for each in seen)
        topics = {each.endpoint.topic for each in announced}
        now = time.monotonic()
        if settled is None and topics and topics.issuperset(selection.names):
            settled = now + _SETTLE_SECONDS
        is_settled = settled is not None and now >= settled and not waits
        if is_settled or now >= deadline or stopping():
            if not announced:
                raise _unknown(directory, selection, type_name, seen, timeout)
            return [each for each in announced if each.endpoint.kind == "writer"] or announced
        time.sleep(_LOOK_AGAIN_SECONDS)


def common_type(announced: list[AnnouncedType], selection: TopicSelection) -> AnnouncedType | None:
    """The type that all others can be read as; None: they have different names, or there is no such type."""
    if len({each.type_name for each in announced}) > 1:
        return None
    try:
        return widest(announced, str(selection))
    except UnknownTypeError:
        return None


def widest(announced: list[AnnouncedType], topic: str) -> AnnouncedType:
    """The type with most members that the others are assignable to. Raises UnknownTypeError if there is none."""
    writers = [each for each in announced if each.endpoint.kind == "writer"] or announced
    distinct: dict[object, AnnouncedType] = {}
    for each in writers:
        distinct.setdefault(each.struct if each.struct is not None else each.type_name, each)
    candidates = sorted(distinct.values(), key=lambda each: -len(each.struct.members) if each.struct else 0)
    for candidate in candidates if len(candidates) <= _TYPES_MAX else ():
        if all(other is candidate or _is_read_as(other, candidate) for other in candidates):
            return candidate
    names = "; ".join(
        f"{each.type_name!r} by {each.endpoint.participant_name or each.endpoint.guid}" for each in candidates
    )
    raise UnknownTypeError(
        f"topic {topic!r} has {len(candidates)} types that no one type can stand for: {names[:1000]}",
        gap=TypeGap.CONTRADICTORY,
    )


def _is_read_as(writer: AnnouncedType, reader: AnnouncedType) -> bool:
    if writer.struct is None or reader.struct is None:
        return False
    return not incompatibilities_of_types(writer.struct, reader.struct, TypeConsistency())


def _types(directory: Directory, selection: TopicSelection) -> list[AnnouncedType]:
    """The types of the endpoints that are known by now, writers first."""
    with directory.node.lock:
        known = directory.participant.database
        if selection.pattern is None:
            endpoints = [each for name in selection.names for each in known.endpoints_on(name)]
        else:
            endpoints = [each for each in known.endpoints if selection.selects(each.topic)]
        endpoints.sort(key=lambda each: (each.kind != "writer", each.guid))
        return [AnnouncedType(e, known.type_of(e.guid), known.type_failure(e.guid)) for e in endpoints]


def _unknown(
    directory: Directory,
    selection: TopicSelection,
    type_name: str | None,
    seen: list[AnnouncedType],
    timeout: float,
) -> UnknownTypeError:
    is_one = len(selection.names) == 1
    where = f"{'topic' if is_one else 'the topics'} {str(selection)!r} of domain {directory.domain}"
    if seen:
        message = "; ".join(
            f"{each.endpoint.kind} {each.endpoint.participant_name or each.endpoint.guid}"
            f"{'' if is_one else f' of {each.endpoint.topic!r}'}, type {each.type_name!r}: "
            f"{each.failure or 'has not answered yet'}"
            for each in seen[:_NAMES_MAX]
        )
        why = f"nobody on {where} announced a type within {timeout:g} s ({message})"
        return UnknownTypeError(why, gap=TypeGap.UNEXPLAINED)
    with directory.node.lock:
        endpoints = list(directory.participant.database.endpoints)
        participants = len(directory.participant.database.participants)
    here = sorted({e.type_name for e in endpoints if selection.selects(e.topic)})
    if here:
        why = f"nobody on {where} has the type {type_name!r}; there are {', '.join(map(repr, here[:_NAMES_MAX]))}"
        return UnknownTypeError(why, gap=TypeGap.OTHER_NAME)
    written = {e.topic: e.type_name for e in endpoints if e.kind == "writer"}
    looked_for = str(selection)
    near = sorted(written, key=lambda name: (-difflib.SequenceMatcher(None, looked_for, name).ratio(), name))
    topics = [f"{name!r} ({written[name]})" for name in near]
    more = f" and {len(topics) - _NAMES_MAX} more" if len(topics) > _NAMES_MAX else ""
    there = (
        f"topics written there: {', '.join(topics[:_NAMES_MAX])}{more}"
        if topics
        else "nothing is written there"
    )
    return UnknownTypeError(
        f"no one is on {where} after {timeout:g} s; {participants} participants were seen, {there}",
        gap=TypeGap.NO_ENDPOINT,
    )
