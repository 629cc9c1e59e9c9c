"""The receiver: hosts one participant, and appends what its reader delivers to a stream log.

Acknowledgement means "in the log" (:mod:`.log_appender`). The log lives in the page cache of a file, so it survives
that the process is killed; started again on the same log within the lease, the process has the same GUID and the same
per-writer state, and the writers repair what was in flight. Started at another address, it has another GUID
(:mod:`.identity`).
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..errors import LogError
from ..log.segment import JSON
from ..log.small_file import replace_text
from ..log.stream_log import StreamLog
from ..net.congestion_control_plugins import load_congestion_control
from ..net.receiving_node import NamedType, ReceivingNode
from ..net.spy_node import SpyNode
from ..protocol.events import (
    Event,
    IncompatibleQos,
    LivelinessLost,
    Matched,
    ParticipantDiscovered,
    ParticipantLost,
    Unmatched,
)
from ..qos import DurabilityKind, Qos, ReliabilityKind, best_available
from .addresses import Addresses
from .adviser import Adviser
from .config import ReceiverConfig
from .files import ERROR_FILE, UNMATCHED_FILE
from .identity import join_domain
from .known_participants import write_known_participants
from .shown_counters import ShownCounters
from .subscription import Subscription
from .subscription_log import open_log

_log = logging.getLogger("spark_rtps.receiver")

_IDLE_SECONDS: Final = 0.1
_HOUSEKEEPING_NS: Final = 50_000_000
#: Where the topic's writers decide QoS, more of them than the first are waited for so long.
_SETTLE_NS: Final = 200_000_000
#: What the log keeps of what they decided.
_REQUESTED: Final = "requested"
#: Participants are written down no more often than this.
_PARTICIPANTS_NS: Final = 200_000_000


class StopRequest:
    """Asks a receiver to end, before it is open too; from any thread, or a signal handler."""

    def __init__(self) -> None:
        # no Event: a signal handler that is interrupted by its like would deadlock
        self.is_made = False
        #: The participant is disposed at the end, unless somebody asked for an end without it.
        self.goodbye = True

    def make(self, *, goodbye: bool) -> None:
        self.goodbye = self.goodbye and goodbye
        self.is_made = True


class Host:
    """One subscription, from sockets to log; :meth:`run` returns when told to stop.

    A reader is matched by the name of its type. Where nobody gave that name, there is a reader from when the topic's
    first writer is found, whose name for the type it takes; so it is where the topic's writers decide what a policy
    requests. The log keeps both for a successor.
    """

    def __init__(
        self,
        config: ReceiverConfig,
        log: StreamLog,
        node: ReceivingNode,
        addresses: Addresses | None = None,
        stop: StopRequest | None = None,
    ) -> None:
        """:meth:`open` makes what it needs."""
        now = time.monotonic_ns()
        self.config = config
        self.directory = Path(config.log_directory)
        self.log = log
        self.node = node
        self._addresses = addresses
        self.shown = ShownCounters(self.directory, log, domain=config.node.domain)
        self.adviser = Adviser(config, node, now=now)
        self._stop = stop or StopRequest()
        self._changes_seen = -1
        self._why_unmatched = ""
        self._housekeeping_at = 0
        self._participants_changed = False
        self._write_participants_at = 0
        #: None: no writer has decided so far what is left to them.
        self.subscription: Subscription | None = None
        self._decides_at: int | None = None
        requested = log.metadata.get(_REQUESTED)
        if isinstance(requested, dict):
            self.config = replace(config, qos=_requesting(config, requested))
        named = self._named()
        if named is not None and (not config.left_to_writers or config.spy or requested is not None):
            self._subscribe(named)

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
            if self.subscription is None:
                self._follow_first_writer()
            now = time.monotonic_ns()
            if now >= self._housekeeping_at:
                self._housekeeping_at = now + _HOUSEKEEPING_NS
                self._keep_house(now)

    def stop(self, *, goodbye: bool) -> None:
        """End the duty cycle (any thread, or a signal handler); ``goodbye`` disposes the participant."""
        self._stop.make(goodbye=goodbye)
        self.node.wake()

    def close(self, *, keep_log: bool = False) -> None:
        """Let go of sockets and log; ``keep_log``: also of an ephemeral one, for a successor."""
        if self._stop.goodbye:
            self.node.close()
        else:
            self.node.abandon()
        _close_log(self.log, self.config, keep=keep_log)

    # --- inside ------------------------------------------------------------------------------------

    def _subscribe(self, named: NamedType) -> None:
        self.subscription = Subscription(self.config, named, self.log, self.node, self.shown, self._addresses)

    def _named(self) -> NamedType | None:
        """The type's name, as the log has it; None: nobody has named it so far."""
        type_name = self.log.metadata["type"]
        return None if type_name is None else NamedType(str(type_name), bool(self.log.metadata.get("keyed")))

    def _follow_first_writer(self) -> None:
        """Subscribe under the name that the topic's first writer has for its type, once there is one, and with what the
        writers offer where that is left to them."""
        config, now = self.config, time.monotonic_ns()
        changes, seen = self.node.changes, self._changes_seen
        self._changes_seen = changes
        if changes == seen and self._decides_at is None:
            return
        known = self._named()
        named = self.node.first_writer(config.topic, config.qos) if known is None else known
        if named is None:
            return
        decided: dict[str, JSON] = (
            {} if known is not None else {"type": named.type_name, "keyed": named.keyed}
        )
        if config.left_to_writers and not config.spy:
            offers = self.node.offers(config.topic, config.qos, named.type_name)
            if not offers:
                return
            if self._decides_at is None:
                self._decides_at = now + _SETTLE_NS
            if now < self._decides_at:
                return
            qos = best_available(config.qos, config.left_to_writers, offers)
            self.config = replace(config, qos=qos)
            requested: dict[str, JSON] = {each: getattr(qos, each).name for each in config.left_to_writers}
            decided[_REQUESTED] = requested
        _log.info("topic %r: as its first writer is, so is the reader: %s", config.topic, decided)
        try:
            self.log.amend(**decided)
        except LogError as error:
            _log.warning("%s; a successor will ask the topic's writers again", error)
        self._subscribe(named)

    def _keep_house(self, now: int) -> None:
        self.shown.show_heartbeat(now)
        if self.subscription is not None:
            self.subscription.keep(now)
        self._take_events(now)
        self.shown.show_drops(self.node.drops)
        if self.subscription is not None:
            self.subscription.show()
        matched, type_name = self.shown.matched_writers, self.log.metadata["type"]
        self.adviser.look(now, matched_writers=matched, type_name=type_name)
        if self.config.ephemeral and not matched:
            self._write_why_unmatched()

    def _write_why_unmatched(self) -> None:
        """Let a batch read know why it gets nothing."""
        why = self.adviser.why_unmatched()
        if why is not None and why != self._why_unmatched:
            self._why_unmatched = why
            with contextlib.suppress(OSError):  # the log's own errors say that the disk is full
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
            write_known_participants(self.directory, self.node.announcements)

    def _note(self, event: Event) -> None:
        topic = self.config.topic
        if isinstance(event, IncompatibleQos):
            self.adviser.on_mismatch(event)
        elif isinstance(event, Matched):
            _log.info("topic %r: matched %s", topic, event.remote)
        elif isinstance(event, Unmatched):
            _log.info("topic %r: lost %s", topic, event.remote)
            if self.subscription is not None:
                self.subscription.writer_lost(event.remote)
        elif isinstance(event, LivelinessLost):
            _log.warning("topic %r: liveliness of %s lost", topic, event.writer)
            if self.subscription is not None:
                self.subscription.writer_lost(event.writer)


def _requesting(config: ReceiverConfig, requested: Mapping[str, JSON]) -> Qos:
    """The QoS with what an earlier receiver of the log requested."""
    kinds = {"reliability": ReliabilityKind, "durability": DurabilityKind}
    kept = {name: kinds[name][str(requested[name])] for name in config.left_to_writers if name in requested}
    return replace(config.qos, **kept)  # type: ignore[arg-type]


def _open_node(config: ReceiverConfig, log: StreamLog) -> tuple[ReceivingNode, Addresses | None]:
    if config.spy:
        return SpyNode(config.node.domain, bytes.fromhex(str(log.metadata["guid_prefix"]))), None
    return join_domain(config, log)


def _close_log(log: StreamLog, config: ReceiverConfig, *, keep: bool = False) -> None:
    log.close()
    if config.ephemeral and not keep:
        shutil.rmtree(config.log_directory, ignore_errors=True)
