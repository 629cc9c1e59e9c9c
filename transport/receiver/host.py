"""The receiver process: hosts one participant, appends what its reader delivers to a stream log.

Acknowledgement means "in the log": the reader acknowledges only what it delivered, and whatever it delivers
is appended before the next datagram is looked at. The log lives in the page cache of a file, so it survives
this process being killed; started again on the same log within the lease, the process has the same GUID and
the same per-writer state, and the writers repair what was in flight.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..errors import LogError, LogFullError, OptionError, RtpsError, UsageError
from ..limits import MISMATCHES_SAID_MAX, WRITERS_SHOWN_MAX
from ..log.counters import Counters
from ..log.error_log import ERROR_LOG, log_errors
from ..log.loss_report import LOSS_REPORT, LossReport
from ..log.stream_log import StreamLog
from ..net.congestion_controls import load_congestion_control
from ..net.node import Node, new_guid_prefix
from ..net.spy_node import SpyNode
from ..net.topic_types import first_writer
from ..protocol.endpoint_info import ContentFilterProperty
from ..protocol.events import (
    IncompatibleQos,
    LivelinessLost,
    Matched,
    ParticipantDiscovered,
    ParticipantLost,
    Unmatched,
)
from ..protocol.reading.reader import StatefulReader
from ..protocol.reading.reader_cache import ReaderCache
from ..protocol.reading.received_stream import NO_POSITIONS
from ..protocol.statuses import ReaderStatuses
from ..structure import INFINITE, is_keyed
from ..types.model import Struct
from ..wire.samples import Run
from .config import ReceiverConfig
from .consumption import Consumed, Consumption
from .incarnation import next_incarnation
from .keys import InstanceKeys
from .known_participants import read_known_participants, write_known_participants
from .mismatch_fixes import READER_FIXES, explained
from .writer_types import WriterTypes

_log = logging.getLogger("spark_rtps.receiver")

#: The subscription's reader always has the same entity key, so that a restarted receiver has the same GUID.
READER_ENTITY_KEY: Final = 1
COUNTERS_FILE: Final = "counters"
ERROR_FILE: Final = "error"
#: A topic without a writer for so long is worth a word; less than a batch read listens by default.
_NOBODY_NS: Final = 4_000_000_000
_IDLE_SECONDS: Final = 0.1
_HOUSEKEEPING_NS: Final = 50_000_000
#: Part of the log kept free for what one drain delivers beyond the window it was given (frame headers, runs
#: that waited for a missing one).
_RESERVED_PART: Final = 16
#: Part of the log that one sample may take.
_SAMPLE_PART: Final = 4


class Host:
    """One subscription, from sockets to log; :meth:`run` returns when told to stop.

    A reader is matched by the name of its type. Where nobody said that name, there is a reader from when the topic's
    first writer is found, whose name for the type it takes; the log keeps it for a successor.
    """

    def __init__(self, config: ReceiverConfig) -> None:
        self.config = config
        self.directory = Path(config.log_directory)
        self._stopping = False  # no Event: a signal handler that is interrupted by its like would deadlock
        self._goodbye = True
        #: Delivered runs the log had no room for, each with what was delivered (a part of it may be all that is kept).
        #: While there are any, nothing is acknowledged.
        self._pending: deque[tuple[Run | None, Consumed]] = deque()
        #: Of what is consumed only once Spark has committed it; None: it is when it is in the log.
        self._consumption = Consumption() if config.consumption == "committed" else None
        self._writer_types: WriterTypes | None = None
        #: There is a reader, and what belongs to it.
        self._is_subscribed = False
        self._changes_seen = -1
        self._statuses = ReaderStatuses()  # the participant has no other reader
        self._streams_shown = 0
        self._said_disk_full = False
        self._housekeeping_at = 0
        self._mismatches_said: set[str] = set()
        self._lost_said = 0
        self._losses = LossReport(self.directory / LOSS_REPORT)
        self._nobody_at = 0

    def open(self) -> None:
        """Open log, sockets and, if its type has a name, the reader; raises LogError, TransportError or OptionError."""
        self._congestion_control = load_congestion_control(self.config.policy.congestion_control.kind)
        self.log = self._open_log()
        (self.directory / ERROR_FILE).unlink(missing_ok=True)
        prefix = bytes.fromhex(str(self.log.metadata["guid_prefix"]))
        self.node: Node | SpyNode
        if self.config.spy:
            self.node = SpyNode(self.config.node.domain, prefix)
        else:
            incarnation = next_incarnation(self.directory)
            self.node = Node(replace(self.config.node, guid_prefix=prefix, incarnation=incarnation)).open()
            known = read_known_participants(self.directory)
            self.node.participant.recall(known, now=time.monotonic_ns())
        self.counters = Counters.create(self.directory / COUNTERS_FILE)
        c = self.counters.counter
        self._position, self._base, self._rows = c("log.position"), c("log.base"), c("log.rows")
        self._consumer = c("log.consumer")
        self._consumer.set(self.log.base)
        c("receiver.pid").set(os.getpid())
        c("receiver.domain").set(self.config.node.domain)
        self._heartbeat = c("receiver.heartbeat_ns")
        self._matched, self._mismatched = c("reader.matched_writers"), c("reader.incompatible_qos")
        self._publish_position()
        self._nobody_at = time.monotonic_ns() + _NOBODY_NS
        type_name, keyed = self.log.metadata["type"], self.log.metadata.get("keyed")
        if type_name is not None:
            self._subscribe(str(type_name), keyed=bool(keyed))

    def _subscribe(self, type_name: str, *, keyed: bool) -> None:
        """Make the reader; where the configuration says whether there is a key, that counts."""
        keyed = keyed if self.config.keyed is None else self.config.keyed
        struct = self._struct()
        self.reader: StatefulReader = self.node.create_reader(
            self.config.topic,
            type_name,
            self.config.qos,
            keyed=keyed,
            entity_key=READER_ENTITY_KEY,
            resume=dict(self.log.writers),
            policy=self.config.policy,
            type=struct if self.config.announces_type else None,
            awaits_types=self.config.records_writer_types,
            content_filter=self._content_filter(),
        )
        self.reader.congestion_control = self._congestion_control
        self.reader.consumption_held = self._consumption is not None
        self.cache = ReaderCache(
            self.config.qos,
            keys=InstanceKeys(struct if self.config.tells_instances else None) if keyed else None,
            writer_qos=self.node.participant.qos_of,
            accept_writer_removed_batch_samples=self.config.accept_writer_removed_batch_samples,
        )
        # Half a log may wait for Spark to commit it; a sample must find room in the other half.
        self.reader.sample_size_max = min(self.reader.sample_size_max, self.log.max_bytes // _SAMPLE_PART)
        if self.config.records_writer_types:
            self._writer_types = WriterTypes(self.directory, self.node.participant.type_of)
        self.node.before_receive = self._set_window
        self.node.on_received = self._append_delivered
        self._is_subscribed = True

    def _struct(self) -> Struct | None:
        if self.config.type is None or not (self.config.announces_type or self.config.tells_instances):
            return None
        from ..types.idl.parser import parse_struct

        return parse_struct(*self.config.type, "type of the topic")

    def _content_filter(self) -> ContentFilterProperty | None:
        if self.config.filter is None:
            return None
        expression, parameters = self.config.filter
        topic = self.config.topic
        return ContentFilterProperty(f"{topic} filtered", topic, "DDSSQL", expression, parameters)

    def run(self) -> None:
        """The duty cycle, until :meth:`stop`."""
        while not self._stopping:
            self.node.cycle(_IDLE_SECONDS)
            if not self._is_subscribed:
                self._follow_first_writer()
            now = time.monotonic_ns()
            if now >= self._housekeeping_at:
                self._housekeeping_at = now + _HOUSEKEEPING_NS
                self._keep_house(now)

    def stop(self, *, goodbye: bool) -> None:
        """End the duty cycle (any thread, or a signal handler); ``goodbye`` disposes the participant."""
        self._goodbye = self._goodbye and goodbye
        self._stopping = True
        if hasattr(self, "node"):
            self.node.wake()

    def close(self, *, keep_log: bool = False) -> None:
        """Let go of sockets and log; ``keep_log``: also of an ephemeral one, for a successor."""
        if hasattr(self, "node"):
            if self._goodbye:
                self.node.close()
            else:
                self.node.abandon()
        if hasattr(self, "log"):
            self.log.close()
            if self.config.ephemeral and not keep_log:
                shutil.rmtree(self.directory, ignore_errors=True)

    # --- inside ------------------------------------------------------------------------------------

    def _open_log(self) -> StreamLog:
        config = self.config
        if not StreamLog.exists(self.directory):
            return StreamLog.create(
                self.directory,
                max_bytes=config.log_max_bytes,
                segment_bytes=config.log_segment_bytes,
                metadata={
                    "topic": config.topic,
                    "type": config.type_name,
                    "keyed": config.keyed,
                    "guid_prefix": new_guid_prefix().hex(),
                },
            )
        log = StreamLog.open(self.directory, max_bytes=config.log_max_bytes)
        topic, type_name = log.metadata["topic"], log.metadata["type"]
        wanted = config.type_name or (type_name if log.rows else None)
        if topic != config.topic or (log.rows and type_name not in (None, wanted)):
            log.close()
            raise LogError(
                f"the log in {self.directory} is of topic {topic!r}, type {type_name!r}, not of topic "
                f"{config.topic!r}, type {wanted!r}: start the query with a new checkpoint location"
            )
        if type_name != wanted:  # nothing was received under that name
            try:
                log.amend(type=wanted, keyed=config.keyed)
            except LogError:
                log.close()
                raise
        return log

    def _follow_first_writer(self) -> None:
        """Subscribe under the name that the topic's first writer has for its type, once there is one."""
        found = self._first_writer()
        if found is None:
            return
        type_name, keyed = found
        _log.info("topic %r: its first writer calls the type %r", self.config.topic, type_name)
        try:
            self.log.amend(type=type_name, keyed=keyed)
        except LogError as error:
            _log.warning("%s; a successor will ask the topic's writers again", error)
        self._subscribe(type_name, keyed=keyed)

    def _first_writer(self) -> tuple[str, bool] | None:
        """Its name for the type, and whether that has a key."""
        topic, qos = self.config.topic, self.config.qos
        if isinstance(self.node, SpyNode):
            return self.node.first_writer(topic, qos)
        changes, seen = self.node.participant.changes, self._changes_seen
        self._changes_seen = changes
        writer = None if changes == seen else first_writer(self.node, topic, qos)
        return None if writer is None else (writer.type_name, is_keyed(writer.guid.entity))

    def _set_window(self) -> None:
        free = self.log.free_bytes - self.log.max_bytes // _RESERVED_PART
        self.reader.window = 0 if self._pending else max(0, free)

    def _append_delivered(self) -> None:
        """Append everything the reader delivers; what finds no room waits, and closes the window."""
        reception = time.time_ns()
        while self._pending and self._append(*self._pending[0], reception):
            self._pending.popleft()
        now = time.monotonic_ns()
        for delivered in self.reader.take():
            whole = Consumed(0, delivered.writer, delivered.last_sn, delivered.nbytes)
            run = self.cache.accept(delivered, reception=reception, now=now)
            if self._pending or not self._append(run, whole, reception):
                self._pending.append((None if run is None else run.copy(), whole))
        self.reader.hold_acknowledgments = bool(self._pending)
        self._publish_position()

    def _append(self, run: Run | None, whole: Consumed, reception: int) -> bool:
        """Append what is kept of a delivered run; False: there is no room."""
        if run is not None and self._writer_types is not None:
            self._writer_types.note(run.writer)
        try:
            taken = run is None or self.log.append(run, reception=reception)
        except LogFullError as error:
            if not self._said_disk_full:
                _log.error("%s; writers are held back until there is room", error)
            self._said_disk_full = True
            return False
        if taken and self._consumption is not None:
            self._consumption.on_append(self.log.position, *whole[1:])
        self._said_disk_full = self._said_disk_full and not taken
        return taken

    def _publish_position(self) -> None:
        self._rows.set(self.log.rows)
        self._base.set(self.log.base)
        self._position.set(self.log.position)

    def _keep_house(self, now: int) -> None:
        self._heartbeat.set(now)
        if self._is_subscribed:
            self._keep_log(now)
        self._take_events()
        if self._is_subscribed or isinstance(
            self.node, Node
        ):  # a spy has no participant before it has a reader
            self._show_drops()
        if self._is_subscribed:
            self._show()
        if self._nobody_at and now >= self._nobody_at:
            self._nobody_at = 0
            if not self._statuses.matched and not self._mismatches_said:
                self._say_nobody()

    def _keep_log(self, now: int) -> None:
        """Make room for what waits, and do what is due."""
        consumer = self._consumer.get()
        if consumer > self.log.base:
            self.log.trim(min(consumer, self.log.position))
            self._base.set(self.log.base)
        if self._consumption is not None:
            for done in self._consumption.on_commit(consumer):
                self.reader.consumed(done.writer, done.last_sn, done.nbytes)
        # A window that opens lets held samples through: they go into the log before anything is acknowledged.
        self._append_delivered()
        self._set_window()
        self._append_delivered()
        timer = self.cache.get_timer()
        if timer is not None and timer <= now:
            self.cache.handle_timer(now)

    def _take_events(self) -> None:
        participants_changed = False
        for event in self.node.events():
            self._statuses.on_event(event)
            if isinstance(event, IncompatibleQos):
                self._mismatched.add(1)
                self._say_mismatch(event)
            elif isinstance(event, Matched):
                _log.info("topic %r: matched %s", self.config.topic, event.remote)
            elif isinstance(event, Unmatched):
                _log.info("topic %r: lost %s", self.config.topic, event.remote)
                self.cache.writer_lost(event.remote)
            elif isinstance(event, LivelinessLost):
                _log.warning("topic %r: liveliness of %s lost", self.config.topic, event.writer)
                self.cache.writer_lost(event.writer)
            elif isinstance(event, ParticipantDiscovered | ParticipantLost):
                participants_changed = True
        if participants_changed and isinstance(self.node, Node):
            write_known_participants(self.directory, self.node.participant.announcements)

    def _show(self) -> None:
        """Put into the counters file, and say, what the reader counts."""
        self._matched.set(len(self.reader.writers))
        counts, cached = self.reader.counters.snapshot(), self.cache.counters.snapshot()
        for name, value in counts.items():
            self.counters.counter(f"reader.{name}").set(value)
        for label, value in self._statuses.snapshot(counts, cached).items():
            self.counters.counter(label).set(value)
        self._show_streams()
        self._report_losses()
        lost = self.reader.counters.lost_samples
        if lost > self._lost_said:
            _log.warning(
                "topic %r: %d samples lost that their writers no longer had (`spark-rtps loss` counts all); if this "
                "was a restart, raise participant.lease_duration to twice the time it takes",
                self.config.topic,
                lost - self._lost_said,
            )
            self._lost_said = lost

    def _show_drops(self) -> None:
        for reason, count in self.node.participant.drops.items():
            self.counters.counter(f"drop.{reason.value}").set(count)

    def _show_streams(self) -> None:
        """The positions of the first writers; zeros where there is none any more."""
        writers = list(itertools.islice(self.reader.writers, WRITERS_SHOWN_MAX))
        for i in range(max(len(writers), self._streams_shown)):
            values = self.reader.positions(writers[i]) if i < len(writers) else None
            raw = writers[i].to_bytes() if i < len(writers) else bytes(16)
            c = self.counters.counter
            c(f"stream.{i}.guid_high").set(int.from_bytes(raw[:8], "big", signed=True))
            c(f"stream.{i}.guid_low").set(int.from_bytes(raw[8:], "big", signed=True))
            for name, value in (values or NO_POSITIONS)._asdict().items():
                c(f"stream.{i}.{name}").set(min(value, INFINITE))
        self._streams_shown = len(writers)

    def _report_losses(self) -> None:
        """Of which writer; what a sample takes on average stands for the size of those that nobody has seen."""
        for writer, count in self.reader.take_losses().items():
            size = self.log.position // max(self.log.rows, 1)
            self._losses.observe(writer, self.config.topic, count, now=time.time_ns(), sample_bytes=size)

    def _say_mismatch(self, event: IncompatibleQos) -> None:
        reasons = explained(event.reasons, READER_FIXES)
        if reasons in self._mismatches_said or len(self._mismatches_said) >= MISMATCHES_SAID_MAX:
            return
        self._mismatches_said.add(reasons)
        _log.warning("topic %r: no match with %s: %s", event.topic, event.remote, reasons)

    def _say_nobody(self) -> None:
        if isinstance(self.node, SpyNode):
            type_name = self.log.metadata["type"]
            _log.warning(
                "topic %r: no publication log%s on domain %d so far on this host; sinks have one with ipc=true or "
                "spies_simulate_connection=true",
                self.config.topic,
                "" if type_name is None else f" of type {type_name!r}",
                self.config.node.domain,
            )
            return
        endpoints = self.node.participant.remote_endpoints
        topics = sorted({e.topic for e in endpoints if e.kind == "writer"})
        if self.config.topic in topics:  # a writer that might match has been followed
            _log.warning(
                "topic %r: no match with its writers: PARTITION (%s)",
                self.config.topic,
                READER_FIXES["PARTITION"],
            )
            return
        _log.warning(
            "topic %r: no writer on domain %d so far; topics written here: %s",
            self.config.topic,
            self.config.node.domain,
            ", ".join(topics[:20]) or "none",
        )


def main() -> int:
    """Entry of the process: configuration on the first line of standard input, one line of answer.

    Standard input stays open while the parent lives: its end means the parent died (no goodbye, so that a
    successor can go on), the line ``stop`` means an orderly end.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    host = Host(ReceiverConfig.from_json(sys.stdin.readline()))
    log_errors(lambda: host.directory / ERROR_LOG)
    signal.signal(signal.SIGTERM, lambda *_: host.stop(goodbye=True))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        host.open()
    except (RtpsError, OSError) as error:
        # The parent makes an exception of one text again; an OptionError has parts.
        kind = UsageError if isinstance(error, OptionError) else type(error)
        _answer({"error": str(error), "kind": kind.__name__})
        host.close()
        return 1
    _answer({"ready": True})
    threading.Thread(target=_watch_parent, args=(host,), name="rtps-parent", daemon=True).start()
    try:
        host.run()
    except Exception as error:
        _log.critical("the receiver ends: %s: %s", type(error).__name__, error)
        (host.directory / ERROR_FILE).write_text(f"{type(error).__name__}: {error}")
        host.close(keep_log=True)
        raise
    host.close()
    return 0


def _answer(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _watch_parent(host: Host) -> None:
    line = sys.stdin.readline()
    host.stop(goodbye=line.strip() == "stop")
