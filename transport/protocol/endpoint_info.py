"""What a local endpoint is told of a remote one that it matches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..limits import UDP_PAYLOAD_MAX
from ..structure import Guid, Locator


@dataclass(frozen=True, slots=True)
class Abilities:
    """What our own endpoints say of themselves, with what is true of all others."""

    #: It is one of ours. A reader then reads DATA_BATCH, and says which codecs of compressed submessages it knows.
    batches: bool = False
    codecs: frozenset[str] = frozenset()
    #: The largest RTPS message it takes.
    message_size_max: int = UDP_PAYLOAD_MAX
    #: A reader that sends no positive acknowledgements, a writer that wants none.
    no_positive_acks: bool = False
    #: A reader that sends status messages, a writer that understands them.
    status_messages: bool = False
    #: What a writer may have on its way to one reader at most, in bytes: larger windows are of no use; 0: any number.
    term_window: int = 0
    #: The name of a writer's publication log, which readers of ours on its host can map, and a number that is in it.
    publication_log: str = ""
    publication_token: int = 0


NO_ABILITIES: Final = Abilities()


@dataclass(frozen=True, slots=True)
class ContentFilterProperty:
    """What a reader is not to be sent (DDS 1.4 §2.2.2.5.3, RTPS 2.5 §9.6.2.2): the content-filtered topic's name and
    the topic it filters, the filter's language, its expression and the expression's parameters."""

    name: str
    related_topic: str
    filter_class: str
    expression: str
    parameters: tuple[str, ...] = ()


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


@dataclass(frozen=True, slots=True)
class ReaderInfo(EndpointInfo):
    """A remote reader; what only ours say of themselves has the default of all others."""

    #: It reads DATA_BATCH, and which codecs of compressed submessages.
    batches: bool = False
    codecs: frozenset[str] = frozenset()
    #: The largest RTPS message it takes.
    message_size_max: int = UDP_PAYLOAD_MAX
    no_positive_acks: bool = False
    #: It sends status messages; of others the writer has acknowledgements alone.
    status_messages: bool = False


@dataclass(frozen=True, slots=True)
class WriterInfo(EndpointInfo):
    """A remote writer."""

    #: It asks not to be sent positive acknowledgements.
    no_positive_acks: bool = False
    #: What an ACKNACK before its first HEARTBEAT says to be missing from, for it to answer with one.
    preemptive_base: int = 1
    #: It filters for the reader: what it no longer has may have been none of the reader's.
    filters: bool = False
    #: It knows of readers that send none, and does not wait for theirs.
    needs_no_acks: bool = True
    #: It understands status messages.
    status_messages: bool = False
    #: See :class:`Abilities`.
    term_window: int = 0
    #: See :class:`Abilities`.
    publication_log: str = ""
    publication_token: int = 0
