"""The use of a writer by one publication, or by one task of a sink, with the waiting and the errors of both.

It waits for readers, writes, and waits until they have acknowledged all samples.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..columns.topic_plan import TopicPlan, announced_type, endpoint_qos
from ..monitoring.publisher_counters import PublisherCounters
from ..options import OnNoReader, Settings
from ..options.explanations import mismatch, no_reader, unacknowledged, unserved
from ..options.participants import publication_policy
from ..options.texts import seconds
from ..transport.limits import MISMATCHES_LOGGED_MAX
from ..transport.log_once import LogOnce
from ..transport.net.blocking_writer import BlockingWriter
from ..transport.protocol.participant.endpoint_specs import WriterSpec
from ..transport.protocol.writing.readers import ReaderProxy
from ..transport.structure import NANOSECONDS, Guid
from ..transport.wire.samples import U8, Samples

_log = logging.getLogger("spark_rtps.api")

#: Topics and the reasons of mismatches that were logged.
#: How long a new participant waits for discovery before it assumes that it has found all readers.
LOOK_AROUND_NS: Final = NANOSECONDS
_MISMATCHES_LOGGED: Final = LogOnce(MISMATCHES_LOGGED_MAX)


class WriterSession:
    """The writing side of a publication, or of one task; a writer serves one task after the other."""

    def __init__(
        self,
        writer: BlockingWriter,
        settings: Settings,
        *,
        look_around_until: int,
        counters: PublisherCounters | None = None,
    ) -> None:
        self._writer = writer
        self._settings = settings
        self._counters = counters
        self._look_around_until = look_around_until
        self._must_have_readers = settings.on_no_reader is OnNoReader.WAIT
        #: Guards everything below: several threads may write. It is never taken under the node's lock.
        self._lock = threading.Lock()
        #: The readers that were matched at a write whose acknowledgments nobody has awaited yet.
        self._seen: set[ReaderProxy] = set()
        #: How often a reader left without samples that no other reader has, and the last such readers.
        self._losses = 0
        self._lost: dict[Guid, int] = {}
        self.in_coherent_set = False

    @property
    def losses(self) -> int:
        """To be kept before the first write, for :meth:`wait_for_acknowledgments`."""
        return self._losses

    def wait_for_reader(self) -> None:
        """To be called before each write: NoReaderError if no reader is there within ``connect_timeout``.

        With ``on_no_reader=drop`` it only waits for discovery. A new participant always does that: the first reader
        found
        need not be the only one.
        """
        settings = self._settings
        if self._must_have_readers and not self._writer.wait_for_readers(seconds(settings.connect_timeout)):
            refused = self.warn_of_mismatches()
            raise no_reader(settings.topic, settings.domain, seconds(settings.connect_timeout), refused)
        ahead = self._look_around_until - time.monotonic_ns()
        if ahead > 0:
            time.sleep(ahead / NANOSECONDS)
        with self._lock:
            self._seen.update(self._writer.readers.ready_reliable())
        self.warn_of_mismatches()

    def warn_of_mismatches(self) -> Mapping[Guid, Sequence[str]]:
        """The readers that do not match, with the reasons; each reason is logged once in a process."""
        refused = self._writer.node.directory.incompatible(self._writer.guid)
        for reader, reasons in refused.items():
            message = self._settings.topic, tuple(reasons)
            if _MISMATCHES_LOGGED.is_new(message):
                _log.warning("topic %r: %s", self._settings.topic, mismatch(reader, reasons))
        return refused

    def write_samples(
        self,
        samples: Samples,
        key_hashes: U8 | None = None,
        *,
        flags: int = 0,
        timestamp: int | None = None,
    ) -> None:
        """Write all samples; AcknowledgmentError if readers hold it up for ``offer_timeout``.

        The arguments are those of `BlockingWriter.write`.
        """
        timeout = seconds(self._settings.offer_timeout)
        try:
            self._writer.write_samples(
                samples, key_hashes=key_hashes, flags=flags, timestamp=timestamp, timeout=timeout
            )
        finally:
            if self._counters is not None:
                self._counters.update_if_due(self._writer.node)

    def begin_coherent_set(self) -> None:
        """With ``presentation.coherent_access`` a task's rows become visible together."""
        if self._settings.qos.coherent_access:
            with self._writer.node.lock:  # another thread may begin a set
                was_open = self._is_set_open()
                try:
                    self._writer.begin_coherent_set()
                except BaseException:
                    if not was_open and self._is_set_open():
                        self._writer.abort_coherent_set()
                    raise
                self.in_coherent_set = True

    def end_coherent_set(self) -> None:
        if self.in_coherent_set:
            self.in_coherent_set = False
            try:
                self._writer.end_coherent_set()
            except BaseException:
                if self._is_set_open():
                    self._writer.abort_coherent_set()
                raise

    def _is_set_open(self) -> bool:
        return bool(self._writer.writer.state.set_begun)

    def abort_coherent_set(self) -> None:
        """Discard the open set: nothing that a failed task wrote becomes visible."""
        if self.in_coherent_set:
            self.in_coherent_set = False
            self._writer.abort_coherent_set()

    def wait_for_acknowledgments(self, timeout: float | None = None, *, since: int | None = None) -> None:
        """Raise AcknowledgmentError, naming the readers, if one lacks samples after ``timeout`` seconds.

        Default: ``acknowledgment_timeout``.

        With ``on_no_reader=wait`` it is also raised if a reader left without samples that no other reader has.
        ``since``
        are the :attr:`losses` before the caller wrote: the caller's samples may be among losses that another thread
        found.
        """
        if timeout is None:
            timeout = seconds(self._settings.acknowledgment_timeout)
        behind = self._writer.wait_for_acknowledgments(timeout)
        if self._counters is not None:
            self._counters.update(self._writer.node)
        if behind:
            raise unacknowledged(self._settings.topic, timeout, behind, self._writer.writer.last_sn)
        with self._lock:
            seen, self._seen = self._seen, set(self._writer.readers.ready_reliable())
            lost = self._writer.readers.unserved(seen) if self._must_have_readers else {}
            if lost:
                self._losses += 1
                self._lost = lost
            elif since is not None and self._losses > since:
                lost = self._lost
        if lost:
            raise unserved(self._settings.topic, lost, self._writer.writer.last_sn)


def writer_spec(settings: Settings, plan: TopicPlan) -> WriterSpec:
    """The writer for samples that ``plan`` encodes."""
    return WriterSpec(
        plan.topic,
        plan.type_name,
        replace(endpoint_qos(settings, plan), data_representation=(plan.representation,)),
        keyed=plan.keyed,
        policy=publication_policy(settings),
        type=announced_type(settings, plan),
    )
