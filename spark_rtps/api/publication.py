"""A topic as a Python program writes it: writes that wait for readers, or offers that never wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from ..columns.topic_plan import TopicPlan
from ..options import AppliesTo, Settings
from ..options.explanations import explained
from ..transport.errors import OptionError, TransportError, UsageError
from ..transport.net.buffer_claim import BufferClaim
from ..transport.protocol.participant.events import Event, IncompatibleQos
from ..transport.protocol.participant.statuses import WriterStatuses
from ..transport.protocol.policies import Compression
from ..transport.protocol.writing.publication import PublicationResult
from ..transport.wire.samples import DISPOSED, KEY_ONLY, U8, UNREGISTERED, Samples
from .claim import Claim
from .flushing import FLUSH_QUEUE
from .membership import Membership
from .row_encoder import RowEncoder
from .rows import Rows, conformed, record_batches
from .statuses import Listener, StatusBoard
from .topic_endpoint import TopicEndpoint, wants_group
from .writer_session import LOOK_AROUND_NS, WriterSession, writer_spec

_log = logging.getLogger("spark_rtps.api")

#: Called with the error of an automatic flush.
FlushFailed = Callable[[TransportError], object]


@dataclass(frozen=True, slots=True)
class Positions:
    """The progress of a publication, in bytes of its publication log (Aeron's positions).

    Attributes:
        pub_pos: the end of the written samples.
        pub_lmt: the limit for writing.
        snd_pos: the end of the sent samples.
        snd_lmt: flow control's limit for sending.
    """

    pub_pos: int
    pub_lmt: int
    snd_pos: int
    snd_lmt: int


class Publication(TopicEndpoint):
    """A writer of one topic, made by :meth:`Participant.publish`.

    ::

        alerts.write(table)                    # waits for a reader, for room, and for acknowledgments
        position = alerts.offer(batch)         # all rows or none, at once; a negative PublicationResult says why not
        with alerts.coherent():                # rows that become visible together
            alerts.write(table)
        alerts.dispose([{"id": 7}])            # ends an instance of a topic with a key

    Rows are a `pyarrow.RecordBatch`, a `pyarrow.Table`, a list of dicts, one dict, or a DataFrame with Arrow's C stream
    interface. All methods may be called from any thread. In an event loop: ``await asyncio.to_thread(alerts.write,
    rows)``.
    """

    role = AppliesTo.WRITE

    def __init__(
        self,
        membership: Membership,
        settings: Settings,
        plan: TopicPlan,
        *,
        listener: Listener | None = None,
        on_flush_failed: FlushFailed | None = None,
    ) -> None:
        """For :meth:`Participant.publish`. It serves the publication from now on."""
        self._statuses = WriterStatuses()
        board = StatusBoard(
            settings.topic, self._statuses, lambda: self._statuses.snapshot(self.counters()), listener
        )
        super().__init__(membership, plan, board, is_of_group=wants_group(settings.qos))
        self._settings = settings
        self._node = membership.node
        self._encoder = RowEncoder(settings, plan)
        self._closed = False
        #: The participant may close it before it has a writer.
        self._has_writer = False
        self._on_flush_failed = on_flush_failed
        for warning in settings.warnings:
            _log.warning("topic %r: %s", settings.topic, warning)
        spec = writer_spec(settings, plan)
        membership.adopt(self)
        try:
            with explained(), self._node.lock:  # its first event is about a writer that is known
                self._check_open()
                self._writer = self._node.create_writer(spec)
                until = membership.joined_at + LOOK_AROUND_NS
                self._writer.failures.sets_automatic_apart = on_flush_failed is not None
                self._session = WriterSession(self._writer, settings, look_around_until=until)
                self._statuses.local = self._writer.guid
                self._has_writer = True
        except BaseException:
            membership.release(self)
            raise

    def close(self) -> None:
        """Leave the topic. What was offered, or written with ``wait=False``, is sent, but no longer repaired.

        A second call does nothing.
        """
        with self._node.lock:
            if self._closed:
                return
            self._closed = True
            if self._has_writer:
                self._writer.end()
                if not self._node.is_closed:
                    self._node.delete_endpoint(self._writer.guid)
        self._membership.release(self)

    # --- identity -----------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, by itself or with its participant."""
        return self._closed or self._node.is_closed

    @property
    def guid(self) -> str:
        """GUID of the DDS writer."""
        return str(self._writer.guid)

    # --- writing --------------------------------------------------------------------------------------

    @explained()
    def write(self, rows: Rows, *, wait: bool = True, timestamp: int | None = None) -> None:
        """Write rows: wait for a reader, then for room as readers need it, then for acknowledgments.

        Args:
            rows: see the class. Columns of rows that are no dicts may have any order.
            wait: False: return when the last row is handed to the network, or waits in a batch. Rows of a coherent set
                are acknowledged when the set is complete.
            timestamp: source timestamp of all rows, ns since the epoch; default: now.

        Raises:
            NoReaderError: no reader matched within the option ``connect_timeout``, unless ``on_no_reader=drop``.
            AcknowledgmentError: readers made no room for ``offer_timeout``, or did not acknowledge within
                ``acknowledgment_timeout``; the message names them.
            EncodeError: a value does not fit the type; nothing of its batch is written.
            TransportError: best-effort samples could not be sent, or the publication is closed meanwhile.
            UsageError: the rows have other columns, or the publication is closed.
        """
        self._check_open()
        losses = self._session.losses
        for batch in record_batches(rows, self._plan.columns):
            samples, key_hashes = self._encoder.encode(batch)
            self._write(samples, key_hashes, 0, timestamp)
        self._wait(losses, wait=wait)

    @explained()
    def dispose(self, keys: Rows, *, wait: bool = True, timestamp: int | None = None) -> None:
        """End instances: readers see them as ``NOT_ALIVE_DISPOSED``. Waits and raises as :meth:`write`.

        ``keys`` are rows with the key columns; others are ignored. Raises UsageError for a topic without a key.
        """
        self._write_keys(keys, DISPOSED, timestamp, wait=wait)

    @explained()
    def unregister(self, keys: Rows, *, wait: bool = True, timestamp: int | None = None) -> None:
        """Write instances no more: to readers without another writer of them they are ``NOT_ALIVE_NO_WRITERS``.

        Arguments and errors are those of :meth:`dispose`.
        """
        self._write_keys(keys, UNREGISTERED, timestamp, wait=wait)

    @explained()
    def offer(self, rows: Rows, *, timestamp: int | None = None) -> int:
        """Write all rows or none, without waiting.

        Returns:
            The position behind them, in bytes, or a `PublicationResult`, which is negative: ``NOT_CONNECTED`` (there is
            no reader), ``BACK_PRESSURED`` (try again), ``ADMIN_ACTION`` (the log has begun its
            next term: try again at once), ``CLOSED``,
            ``MAX_POSITION_EXCEEDED`` (never again: make a new publication).

        Raises:
            UsageError: the rows have other columns, or more of them are offered than ever fit at once.
            EncodeError: a value does not fit the type.
            TransportError: best-effort samples could not be sent.
        """
        if self.is_closed:
            return PublicationResult.CLOSED
        batches = record_batches(rows, self._plan.columns)
        if not batches:
            return self.positions.pub_pos
        (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        samples, key_hashes = self._encoder.encode(batch)
        return self._writer.offer(samples, key_hashes=key_hashes, timestamp=timestamp)

    @explained()
    def try_claim(self, size: int, *, timestamp: int | None = None) -> Claim | PublicationResult:
        """Room for one serialized sample in the publication log, or why not (see :meth:`offer`); never waits.

        Args:
            size: bytes of the sample, its encapsulation header of 4 bytes included. It has to fit a datagram.
            timestamp: source timestamp, ns since the epoch; default: now.

        Raises:
            UsageError: the size cannot be, a coherent set is open, or there is no publication log (the option
                ``publication.term_length``).
        """
        if size < 4:
            raise UsageError(f"a sample has an encapsulation header of 4 bytes, so its size cannot be {size}")
        if self.is_closed:
            return PublicationResult.CLOSED
        claim = self._writer.try_claim(size, timestamp=timestamp)
        return Claim(claim, size, self._encoder.keys) if isinstance(claim, BufferClaim) else claim

    @explained()
    def flush(self, *, compress: bool | None = None) -> None:
        """Send what waits in a batch, with what an interceptor holds.

        It returns when that is handed to the network, or to the flow controller (``publish_mode=asynchronous``).

        Args:
            compress: whether this batch is compressed, however small or large it is. Default: as the options
                ``batch.compression`` and ``batch.compression_threshold`` say.

        Raises:
            TransportError: best-effort samples could not be sent.
            UsageError: the publication is closed, or it has no codec to compress with.
        """
        self._check_flush(compress)
        if self._has_writer:  # the participant may flush it before
            self._writer.flush(compress=compress)

    def _check_flush(self, compress: bool | None) -> None:
        self._check_open()
        if compress and self._settings.batch.compression is Compression.NONE:
            raise OptionError(
                "batch.compression", Compression.NONE.value, "set a codec to flush with compress=True"
            )

    def flush_async(
        self,
        *,
        compress: bool | None = None,
        sent: Callable[[], object] | None = None,
        failed: Callable[[Exception], object] | None = None,
    ) -> Future[None]:
        """:meth:`flush` without waiting for it.

        Args:
            compress: as for :meth:`flush`.
            sent: called without arguments when all was sent, in a thread of this library.
            failed: called with the error instead, if there was one.

        Returns:
            A future with the same outcome.

        Raises:
            UsageError: the publication is closed, or too many flushes wait already.
        """
        self._check_flush(compress)
        return FLUSH_QUEUE.put(partial(self.flush, compress=compress), sent, failed)

    @contextmanager
    def coherent(self, *, wait: bool = True) -> Iterator[None]:
        """A coherent set: what is written meanwhile, by any thread, becomes visible together, or not at all.

        At the end it waits for acknowledgments, unless ``wait=False``. If there is an exception, nothing of the set
        becomes visible to readers with coherent access.

        Raises:
            UsageError: ``presentation.coherent_access`` is not set, a set is open already, or it grows too large.
            AcknowledgmentError: as :meth:`write`.
            TransportError: the publication is closed before the end of the set, which nobody sees.
        """
        self._check_open()
        if not self._settings.qos.coherent_access:
            raise OptionError("presentation.coherent_access", "false", "set it to true for coherent sets")
        session = self._session
        losses = session.losses
        with explained():
            session.begin_coherent_set()
            try:
                yield
                session.end_coherent_set()
            except BaseException:
                if not self.is_closed:
                    session.abort_coherent_set()
                raise
            self._wait(losses, wait=wait)

    def assert_liveliness(self) -> None:
        """Show a sign of life, where the option ``liveliness`` is manual; writing is one, too."""
        self._check_open()
        self._writer.assert_liveliness()

    # --- waiting --------------------------------------------------------------------------------------

    def wait_for_readers(self, timeout: float | None = None, *, count: int = 1) -> bool:
        """Wait until so many readers are matched and ready to receive.

        Args:
            timeout: seconds; None: as long as it takes.
            count: readers.

        Returns:
            False if they are not within the time, or the publication was closed.
        """
        return self._wait_until(lambda: self._writer.readers.count_ready() >= count, timeout)

    @explained()
    def wait_for_acknowledgments(self, timeout: float | None = None) -> None:
        """Wait until every matched reliable reader has acknowledged all that was written so far.

        Args:
            timeout: seconds; default: the option ``acknowledgment_timeout``.

        Raises:
            AcknowledgmentError: naming the readers that have not; or one left before it had all, and no other has it.
            TransportError: a flow controller still holds samples back, or the publication is closed meanwhile.
        """
        self._check_open()
        self._session.wait_for_acknowledgments(timeout)

    # --- status --------------------------------------------------------------------------------

    def readers(self) -> list[str]:
        """GUIDs of the matched readers."""
        with self._node.lock:
            return sorted(str(guid) for guid in self._writer.writer.readers)

    def incompatible_readers(self) -> dict[str, tuple[str, ...]]:
        """Readers of the topic that do not match: by GUID, with a sentence for each reason."""
        if self.is_closed:
            return {}
        return {
            str(guid): reasons
            for guid, reasons in self._node.directory.incompatible(self._writer.guid).items()
        }

    @property
    def positions(self) -> Positions:
        """How far it has come, in bytes."""
        with self._node.lock:
            found = self._writer.writer.positions
            return Positions(found.pub_pos, found.pub_lmt, found.snd_pos, found.snd_lmt)

    def counters(self) -> dict[str, int]:
        """What the DDS writer counted so far, in samples unless the name says otherwise."""
        with self._node.lock:
            return self._writer.writer.counters.snapshot()

    # --- for the participant --------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Take an event of the participant; see `conductor.Endpoint`."""
        if self._statuses.local is None:
            return
        if isinstance(event, IncompatibleQos) and event.local == self._writer.guid:
            self._session.warn_of_mismatches()
        self._board.on_event(event)

    def do_work(self, now: int) -> None:
        """Do what is due; see `conductor.Endpoint`."""
        if self._statuses.local is None:
            return
        self._board.notify_changes()
        if (
            self._on_flush_failed is not None
            and (error := self._writer.failures.take_automatic()) is not None
        ):
            self._on_flush_failed(error)

    # --- inside ---------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.is_closed:
            raise UsageError(f"topic {self.topic!r}: the publication is closed")

    def write_serialized(self, samples: Samples, key_hashes: U8 | None, *, timestamp: int) -> None:
        """Write samples that are serialized already, as those of recordings are; without waiting for acknowledgments.

        Args:
            samples: of the topic's type, in the representation that is offered.
            key_hashes: (count, 16), of a topic with a key; None: it has none.
            timestamp: source timestamp of all samples, ns since the epoch.

        Raises:
            NoReaderError: as :meth:`write`; so do AcknowledgmentError, TransportError and UsageError.
        """
        self._check_open()
        with explained():
            self._write(samples, key_hashes, 0, timestamp)

    def _write(self, samples: Samples, key_hashes: U8 | None, flags: int, timestamp: int | None) -> None:
        self._session.wait_for_reader()
        self._session.write_samples(samples, key_hashes, flags=flags, timestamp=timestamp)

    def _wait(self, losses: int, *, wait: bool) -> None:
        if wait and not self._session.in_coherent_set:
            self._session.wait_for_acknowledgments(since=losses)

    def _write_keys(self, rows: Rows, flags: int, timestamp: int | None, *, wait: bool) -> None:
        self._check_open()
        if (columns := self._encoder.keys) is None:
            raise UsageError(f"topic {self.topic!r} has no key, so it has no instances")
        losses = self._session.losses
        for batch in record_batches(rows, self._plan.columns):
            samples, key_hashes = columns.encode_keys(conformed(batch, columns.schema))
            self._write(samples, key_hashes, flags | KEY_ONLY, timestamp)
        self._wait(losses, wait=wait)
