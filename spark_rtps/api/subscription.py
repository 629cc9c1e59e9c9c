"""A topic as a Python program reads it: tables, or record batches as samples come."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa

from ..columns.topic_plan import TopicPlan
from ..options import AppliesTo, Payload, Settings
from ..options.explanations import READER_HINTS, hint_of
from ..transport.errors import RtpsError, UsageError
from ..transport.limits import MISMATCHES_LOGGED_MAX
from ..transport.log_once import LogOnce
from ..transport.protocol.participant.events import Event, IncompatibleQos, LivelinessLost, Unmatched
from ..transport.protocol.participant.statuses import ReaderStatuses
from ..transport.receiver.hints import reasons_with_hints
from .arguments import CAPACITY
from .instances import Instance
from .membership import Membership
from .reception import Reception
from .statuses import Listener, StatusBoard
from .topic_endpoint import TopicEndpoint, wants_group

_log = logging.getLogger("spark_rtps.api")

_STATES: Final = ("any", "not_read")


class Subscription(TopicEndpoint):
    """A reader of one topic, made by :meth:`Participant.subscribe`.

    Samples wait in memory until they are taken, or read::

        table = subscription.take(max_rows=1000, timeout=5)     # pyarrow.Table; the samples leave
        table = subscription.read()                             # they stay, and count as read
        for batch in subscription: ...                          # pyarrow.RecordBatch, as samples come; they leave
        async for batch in subscription: ...                    # the same in an event loop

    With ``history=keep_last`` at most ``history.depth`` samples of each instance wait, and newer ones replace older
    ones. With ``history=keep_all`` nothing is replaced. What waits has a bound, ``buffer_size``: when it is reached,
    reliable writers are held back and nothing is lost; samples of best-effort writers are dropped and counted. Samples
    whose writer gives them a LIFESPAN leave when it is over.

    All methods may be called from any thread; what one of them takes, no other gets.
    """

    role = AppliesTo.READ

    def __init__(
        self,
        membership: Membership,
        settings: Settings,
        plan: TopicPlan,
        *,
        buffer_size: int = CAPACITY,
        listener: Listener | None = None,
    ) -> None:
        """For :meth:`Participant.subscribe`, which calls :meth:`open` then."""
        self._statuses = ReaderStatuses()
        board = StatusBoard(
            settings.topic, self._statuses, lambda: self._statuses.snapshot(*self._inbox.counters()), listener
        )
        super().__init__(membership, plan, board, is_of_group=wants_group(settings.qos))
        self._settings = settings
        self._node = membership.node
        self._reception = Reception(self._node, settings, plan, capacity=buffer_size)
        self._inbox = self._reception.inbox
        self._announced = 0
        self._changes_seen = -1
        #: Why the topic could not be joined when its first writer was found.
        self._failure: RtpsError | None = None
        self._mismatches_logged = LogOnce(MISMATCHES_LOGGED_MAX)

    def open(self) -> Subscription:
        """Join the topic, or wait for its first writer if the type has no name yet."""
        self._membership.adopt(self)
        for warning in self._settings.warnings:
            _log.warning("topic %r: %s", self.topic, warning)
        try:
            if self._plan.named:
                self._join(self._plan, keyed=self._plan.keyed)
            else:
                self._follow_first_writer()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Leave the topic, and drop the samples that wait.

        Iterations end, and calls that wait return what they have. A second call does nothing.
        """
        if self._inbox.is_closed:
            return
        self._reception.close()
        self._membership.release(self)

    # --- what it is -----------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, by itself or with its participant."""
        return self._inbox.is_closed

    @property
    def guid(self) -> str | None:
        """GUID of the DDS reader; None while its type's name is not known."""
        return None if self._inbox.reader is None else str(self._inbox.reader.guid)

    # --- reading --------------------------------------------------------------------------------------

    def read(
        self, max_rows: int | None = None, timeout: float | None = None, *, sample_states: str = "not_read"
    ) -> pa.Table:
        """Samples as a table; they stay in the subscription, and count as read.

        Samples that were read stay until they are taken, as long as they need no more than half of ``buffer_size``;
        then the oldest of them leave.

        Args:
            max_rows: wait for so many rows, and return no more (but ``payload=arrow`` does not divide the rows of a
                sample). None: what there is.
            timeout: seconds to wait; None: as long as it takes for ``max_rows`` rows, or, without ``max_rows``, not at
                all. With a timeout and without ``max_rows`` it returns what came by then.
            sample_states: ``"not_read"``: samples that were not read before; ``"any"``: those that were, too.

        Returns:
            A `pyarrow.Table` with the columns :attr:`schema`, in the order of arrival; perhaps without rows. A closed
            subscription, while a call waits, returns what there is.

        Raises:
            UsageError: the subscription is closed, or an argument cannot be.
            MalformedSampleError: with ``mode=failfast``, if a sample does not decode. It is dropped; all others stay.
        """
        return self._collect(max_rows, timeout, sample_states, remove=False)

    def take(
        self, max_rows: int | None = None, timeout: float | None = None, *, sample_states: str = "any"
    ) -> pa.Table:
        """Samples as a table; they leave the subscription.

        Arguments, result and errors are those of :meth:`read`, but that samples which were read before are taken, too,
        unless ``sample_states="not_read"``.
        """
        return self._collect(max_rows, timeout, sample_states, remove=True)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Record batches of up to 32768 rows as samples come; the samples leave. Ends when the subscription closes.

        Raises MalformedSampleError with ``mode=failfast``; another iteration goes on behind that sample.
        """
        while True:
            self._reception.decode_ahead()
            if (batch := self._reception.next_batch()) is not None:
                yield batch
            elif self._inbox.is_closed or not self._inbox.arrived.wait(self._reception.looked_at, None):
                self._raise_failure()
                return

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        """As :meth:`__iter__`, in an event loop, which goes on while samples are waited for and decoded."""
        return self

    async def __anext__(self) -> pa.RecordBatch:
        """The next batch; raises StopAsyncIteration when the subscription closes."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(arrived.set)
            except RuntimeError:  # the loop is closed, and no task waits
                pass

        self._inbox.arrived.add_waker(wake)
        try:
            while not self._inbox.is_closed:
                arrived.clear()
                # What is decoded waits in the subscription: a task that is cancelled meanwhile loses nothing.
                await asyncio.to_thread(self._reception.decode_ahead)
                if (batch := self._reception.next_batch()) is not None:
                    return batch
                if self._inbox.arrived.count == self._reception.looked_at and not self._inbox.is_closed:
                    await arrived.wait()
        finally:
            self._inbox.arrived.remove_waker(wake)
        self._raise_failure()
        raise StopAsyncIteration

    def wait_for_writers(self, timeout: float | None = None, *, count: int = 1) -> bool:
        """Wait until so many writers are matched.

        Args:
            timeout: seconds; None: as long as it takes.
            count: writers.

        Returns:
            False if they are not within the time, or the subscription was closed.
        """
        return self._wait_until(lambda: len(self._inbox.writers()) >= count, timeout)

    # --- what is known ----------------------------------------------------------------------------------

    def writers(self) -> list[str]:
        """GUIDs of the matched writers."""
        return sorted(map(str, self._inbox.writers()))

    def instances(self) -> list[Instance]:
        """The instances that are known, each with its key, its state and its writers.

        A topic without a key is one instance. At most 262144 are known; those without writers make room for others.
        """
        self._membership.serve()
        return self._reception.instances()

    def counters(self) -> dict[str, int]:
        """What was counted so far, in samples unless the name has another unit.

        Those of the subscription: ``waiting_samples`` and ``waiting_bytes`` (now), ``replaced_samples``,
        ``expired_samples``, ``forgotten_samples`` (read, and not taken before there was no more room),
        ``malformed_samples``, ``filtered_samples``. All others are what the DDS reader counts.
        """
        return self._reception.counters()

    # --- for the participant ------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Take an event of the participant; see `conductor.Endpoint`."""
        if self._inbox.reader is None:
            return
        if isinstance(event, Unmatched) and event.local == self._statuses.local:
            self._reception.writer_lost(event.remote)
        elif isinstance(event, LivelinessLost):
            self._reception.writer_lost(event.writer)
        elif isinstance(event, IncompatibleQos) and event.local == self._statuses.local:
            reasons = reasons_with_hints(event.reasons, READER_HINTS)
            if self._mismatches_logged.is_new(reasons):
                _log.warning("topic %r: no match with %s: %s", self.topic, event.remote, reasons)
        self._board.on_event(event)

    def do_work(self, now: int) -> None:
        """Do what is due; see `conductor.Endpoint`."""
        if self._inbox.reader is None:
            if not self._plan.named:
                try:
                    self._follow_first_writer()
                except RtpsError as error:  # it ends the subscription, and is raised by its next call
                    if not self._inbox.is_closed:
                        error.hint = hint_of(error)
                        self._failure = error
                        self.close()
            return
        self._reception.keep_house(now)
        if self._board.has_listener:
            self._board.notify_changes()
            arrivals = self._inbox.arrived.count
            if arrivals != self._announced:
                self._announced = arrivals
                self._board.announce("DATA_AVAILABLE")

    # --- inside -------------------------------------------------------------------------------------------

    def _join(self, plan: TopicPlan, *, keyed: bool) -> None:
        with self._node.lock:  # the first event is about a reader that is known
            # The thread that subscribes and the participant's may both have found the first writer.
            if self._inbox.reader is None:
                self._statuses.local = self._reception.join_topic(plan.type_name, keyed=keyed)
                self._plan = plan

    def _follow_first_writer(self) -> None:
        """Join under the name that the topic's first writer has for its type, once there is one."""
        changes = self._node.directory.changes
        if changes == self._changes_seen or self._inbox.is_closed:
            return
        self._changes_seen = changes
        found = self._node.directory.first_writer(self.topic, self._settings.qos)
        if found is None:
            return
        plan = self._plan
        # a policy that looks at instances has to know by which key
        keyed = plan.keyed if plan.keyed or self._settings.qos.reports_instances else found.keyed
        _log.info("topic %r: its first writer calls the type %r", self.topic, found.type_name)
        self._join(replace(plan, type_name=found.type_name), keyed=keyed)

    def _collect(self, max_rows: int | None, timeout: float | None, states: str, *, remove: bool) -> pa.Table:
        if states not in _STATES:
            raise UsageError(f"sample_states is {states!r}; it must be one of {', '.join(_STATES)}")
        if max_rows is not None and max_rows < 1:
            raise UsageError(f"max_rows is {max_rows}; it must be at least 1, or None")
        self._raise_failure()
        if self._inbox.is_closed:
            raise UsageError(f"topic {self.topic!r}: the subscription is closed")
        at_once = max_rows is None and timeout is None
        deadline = None if timeout is None else time.monotonic() + timeout
        ahead: list[pa.RecordBatch] = self._reception.decoded_rows(max_rows) if remove else []
        batches, lent = list(ahead), []
        rows, skip, unread = sum(batch.num_rows for batch in batches), 0, states == "not_read"
        try:
            while max_rows is None or rows < max_rows:
                arrivals = self._inbox.arrived.count
                found = self._reception.fetch(
                    _samples_for(self._plan, max_rows, rows), remove=remove, unread=unread, skip=skip
                )
                if found.entries:
                    lent.append(found)
                    decoded = self._reception.decode_frames(found.frames)
                    batches += decoded
                    rows += sum(batch.num_rows for batch in decoded)
                    skip += found.samples
                if at_once or (deadline is not None and time.monotonic() >= deadline):
                    break
                if not found.entries and not self._inbox.arrived.wait(arrivals, deadline):
                    break
            self._raise_failure()
            return pa.Table.from_batches(batches, schema=self._plan.columns)
        except BaseException as error:
            self._reception.give_back(lent, error, ahead)
            raise

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _samples_for(plan: TopicPlan, max_rows: int | None, rows: int) -> int | None:
    """How many samples to take for the rows that are wanted still; None: all."""
    if max_rows is None:
        return None
    return 1 if plan.payload is Payload.ARROW else max_rows - rows
