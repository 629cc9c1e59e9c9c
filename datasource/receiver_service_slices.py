"""Slices of a topic among the receivers of a query: each has to be there once, and no receiver without one beside them.

Receivers share a topic where they receive it in the same domain and the same partitions; others have other writers.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

from ..options import Settings
from ..serving.wire_format.receiver_service import SubscriptionInfo
from ..transport.errors import UsageError
from ..transport.protocol.participant.slices import Slice

#: Slices and receivers that a message names.
_NAMED_MAX: Final = 16

#: The slice of each receiver, by its name; None: it takes all writers.
_Shares: TypeAlias = dict[str, Slice | None]


def check_slices(found: Mapping[str, SubscriptionInfo], settings: Settings) -> str | None:
    """What to warn of, if anything: with ``failOnDataLoss`` it is a UsageError.

    ``found`` are the subscriptions that are known by now, by the names of their receivers.
    """
    if settings.slice is not None:  # the query asked for this one, and somebody else reads the others
        return None
    why = wrong_slices(found, [name for name, _ in settings.receivers])
    if why is None:
        return None
    why = f"topic {settings.topic!r}: {why}"
    if settings.fail_on_data_loss:
        fix = "Change slice in the receivers' files, or receivers; or set failOnDataLoss=false to go on"
        raise UsageError(f"{why}. {fix}")
    return f"{why}; going on because failOnDataLoss=false"


def wrong_slices(found: Mapping[str, SubscriptionInfo], receivers: Collection[str]) -> str | None:
    """What a query reads twice, or not at all, in words that name receivers and slices; None: nothing.

    ``found`` are the subscriptions that are known by now, of some of all ``receivers``: whether a slice is missing is
    not known before all are.
    """
    places: dict[tuple[int, str], _Shares] = defaultdict(dict)
    for name in sorted(found):
        info = found[name]
        places[info.domain, info.options.get("partition", "")][name] = info.slice
    is_whole = found.keys() >= set(receivers)
    wrong = [
        message
        for shares in places.values()
        if any(shares.values())
        for message in _wrong(shares, is_whole=is_whole)
    ]
    return "; ".join(wrong) or None


def _wrong(shares: _Shares, *, is_whole: bool) -> list[str]:
    slices = {name: each for name, each in shares.items() if each is not None}
    shown = _listed([f"{name} has slice {each}" for name, each in slices.items()])
    if len(slices) < len(shares):
        others = [name for name, each in shares.items() if each is None]
        return [f"{shown}, and {_listed(others)} has none and reads the writers of all slices again"]
    if len({each.count for each in slices.values()}) > 1:
        return [
            f"{shown}: with different numbers of slices, some writers are read twice, and others by nobody"
        ]
    by_slice: dict[Slice, list[str]] = defaultdict(list)
    for name, each in slices.items():
        by_slice[each].append(name)
    twice = [f"{_listed(names)} have slice {each}" for each, names in by_slice.items() if len(names) > 1]
    wrong = [f"{_listed(twice)}: the same writers are read more than once"] if twice else []
    count = next(iter(by_slice)).count
    if is_whole and len(by_slice) < count:
        lacking = (str(each) for each in (Slice(i, count) for i in range(count)) if each not in by_slice)
        missing = list(itertools.islice(lacking, _NAMED_MAX))
        more = count - len(by_slice) - len(missing)
        wrong.append(f"{shown}, and nobody reads slice {_listed(missing, more)}")
    return wrong


def _listed(texts: list[str], more: int = 0) -> str:
    shown, more = texts[:_NAMED_MAX], more + max(0, len(texts) - _NAMED_MAX)
    if more:
        shown = [*shown, f"{more} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
