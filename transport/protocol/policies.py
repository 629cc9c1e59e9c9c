"""When endpoints speak and how much they have in flight, as values handed in; what they count, and why they lose."""

from __future__ import annotations

import enum
from dataclasses import asdict
from typing import Final

from ..structure import INFINITE
from ..value_classes import slotted, value


@value
class CongestionControlPolicy:
    """How a reader sizes the window it offers; bytes and nanoseconds (Aeron's CongestionControl)."""

    #: ``static``, ``cubic``, or ``module:callable`` of the user's own.
    kind: str = "static"
    #: What is offered first, and for ever by ``static``; 0: the kind's own (static: max_window, cubic: 10 datagrams).
    initial_window: int = 0
    max_window: int = 16 << 20
    #: CUBIC's round trip time to begin with, and for good unless ``measure_rtt``.
    min_rtt: int = 100_000
    measure_rtt: bool = False
    #: CUBIC is never slower than TCP Reno would be.
    tcp_mode: bool = False


@value
class ReaderPolicy:
    """When a reader answers, and what it accepts; nanoseconds. RTI: DATA_READER_PROTOCOL rtps_reliable_reader."""

    #: From a HEARTBEAT to what answers it, drawn evenly between the two: many readers do not answer at once.
    min_heartbeat_response_delay: int = 0
    max_heartbeat_response_delay: int = 0
    #: HEARTBEATs within this time after one that was answered are not answered.
    heartbeat_suppression_duration: int = 0
    #: A request is repeated after round_trip_time at the earliest; the time doubles up to nack_period while
    #: nothing comes.
    round_trip_time: int = 20_000_000
    nack_period: int = 320_000_000
    #: Samples (batches count as one) kept ahead of a missing one, per writer; INFINITE: as many as memory bounds allow.
    receive_window_size: int = INFINITE
    #: Acknowledge nothing; only request what is missing.
    disable_positive_acks: bool = False
    #: From what proves a loss to the request: late datagrams may still drop in.
    nack_delay: int = 1_000_000
    #: The same where nothing proves it but a hole, or the end of what was announced: it may be on its way.
    reorder_delay: int = 10_000_000
    #: Pre-emptive ACKNACKs from the match to the first HEARTBEAT; doubles up to the maximum.
    preemptive_period: int = 50_000_000
    preemptive_period_max: int = 3_000_000_000
    #: Status messages to writers of ours: at least so often while samples are consumed.
    status_message_timeout: int = 200_000_000
    #: What ``tagged`` flow control asks for.
    group_tag: int | None = None
    #: How many readers of a multicast stream are thought to see a loss at once: requests back off by it; 1: unicast.
    nack_group_size: int = 1
    #: The longest such back-off.
    nack_backoff_max: int = 10_000_000
    congestion_control: CongestionControlPolicy = CongestionControlPolicy()
    #: Writers wait for this reader; if not, one that stays behind is told after the first time-out, let go after
    #: another one, and may rejoin after the second.
    tether: bool = True
    untethered_window_limit_timeout: int = 5_000_000_000
    untethered_resting_timeout: int = 10_000_000_000


#: Unacknowledged bytes of a writer whose readers do not say how much they take.
SEND_WINDOW_BYTES: Final = 4 << 20


@value
class WriterPolicy:
    """How much a writer has in flight and when it speaks; samples, bytes and nanoseconds.

    RTI: DATA_WRITER_PROTOCOL rtps_reliable_writer. Where batches are sent, a batch counts as one sample.
    """

    #: While something is unacknowledged.
    heartbeat_period: int = 100_000_000
    #: Instead of it from high_watermark unacknowledged samples up, until they are low_watermark again, and while
    #: the send window is full.
    fast_heartbeat_period: int = 10_000_000
    #: Instead of it to a reader that has not caught up with the history it found.
    late_joiner_heartbeat_period: int = 20_000_000
    low_watermark: int = 0
    high_watermark: int = INFINITE
    #: A HEARTBEAT rides along so many times per send window (of samples and of bytes); 0: never.
    heartbeats_per_max_samples: int = 8
    #: HEARTBEATs a reader may leave unanswered before it is inactive.
    max_heartbeat_retries: int = INFINITE
    inactivate_nonprogressing_readers: bool = False
    #: Unacknowledged samples at most; between the two the window moves with what is lost. INFINITE: bytes alone decide.
    min_send_window_size: int = INFINITE
    max_send_window_size: int = INFINITE
    send_window_update_period: int = 3_000_000_000
    #: Percent.
    send_window_increase_factor: int = 105
    send_window_decrease_factor: int = 70
    #: Unacknowledged bytes at most; 0: SEND_WINDOW_BYTES, and where all readers report how much they take, as much as
    #: may be published ahead of what is sent.
    send_window_bytes: int = 0
    #: A request is answered so much later, with what was requested meanwhile.
    min_nack_response_delay: int = 0
    #: What was sent again is not sent again to the same reader within the longer one of these.
    max_nack_response_delay: int = 5_000_000
    nack_suppression_duration: int = 0
    #: So many readers of a multicast group that ask for the same are sent it again by the group, fewer each alone.
    multicast_resend_threshold: int = 2
    #: One answer; it holds at least one sample, and at most max_samples_per_repair a datagram.
    max_bytes_per_nack_response: int = 256 << 10
    max_samples_per_repair: int = 32
    #: To one reader within one suppression time, whatever it asks.
    max_repair_bytes: int = 4 << 20
    #: What was sent counts as acknowledged after the keep duration, which adapts between the two.
    disable_positive_acks: bool = False
    disable_positive_acks_min_sample_keep_duration: int = 100_000_000
    disable_positive_acks_max_sample_keep_duration: int = 1_000_000_000
    disable_positive_acks_enable_adaptive_sample_keep_duration: bool = True
    #: Percent.
    disable_positive_acks_decrease_sample_keep_duration_factor: int = 95
    disable_positive_acks_increase_sample_keep_duration_factor: int = 150

    @property
    def window_bytes(self) -> int:
        """Unacknowledged bytes at most, of readers that only acknowledge."""
        return self.send_window_bytes or SEND_WINDOW_BYTES

    @property
    def repair_suppression(self) -> int:
        """What was sent again is not sent again to the same reader within this time."""
        return max(self.max_nack_response_delay, self.nack_suppression_duration)


@value
class FlowControlPolicy:
    """Whose feedback paces a writer, and its publication log; bytes and nanoseconds (Aeron's FlowControl)."""

    #: ``unicast``, ``min``, ``max``, ``tagged``, or ``module:callable`` of the user's own.
    strategy: str = "min"
    #: The same while samples are sent to a multicast group; ``auto``: ``strategy``.
    multicast_strategy: str = "auto"
    #: A reader that leaves what is asked of it unanswered for so long paces no more.
    receiver_timeout: int = INFINITE
    #: Of the readers that pace, with ``tagged``.
    group_tag: int | None = None
    #: Not connected until so many readers (with ``tagged``: tagged ones) are there.
    group_min_size: int = 0
    #: Of each of the three terms of the publication log; 0: no log, changes have memory of their own.
    term_length: int = 0
    #: How far ahead of the sender may be published; 0: half a term.
    term_window: int = 0
    #: How far ahead of a reader of the log may be sent, with ``ipc``; 0: half a term.
    ipc_term_window: int = 0
    #: A claim that is not committed within this time becomes padding.
    unblock_timeout: int = 15_000_000_000
    #: Readers of ours on the same host read the publication log instead of datagrams.
    ipc: bool = False
    #: The publication log can be read by spies on this host; they alone make it connected.
    spies_simulate_connection: bool = False
    #: As of ReaderPolicy, for readers of the publication log.
    untethered_window_limit_timeout: int = 5_000_000_000
    untethered_resting_timeout: int = 10_000_000_000

    def log_window(self, term_length: int) -> int:
        """Bytes that may lie between a reader of the publication log, or a spy, and the newest frame it may read."""
        half = term_length // 2
        return min((self.ipc_term_window if self.ipc else self.term_window) or half, half)


class BatchWire(enum.Enum):
    """How batches travel."""

    #: DATA_BATCH to readers that say they read it (ours), coalesced DATA to all others.
    AUTO = "auto"
    #: DATA_BATCH also to RTI Connext's readers.
    DATA_BATCH = "data_batch"
    #: Coalesced DATA to all.
    DATA = "data"


class Compression(enum.Enum):
    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


@value
class BatchPolicy:
    """RTI's BATCH QoS, and what Ice's batches add. Bytes, samples, nanoseconds."""

    enable: bool = False
    #: Serialized bytes of all samples, encapsulation and padding included, metadata not.
    max_data_bytes: int = 1024
    max_samples: int = INFINITE
    max_flush_delay: int = INFINITE
    source_timestamp_resolution: int = INFINITE
    thread_safe_write: bool = True
    #: Batches are sized by how fast the user writes; ignored with ``enable``.
    turbo_mode: bool = False
    wire: BatchWire = BatchWire.AUTO
    disable_inline_keyhash: bool = False
    #: Bytes at which a batch is flushed however large max_data_bytes is; the smaller one counts.
    auto_flush_size: int = INFINITE
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    #: Codec for samples that are not in batches.
    data_compression: Compression = Compression.NONE
    #: Batches, and datagrams, of fewer bytes are not compressed.
    compression_threshold: int = 512
    #: Batches a writer keeps; this or RESOURCE_LIMITS max_samples, whichever is reached first.
    max_batches: int = INFINITE

    @property
    def batches(self) -> bool:
        return self.enable or self.turbo_mode


class Scheduling(enum.Enum):
    """Which writer of a flow controller sends next."""

    ROUND_ROBIN = "round_robin"
    EARLIEST_DEADLINE_FIRST = "earliest_deadline_first"
    HIGHEST_PRIORITY_FIRST = "highest_priority_first"


@value
class FlowControllerPolicy:
    """A token bucket that asynchronous writers of one name share."""

    name: str = "default"
    scheduling: Scheduling = Scheduling.EARLIEST_DEADLINE_FIRST
    max_tokens: int = INFINITE
    tokens_added_per_period: int = INFINITE
    tokens_leaked_per_period: int = 0
    period: int = 1_000_000_000
    bytes_per_token: int = INFINITE


@value
class PublicationPolicy:
    """All that decides how one writer sends, but for its QoS."""

    writer: WriterPolicy = WriterPolicy()
    batch: BatchPolicy = BatchPolicy()
    #: Asynchronous publishing; None: in the writing thread.
    flow_controller: FlowControllerPolicy | None = None
    transport_priority: int = 0
    #: Unbatched samples that are written together share datagrams.
    coalescing: bool = True
    #: ``module:callable``, see `batching.Interceptor`.
    interceptor: str | None = None
    flow_control: FlowControlPolicy = FlowControlPolicy()
    #: IPv4 networks of the hosts whose readers match; empty: all.
    readers_allowed: tuple[str, ...] = ()
    #: Readers that share a group are sent samples by it.
    multicast: bool = True


class LossCause(enum.StrEnum):
    """Why a sample is lost, in the words of the loss report; where several causes are possible, the one that is listed
    first."""

    #: Their writer sent them when it knew only the address at which the receiver had been.
    MOVED = "receiver moved"
    #: Their writer sent them while there was no receiver, and did not keep them.
    STOPPED = "receiver stopped"
    #: Their writer sent them while it was not matched, and did not keep them.
    OUT_OF_REACH = "writer out of reach"
    #: A reliable writer no longer had them in its history.
    HISTORY = "writer's history"
    #: A reliable writer left, or was silent for longer than its lease, before they were sent again; or a best-effort
    #: one in the middle of them.
    WRITER_GONE = "writer gone"
    #: Another sample of their coherent set is lost, or the set is too large.
    COHERENT_SET = "coherent set"
    #: The reader was too slow, and untethered: it let the writer go.
    UNTETHERED = "untethered"
    #: A best-effort writer's, and meanwhile the kernel dropped datagrams because a receive buffer was full.
    RECEIVE_BUFFER = "receive buffer full"
    #: A best-effort writer's that were lost before they reached a receive buffer.
    NOT_RECEIVED = "not received"
    #: They came while the log was full, and the user wants them dropped rather than their writer held back.
    LOG_FULL = "log full"


@slotted
class ReaderCounters:
    """What happened so far; samples unless the name says otherwise."""

    received_samples: int = 0
    duplicate_samples: int = 0
    #: Of those, what came from reliable writers of which only lower numbers came for a second, and no HEARTBEAT that
    #: shows more: they repeat it for others, or were restarted under the same GUID.
    doubted_samples: int = 0
    lost_samples: int = 0
    #: Of those, what writers sent before they knew the reader under its new GUID.
    missed_samples: int = 0
    irrelevant_samples: int = 0
    #: Larger than the reader takes; they are among the irrelevant ones too.
    oversized_samples: int = 0
    window_closed: int = 0
    held_samples: int = 0
    reorder_overflow: int = 0
    #: Of those, what was beyond receive_window_size.
    receive_window_overflow: int = 0
    unknown_writer: int = 0
    #: DATA, DATA_BATCH, DATA_FRAG, GAP and HEARTBEAT_FRAG of writers of other slices, dropped unread.
    of_other_slices: int = 0
    received_batches: int = 0
    #: Coherent sets of which nothing was handed out; their samples are among the lost ones.
    coherent_sets_lost: int = 0
    fragments: int = 0
    duplicate_fragments: int = 0
    bad_fragments: int = 0
    fragment_overflow: int = 0
    heartbeats: int = 0
    #: Not answered: they came too soon after one that was.
    suppressed_heartbeats: int = 0
    #: Writers, one each time it was matched, that repeat HEARTBEATs sooner than the reader answers one after another.
    suppressed_writers: int = 0
    stale_counts: int = 0
    gaps: int = 0
    gap_overflow: int = 0
    acknacks_sent: int = 0
    nacks_sent: int = 0
    nack_frags_sent: int = 0
    status_messages_sent: int = 0
    #: Times a writer let this untethered reader go.
    unavailable: int = 0
    #: Runs that were consumed already, and runs beyond what was offered and half as much again.
    underruns: int = 0
    overruns: int = 0
    rtt_measurements: int = 0
    #: The last one measured, of whichever writer.
    rtt_ns: int = 0

    def snapshot(self) -> dict[str, int]:
        # A forged HEARTBEAT can lose 2 ** 63 samples; whoever keeps counters keeps 64 bits.
        return {name: min(count, INFINITE) for name, count in asdict(self).items()}


@slotted
class WriterCounters:
    """What happened so far."""

    written_samples: int = 0
    written_bytes: int = 0
    back_pressured: int = 0
    heartbeats_sent: int = 0
    acknacks: int = 0
    #: ACKNACKs that request something.
    nacks_received: int = 0
    nack_frags: int = 0
    stale_counts: int = 0
    unknown_reader: int = 0
    #: ACKNACKs, NACK_FRAGs and status messages that speak of samples that were never sent: all of them are ignored.
    unsent_acknowledged: int = 0
    repaired_samples: int = 0
    repaired_fragments: int = 0
    repaired_bytes: int = 0
    repairs_bounded: int = 0
    #: Samples, and fragments, that were requested again before the suppression time was over.
    repairs_suppressed: int = 0
    #: Answers in which something was left out that its reader had been sent again before, and too often.
    repetitions_bounded: int = 0
    gaps_sent: int = 0
    #: RELIABLE_WRITER_CACHE_CHANGED: how often the unacknowledged samples fell to none and to low_watermark,
    #: and rose to high_watermark and to what the send window takes.
    empty_reached: int = 0
    low_watermark_reached: int = 0
    high_watermark_reached: int = 0
    full_reached: int = 0
    unacknowledged_samples: int = 0
    unacknowledged_samples_peak: int = 0
    #: RELIABLE_READER_ACTIVITY_CHANGED.
    active_readers: int = 0
    inactive_readers: int = 0
    reader_activity_changes: int = 0
    #: OFFERED_DEADLINE_MISSED: periods without a write, of all instances.
    offered_deadline_missed: int = 0
    #: Datagrams of an asynchronous reliable writer, HEARTBEATs and repairs mostly, that found its queue full.
    flow_controller_overflow: int = 0
    #: Flow control: status messages heard; times something waited for a reader's window, and for the publication's
    #: limit; readers that fell behind those that pace, and began anew.
    status_messages_received: int = 0
    flow_control_limits: int = 0
    dropped_readers: int = 0
    #: Claims that nobody committed in time.
    unblocked_publications: int = 0
    #: What a batch interceptor decided never to send.
    dropped_by_interceptor: int = 0
    #: LIFESPAN was over before everybody had acknowledged it, or while it was kept for late joiners.
    expired_samples: int = 0

    def snapshot(self) -> dict[str, int]:
        return asdict(self)


READER_POLICY: Final = ReaderPolicy()
WRITER_POLICY: Final = WriterPolicy()
BATCH_POLICY: Final = BatchPolicy()
PUBLICATION_POLICY: Final = PublicationPolicy()
