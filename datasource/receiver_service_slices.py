"""Checks the slices of a topic among a query's receivers: each slice once, and no other receiver of all writers.

Receivers share a topic if they receive it in the same domain and the same partitions; others have other writers.
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
    """The warning about wrong slices, or None; with ``failOnDataLoss`` it is a UsageError.

    ``found`` are the subscriptions that are known by now, by the names of their receivers.
    """
    if settings.slice is not None:  # the query asks for one slice; other queries read the others
        return None
    why = wrong_slices(found, [name for name, _ in settings.receivers])
    if why is None:
        return None
    why = f"topic {settings.topic!r}: {why}"
    if settings.fail_on_data_loss:
        fix = "Change slice in the receivers' files, or receivers; or set failOnDataLoss=false to continue"
        raise UsageError(f"{why}. {fix}")
    return f"{why}; continuing because failOnDataLoss=false"


def wrong_slices(found: Mapping[str, SubscriptionInfo], receivers: Collection[str]) -> str | None:
    """Which samples a query reads twice, or not at all, naming receivers and slices; None: none.

    ``found`` are the known subscriptions of some of all ``receivers``: a slice counts as missing only once all are
    known.
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
            f"{shown}: with different numbers of slices, some writers are read twice, and others not at all"
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
        wrong.append(f"{shown}; no receiver has slice {_listed(missing, more)}")
    return wrong


def _listed(texts: list[str], more: int = 0) -> str:
    shown, more = texts[:_NAMED_MAX], more + max(0, len(texts) - _NAMED_MAX)
    if more:
        shown = [*shown, f"{more} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
