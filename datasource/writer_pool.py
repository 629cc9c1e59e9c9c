"""Writers that outlive tasks: Spark reuses its Python workers, so each of them pays for discovery once.

These writers never dispose of themselves. Spark ends workers by SIGKILL, ``os._exit`` or SIGHUP (pyspark/daemon.py),
which runs no ``atexit``, and it resets signal handlers between tasks. Peers forget a writer when the lease of its
participant runs out.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final

from ..api.flushing import FLUSHERS, flush_each
from ..api.writer_session import LOOK_AROUND_NS, WriterSession, writer_spec
from ..columns.topic_plan import TopicPlan
from ..monitoring.publisher_counters import PublisherCounters
from ..monitoring.reports import record_errors
from ..options import Settings, default_log_dir
from ..options.participants import node_config
from ..transport.net.blocking_writer import BlockingWriter
from ..transport.net.node import Node
from ..transport.net.node_config import NodeConfig
from ..transport.protocol.participant.endpoint_specs import WriterSpec
from ..transport.receiver.addresses import with_reserved_ports
from ..transport.value_classes import value
from .shipping import find_shipped_modules

#: Writers that one process keeps; beyond that, it deletes the one that was unused for longest.
WRITERS_MAX: Final = 256


@value
class _WriterKey:
    node: NodeConfig
    spec: WriterSpec


class WriterPool:
    """The participants and writers of one process, each made at its first use."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._nodes: dict[NodeConfig, tuple[Node, int]] = {}
        self._writers: dict[_WriterKey, BlockingWriter] = {}
        self._counters = PublisherCounters()

    def session(self, settings: Settings, plan: TopicPlan) -> WriterSession:
        """A task's session with the writer of these settings."""
        if self._pid != os.getpid():
            self.__init__()  # type: ignore[misc]  # forked: threads and sockets are the parent's
        record_errors()
        if settings.metrics_port:
            from ..monitoring.metrics import start_exporter

            start_exporter(
                settings.metrics_port, [default_log_dir()], address=settings.metrics_address, shared=True
            )
        key = _WriterKey(node_config(settings), writer_spec(settings, plan))
        with self._lock:
            if key.node not in self._nodes:
                self._nodes[key.node] = self._start(key.node), time.monotonic_ns()
            node, started = self._nodes[key.node]
            writer = self._writers.pop(key, None)
            if writer is None:
                find_shipped_modules()
                self._make_room()
                with node.lock:  # its first events are reported once, so its counters have to be there
                    writer = node.create_writer(key.spec)
                    self._counters.add_writer(writer, type_name=plan.type_name, domain=settings.domain)
            self._writers[key] = writer  # the one used last comes last
        until = started + LOOK_AROUND_NS
        return WriterSession(writer, settings, look_around_until=until, counters=self._counters)

    def flush(self) -> None:
        """Send the waiting batches of all writers; see `flushing.flush_each`."""
        with self._lock:
            writers = [] if self._pid != os.getpid() else [*self._writers.values()]
        flush_each(writers)

    def _make_room(self) -> None:
        """A ``foreachBatch`` may write to ever new topics."""
        while len(self._writers) >= WRITERS_MAX:
            oldest = next(iter(self._writers))
            writer = self._writers.pop(oldest)
            self._nodes[oldest.node][0].delete_endpoint(writer.guid)
            self._counters.remove_writer(writer)

    def _start(self, config: NodeConfig) -> Node:
        config = with_reserved_ports(config, default_log_dir())
        return Node.open(config, after_cycle=self._counters.update_if_due).start()


#: The pool of this process.
WRITERS: Final = WriterPool()
FLUSHERS.add_flushable(WRITERS)
