"""The parameters of a reader or writer of ours: one value each, from the user's call to the state machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field

from ...limits import FRAGMENTED_SAMPLE_MAX
from ...qos import Qos
from ...structure import Guid, Locator
from ...types.model import Struct
from ...value_classes import value
from ..endpoint_info import ContentFilterProperty
from ..policies import PUBLICATION_POLICY, READER_POLICY, PublicationPolicy, ReaderPolicy
from .slices import Slice


@value
class ReaderSpec:
    """A reader of one topic."""

    topic: str
    type_name: str
    qos: Qos
    #: The topic's type has a key.
    keyed: bool = field(default=False, kw_only=True)
    policy: ReaderPolicy = field(default=READER_POLICY, kw_only=True)
    #: The reader announces this type, and the participant sends it to peers that request it.
    type: Struct | None = field(default=None, kw_only=True)
    #: Whether a reader without a type matches a writer only once the look-up of the writer's type has ended.
    awaits_types: bool = field(default=False, kw_only=True)
    #: The content filter announced to writers, which need not send samples that the reader would drop.
    content_filter: ContentFilterProperty | None = field(default=None, kw_only=True)
    #: 24 bits. With the same key, the reader has the same GUID after a restart. None: any key that is free.
    entity_key: int | None = field(default=None, kw_only=True)
    #: The highest sequence number that this reader had taken from each writer before a restart.
    resume: Mapping[Guid, int] = field(default_factory=dict, kw_only=True)
    #: Of these, the writers that knew the reader under another GUID.
    moved_from: Collection[Guid] = field(default=(), kw_only=True)
    #: Samples count as consumed when the owner calls `StatefulReader.consumed`, not when it takes them.
    consumption_held: bool = field(default=False, kw_only=True)
    #: Bytes of the largest sample, or coherent set, that the owner takes. The reader passes over larger ones.
    sample_size_max: int = field(default=FRAGMENTED_SAMPLE_MAX, kw_only=True)
    #: Only the writers of this slice are read. None: all.
    slice: Slice | None = field(default=None, kw_only=True)
    #: The multicast groups that the participant receives and the reader announces.
    multicast: tuple[Locator, ...] = field(default=(), kw_only=True)


@value
class WriterSpec:
    """A writer of one topic."""

    topic: str
    type_name: str
    qos: Qos
    #: The topic's type has a key; each sample is then written with its key hash.
    keyed: bool = field(default=False, kw_only=True)
    policy: PublicationPolicy = field(default=PUBLICATION_POLICY, kw_only=True)
    #: The writer announces this type, and the participant sends it to peers that request it.
    type: Struct | None = field(default=None, kw_only=True)
    #: 24 bits. With the same key, the writer has the same GUID after a restart. None: any key that is free.
    entity_key: int | None = field(default=None, kw_only=True)
