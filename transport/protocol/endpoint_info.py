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
    """What our endpoints announce beyond the standard; endpoints of other vendors have the defaults."""

    #: The endpoint is one of ours: as a reader it reads DATA_BATCH, and announces its codecs of compressed submessages.
    batches: bool = False
    codecs: frozenset[str] = frozenset()
    #: Bytes of the largest RTPS message that a reader accepts.
    message_size_max: int = UDP_PAYLOAD_MAX
    #: The reader sends no positive acknowledgements; the writer wants none.
    no_positive_acks: bool = False
    #: The reader sends status messages; the writer understands them.
    status_messages: bool = False
    #: Maximum of bytes that a writer has on the way to one reader; a larger window is of no use. 0: unlimited.
    term_window: int = 0
    #: The period of a writer's HEARTBEATs in nanoseconds, rounded to microseconds; 0: not announced.
    heartbeat_period: int = 0
    #: The name of a writer's publication log, which readers of ours on its host can map, and a number recorded in it.
    publication_log: str = ""
    publication_token: int = 0


NO_ABILITIES: Final = Abilities()


@value
class ContentFilterProperty:
    """The content filter of a reader (DDS 1.4 §2.2.2.5.3, RTPS 2.5 §9.6.2.2): the name of the content-filtered topic,
    the topic that it filters, and the filter's language, expression and parameters."""

    name: str
    related_topic: str
    filter_class: str
    expression: str
    parameters: tuple[str, ...] = ()


@value
class StreamInfo:
    """What user code for flow or congestion control learns about its stream: the samples of one writer.

    Attributes:
        topic: the topic's name.
        writer: GUID of the DDS writer.
        channel: ``multicast`` if readers share datagrams, else ``unicast``.
        term_length: bytes of a term of the writer's publication log; at a reader, twice the window that the writer
            announces. 0: the writer has none.
    """

    topic: str
    writer: Guid
    channel: str = "unicast"
    term_length: int = 0

    @property
    def session(self) -> int:
        """32 bits that identify this writer among those of its topic, and differ after a restart (Aeron's session)."""
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
    """A remote reader; fields that only our readers announce have a default."""

    #: Whether it reads DATA_BATCH, and the codecs of compressed submessages that it supports.
    batches: bool = False
    codecs: frozenset[str] = frozenset()
    #: Bytes of the largest RTPS message that a reader accepts.
    message_size_max: int = UDP_PAYLOAD_MAX
    no_positive_acks: bool = False
    #: It sends status messages; other readers send acknowledgements only.
    status_messages: bool = False
    #: It mistakes a serialized key of up to 16 bytes for the key hash.
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
    #: It evaluates the reader's content filter: samples that it no longer has may have been filtered out.
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
