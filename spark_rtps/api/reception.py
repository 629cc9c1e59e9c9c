"""The receiving side of one subscription, from a reader's samples to record batches: the inbox, the cache, the
instances and the decoding, and the locks between them.

Locks, in the order in which a thread may take them: ``_decoding`` (one thread at a time decodes ahead), ``_reading``
(the cache and the instances), then the inbox's own. The node's thread, which holds the node's lock, takes ``_reading``
only if it is free. A thread that holds ``_reading`` never asks for the node's lock.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final
from weakref import WeakMethod

import pyarrow as pa

from ..columns.decoding import NO_TYPES, decode_frames, needs_writer_types
from ..columns.malformed import Tally
from ..columns.topic_plan import TopicPlan, announced_type, endpoint_qos
from ..options import Settings
from ..transport.errors import MalformedSampleError
from ..transport.log.frame import Frame
from ..transport.net.forked import disowned_by_children
from ..transport.net.node import Node
from ..transport.protocol.endpoint_info import ContentFilterProperty
from ..transport.protocol.participant.endpoint_specs import ReaderSpec
from ..transport.qos import HistoryKind, Qos, best_available
from ..transport.receiver.writer_types import AnnouncedTypes
from ..transport.structure import INFINITE, Guid
from ..transport.types.model import Struct
from .inbox import Inbox
from .instances import Instance, Instances
from .sample_cache import Lent, SampleCache

#: Samples taken at once for one step of an iteration.
_STEP: Final = 32_768
_ALL: Final = 1 << 62


class Reception:
    """The samples of one subscription that the program has not taken yet."""

    def __init__(self, node: Node, settings: Settings, plan: TopicPlan, *, capacity: int) -> None:
        """``capacity`` is in bytes, see :class:`Inbox`."""
        self.inbox = Inbox(node, capacity=capacity)
        relieve = WeakMethod(self._relieve)  # the node's thread must not keep the subscription alive
        self.inbox.relief = lambda: None if (method := relieve()) is None else method()
        #: Samples that had arrived when :meth:`next_batch` found none left.
        self.looked_at = 0
        self._node = node
        self._settings = settings
        self._plan = plan
        self._keeps_last = settings.qos.history is HistoryKind.KEEP_LAST
        self._cache = SampleCache(
            depth=settings.qos.history_depth if self._keeps_last else INFINITE, read_bytes_max=capacity // 2
        )
        self._instances = self._instances_of(plan.struct, keyed=plan.keyed)
        self._reading = threading.RLock()
        self._decoding = threading.Lock()
        #: Decoded batches that an iteration has not handed out yet.
        self._ahead: deque[pa.RecordBatch] = deque()
        self._malformed = 0
        self._filtered = 0
        disowned_by_children(self)

    def disown(self) -> None:
        """In a forked child: the received samples belong to the parent, and this is closed."""
        self._reading, self._decoding = threading.RLock(), threading.Lock()  # a thread may have held them
        self._ahead.clear()
        self.inbox.disown()

    def join_topic(self, type_name: str, *, keyed: bool) -> Guid:
        """Join the topic by a reader of this type name; returns its GUID. Errors are those of :meth:`Inbox.open`."""
        plan, settings = self._plan, self._settings
        if keyed != plan.keyed:
            self._instances = self._instances_of(None, keyed=keyed)
        return self.inbox.join_topic(
            ReaderSpec(
                plan.topic,
                type_name,
                self._requested(type_name),
                keyed=keyed,
                policy=settings.reader_policy,
                type=announced_type(settings, plan),
                awaits_types=needs_writer_types(plan),
                content_filter=_content_filter(plan),
                slice=settings.slice,
            ),
            instance_type=plan.struct,
            accept_writer_removed_batch_samples=settings.accept_writer_removed_batch_samples,
        )

    def _instances_of(self, struct: Struct | None, *, keyed: bool) -> Instances:
        type_of = self.inbox.announced.type_of if needs_writer_types(self._plan) else None
        return Instances(struct, keyed=keyed, type_of=type_of)

    def _requested(self, type_name: str) -> Qos:
        """The reader's QoS; policies left to the topic's writers are those of the known writers."""
        qos, settings = endpoint_qos(self._settings, self._plan), self._settings
        if not settings.left_to_writers:
            return qos
        return best_available(
            qos, settings.left_to_writers, self._node.directory.offers(settings.topic, qos, type_name)
        )

    def close(self) -> None:
        """Leave the topic, and drop all samples."""
        self.inbox.close()
        with self._reading:
            self._cache.take_samples(_ALL, unread=False)
            self._ahead.clear()

    # --- samples --------------------------------------------------------------------------------------

    def fetch(self, count: int | None, *, remove: bool, unread: bool, skip: int = 0) -> Lent:
        """Up to ``count`` samples, oldest first, None: all; as :meth:`SampleCache.take` with ``remove``, otherwise as
        :meth:`SampleCache.read`. Samples that do not reach the program have to be handed to :meth:`give_back`."""
        count = _ALL if count is None else count
        with self._reading:
            self._absorb()
            if remove:
                lent = self._cache.take_samples(count, unread=unread)
            else:
                lent = self._cache.read_samples(count, unread=unread, skip=skip)
        try:
            with (
                self._reading
            ):  # other threads may take samples between counting the bytes and announcing them
                self.inbox.hold(self._cache.nbytes)
            self.inbox.go_on()
        except BaseException as error:
            self.give_back([lent], error)
            raise
        return lent

    def decode_frames(self, frames: list[Frame]) -> list[pa.RecordBatch]:
        """The rows of samples. Raises MalformedSampleError with ``mode=failfast``; nothing else is counted then."""
        tally = Tally(self._plan)
        types = AnnouncedTypes(self.inbox.announced.types) if needs_writer_types(self._plan) else NO_TYPES
        try:
            batches = list(decode_frames(frames, self._plan, tally, types))
            self._malformed += tally.malformed_count
            self._filtered += tally.filtered_count
        except MalformedSampleError:
            self._malformed += 1
            raise
        finally:
            tally.close(None)
        return batches

    def decode_ahead(self) -> None:
        """Take some arrived samples and decode them, unless decoded ones are waiting."""
        with self._decoding:
            if not self._ahead and not self.inbox.is_closed:
                arrivals = self.inbox.arrived.count
                lent = self.fetch(_STEP, remove=True, unread=False)
                if not lent.entries:
                    self.looked_at = arrivals
                    return
                try:
                    self._ahead.extend(self.decode_frames(lent.frames))
                except BaseException as error:
                    self.give_back([lent], error)
                    raise

    def next_batch(self) -> pa.RecordBatch | None:
        """The first decoded batch, None if there is none."""
        try:
            return self._ahead.popleft()
        except IndexError:  # there is none, or another thread took it
            return None

    def decoded_rows(self, max_rows: int | None) -> list[pa.RecordBatch]:
        """Up to ``max_rows`` rows that an iteration decoded and did not hand out."""
        found: list[pa.RecordBatch] = []
        left = _ALL if max_rows is None else max_rows
        while left and (batch := self.next_batch()) is not None:
            if batch.num_rows > left:
                self._ahead.appendleft(batch.slice(left))
                batch = batch.slice(0, left)
            left -= batch.num_rows
            found.append(batch)
        return found

    def give_back(
        self, lent: list[Lent], error: BaseException, batches: Sequence[pa.RecordBatch] = ()
    ) -> None:
        """Put back samples, and ``batches`` of :meth:`decoded_rows`, that an error kept from the program.

        A sample that does not decode is dropped: the error reports it.
        """
        with self._reading:
            if self.inbox.is_closed:
                return
            for each in reversed(lent):
                self._cache.give_back(each)
            if isinstance(error, MalformedSampleError) and error.sample is not None:
                self._cache.drop(*error.sample)
            self.inbox.hold(self._cache.nbytes)
        self._ahead.extendleft(reversed(batches))
        with self.inbox.arrived.lock:
            self.inbox.arrived.raise_count()

    # --- what is known ----------------------------------------------------------------------------------

    def instances(self) -> list[Instance]:
        """The instances of all samples that arrived."""
        with self._reading:
            self._absorb()
            return self._instances.all()

    def writer_lost(self, writer: Guid) -> None:
        """A writer is unmatched, or not alive: it belongs to no instance any more.

        Nothing happens if it is back already: samples that it has written since then are here, too.
        """
        with self._node.lock:
            if writer in self.inbox.writers() and self._node.participant.liveliness.is_alive(writer):
                return
        self.inbox.writer_lost(writer)
        with self._reading:
            self._absorb()
            self._instances.writer_lost(writer)

    def keep_house(self, now: int) -> None:
        """Do what is due; ``now`` is monotonic, ns."""
        replaces = self._keeps_last and self.inbox.is_short
        if replaces or self.inbox.announced.lifespans:
            with self._reading:
                self._absorb()
                if replaces:
                    self._drop_replaced()
        self.inbox.handle_timer(now)

    def counters(self) -> dict[str, int]:
        """The counters of this object, of the DDS reader and of its policies."""
        with self._reading:
            self._absorb()
            cache = self._cache
            own = {
                "waiting_samples": len(cache),
                "waiting_bytes": cache.nbytes,
                "replaced_samples": cache.replaced,
                "expired_samples": cache.expired,
                "forgotten_samples": cache.forgotten,
                "malformed_samples": self._malformed,
                "filtered_samples": self._filtered,
            }
        of_reader, of_policies = self.inbox.counters()
        return {**of_reader, **of_policies, **own}

    # --- inside -----------------------------------------------------------------------------------------

    def _absorb(self) -> None:
        """Put arrived samples into the cache. The caller holds ``_reading``."""
        frames = self.inbox.take_frames()
        if frames:
            try:
                instances = self._instances.note_frames(frames)
                lifespans = self.inbox.announced.lifespans
                ends = [lifespans.get(frame.run.writer, INFINITE) for frame in frames]
                self._cache.add_frames(frames, instances or None, ends)
            except BaseException:
                self.inbox.put_back(frames)
                raise
            self._cache.bound_if_due()
        if self._cache.next_expiry < INFINITE:
            self._cache.expire(time.time_ns())
        self.inbox.hold(self._cache.nbytes)

    def _relieve(self) -> None:
        """Drop samples that KEEP_LAST replaces, when many have arrived unread. Called in the node's thread."""
        if self._keeps_last and self._reading.acquire(blocking=False):
            try:
                self._absorb()
                self._drop_replaced()
            finally:
                self._reading.release()

    def _drop_replaced(self) -> None:
        """Drop samples that KEEP_LAST replaces. The caller holds ``_reading``."""
        self._cache.bound()
        self.inbox.hold(self._cache.nbytes)


def _content_filter(plan: TopicPlan) -> ContentFilterProperty | None:
    """The filter as it is announced to writers, some of which apply it."""
    if plan.filter is None:
        return None
    expression, parameters = plan.filter.expression, plan.filter.parameters
    return ContentFilterProperty(f"{plan.topic} filtered", plan.topic, "DDSSQL", expression, parameters)
