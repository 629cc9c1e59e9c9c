"""Metrics of the sources and sinks on this host, for Prometheus: option ``metrics.port``.

A scrape reads what ``spark-rtps stat``, ``errors`` and ``loss`` read. One exporter therefore shows all streams of its
host below its directories of logs, and costs nothing between two scrapes. It needs the package ``prometheus_client``.

Names begin with ``spark_rtps_``. Metrics of a stream have the labels kind, topic, domain, pid, and ``stream``, the name
of its log or counters file; metrics of one of its writers or readers also have ``peer``, a GUID, and those of a
consumer group ``group``, its name.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..transport.errors import OptionError
from ..transport.log.error_log import ERROR_LOG
from ..transport.structure import NANOSECONDS
from ..transport.value_classes import slotted, value
from .consumer_groups import ConsumerGroup, read_groups
from .decoding_report import DECODING_REPORT
from .reports import read_error_reports, read_losses
from .stream_counters import State, Stream, StreamKind, read_streams, system_counters

if TYPE_CHECKING:
    from prometheus_client.core import Metric

OPTION: Final = "metrics.port"
ADDRESS_OPTION: Final = "metrics.address"
#: Where the exporter listens unless an option says otherwise: this host only.
LOOPBACK: Final = "127.0.0.1"
_PREFIX: Final = "spark_rtps_"
_STREAM: Final = ("kind", "topic", "domain", "pid", "stream")
_PEER: Final = (*_STREAM, "peer")
_GROUP: Final = (*_STREAM, "group")
#: Errors of an address that cannot be used with any port; the negative ones are those of getaddrinfo(3):
#: EAI_NONAME, EAI_AGAIN, EAI_NODATA.
_NO_ADDRESS: Final = (errno.EADDRNOTAVAIL, -2, -3, -5)
#: Labels and value of one sample of a metric.
_Sample = tuple[tuple[str, ...], float]


@value
class _Family:
    """One metric; ``samples`` gives its values for one stream."""

    name: str
    doc: str
    samples: Callable[[Stream], Iterable[_Sample]]
    labels: tuple[str, ...] = _STREAM
    counts: bool = False


class StreamCollector:
    """The collector that ``prometheus_client`` calls at a scrape."""

    def __init__(self, log_dirs: Iterable[Path]) -> None:
        self.log_dirs: list[Path] = []
        self.add_log_dirs(log_dirs)

    def add_log_dirs(self, log_dirs: Iterable[Path]) -> None:
        """Read these directories too."""
        # A directory under two names would give each of its streams twice, and Prometheus would refuse all.
        self.log_dirs = list(dict.fromkeys([*self.log_dirs, *(path.resolve() for path in log_dirs)]))

    def describe(self) -> list[Metric]:
        """No families: nothing is read when the collector is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        streams = read_streams(self.log_dirs, now=time.monotonic_ns())
        streams = [stream for stream in streams if stream.state is not State.ENDED]
        for family in _FAMILIES:
            samples = [sample for stream in streams for sample in family.samples(stream)]
            yield _metric(family.name, family.doc, family.labels, samples, counts=family.counts)
        yield from self._losses({stream.path: stream for stream in streams})
        yield from self._errors()

    def _losses(self, streams: dict[Path, Stream]) -> Iterator[Metric]:
        found: dict[tuple[str, ...], list[int]] = {}
        for report in read_losses(self.log_dirs):
            stream = streams.get(report.path.parent)
            for loss in report.losses if stream is not None else ():
                assert stream is not None
                peer = "unknown" if loss.writer is None else str(loss.writer)
                sums = found.setdefault((*_of(stream), peer), [0, 0, 0])  # over all causes
                for i, amount in enumerate((loss.observations, loss.samples + loss.unknown, loss.nbytes)):
                    sums[i] += amount
        for i, (name, doc) in enumerate(
            (
                ("writer_losses", "How often something of a writer was lost"),
                ("writer_lost_samples", "Samples of a writer that were lost"),
                ("writer_lost_bytes", "About how many bytes that were"),
            )
        ):
            samples = [(labels, float(sums[i])) for labels, sums in found.items()]
            yield _metric(name, doc, _PEER, samples, counts=True)

    def _errors(self) -> Iterator[Metric]:
        errors: dict[tuple[str, ...], float] = {}
        distinct: dict[tuple[str, ...], float] = {}
        for report in read_error_reports(self.log_dirs):
            of_log = report.path.name in (ERROR_LOG, DECODING_REPORT)
            origin = report.path.parent.name if of_log else report.path.stem
            for error in report.errors:
                labels = (report.topic, str(report.pid), origin, error.level.lower())
                errors[labels] = errors.get(labels, 0) + error.count
                distinct[labels] = distinct.get(labels, 0) + 1
        names = ("topic", "pid", "stream", "level")
        yield _metric("errors", "Warnings and errors that were logged", names, errors.items(), counts=True)
        yield _metric("distinct_errors", "How many different ones", names, distinct.items(), counts=False)


@slotted
class _Exporters:
    """The exporters of this process, by address and port; after a fork those of the parent do not count."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    pid: int = 0
    by_place: dict[tuple[str, int], StreamCollector] = field(default_factory=dict)


_EXPORTERS: Final = _Exporters()


def start_exporter(
    port: int, log_dirs: Iterable[Path], *, address: str = LOOPBACK, shared: bool = False
) -> None:
    """Answer Prometheus on TCP ``port`` of ``address`` until this process ends; 0: do nothing.

    A second call for the same address and port only adds directories. ``shared``: the first process gets the port; the
    others do without, and try again at their next call. Raises OptionError.
    """
    if not port:
        return
    with _EXPORTERS.lock:
        if _EXPORTERS.pid != os.getpid():
            _EXPORTERS.pid, _EXPORTERS.by_place = os.getpid(), {}
        exporter = _EXPORTERS.by_place.get((address, port))
        if exporter is None:
            collector = StreamCollector(log_dirs)
            if _serve(address, port, collector, shared=shared):
                _EXPORTERS.by_place[address, port] = collector
        else:
            exporter.add_log_dirs(log_dirs)


def _serve(address: str, port: int, collector: StreamCollector, *, shared: bool) -> bool:
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        fix = "needs the package prometheus_client: pip install 'spark-rtps[metrics]'"
        raise OptionError(OPTION, port, fix) from None
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        start_http_server(port, addr=address, registry=registry)
    except (OSError, OverflowError) as error:
        if shared and isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return False
        reason = getattr(error, "strerror", None) or error
        if getattr(error, "errno", None) in _NO_ADDRESS:
            fix = f"is not an address of this host ({reason}): give one that `ip addr` shows, or 0.0.0.0 for all"
            raise OptionError(ADDRESS_OPTION, address, fix) from None
        raise OptionError(
            OPTION,
            port,
            f"cannot be listened on ({reason}). One exporter shows all sources and sinks of its host: set the option "
            "for one query only, or give each a port of its own",
        ) from None
    return True


def _metric(
    name: str, doc: str, labels: tuple[str, ...], samples: Iterable[_Sample], *, counts: bool
) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if counts else GaugeMetricFamily
    metric = kind(_PREFIX + name, doc, labels=labels)
    for values, number in samples:
        metric.add_metric([_unicode(each) for each in values], number)
    return metric


def _unicode(label: str) -> str:
    """The label with valid characters only: a lone surrogate in one name would make the whole scrape fail."""
    return label.encode("utf-8", "replace").decode()


# --- values of one stream --------------------------------------------------------------------------------


def _of(stream: Stream) -> tuple[str, ...]:
    domain = "" if stream.domain is None else str(stream.domain)
    name = stream.path.name if stream.kind is StreamKind.SOURCE else stream.path.stem
    return stream.kind.value, stream.topic, domain, str(stream.pid), name


def _one(value: Callable[[Stream], float | None]) -> Callable[[Stream], list[_Sample]]:
    """A value of each stream; None where a stream has none."""

    def samples(stream: Stream) -> list[_Sample]:
        found = value(stream)
        return [] if found is None else [(_of(stream), float(found))]

    return samples


def _position(name: str) -> Callable[[Stream], list[_Sample]]:
    return _one(lambda stream: getattr(stream.positions, name, None))


def _each(peers: str, name: str) -> Callable[[Stream], list[_Sample]]:
    """A value of each of a stream's ``writers`` or ``readers``; None where one has none."""

    def samples(stream: Stream) -> list[_Sample]:
        found = [(str(peer.guid), getattr(peer, name)) for peer in getattr(stream, peers)]
        return [((*_of(stream), guid), float(value)) for guid, value in found if value is not None]

    return samples


def _groups(value: Callable[[ConsumerGroup, int, int], int]) -> Callable[[Stream], list[_Sample]]:
    """A value of each consumer group of a source, computed with the base and end of its log."""

    def samples(stream: Stream) -> list[_Sample]:
        ends = stream.counters.get("log.base", 0), stream.counters.get("log.position", 0)
        groups = read_groups(stream.path) if stream.kind is StreamKind.SOURCE else []
        return [((*_of(stream), group.name), float(value(group, *ends))) for group in groups]

    return samples


def _rtt(stream: Stream) -> list[_Sample]:
    return [(labels, ns / NANOSECONDS) for labels, ns in _each("writers", "rtt_ns")(stream)]


def _drops(stream: Stream) -> list[_Sample]:
    return [((*_of(stream), reason), float(count)) for reason, count in stream.drops.items()]


def _system(name: str) -> Callable[[Stream], list[_Sample]]:
    return _one(lambda stream: system_counters([stream])[name])


_FAMILIES: Final[tuple[_Family, ...]] = (
    _Family("up", "Whether the process of a stream works", _one(lambda s: s.state is State.ALIVE)),
    _Family("samples", "In, of a source; out, of a sink", _one(lambda s: s.samples), counts=True),
    _Family("bytes", "The same in bytes", _one(lambda s: s.nbytes), counts=True),
    _Family(
        "behind_bytes",
        "Not yet committed by Spark, of a source; not yet acknowledged, of a sink",
        _one(lambda s: s.behind_bytes),
    ),
    _Family("behind_samples", "Not yet acknowledged by all", _one(lambda s: s.behind_samples)),
    _Family("peers", "Matched writers of a source, readers of a sink", _one(lambda s: s.peers)),
    _Family("rejected_samples", "Samples that were turned down", _one(lambda s: s.rejected), counts=True),
    _Family("malformed_samples", "Samples that do not decode", _one(lambda s: s.malformed), counts=True),
    _Family(
        "back_pressure",
        "Samples a source had no room for yet; writes of a sink that had to wait",
        _one(lambda s: s.back_pressure),
        counts=True,
    ),
    _Family("dropped_messages", "Messages dropped", _drops, (*_STREAM, "reason"), counts=True),
    # --- positions of a sink's publication log ---
    _Family("pub_pos_bytes", "pub-pos: published up to here", _position("pub_pos")),
    _Family("pub_lmt_bytes", "pub-lmt: may be published up to here", _position("pub_lmt")),
    _Family("snd_pos_bytes", "snd-pos: sent up to here", _position("snd_pos")),
    _Family("snd_lmt_bytes", "snd-lmt: may be sent up to here", _position("snd_lmt")),
    _Family("sender_window_bytes", "snd-lmt - snd-pos", _position("window")),
    _Family("sender_lag_bytes", "pub-pos - snd-pos", _position("lag")),
    _Family("connected", "Whether there is somebody to publish to", _position("is_connected")),
    _Family("flow_control_receivers", "Readers that pace a sink", _position("receivers")),
    # --- per writer of a source ---
    _Family("rcv_pos", "rcv-pos: all before it has come", _each("writers", "rcv_pos"), _PEER),
    _Family("rcv_hwm_bytes", "rcv-hwm: the highest position seen", _each("writers", "rcv_hwm"), _PEER),
    _Family("sub_pos_bytes", "sub-pos: all before it is consumed", _each("writers", "sub_pos"), _PEER),
    _Family("receiver_lag_bytes", "rcv-hwm - sub-pos", _each("writers", "lag"), _PEER),
    _Family("receiver_window_bytes", "What a writer may send", _each("writers", "window"), _PEER),
    _Family("round_trip_seconds", "Measured round trip time to a writer", _rtt, _PEER),
    # --- per consumer group of a receiver service's log ---
    _Family(
        "group_behind_bytes",
        "Not yet committed by a consumer group",
        _groups(lambda group, _, end: max(0, end - group.position)),
        _GROUP,
    ),
    _Family(
        "group_missed_bytes",
        "Trimmed before a consumer group had committed it",
        _groups(lambda group, base, _: group.missed_of(base)),
        _GROUP,
        counts=True,
    ),
    # --- per reader of a sink ---
    _Family("acknowledged_sn", "A reader has all up to this one", _each("readers", "acked_sn"), _PEER),
    _Family("reader_active", "Whether a reader answers", _each("readers", "active"), _PEER),
    # --- the sums of spark-rtps stat --system; one family each ---
    *(_Family(name, name.replace("_", " "), _system(name), counts=True) for name in system_counters([])),
)
