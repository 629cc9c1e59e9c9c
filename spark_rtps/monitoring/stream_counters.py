"""Counters of all streams on this host, read from outside: receivers of sources and writers of sinks.

A source is a stream log with the counters file of its receiver and the report of the tasks that decode it. A sink is
the two files of a writer (:mod:`.publisher_counters`). Both may appear and vanish while they are read.
"""

from __future__ import annotations

import enum
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..transport.errors import RtpsError
from ..transport.log.counters import COUNTERS_FILE, Counters
from ..transport.log.log_retention import disk_bytes
from ..transport.log.log_view import LogView
from ..transport.log.owner_lock import is_held
from ..transport.structure import NANOSECONDS, Guid
from ..transport.value_classes import value
from .consumer_groups import count_groups
from .decoding_report import LOST, MALFORMED, read_decoding_report
from .processes import goes_on, process_start
from .publisher_files import COUNTERS_SUFFIX, FOLDER, METADATA_SUFFIX

#: The disk space of a log's folder, in addition to what its receiver counts.
DISK: Final = "log.disk_bytes"
#: Samples that a receiver dropped because its log was full.
DROPPED: Final = "log.dropped_samples"
#: A receiver without a heartbeat for this long is stalled; it writes twenty a second.
_STALLED_NS: Final = 3 * NANOSECONDS
#: A counter of a matched writer or reader, ``<which>.<i>.guid_high``: there is an i-th.
_NUMBERED: Final = re.compile(r"(stream|matched)\.(\d+)\.guid_high", re.ASCII)
#: Counters of the peer that the last change of a status was about.
_LAST: Final = re.compile(r"last\.(\w+)\.guid_high", re.ASCII)
#: The counters of all streams of a host together, and the counters of each stream that they sum up; a stream without
#: the first one does not count it.
_SYSTEM: Final[dict[str, tuple[str, ...]]] = {
    "heartbeats_sent": ("writer.heartbeats_sent",),
    "heartbeats_received": ("reader.heartbeats",),
    "status_messages_sent": ("reader.status_messages_sent",),
    "status_messages_received": ("writer.status_messages_received",),
    "naks_sent": ("reader.nacks_sent", "reader.nack_frags_sent"),
    "naks_received": ("writer.nacks_received", "writer.nack_frags"),
    "repairs_sent": ("writer.repaired_samples", "writer.repaired_fragments"),
    "repairs_received": ("reader.repairs_received",),
    "flow_control_limits": ("writer.flow_control_limits",),
    "sender_back_pressure": ("writer.snd_bpe",),
    "publications_back_pressured": ("writer.back_pressured",),
    "unblocked_publications": ("writer.unblocked_publications",),
    "short_sends": ("writer.short_sends",),
    "overruns": ("reader.overruns",),
    "underruns": ("reader.underruns",),
}
#: Suffixes of the counters of samples that LIFESPAN, OWNERSHIP and the like keep from a source.
_DROPPED: Final = "_dropped_sample_count"


class StreamKind(enum.Enum):
    SOURCE = "source"
    SINK = "sink"


class State(enum.Enum):
    ALIVE = "alive"
    #: Its process is there, but makes no progress.
    STALLED = "stalled"
    ENDED = "ended"


@value
class MatchedReader:
    """A reader as its sink sees it; ``acked_sn`` is None for a reader that does not acknowledge."""

    guid: Guid
    acked_sn: int | None
    active: bool


@value
class SenderPositions:
    """The positions of a sink's publication log, in bytes, under Aeron's names."""

    pub_pos: int
    pub_lmt: int
    snd_pos: int
    snd_lmt: int
    #: How often the sender had something to send, but no window.
    snd_bpe: int
    is_connected: bool | None
    #: Readers whose feedback paces it.
    receivers: int | None

    @property
    def window(self) -> int:
        """Bytes that may be sent at once."""
        return max(0, self.snd_lmt - self.snd_pos)

    @property
    def lag(self) -> int:
        """Bytes that are published but not sent."""
        return max(0, self.pub_pos - self.snd_pos)


@value
class ReceivedPositions:
    """The positions of a source for one of its writers, in bytes since they matched, under Aeron's names."""

    guid: Guid
    #: Everything before it has arrived.
    rcv_pos: int
    #: The highest position seen.
    rcv_hwm: int
    #: Everything before it is consumed.
    sub_pos: int
    #: Bytes that the writer may send.
    window: int
    rtt_ns: int | None

    @property
    def lag(self) -> int:
        """Bytes that were received but are not consumed."""
        return max(0, self.rcv_hwm - self.sub_pos)


@value
class Stream:
    """One source or sink at the moment it was read."""

    kind: StreamKind
    path: Path
    topic: str
    #: Of a source that takes its first writer's type name: None until there is a writer.
    type: str | None
    domain: int | None
    #: Of its participant, as ``spark-rtps ls`` shows it.
    guid_prefix: str
    pid: int
    state: State
    counters: dict[str, int]

    @property
    def samples(self) -> int:
        """Samples that a source received since its log began, or that a sink wrote."""
        return self._count("log.rows" if self.kind is StreamKind.SOURCE else "writer.written_samples")

    @property
    def nbytes(self) -> int:
        """Bytes of these samples; for a source the bytes of its log, headers included."""
        return self._count("log.position" if self.kind is StreamKind.SOURCE else "writer.written_bytes")

    @property
    def behind_samples(self) -> int | None:
        """Samples that a sink wrote and not all readers acknowledged; None for a source, which counts bytes."""
        return None if self.kind is StreamKind.SOURCE else self._count("writer.behind_samples")

    @property
    def behind_bytes(self) -> int:
        """Bytes in the log of a source which Spark has not committed, or bytes which a sink wrote and not all readers
        acknowledged."""
        if self.kind is StreamKind.SINK:
            return self._count("writer.unacknowledged_bytes")
        consumed = max(self._count("log.consumer"), self._count("log.base"))
        return max(0, self._count("log.position") - consumed)

    @property
    def peers(self) -> int:
        """The matched writers of a source, or the matched readers of a sink."""
        return self._count(
            "reader.matched_writers" if self.kind is StreamKind.SOURCE else "writer.matched_readers"
        )

    @property
    def disk_bytes(self) -> int:
        """The disk space of a source's log with its sidecar files; 0 for a sink."""
        return self._count(DISK)

    @property
    def lost(self) -> int:
        return lost(self.counters)

    @property
    def rejected(self) -> int:
        return rejected(self.counters)

    @property
    def malformed(self) -> int:
        return malformed(self.counters)

    @property
    def repairs(self) -> int:
        """Repairs that a source requested; samples and fragments that a sink sent again."""
        if self.kind is StreamKind.SOURCE:
            return self._count("reader.nacks_sent") + self._count("reader.nack_frags_sent")
        return self._count("writer.repaired_samples") + self._count("writer.repaired_fragments")

    @property
    def back_pressure(self) -> int:
        """Samples for which a source had no space yet; writes of a sink that had to wait."""
        return self._count(
            "reader.window_closed" if self.kind is StreamKind.SOURCE else "writer.back_pressured"
        )

    @property
    def statuses(self) -> dict[str, dict[str, int]]:
        return statuses(self.counters)

    @property
    def last_remotes(self) -> dict[str, Guid]:
        """By status, the peer that its last change was about, as far as there is one and it is known."""
        found = {}
        for label in self.counters:
            match = _LAST.fullmatch(label)
            guid = None if match is None else _guid_at(f"last.{match[1]}.", self.counters)
            if match is not None and guid is not None:
                found[match[1].upper()] = guid
        return found

    @property
    def drops(self) -> dict[str, int]:
        """Messages that were dropped, by reason."""
        return {
            label.removeprefix("drop."): n for label, n in self.counters.items() if label.startswith("drop.")
        }

    @property
    def groups(self) -> dict[str, int]:
        """The counters of the consumer groups of a receiver service's log; none where it has no groups."""
        return {
            label.removeprefix("groups."): n
            for label, n in self.counters.items()
            if label.startswith("groups.")
        }

    @property
    def readers(self) -> list[MatchedReader]:
        """The matched readers of a sink, as many as its counters show."""
        return list(_readers(self.counters))

    @property
    def positions(self) -> SenderPositions | None:
        """The positions of a sink with a publication log; None without one."""
        return _sender_positions(self.counters)

    @property
    def writers(self) -> list[ReceivedPositions]:
        """The positions for each matched writer of a source, as many as its counters show."""
        return list(_writers(self.counters))

    def _count(self, label: str) -> int:
        return self.counters.get(label, 0)


def lost(counters: Mapping[str, int]) -> int:
    """Samples that a source never received or had no space for in its history (SAMPLE_LOST where that is counted),
    those
    that were dropped because its log was full, and those that its log lost."""
    counted = counters.get("reader.lost_samples", 0) + counters.get("cache.lost_by_history", 0)
    return (
        counters.get("status.sample_lost.total_count", counted)
        + counters.get(DROPPED, 0)
        + counters.get(LOST, 0)
    )


def rejected(counters: Mapping[str, int]) -> int:
    """Samples that a source received and rejected: SAMPLE_REJECTED, where that is counted."""
    counted = sum(n for label, n in counters.items() if label.startswith("cache.rejected_"))
    return counters.get("status.sample_rejected.total_count", counted)


def malformed(counters: Mapping[str, int]) -> int:
    """Samples of a source that do not decode, as far as tasks have read them; each counts once."""
    return counters.get(MALFORMED, 0)


def statuses(counters: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """DDS statuses by name, each with all its fields: labels ``status.<name>.<field>``, and ``cache.<field>`` for the
    samples that QoS policies kept from a source."""
    found: dict[str, dict[str, int]] = {}
    for label, count in counters.items():
        prefix, _, rest = label.partition(".")
        name, _, field = rest.partition(".")
        if prefix == "cache" and rest.endswith(_DROPPED):
            found.setdefault("DATA_READER_CACHE_STATUS", {})[rest] = count
        if prefix == "status" and field:
            found.setdefault(name.upper(), {})[field] = count
    return found


def raised(counters: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """The fields of :func:`statuses` that are not zero."""
    return statuses({label: n for label, n in counters.items() if n and not label.endswith("_change")})


def system_counters(streams: Sequence[Stream]) -> dict[str, int | None]:
    """Sums over streams, under Aeron's names where Aeron has one; None where no stream counts it."""
    found: dict[str, int | None] = {}
    for name, labels in _SYSTEM.items():
        counting = [stream.counters for stream in streams if labels[0] in stream.counters]
        counted = [counters.get(label, 0) for counters in counting for label in labels]
        found[name] = sum(counted) if counted else None
    found["samples_lost"] = sum(stream.lost for stream in streams)
    found["invalid_packets"] = sum(sum(stream.drops.values()) for stream in streams)
    return found


def read_streams(roots: Iterable[Path], *, now: int) -> list[Stream]:
    """All streams below the directories of logs ``roots``; ``now`` is CLOCK_MONOTONIC in ns.

    Streams that vanish meanwhile, are half made, or belong to other software are skipped.
    """
    found = []
    for root in dict.fromkeys(roots):
        for directory in listed(root):
            found.append(read_source(directory, now=now))
        for path in listed(root / FOLDER):
            if path.suffix == COUNTERS_SUFFIX:
                found.append(_sink(path))
    return sorted(
        (stream for stream in found if stream is not None),
        key=lambda s: (s.state is State.ENDED, s.kind.value, s.topic, s.pid, s.path),
    )


def read_source(directory: Path, *, now: int) -> Stream | None:
    """The source whose stream log lies in ``directory``; None: there is no log, or it lacks its receiver's counters."""
    try:
        state, counters = read_receiver(directory, now=now)
        counters[DISK] = disk_bytes(directory)
        counters |= read_decoding_report(directory).counters()
        counters |= count_groups(
            directory, base=counters.get("log.base", 0), end=counters.get("log.position", 0)
        )
        metadata = LogView(directory).metadata
        topic, prefix = (str(metadata[name]) for name in ("topic", "guid_prefix"))
        type_name = None if metadata["type"] is None else str(metadata["type"])
    except (RtpsError, OSError, ValueError, LookupError, TypeError):
        return None
    domain, pid = counters.get("receiver.domain"), counters.get("receiver.pid", 0)
    return Stream(StreamKind.SOURCE, directory, topic, type_name, domain, prefix, pid, state, counters)


def read_receiver(directory: Path, *, now: int) -> tuple[State, dict[str, int]]:
    """The state of a log's receiver and its counters, without the sidecar files. Raises LogError, OSError or
    ValueError."""
    counters = Counters.open(directory / COUNTERS_FILE, writable=False).snapshot()
    pid, heartbeat = counters.get("receiver.pid", 0), counters.get("receiver.heartbeat_ns", 0)
    if not counters.get("receiver.holds_lock"):
        return _receiver_state(pid, heartbeat, now), counters
    if is_held(directory / COUNTERS_FILE):  # the lock shows its process in every PID namespace
        return _beating(heartbeat, now), counters
    return State.ENDED, counters


def _sink(path: Path) -> Stream | None:
    try:
        pid, start = map(int, path.stem.split("-")[:2])
        about: dict[str, Any] = json.loads(path.with_suffix(METADATA_SUFFIX).read_text(encoding="utf-8"))
        counters = Counters.open(path, writable=False).snapshot()
        topic, type_name, prefix = (str(about[name]) for name in ("topic", "type", "guid_prefix"))
        domain = int(about["domain"])
    except (RtpsError, OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return None
    state = State.ALIVE if goes_on(path, pid, start) else State.ENDED
    return Stream(StreamKind.SINK, path, topic, type_name, domain, prefix, pid, state, counters)


def _receiver_state(pid: int, heartbeat: int, now: int) -> State:
    start = process_start(pid)
    if start is None:
        return State.ENDED
    # A process that began after the last heartbeat is another one with the same number. Ticks continue while the
    # machine
    # sleeps, the monotonic clock does not: the difference makes a process look older than it is, never younger.
    slept = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    began = start * NANOSECONDS // os.sysconf("SC_CLK_TCK") - slept
    if heartbeat and not began <= heartbeat <= now + _STALLED_NS:
        return State.ENDED
    return _beating(heartbeat, now)


def _beating(heartbeat: int, now: int) -> State:
    """The state of a receiver whose process is there; 0: it is starting."""
    return State.STALLED if heartbeat and now - heartbeat > _STALLED_NS else State.ALIVE


def _sender_positions(counters: Mapping[str, int]) -> SenderPositions | None:
    names = ("pub_pos", "pub_lmt", "snd_pos", "snd_lmt", "snd_bpe")
    found = {name: counters[f"writer.{name}"] for name in names if f"writer.{name}" in counters}
    if len(found) < len(names):
        return None
    connected, receivers = (counters.get(f"writer.{name}") for name in ("is_connected", "fc_receivers"))
    return SenderPositions(
        **found, is_connected=None if connected is None else bool(connected), receivers=receivers
    )


def _readers(counters: Mapping[str, int]) -> Iterator[MatchedReader]:
    for guid, prefix in _numbered("matched", counters):
        acked = counters.get(f"{prefix}acked_sn", 0) if counters.get(f"{prefix}reliable") else None
        yield MatchedReader(guid, acked, bool(counters.get(f"{prefix}active", 1)))


def _writers(counters: Mapping[str, int]) -> Iterator[ReceivedPositions]:
    for guid, prefix in _numbered("stream", counters):
        names = ("rcv_pos", "rcv_hwm", "sub_pos", "window")
        found = {name: counters.get(prefix + name, 0) for name in names}
        yield ReceivedPositions(guid, **found, rtt_ns=counters.get(f"{prefix}rtt_ns") or None)


def _numbered(which: str, counters: Mapping[str, int]) -> Iterator[tuple[Guid, str]]:
    """The GUID of each matched reader or writer, and the beginning of the labels of its counters."""
    for label in counters:
        match = _NUMBERED.fullmatch(label)
        if match is None or match[1] != which:
            continue
        prefix = f"{which}.{match[2]}."
        guid = _guid_at(prefix, counters)
        if guid is not None:
            yield guid, prefix


def _guid_at(prefix: str, counters: Mapping[str, int]) -> Guid | None:
    """The GUID in the two counters with this label prefix; None: they are zero."""
    high, low = (counters.get(f"{prefix}guid_{half}", 0) for half in ("high", "low"))
    if not high and not low:
        return None
    return Guid.from_bytes(high.to_bytes(8, "big", signed=True) + low.to_bytes(8, "big", signed=True))


def listed(directory: Path) -> list[Path]:
    """The entries of a directory; none if there is no such directory."""
    try:
        return list(directory.iterdir())
    except OSError:
        return []
