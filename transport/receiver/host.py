"""The receiver: hosts one participant, and appends what its readers deliver to a stream log.

Acknowledgement means "in the log" (:mod:`.log_appender`). The log lives in the page cache of a file, so it survives a
killed process; a process that starts again on the same log within the lease has the same GUID and the same per-writer
state, and the writers repair what was in flight. At another address it has another GUID (:mod:`.identity`).
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..log.last_use import IN_USE_NS, note_in_use
from ..log.small_file import replace_text
from ..log.stream_log import StreamLog
from ..net.plugins import load_congestion_control
from ..net.receiving_node import ReceivingNode
from ..net.spy_node import SpyNode
from ..protocol.participant.events import (
    Event,
    IncompatibleQos,
    LivelinessLost,
    Matched,
    ParticipantDiscovered,
    ParticipantLost,
    Unmatched,
)
from ..structure import Guid
from .addresses import Addresses, write_addresses
from .config import ERROR_FILE, UNMATCHED_FILE, ReceiverConfig
from .empty_topic_warning import EmptyTopicWarning
from .followed_topics import Followed, followed_topics
from .identity import join_domain
from .known_participants import write_known_participants
from .shown_counters import ShownCounters
from .subscription import ReceiverSubscription, Shared
from .subscription_log import open_log

_log = logging.getLogger("spark_rtps.receiver")

_IDLE_SECONDS: Final = 0.1
_HOUSEKEEPING_NS: Final = 50_000_000
#: Housekeeping for the readers of many topics runs less often: this much longer for each topic.
_HOUSEKEEPING_NS_A_TOPIC: Final = 1_000_000
#: The known participants are written to their file no more often than this.
_PARTICIPANTS_NS: Final = 200_000_000


class StopRequest:
    """Asks a receiver to end, also before it is open; from any thread, or a signal handler."""

    def __init__(self) -> None:
        # not an Event: a signal handler that interrupts another one would deadlock
        self.is_made = False
        #: The participant is disposed at the end, unless a stop without that was requested.
        self.dispose = True

    def make(self, *, dispose: bool) -> None:
        self.dispose = self.dispose and dispose
        self.is_made = True


class Host:
    """The readers of one log, from sockets to log; :meth:`run` returns after :meth:`stop`.

    There is one reader for each topic that is followed (:mod:`.followed_topics`).
    """

    def __init__(
        self,
        config: ReceiverConfig,
        log: StreamLog,
        node: ReceivingNode,
        addresses: Addresses | None = None,
        stop: StopRequest | None = None,
    ) -> None:
        """For :meth:`open`."""
        now = time.monotonic_ns()
        self.config = config
        self.directory = Path(config.log_directory)
        self.log = log
        self.node = node
        self._addresses = addresses
        self.shown = ShownCounters(self.directory, log, domain=config.node.domain)
        self.adviser = EmptyTopicWarning(config, node, now=now)
        self._stop = stop or StopRequest()
        self._why_unmatched = ""
        self._housekeeping_at = 0
        self._in_use_at = 0
        self._participants_changed = False
        self._write_participants_at = 0
        self._topics = followed_topics(config, log, node)
        self._shared = None if config.topics is None else Shared.for_node(self.directory, node)
        #: The subscriptions by the GUIDs of their readers.
        self.subscriptions: dict[Guid, ReceiverSubscription] = {}
        self._subscribe(self._topics.begin())

    @classmethod
    def open(cls, config: ReceiverConfig, stop: StopRequest | None = None) -> Host:
        """Open log and sockets, and make the reader if its type has a name; raises LogError, TransportError or
        PluginError."""
        load_congestion_control(
            config.policy.congestion_control.kind
        )  # else it would fail with the first writer
        with contextlib.ExitStack() as opened:
            log = open_log(config)
            opened.callback(_close_log, log, config)
            (Path(config.log_directory) / ERROR_FILE).unlink(missing_ok=True)
            node, addresses = _open_node(config, log)
            opened.callback(node.close)
            host = cls(config, log, node, addresses, stop)
            opened.pop_all()
        return host

    def run(self) -> None:
        """The duty cycle, until :meth:`stop`."""
        while not self._stop.is_made:
            self.node.cycle(_IDLE_SECONDS)
            if not self.subscriptions:
                self._subscribe(self._topics.new_topics())
            now = time.monotonic_ns()
            if now >= self._housekeeping_at:
                period = len(self.subscriptions) * _HOUSEKEEPING_NS_A_TOPIC
                self._housekeeping_at = now + max(_HOUSEKEEPING_NS, period)
                self._keep_house(now)

    def stop(self, *, dispose: bool) -> None:
        """End the duty cycle (any thread, or a signal handler); ``dispose`` disposes the participant."""
        self._stop.make(dispose=dispose)
        self.node.wake()

    def close(self, *, keep_log: bool = False) -> None:
        """Close sockets and log; ``keep_log``: keep an ephemeral log too, for a successor."""
        if self._stop.dispose:
            self.node.close()
            self._leave()
        else:
            self.node.abandon()
        _close_log(self.log, self.config, keep=keep_log)

    # --- inside ------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Record that the participant is disposed: peers no longer send to these ports."""
        if self._addresses is not None:
            self._addresses.lease_duration = 0
            write_addresses(self.directory, self._addresses)

    def _subscribe(self, followed: Iterable[Followed]) -> None:
        for each in followed:
            made = ReceiverSubscription(
                each.config,
                each.named,
                self.log,
                self.node,
                self.shown,
                self._addresses,
                entity_key=each.entity_key,
                shared=self._shared,
            )
            self.subscriptions[made.reader.guid] = made

    def _keep_house(self, now: int) -> None:
        self.shown.show_heartbeat(now)
        if now >= self._in_use_at:
            self._in_use_at = now + IN_USE_NS
            note_in_use(self.directory)
        self._subscribe(self._topics.new_topics())
        subscriptions = self.subscriptions.values()
        for each in subscriptions:
            each.keep(now)
        self._take_events(now)
        self.shown.show_drops(self.node.counters.drops)
        if subscriptions:
            self.shown.show_readers([each.counted for each in subscriptions])
        for each in subscriptions:
            each.report(now)
        written = {each.topic for each in subscriptions if each.reader.writers}
        self.adviser.warn_if_empty(now, matched=written, type_name=self.log.metadata["type"])
        if self.config.ephemeral and not self.shown.matched_writers:
            self._write_why_unmatched()

    def _write_why_unmatched(self) -> None:
        """Record for a batch read why it gets nothing."""
        why = self.adviser.why_unmatched()
        if why is not None and why != self._why_unmatched:
            self._why_unmatched = why
            with contextlib.suppress(OSError):  # the log's own errors report a full disk
                replace_text(self.directory / UNMATCHED_FILE, why)

    def _take_events(self, now: int) -> None:
        for event in self.node.events():
            self.shown.on_event(event)
            self._note(event)
            if isinstance(event, Matched | Unmatched | ParticipantDiscovered | ParticipantLost):
                self._participants_changed = True
        if self._participants_changed and now >= self._write_participants_at:
            self._participants_changed = False
            self._write_participants_at = now + _PARTICIPANTS_NS
            write_known_participants(self.directory, self.node.directory.announcements)

    def _note(self, event: Event) -> None:
        if isinstance(event, IncompatibleQos):
            self.adviser.on_mismatch(event)
        elif isinstance(event, Matched):
            _log.info("topic %r: matched %s", event.topic, event.remote)
            self._writer_matched(event.remote, event.topic)
        elif isinstance(event, Unmatched):
            _log.info("topic %r: lost %s", event.topic, event.remote)
            self._writer_lost(event.remote, event.topic, gone=True)
        elif isinstance(event, LivelinessLost):
            _log.warning("topic %r: liveliness of %s lost", event.topic, event.writer)
            self._writer_lost(event.writer, event.topic, gone=False)

    def _writer_matched(self, writer: Guid, topic: str) -> None:
        for each in self.subscriptions.values():
            if each.topic == topic:
                each.writer_matched(writer)

    def _writer_lost(self, writer: Guid, topic: str, *, gone: bool) -> None:
        for each in self.subscriptions.values():
            if each.topic == topic:
                each.writer_lost(writer, gone=gone)


def _open_node(config: ReceiverConfig, log: StreamLog) -> tuple[ReceivingNode, Addresses | None]:
    if config.spy:
        return SpyNode(config.node.domain, bytes.fromhex(str(log.metadata["guid_prefix"]))), None
    return join_domain(config, log)


def _close_log(log: StreamLog, config: ReceiverConfig, *, keep: bool = False) -> None:
    log.close()
    if config.ephemeral and not keep:
        shutil.rmtree(config.log_directory, ignore_errors=True)
