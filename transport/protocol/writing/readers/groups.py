"""Which readers of one writer get samples by a multicast group, and which by unicast.

A group replaces several copies, never a single one: it is used if it reaches readers at two addresses or more, and all
other readers get copies of their own. Unicast would send every datagram to a group at least twice. So a participant
that announces a group which is not its own makes us send less, not more.

A reader counts for a group if

* discovery found that the group reaches it (:mod:`...participant.multicast`), and it does not read the publication
  log here;
* it has sent an ACKNACK, if it is reliable: before that nothing shows that the reader exists;
* it is not *deaf*: it acknowledges more than the samples that were sent to it alone (:class:`.ReaderProxy`).

All readers of one group get the same datagrams, so these have the most capable form of batches that all of them read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ....structure import Locator
from ..changes import BATCH, DATA
from .reader_proxy import ReaderProxy

#: Least number of readers' addresses for which a group is used.
GROUP_LEAST: Final = 2


def regroup(readers: Iterable[ReaderProxy]) -> bool:
    """Choose group or unicast for all readers of a writer; returns whether some get a group."""
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
    """The destinations of a datagram to these readers, each once.

    If several of the readers share a group, it is the group; otherwise it is each reader's own address.
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
    """The addresses to which unicast copies for these readers would go."""
    return {locator for proxy in members for locator in proxy.info.unicast}


def _common_form(members: list[ReaderProxy]) -> str:
    """The form of batches that all of them read."""
    forms = {proxy.best_form for proxy in members}
    if len(forms) == 1:
        return forms.pop()
    return DATA if DATA in forms else BATCH
