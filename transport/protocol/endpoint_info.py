"""What a local endpoint knows of a remote endpoint that it matches."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Final

from ..limits import UDP_PAYLOAD_MAX
from ..structure import Guid, Locator
from ..value_classes import value
from .policies import ReaderPolicy


@value
class Abilities:
    """What endpoints of ours announce beyond the standard; the defaults hold for all other endpoints."""

    #: The endpoint is one of ours: a reader then reads DATA_BATCH, and announces its codecs of compressed submessages.
    batches: bool = False
    codecs: frozenset[str] = frozenset()
    #: Bytes of the largest RTPS message that a reader accepts.
    message_size_max: int = UDP_PAYLOAD_MAX
    #: The reader sends no positive acknowledgements; the writer wants none.
    no_positive_acks: bool = False
    #: The reader sends status messages; the writer understands them.
    status_messages: bool = False
    #: Bytes that a writer has on the way to one reader at most, so that larger windows are of no use; 0: any number.
    term_window: int = 0
    #: How often a writer repeats HEARTBEATs, in nanoseconds, as far as microseconds tell; 0: it does not say.
    heartbeat_period: int = 0
    #: The name of a writer's publication log, which readers of ours on its host can map, and a number recorded in it.
    publication_log: str = ""
    publication_token: int = 0


NO_ABILITIES: Final = Abilities()


@value
class ContentFilterProperty:
    """Which samples a reader does not want (DDS 1.4 §2.2.2.5.3, RTPS 2.5 §9.6.2.2): the content-filtered topic's name,
    the topic it filters, the filter's language, its expression and the expression's parameters."""

    name: str
    related_topic: str
    filter_class: str
    expression: str
    parameters: tuple[str, ...] = ()


@value
class StreamInfo:
    """What code of the user's is told of the stream that it is to pace: the samples of one writer.

    Attributes:
        topic: the topic's name.
        writer: GUID of the DDS writer.
        channel: ``unicast``, or ``multicast``: whether readers share datagrams.
        term_length: bytes of a term of the writer's publication log; at a reader twice the window that the writer
            announces. 0: it has none.
    """

    topic: str
    writer: Guid
    channel: str = "unicast"
    term_length: int = 0

    @property
    def session(self) -> int:
        """32 bits that tell this writer from others of its topic, and from itself after a restart (Aeron's session)."""
        return zlib.crc32(self.writer.to_bytes())


@value
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


@value
class ReaderInfo(EndpointInfo):
    """A remote reader; what only readers of ours announce has a default for all others."""

    #: It reads DATA_BATCH, and knows these codecs of compressed submessages.
    batches: bool = False
    codecs: frozenset[str] = frozenset()
    #: Bytes of the largest RTPS message that a reader accepts.
    message_size_max: int = UDP_PAYLOAD_MAX
    no_positive_acks: bool = False
    #: It sends status messages; all other readers send acknowledgements only.
    status_messages: bool = False
    #: It takes a serialized key for the key hash, where that is not longer than one.
    mistakes_keys: bool = False

    def resized(self, message_size_max: int) -> ReaderInfo:
        """The same with another largest message."""
        return replace(self, message_size_max=message_size_max)


@value
class WriterInfo(EndpointInfo):
    """A remote writer."""

    #: It wants no positive acknowledgements.
    no_positive_acks: bool = False
    #: The first missing sequence number in an ACKNACK that makes the writer send its first HEARTBEAT.
    preemptive_base: int = 1
    #: It filters for the reader: samples that it no longer has may have been filtered out.
    filters: bool = False
    #: It knows which readers send no positive acknowledgements, and does not wait for them.
    needs_no_acks: bool = True
    #: It understands status messages.
    status_messages: bool = False
    #: See :class:`Abilities`.
    term_window: int = 0
    #: See :class:`Abilities`.
    heartbeat_period: int = 0
    #: See :class:`Abilities`.
    publication_log: str = ""
    publication_token: int = 0

    def is_suppressed(self, policy: ReaderPolicy) -> bool:
        """Whether a reader with this policy leaves some of the writer's periodic HEARTBEATs unanswered."""
        return 0 < self.heartbeat_period < policy.heartbeat_suppression_duration

    def keeps_silent(self, policy: ReaderPolicy) -> bool:
        """Whether a reader with this policy acknowledges nothing to the writer, and only requests."""
        return self.no_positive_acks or (policy.disable_positive_acks and self.needs_no_acks)
