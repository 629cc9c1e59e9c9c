"""The configuration of a receiver process: what it subscribes to, its log, its place on the network."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from ..log.permissions import PRIVATE
from ..net.node_config import NodeConfig, RosNode
from ..protocol.discovery.topic_selection import TopicSelection
from ..protocol.participant.slices import Slice
from ..protocol.policies import CongestionControlPolicy, ReaderPolicy
from ..protocol.trust import Trust
from ..qos import (
    DestinationOrderKind,
    DurabilityKind,
    HistoryKind,
    LivelinessKind,
    OwnershipKind,
    PresentationScope,
    Qos,
    ReliabilityKind,
    TypeConsistency,
    TypeConsistencyKind,
)
from ..value_classes import value

_ENUMS = {
    "reliability": ReliabilityKind,
    "durability": DurabilityKind,
    "history": HistoryKind,
    "liveliness": LivelinessKind,
    "ownership": OwnershipKind,
    "destination_order": DestinationOrderKind,
    "presentation_scope": PresentationScope,
}
_BYTES = ("user_data", "topic_data", "group_data")
_TUPLES = ("partition", "data_representation")

# Files of a receiver beside its log; its counters are in log.counters.COUNTERS_FILE.
#: Why a receiver ended, as text; the last line has the facts of that error as JSON.
ERROR_FILE: Final = "error"
#: Why no writer matches the reader of a batch read, as text.
UNMATCHED_FILE: Final = "unmatched"


@value
class ReceiverConfig:
    """The subscription of one log. Sizes in bytes; ``node`` as for any participant."""

    log_directory: str
    topic: str
    #: The name of the topic's type, and whether it has a key; None: as the first writer of the topic announces it.
    type_name: str | None
    keyed: bool | None
    qos: Qos = field(default_factory=Qos)
    #: Policies of ``qos`` that follow the offers of the topic's writers once the first one is found.
    left_to_writers: tuple[str, ...] = ()
    policy: ReaderPolicy = field(default_factory=ReaderPolicy)
    #: IDL of the topic's struct and its name, where it is known.
    type: tuple[str, str] | None = None
    #: Whether the reader announces the type itself, not only its name.
    announces_type: bool = False
    #: Whether a QoS policy distinguishes instances; without a type, only the key hashes on the wire tell them apart.
    reports_instances: bool = False
    #: Whether to record the types that writers announce: the user gave columns, and their type is a guess.
    records_writer_types: bool = False
    #: Expression and parameters of a content filter, for writers that filter. The receiver keeps all that arrives.
    filter: tuple[str, tuple[str, ...]] | None = None
    #: Only the writers of this slice are received; None: all.
    slice: Slice | None = None
    accept_writer_removed_batch_samples: bool = False
    #: The topics that are received together into one log; ``topic`` is then only a display label. None: ``topic``.
    topics: TopicSelection | None = None
    node: NodeConfig = field(default_factory=NodeConfig)
    log_max_bytes: int = 4 << 30
    log_segment_bytes: int = 64 << 20
    #: Permission bits of the log's folder; its files follow.
    log_mode: int = PRIVATE
    #: The log was read up to here. A log that ends before has lost its end: new samples would take those positions.
    log_reached: int = 0
    #: Whether such a log is resumed behind ``log_reached``, since it has other readers that have not read so far;
    #: otherwise it is lost.
    log_goes_on_behind_loss: bool = False
    #: ``committed``: samples stay until they are consumed, and writers are held back while the log is full.
    #: ``bytes``: the oldest are trimmed for new ones. ``time``: they stay for ``retention_ns`` at most, or as with
    #: ``bytes``.
    retention: str = "committed"
    retention_ns: int = 0
    #: What happens to samples that do not fit into the log: ``hold``, ``drop`` or ``fail`` (:mod:`.full_log_warning`).
    on_log_full: str = "hold"
    #: How long the ended logs beside this one are kept, and how many bytes of them; None: the receiver removes none,
    #: or sets no limit on their bytes.
    ended_logs_period_ns: int | None = None
    ended_logs_bytes: int | None = None
    #: This product's writers count samples as consumed when they are ``logged``, or when Spark has ``committed``
    #: them.
    consumption: str = "logged"
    #: Read the publication logs of writers on this host, without the network.
    spy: bool = False
    #: The receiver removes its log when it ends, however its parent ends: a batch read leaves nothing behind.
    ephemeral: bool = False
    #: What a user can do about a warning, by its kind (:mod:`.hints`).
    hints: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The configuration as one line of JSON."""
        raw = dataclasses.asdict(self)
        for name in _BYTES:
            raw["qos"][name] = raw["qos"][name].hex()
        prefix = self.node.guid_prefix
        raw["node"]["guid_prefix"] = None if prefix is None else prefix.hex()
        return json.dumps(raw)

    @classmethod
    def from_json(cls, text: str) -> ReceiverConfig:
        raw: dict[str, Any] = json.loads(text)
        qos = raw["qos"]
        for name, kind in _ENUMS.items():
            qos[name] = kind(qos[name])
        for name in _BYTES:
            qos[name] = bytes.fromhex(qos[name])
        for name in _TUPLES:
            qos[name] = tuple(qos[name])
        consistency = qos["type_consistency"]
        consistency["kind"] = TypeConsistencyKind(consistency["kind"])
        qos["type_consistency"] = TypeConsistency(**consistency)
        congestion_control = CongestionControlPolicy(**raw["policy"].pop("congestion_control"))
        raw["policy"] = ReaderPolicy(**raw["policy"], congestion_control=congestion_control)
        raw["left_to_writers"] = tuple(raw["left_to_writers"])
        if raw["type"] is not None:
            raw["type"] = tuple(raw["type"])
        if raw["filter"] is not None:
            raw["filter"] = (raw["filter"][0], tuple(raw["filter"][1]))
        if raw["slice"] is not None:
            raw["slice"] = Slice(**raw["slice"])
        if raw["topics"] is not None:
            raw["topics"] = TopicSelection(tuple(raw["topics"]["names"]), raw["topics"]["pattern"])
        node = raw["node"]
        for name in ("peers", "peers_allowed", "reserved_ports"):
            node[name] = tuple(node[name])
        node["ros"] = None if node["ros"] is None else RosNode(**node["ros"])
        node["trust"] = Trust(node["trust"])
        node["guid_prefix"] = None if node["guid_prefix"] is None else bytes.fromhex(node["guid_prefix"])
        return cls(**{**raw, "qos": Qos(**qos), "node": NodeConfig(**node)})
