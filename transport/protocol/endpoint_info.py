"""What a local endpoint is told of a remote one that it matches."""

from __future__ import annotations

from dataclasses import dataclass

from ..structure import Guid, Locator


@dataclass(frozen=True, slots=True)
class EndpointInfo:
    """A remote endpoint, as discovery found it."""

    guid: Guid
    unicast: tuple[Locator, ...]
    multicast: tuple[Locator, ...]
    reliable: bool
    transient_local: bool

    @property
    def destinations(self) -> tuple[Locator, ...]:
        return self.unicast or self.multicast


class ReaderInfo(EndpointInfo):
    """A remote reader."""

    __slots__ = ()


class WriterInfo(EndpointInfo):
    """A remote writer."""

    __slots__ = ()
