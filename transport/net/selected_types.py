"""The types of the topics that are read together, as the peers on a domain tell them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ..errors import TypeGap, UnknownTypeError
from ..protocol.topic_selection import TopicSelection
from .topic_types import ToldType, widest

if TYPE_CHECKING:
    from .node import Node

_LOOK_AGAIN_SECONDS: Final = 0.02
#: Peers come one after the other, and so do their endpoints: how long to look for more than those that were asked for.
_SETTLE_SECONDS: Final = 0.5
_NAMES_MAX: Final = 12


def await_types(
    node: Node,
    selection: TopicSelection,
    *,
    timeout: float,
    type_name: str | None = None,
    stopping: Callable[[], bool] = bool,
) -> list[ToldType]:
    """What the endpoints on the selected topics tell, of those named ``type_name`` if that is given; writers alone,
    where there are any. ``node`` has to have ``resolve_types``.

    It waits until all topics of a list have told theirs, or the first one of a pattern, but no longer than ``timeout``
    seconds. Raises UnknownTypeError if nobody has told one by then.
    """
    deadline = time.monotonic() + timeout
    settled: float | None = None
    seen: list[ToldType] = []
    changes = -1
    while True:
        if node.participant.changes != changes:
            changes = node.participant.changes
            seen = [each for each in _types(node, selection) if type_name in (None, each.type_name)]
        told = [each for each in seen if each.struct is not None]
        waits = any(each.struct is None and each.failure is None for each in seen)
        topics = {each.endpoint.topic for each in told}
        now = time.monotonic()
        if settled is None and topics and topics.issuperset(selection.names):
            settled = now + _SETTLE_SECONDS
        is_over = now >= deadline or stopping()
        if is_over or (settled is not None and now >= settled and not waits):
            if not told:
                raise _unknown(node, selection, seen, timeout)
            return [each for each in told if each.endpoint.kind == "writer"] or told
        time.sleep(_LOOK_AGAIN_SECONDS)


def common_type(told: list[ToldType], selection: TopicSelection) -> ToldType | None:
    """The type that all others can be read as; None: they have different names, or no one type can stand for all."""
    if len({each.type_name for each in told}) > 1:
        return None
    try:
        return widest(told, str(selection))
    except UnknownTypeError:
        return None


def _types(node: Node, selection: TopicSelection) -> list[ToldType]:
    with node.lock:
        participant = node.participant
        endpoints = [each for each in participant.remote_endpoints if selection.selects(each.topic)]
        endpoints.sort(key=lambda each: each.guid)
        return [ToldType(e, participant.type_of(e.guid), participant.type_failure(e.guid)) for e in endpoints]


def _unknown(node: Node, selection: TopicSelection, seen: list[ToldType], timeout: float) -> UnknownTypeError:
    domain = node.config.domain
    if seen:
        said = "; ".join(
            f"{each.endpoint.kind} of {each.endpoint.topic!r}, type {each.type_name!r}: "
            f"{each.failure or 'has not answered yet'}"
            for each in seen[:_NAMES_MAX]
        )
        why = f"nobody on the topics {str(selection)!r} of domain {domain} told a type within {timeout:g} s ({said})"
        return UnknownTypeError(why, gap=TypeGap.UNTOLD)
    topics = sorted(node.written_topics())
    more = f" and {len(topics) - _NAMES_MAX} more" if len(topics) > _NAMES_MAX else ""
    there = ", ".join(map(repr, topics[:_NAMES_MAX])) + more if topics else "none"
    why = (
        f"no one is on the topics {str(selection)!r} of domain {domain} after {timeout:g} s; topics written there: "
        f"{there}"
    )
    return UnknownTypeError(why, gap=TypeGap.NO_ENDPOINT)
