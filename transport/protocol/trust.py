"""From which addresses datagrams are accepted: the networks of peers, and the trusted addresses of a participant."""

from __future__ import annotations

import enum
import ipaddress
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ..errors import DropReason, UsageError
from ..limits import ADDRESSES_REMEMBERED_MAX
from ..wire.message import HEADER_SIZE

if TYPE_CHECKING:  # what only knows options of it needs no NumPy
    from ..wire.samples import U8

_LOG: Final = "log of "


class Trust(enum.StrEnum):
    """What makes a message trusted, beside the GUID prefix that it names."""

    #: It must come from an address of the participant that it names.
    ADDRESS = "address"
    #: Addresses are not checked.
    ANY = "any"


def source_of_log(prefix: bytes) -> str:
    """The source of messages that were read from a publication log of this participant.

    Such messages are no datagrams: the log's file and its token prove that it belongs to this participant. The text is
    no address, so that nothing from the network has this source.
    """
    return _LOG + prefix.hex()


def is_address(source: str) -> bool:
    """Whether a source is an address, from which datagrams come."""
    return not source.startswith(_LOG)


class Networks:
    """IPv4 networks, such as ``10.1.0.0/16`` or ``10.1.2.3``, and the test whether an address lies in one of them.

    Raises UsageError for a text that is no network, or whose host bits are not zero.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(texts)
        try:
            self._networks = [ipaddress.IPv4Network(text) for text in self.texts]
        except ValueError as error:
            raise UsageError(f"no IPv4 network: {error}") from None
        self._known: dict[str, bool] = {}

    def __contains__(self, address: str) -> bool:
        """Whether an address in dotted notation lies in one of the networks; the answer is cached."""
        known = self._known.get(address)
        if known is None:
            if len(self._known) >= ADDRESSES_REMEMBERED_MAX:
                self._known.clear()
            known = self._known[address] = self._look(address)
        return known

    def _look(self, address: str) -> bool:
        try:
            found = ipaddress.IPv4Address(address)
        except ValueError:
            return False
        return any(found in network for network in self._networks)


class AdmittedPeers:
    """Which datagrams are accepted: those from the given networks, and the participant's own.

    Messages from publication logs of this host have no address, and are accepted: readers read only the logs of writers
    that were discovered.
    """

    def __init__(
        self, networks: Networks | None, prefix: bytes, own: Iterable[str], drops: Counter[DropReason]
    ) -> None:
        """``networks``: None admits all. ``own``: the addresses that the participant with GUID prefix ``prefix`` sends
        from."""
        self._networks = networks
        self._prefix = prefix
        self._own = frozenset(own)
        self._drops = drops

    def admits(self, address: str) -> bool:
        """Whether messages of other participants are accepted from an address."""
        return self._networks is None or not is_address(address) or address in self._networks

    def admit(self, data: U8, spans: Sequence[tuple[int, int, str]]) -> Sequence[tuple[int, int, str]]:
        """The accepted datagrams of a burst; the others are counted. This costs one look-up for each datagram, and one
        for each address."""
        if self._networks is None:
            return spans
        refused = {address for address in {span[2] for span in spans} if not self.admits(address)}
        if not refused:
            return spans
        admitted = [span for span in spans if span[2] not in refused or self._is_own(data, span)]
        self._drops[DropReason.PEER_NOT_ADMITTED] += len(spans) - len(admitted)
        return admitted

    def _is_own(self, data: U8, span: tuple[int, int, str]) -> bool:
        """Whether a datagram is the participant's own: its endpoints reach each other whatever the networks are."""
        start, stop, address = span
        if address not in self._own or stop - start < HEADER_SIZE:
            return False
        return data[start + HEADER_SIZE - len(self._prefix) : start + HEADER_SIZE].tobytes() == self._prefix
