"""Which readers of one writer are sent samples by a multicast group, and which by unicast.

A group takes the place of several copies, never of one: it is used where it reaches readers at two addresses or more,
and all others are sent copies of their own. Every datagram to a group is one that unicast would have sent at least
twice, so that whoever names a group that is not its own makes us send less, not more.

A reader counts for a group if

* discovery found that the group reaches it (:mod:`...participant.multicast`), and it does not read the publication
  log here;
* it has sent an ACKNACK, if it is reliable: before that nothing shows that anybody is there;
* it is not *deaf*: it acknowledges more than what was sent to it alone (:class:`.ReaderProxy`).

Readers of one group are sent one form of batches, the least that all of them read: they hear each other's copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ....structure import Locator
from ..changes import BATCH, DATA
from .reader_proxy import ReaderProxy

#: Addresses of readers that make a group.
GROUP_LEAST: Final = 2


def regroup(readers: Iterable[ReaderProxy]) -> bool:
    """Decide for all readers of a writer how they are reached; returns whether some are by a group."""
    left: dict[Locator, list[ReaderProxy]] = {}
    for proxy in readers:
        proxy.group, proxy.form = None, proxy.best_form
        for group in _groups_of(proxy):
            left.setdefault(group, []).append(proxy)
    found = False
    while left:
        group = max(left, key=lambda each: len(_addresses(left[each])))
        members = left.pop(group)
        if len(_addresses(members)) < GROUP_LEAST:
            break
        found = True
        form = _common_form(members)
        for proxy in members:
            proxy.group, proxy.form = group, form
        for other, rest in [*left.items()]:
            left[other] = [proxy for proxy in rest if proxy.group is None]
    return found


def destinations_of(readers: Iterable[ReaderProxy]) -> tuple[Locator, ...]:
    """Where to send what these readers are to have: each address once.

    A group for those of its readers that are among them, if they are several; else each reader's own address.
    """
    readers = list(readers)
    together: dict[Locator, list[ReaderProxy]] = {}
    for proxy in readers:
        if proxy.group is not None:
            together.setdefault(proxy.group, []).append(proxy)
    used = {group for group, members in together.items() if len(_addresses(members)) >= GROUP_LEAST}
    found: dict[Locator, None] = {}
    for proxy in readers:
        if proxy.group is not None and proxy.group in used:
            found[proxy.group] = None
        else:
            found.update(dict.fromkeys(proxy.info.destinations))
    return tuple(found)


def _groups_of(proxy: ReaderProxy) -> tuple[Locator, ...]:
    silent = proxy.reliable and not proxy.received
    alone = proxy.is_on_host or proxy.is_deaf or silent or not proxy.info.unicast
    return () if alone else proxy.info.multicast


def _addresses(members: Iterable[ReaderProxy]) -> set[Locator]:
    """Where copies for these readers would go."""
    return {locator for proxy in members for locator in proxy.info.unicast}


def _common_form(members: list[ReaderProxy]) -> str:
    """The form of batches that all of them read."""
    forms = {proxy.best_form for proxy in members}
    if len(forms) == 1:
        return forms.pop()
    return DATA if DATA in forms else BATCH
