"""The reader of one topic, and everything between it and the stream log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..limits import FRAGMENTED_SAMPLE_MAX
from ..log.host_clocks import Clocks
from ..log.loss_report import LOSS_REPORT, LossReport
from ..log.stream_log import StreamLog
from ..net.receiving_node import NamedType, ReceivingNode
from ..protocol.endpoint_info import ContentFilterProperty
from ..protocol.participant.endpoint_specs import ReaderSpec
from ..protocol.reading.cache.reader_cache import ReaderCache
from ..protocol.reading.reader import StatefulReader
from ..structure import Guid
from ..types.model import Struct
from ..value_classes import value
from .addresses import Addresses
from .config import ReceiverConfig
from .consumption import Consumption
from .full_log_warning import FullLogWarning, OnLogFull
from .instance_keys import InstanceKeys
from .log_appender import LogAppender
from .losses import Losses
from .sample_retention import Retention
from .shown_counters import ShownCounters
from .warnings import ClockWarnings, DoubtWarnings, HeartbeatWarnings
from .writer_types import WriterTypes

#: The reader of a receiver's only topic always has the same entity key, so that a restarted receiver has the same GUID.
READER_ENTITY_KEY: Final = 1
#: Part of the log that one sample may take: half a log may wait for Spark's commit, and a sample must fit into the
#: other half.
_SAMPLE_PART: Final = 4


@value
class Shared:
    """What the subscriptions to several topics share that fill one log."""

    types: WriterTypes
    losses: LossReport

    @classmethod
    def for_node(cls, directory: Path, node: ReceivingNode) -> Shared:
        types = WriterTypes(directory, node.directory.type_of, node.directory.identity_of)
        return cls(types, LossReport(directory / LOSS_REPORT))

    def of_topic(self, topic: str, writers: Mapping[Guid, int]) -> dict[Guid, int]:
        """Those of ``writers`` that write the topic, or whose topic is not known."""
        return {guid: sn for guid, sn in writers.items() if self.types.topic_of(guid) in (topic, None)}


class ReceiverSubscription:
    """One reader and the log it fills."""

    def __init__(
        self,
        config: ReceiverConfig,
        named: NamedType,
        log: StreamLog,
        node: ReceivingNode,
        shown: ShownCounters,
        addresses: Addresses | None = None,
        *,
        entity_key: int = READER_ENTITY_KEY,
        shared: Shared | None = None,
    ) -> None:
        """``named``: the type as its first writer announces it; the configuration's ``keyed`` takes precedence.
        ``addresses``: the receiver's addresses; None: it is a spy. ``shared``: with other subscriptions; None: this is
        the only one of the log."""
        keyed = named.keyed if config.keyed is None else config.keyed
        struct = _struct(config)
        directory = Path(config.log_directory)
        consumption = Consumption() if config.consumption == "committed" else None
        self._log = log
        self._node = node
        self._shown = shown
        self._clocks = ClockWarnings(config)
        self._heartbeats = HeartbeatWarnings(config)
        self._doubts = DoubtWarnings(config)
        report = None if shared is None else shared.losses
        self._losses = Losses(directory, config.topic, config.hints, addresses, report)
        moved_from: Mapping[Guid, int] = {} if addresses is None else addresses.moved_from
        known: Mapping[Guid, int] = log.writers
        if shared is not None:
            moved_from, known = (shared.of_topic(config.topic, each) for each in (moved_from, known))
        self._cache = ReaderCache(
            config.qos,
            keys=_instance_keys(config, struct, node) if keyed else None,
            writer_qos=node.directory.qos_of,
            accept_writer_removed_batch_samples=config.accept_writer_removed_batch_samples,
        )
        types = None if shared is None else shared.types
        if types is None and config.records_writer_types:
            types = WriterTypes(directory, node.directory.type_of)
        self._retention = Retention.for_config(config, log, shown)
        on_full = OnLogFull(config.on_log_full)
        self._filling = FullLogWarning(config.topic, log, on_full, config.hints)
        self._appender = LogAppender(
            log,
            self._cache,
            shown,
            consumption,
            types,
            hints=config.hints,
            retention=self._retention,
            topic=None if shared is None else config.topic,
            on_full=on_full,
        )
        self.topic = config.topic
        self.reader = node.create_reader(
            ReaderSpec(
                config.topic,
                named.type_name,
                config.qos,
                keyed=keyed,
                policy=config.policy,
                type=struct if config.announces_type else None,
                awaits_types=config.records_writer_types,
                content_filter=_content_filter(config),
                entity_key=entity_key,
                resume={**known, **moved_from},
                moved_from=moved_from.keys(),
                consumption_held=consumption is not None,
                slice=config.slice,
                sample_size_max=min(FRAGMENTED_SAMPLE_MAX, log.max_bytes // _SAMPLE_PART),
            ),
            self._appender,
        )
        self._appender.reader = self.reader
        self.reader.fragments.put_together_at(self._appender.place)

    def keep(self, now: int) -> None:
        """Append runs that wait if there is space, and do what is due."""
        if self._retention is not None:
            self._retention.expire(Clocks.read_now())
        self._appender.commit_position(self.reader, self._shown.consumer)
        if self._retention is None:
            reliable = [guid for guid, proxy in self.reader.writers.items() if proxy.reliable]
            is_full = self._appender.is_full or bool(self.reader.delivery.closed)
            self._filling.warn_if_full(reliable, is_full=is_full)
        # A window that opens releases held samples: they go into the log before anything is acknowledged.
        self._node.offer_room(self.reader)
        timer = self._cache.get_timer()
        if timer is not None and timer <= now:
            self._cache.handle_timer(now)

    @property
    def counted(self) -> tuple[StatefulReader, ReaderCache]:
        """The reader and the cache whose counters are shown."""
        return self.reader, self._cache

    def report(self, now: int) -> None:
        """Report the reader's losses, and log warnings that are due."""
        self._losses.report(self.reader, self._log, overflows=self._node.counters.receive_overflows, now=now)
        if dropped := self._appender.take_dropped():
            self._shown.add_dropped(sum(dropped.values()))
            self._losses.report_dropped(dropped, self._log)
        self._clocks.warn_if_new(self._cache.counters)
        self._doubts.warn_if_new(self.reader)

    def writer_matched(self, writer: Guid) -> None:
        """A writer was matched."""
        self._log.writer_back(writer)
        self._heartbeats.writer_matched(self.reader, writer)

    def writer_lost(self, writer: Guid, *, gone: bool) -> None:
        """A writer left (``gone``), or lost its liveliness."""
        self._cache.writer_lost(writer)
        if gone:
            self._log.writer_gone(writer)


def _instance_keys(config: ReceiverConfig, struct: Struct | None, node: ReceivingNode) -> InstanceKeys:
    if not config.reports_instances:
        return InstanceKeys(None)
    return InstanceKeys(struct, node.directory.type_of if config.records_writer_types else None)


def _struct(config: ReceiverConfig) -> Struct | None:
    if config.type is None or not (config.announces_type or config.reports_instances):
        return None
    from ..types.idl.parser import parse_struct

    return parse_struct(*config.type, "type of the topic")


def _content_filter(config: ReceiverConfig) -> ContentFilterProperty | None:
    if config.filter is None:
        return None
    expression, parameters = config.filter
    return ContentFilterProperty(f"{config.topic} filtered", config.topic, "DDSSQL", expression, parameters)
