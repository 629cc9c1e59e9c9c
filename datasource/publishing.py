"""Writers that outlive tasks: Spark reuses its Python workers, so discovery is paid once in each of them.

They never say goodbye to their domains. Spark ends workers by SIGKILL, ``os._exit`` or SIGHUP (pyspark/daemon.py),
which runs no ``atexit``, and it takes signal handlers back between tasks. Peers forget a writer when its
participant's lease runs out.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, replace
from typing import Final

from ..transport.errors import AcknowledgmentError, NoReaderError
from ..transport.limits import MISMATCHES_SAID_MAX
from ..transport.net.node import Node, NodeConfig
from ..transport.net.publishing import PublishingWriter
from ..transport.protocol.policies import PublicationPolicy
from ..transport.protocol.writing.reader_proxy import ReaderProxy
from ..transport.qos import Qos
from ..transport.receiver.mismatch_fixes import WRITER_FIXES, explained
from ..transport.structure import NANOSECONDS
from ..transport.types.model import Struct
from ..transport.wire.samples import U8, Samples
from .options import OnNoReader, Settings, default_log_dir
from .participants import node_config
from .publisher_counters import PublisherCounters
from .quantities import seconds
from .reports import record_errors
from .schema import TopicPlan

_log = logging.getLogger("spark_rtps.datasource")

#: How long a new participant looks around before it takes whom it has found for all there are.
_LOOK_AROUND_NS: Final = NANOSECONDS
#: Writers of one process; of more, the one used longest ago is let go.
_WRITERS_MAX: Final = 256
#: Readers that an error names.
_MISMATCHES_NAMED_MAX: Final = 3
#: Topics and what was said of readers that do not match.
_MISMATCHES_SAID: Final[set[tuple[str, str]]] = set()


@dataclass(frozen=True, slots=True)
class _WriterKey:
    node: NodeConfig
    topic: str
    type_name: str
    keyed: bool
    qos: Qos
    policy: PublicationPolicy
    type: Struct | None


class Publishers:
    """The participants and writers of one process, each made at its first use."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._nodes: dict[NodeConfig, tuple[Node, int]] = {}
        self._writers: dict[_WriterKey, PublishingWriter] = {}
        self._counters = PublisherCounters()

    def publication(self, settings: Settings, plan: TopicPlan) -> Publication:
        """What one task writes to."""
        if self._pid != os.getpid():
            self.__init__()  # type: ignore[misc]  # forked: threads and sockets are the parent's
        record_errors()
        if settings.metrics_port:
            from .metrics import start_exporter

            start_exporter(settings.metrics_port, [default_log_dir()], shared=True)
        policy = publication_policy(settings)
        qos = replace(settings.qos, data_representation=(plan.representation,))
        struct = plan.struct if plan.announced else None
        key = _WriterKey(node_config(settings), plan.topic, plan.type_name, plan.keyed, qos, policy, struct)
        with self._lock:
            if key.node not in self._nodes:
                self._nodes[key.node] = self._start(key.node), time.monotonic_ns()
            node, started = self._nodes[key.node]
            writer = self._writers.pop(key, None)
            if writer is None:
                self._make_room()
                with node.lock:  # its first events are told once, and so not before it has its counters
                    writer = node.create_writer(
                        plan.topic, plan.type_name, qos, keyed=plan.keyed, policy=policy, type=struct
                    )
                    self._counters.add(writer, type_name=plan.type_name, domain=settings.domain)
            self._writers[key] = writer  # the one used last comes last
        until = started + _LOOK_AROUND_NS
        return Publication(writer, settings, look_around_until=until, counters=self._counters)

    def _make_room(self) -> None:
        """A ``foreachBatch`` may write to ever new topics."""
        while len(self._writers) >= _WRITERS_MAX:
            oldest = next(iter(self._writers))
            writer = self._writers.pop(oldest)
            self._nodes[oldest.node][0].delete_endpoint(writer.guid)
            self._counters.remove(writer)

    def _start(self, config: NodeConfig) -> Node:
        node, counters = Node(config), self._counters
        node.on_received = lambda: counters.update_if_due(node)
        return node.start()


PUBLISHERS: Final = Publishers()


def publication_policy(settings: Settings) -> PublicationPolicy:
    """How a sink's writer sends."""
    return PublicationPolicy(
        writer=settings.writer_policy,
        batch=settings.batch,
        flow_controller=settings.flow_controller,
        transport_priority=settings.transport_priority,
        coalescing=settings.coalescing,
        interceptor=settings.interceptor,
        flow_control=settings.flow_control,
    )


class Publication:
    """One task's use of a writer."""

    def __init__(
        self,
        writer: PublishingWriter,
        settings: Settings,
        *,
        look_around_until: int,
        counters: PublisherCounters | None = None,
    ) -> None:
        self._writer = writer
        self._settings = settings
        self._counters = PublisherCounters() if counters is None else counters
        self._look_around_until = look_around_until
        self._must_have_readers = settings.on_no_reader is OnNoReader.WAIT
        self._seen: set[ReaderProxy] = set()
        self.in_coherent_set = False

    def wait_for_reader(self) -> None:
        """To be called before each write: NoReaderError if none is there within ``connect_timeout``.

        With ``on_no_reader=drop`` it only looks around. A new participant always does: the first reader it
        finds need not be the only one.
        """
        settings = self._settings
        if self._must_have_readers and not self._writer.wait_for_readers(seconds(settings.connect_timeout)):
            refused = self._say_mismatches()
            why = "; ".join(refused[:_MISMATCHES_NAMED_MAX])
            raise NoReaderError(
                f"no reader of topic {settings.topic!r} matched on domain {settings.domain} within "
                f"{seconds(settings.connect_timeout):g} s"
                + (
                    f": {why}. Else"
                    if why
                    else " (`spark-rtps ls` shows who is there, and with which type and QoS);"
                )
                + " raise connect_timeout, or set on_no_reader=drop to write all the same"
            )
        ahead = self._look_around_until - time.monotonic_ns()
        if ahead > 0:
            time.sleep(ahead / NANOSECONDS)
        self._seen.update(self._writer.ready_reliable_readers())
        self._say_mismatches()

    def _say_mismatches(self) -> list[str]:
        """The readers that do not match, each with the reasons and what mends them; said once in a process."""
        refused = []
        for reader, reasons in self._writer.node.incompatible(self._writer.guid).items():
            why = explained(reasons, WRITER_FIXES)
            refused.append(f"no match with {reader}: {why}")
            said = self._settings.topic, why
            if said not in _MISMATCHES_SAID and len(_MISMATCHES_SAID) < MISMATCHES_SAID_MAX:
                _MISMATCHES_SAID.add(said)
                _log.warning("topic %r: %s", self._settings.topic, refused[-1])
        return refused

    def write(self, samples: Samples, key_hashes: U8 | None = None) -> None:
        """Write all samples; AcknowledgmentError if readers hold it up for ``offer_timeout``."""
        try:
            self._writer.write(samples, key_hashes=key_hashes, timeout=seconds(self._settings.offer_timeout))
        finally:
            self._counters.update_if_due(self._writer.node)

    def begin_coherent_set(self) -> None:
        """With ``presentation.coherent_access`` a task's rows become visible together."""
        if self._settings.qos.coherent_access:
            self._writer.begin_coherent_set()
            self.in_coherent_set = True

    def end_coherent_set(self) -> None:
        if self.in_coherent_set:
            self.in_coherent_set = False
            self._writer.end_coherent_set()

    def abort_coherent_set(self) -> None:
        """Nothing of what a task wrote before it failed becomes visible."""
        if self.in_coherent_set:
            self.in_coherent_set = False
            self._writer.abort_coherent_set()

    def wait_for_acknowledgments(self) -> None:
        """AcknowledgmentError, naming the readers, if one has not all within ``acknowledgment_timeout``.

        With ``on_no_reader=wait`` also if one left without having all, and nobody else has what it lacks.
        """
        timeout = seconds(self._settings.acknowledgment_timeout)
        behind = self._writer.wait_for_acknowledgments(timeout)
        self._counters.update(self._writer.node)
        if behind:
            last = self._writer.writer.last_sn
            readers = ", ".join(f"{guid} (has {sn} of {last})" for guid, sn in behind.items())
            raise AcknowledgmentError(
                f"topic {self._settings.topic!r}: not acknowledged within {timeout:g} s by {readers}; "
                "raise acknowledgment_timeout if they are merely slow"
            )
        lost = self._writer.unserved(self._seen) if self._must_have_readers else {}
        if lost:
            last = self._writer.writer.last_sn
            readers = ", ".join(f"{guid} (had {sn} of {last})" for guid, sn in lost.items())
            raise AcknowledgmentError(
                f"topic {self._settings.topic!r}: {readers} left before everything was acknowledged, or "
                "stopped answering, and no other reader has it; the task has to write again, or set on_no_reader=drop"
            )
