"""Policies of endpoints (when they send, how much is in flight), their counters, and the causes of losses."""

from __future__ import annotations

import enum
from dataclasses import asdict
from typing import Final

from ..structure import INFINITE
from ..value_classes import slotted, value


@value
class CongestionControlPolicy:
    """How a reader sizes the window it offers; bytes and nanoseconds (Aeron's CongestionControl)."""

    #: ``static``, ``cubic``, or ``module:callable`` of user code.
    kind: str = "static"
    #: The window offered first, and always by ``static``; 0: the kind's own (static: max_window, cubic: 10 datagrams).
    initial_window: int = 0
    max_window: int = 16 << 20
    #: CUBIC's initial round trip time; it stays unless ``measure_rtt`` is set.
    min_rtt: int = 100_000
    measure_rtt: bool = False
    #: CUBIC is never slower than TCP Reno would be.
    tcp_mode: bool = False


@value
class ReaderPolicy:
    """When a reader answers, and what it accepts; nanoseconds. RTI: DATA_READER_PROTOCOL rtps_reliable_reader."""

    #: Delay from a HEARTBEAT to its answer, drawn evenly between the two, so that many readers do not answer at once.
    min_heartbeat_response_delay: int = 0
    max_heartbeat_response_delay: int = 0
    #: HEARTBEATs within this time after an answered one are not answered.
    heartbeat_suppression_duration: int = 0
    #: A request is repeated after round_trip_time at the earliest; the time doubles up to nack_period while nothing
    #: arrives.
    round_trip_time: int = 20_000_000
    nack_period: int = 320_000_000
    #: Samples (batches count as one) kept ahead of a missing one, per writer; INFINITE: as many as memory bounds allow.
    receive_window_size: int = INFINITE
    #: Acknowledge nothing; only request missing samples.
    disable_positive_acks: bool = False
    #: Delay from the proof of a loss to the request: late datagrams may still arrive.
    nack_delay: int = 1_000_000
    #: The same delay where only a hole, or the end of what was announced, suggests a loss: samples may be on their way.
    reorder_delay: int = 10_000_000
    #: Period of pre-emptive ACKNACKs from the match to the first HEARTBEAT; it doubles up to the maximum.
    preemptive_period: int = 50_000_000
    preemptive_period_max: int = 3_000_000_000
    #: Longest time between status messages to our writers while samples are consumed.
    status_message_timeout: int = 200_000_000
    #: The tag by which ``tagged`` flow control selects readers.
    group_tag: int | None = None
    #: Estimated number of readers of a multicast stream that see a loss at once: requests back off by it. 1: unicast.
    nack_group_size: int = 1
    #: The longest such back-off.
    nack_backoff_max: int = 10_000_000
    congestion_control: CongestionControlPolicy = CongestionControlPolicy()
    #: Whether writers wait for this reader. If not, a reader that stays behind lingers after the limit time-out, rests
    #: after another one, and rejoins after the resting time-out.
    tether: bool = True
    untethered_window_limit_timeout: int = 5_000_000_000
    untethered_resting_timeout: int = 10_000_000_000


#: Maximum of unacknowledged bytes of a writer whose readers send no status messages.
SEND_WINDOW_BYTES: Final = 4 << 20


@value
class WriterPolicy:
    """How much a writer has in flight and when it speaks; samples, bytes and nanoseconds.

    RTI: DATA_WRITER_PROTOCOL rtps_reliable_writer. Where batches are sent, a batch counts as one sample.
    """

    #: HEARTBEAT period while samples are unacknowledged.
    heartbeat_period: int = 100_000_000
    #: HEARTBEAT period from high_watermark unacknowledged samples up, until they fall to low_watermark, and while the
    #: send window is full.
    fast_heartbeat_period: int = 10_000_000
    #: HEARTBEAT period to a late joiner that has not received the whole history yet.
    late_joiner_heartbeat_period: int = 20_000_000
    low_watermark: int = 0
    high_watermark: int = INFINITE
    #: Number of HEARTBEATs per send window (of samples and of bytes) that share a datagram with samples; 0: none.
    heartbeats_per_max_samples: int = 8
    #: HEARTBEATs a reader may leave unanswered before it is inactive.
    max_heartbeat_retries: int = INFINITE
    inactivate_nonprogressing_readers: bool = False
    #: Maximum of unacknowledged samples; losses move the window between the two. INFINITE: only bytes count.
    min_send_window_size: int = INFINITE
    max_send_window_size: int = INFINITE
    send_window_update_period: int = 3_000_000_000
    #: Percent.
    send_window_increase_factor: int = 105
    send_window_decrease_factor: int = 70
    #: Maximum of unacknowledged bytes; 0: SEND_WINDOW_BYTES, or the publication window if all readers send status
    #: messages.
    send_window_bytes: int = 0
    #: Delay from a request to its answer, which includes what is requested in between.
    min_nack_response_delay: int = 0
    #: A repair is not repeated to the same reader within the longer one of these.
    max_nack_response_delay: int = 5_000_000
    nack_suppression_duration: int = 0
    #: If this many readers of a multicast group request the same sample, the group gets the repair, else each reader.
    multicast_resend_threshold: int = 2
    #: Bytes of one answer; it holds at least one sample, and at most max_samples_per_repair per datagram.
    max_bytes_per_nack_response: int = 256 << 10
    max_samples_per_repair: int = 32
    #: Bytes of repairs to one reader within one suppression time, whatever it requests.
    max_repair_bytes: int = 4 << 20
    #: Where readers send no positive acknowledgements, samples count as acknowledged after the keep duration, which
    #: adapts between the two.
    disable_positive_acks: bool = False
    disable_positive_acks_min_sample_keep_duration: int = 100_000_000
    disable_positive_acks_max_sample_keep_duration: int = 1_000_000_000
    disable_positive_acks_enable_adaptive_sample_keep_duration: bool = True
    #: Percent.
    disable_positive_acks_decrease_sample_keep_duration_factor: int = 95
    disable_positive_acks_increase_sample_keep_duration_factor: int = 150

    @property
    def window_bytes(self) -> int:
        """Maximum of unacknowledged bytes for readers that send no status messages."""
        return self.send_window_bytes or SEND_WINDOW_BYTES

    @property
    def repair_suppression(self) -> int:
        """A repair is not repeated to the same reader within this time."""
        return max(self.max_nack_response_delay, self.nack_suppression_duration)


@value
class FlowControlPolicy:
    """Which readers pace a writer, and its publication log; bytes and nanoseconds (Aeron's FlowControl)."""

    #: ``unicast``, ``min``, ``max``, ``tagged``, or ``module:callable`` of user code.
    strategy: str = "min"
    #: The strategy while samples are sent to a multicast group; ``auto``: as ``strategy``.
    multicast_strategy: str = "auto"
    #: A reader that is silent for this long although an answer is due no longer paces the writer.
    receiver_timeout: int = INFINITE
    #: The tag of the readers that pace, with ``tagged``.
    group_tag: int | None = None
    #: Readers (with ``tagged``: tagged ones) that must be matched before the writer is connected.
    group_min_size: int = 0
    #: Bytes of each of the three terms of the publication log; 0: no log, each change has its own memory.
    term_length: int = 0
    #: Maximum of bytes published ahead of the sender; 0: half a term.
    term_window: int = 0
    #: Maximum of bytes sent ahead of a reader of the log, with ``ipc``; 0: half a term.
    ipc_term_window: int = 0
    #: A claim that is not committed within this time becomes padding.
    unblock_timeout: int = 15_000_000_000
    #: Readers of ours on the same host read the publication log instead of datagrams.
    ipc: bool = False
    #: Spies on this host can read the publication log; a spy is enough to make the writer connected.
    spies_simulate_connection: bool = False
    #: As in ReaderPolicy, for readers of the publication log.
    untethered_window_limit_timeout: int = 5_000_000_000
    untethered_resting_timeout: int = 10_000_000_000

    def log_window(self, term_length: int) -> int:
        """Maximum of bytes between a reader of the publication log, or a spy, and the newest frame that it may read."""
        half = term_length // 2
        return min((self.ipc_term_window if self.ipc else self.term_window) or half, half)


class BatchWire(enum.Enum):
    """How batches travel."""

    #: DATA_BATCH to readers that announce support for it (ours), coalesced DATA to all others.
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
    """RTI's BATCH QoS, and additions from Ice's batches. Bytes, samples, nanoseconds."""

    enable: bool = False
    #: Serialized bytes of all samples, encapsulation and padding included, metadata not.
    max_data_bytes: int = 1024
    max_samples: int = INFINITE
    max_flush_delay: int = INFINITE
    source_timestamp_resolution: int = INFINITE
    thread_safe_write: bool = True
    #: The rate of writes decides the size of batches; ignored with ``enable``.
    turbo_mode: bool = False
    wire: BatchWire = BatchWire.AUTO
    disable_inline_keyhash: bool = False
    #: Bytes at which a batch is flushed even if max_data_bytes is larger.
    auto_flush_size: int = INFINITE
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    #: Codec for samples that are not in batches.
    data_compression: Compression = Compression.NONE
    #: Smaller batches and datagrams are not compressed.
    compression_threshold: int = 512
    #: Maximum of batches that a writer keeps; RESOURCE_LIMITS max_samples holds as well.
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
    """All policies of one writer's sending, apart from its QoS."""

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
    #: Samples go to a multicast group if readers share one.
    multicast: bool = True


class LossCause(enum.StrEnum):
    """Why a sample is lost, as named in the loss report; of several possible causes, the first one listed here."""

    #: Their writer sent them to a previous address of the receiver, the only one that it knew.
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
    #: The untethered reader was too slow and let the writer go.
    UNTETHERED = "untethered"
    #: A best-effort writer sent them, and the kernel dropped datagrams at that time because a receive buffer was full.
    RECEIVE_BUFFER = "receive buffer full"
    #: A best-effort writer sent them, and they were lost before they reached a receive buffer.
    NOT_RECEIVED = "not received"
    #: They arrived while the log was full, and the user prefers to drop them rather than to hold back their writer.
    LOG_FULL = "log full"


@slotted
class ReaderCounters:
    """Counters of a reader, in samples unless the name says otherwise."""

    received_samples: int = 0
    duplicate_samples: int = 0
    #: Of those, samples of reliable writers that sent only lower numbers for a second and no HEARTBEAT beyond them:
    #: they repeat samples for other readers, or were restarted under the same GUID.
    doubted_samples: int = 0
    lost_samples: int = 0
    #: Of those, samples that writers sent before they knew the reader's new GUID.
    missed_samples: int = 0
    irrelevant_samples: int = 0
    #: Larger than the reader's maximum; they are counted as irrelevant, too.
    oversized_samples: int = 0
    window_closed: int = 0
    held_samples: int = 0
    reorder_overflow: int = 0
    #: Of those, samples beyond receive_window_size.
    receive_window_overflow: int = 0
    unknown_writer: int = 0
    #: DATA, DATA_BATCH, DATA_FRAG, GAP and HEARTBEAT_FRAG of writers of other slices, dropped unread.
    of_other_slices: int = 0
    received_batches: int = 0
    #: Coherent sets that were dropped; their samples are counted as lost.
    coherent_sets_lost: int = 0
    fragments: int = 0
    duplicate_fragments: int = 0
    bad_fragments: int = 0
    fragment_overflow: int = 0
    heartbeats: int = 0
    #: HEARTBEATs not answered because they came too soon after an answered one.
    suppressed_heartbeats: int = 0
    #: Matches with writers whose HEARTBEAT period is shorter than the reader's suppression time.
    suppressed_writers: int = 0
    stale_counts: int = 0
    gaps: int = 0
    gap_overflow: int = 0
    acknacks_sent: int = 0
    nacks_sent: int = 0
    nack_frags_sent: int = 0
    status_messages_sent: int = 0
    #: How often this untethered reader let a writer go.
    unavailable: int = 0
    #: Runs that were consumed already, and runs beyond one and a half times the offered window.
    underruns: int = 0
    overruns: int = 0
    rtt_measurements: int = 0
    #: The last one measured, of any writer.
    rtt_ns: int = 0

    def snapshot(self) -> dict[str, int]:
        # A forged HEARTBEAT can make 2 ** 63 samples lost, but counters are kept in 64 bits.
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
    #: ACKNACKs, NACK_FRAGs and status messages that name samples never sent: they are ignored.
    unsent_acknowledged: int = 0
    repaired_samples: int = 0
    repaired_fragments: int = 0
    repaired_bytes: int = 0
    repairs_bounded: int = 0
    #: Samples and fragments requested again within the suppression time.
    repairs_suppressed: int = 0
    #: Answers that left out repairs which their reader had been sent too often before.
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
    #: Flow control: status messages received; how often samples waited for a reader's window, and for the publication
    #: limit; readers that fell behind the pacing ones and restarted at the newest sample.
    status_messages_received: int = 0
    flow_control_limits: int = 0
    dropped_readers: int = 0
    #: Claims that nobody committed in time.
    unblocked_publications: int = 0
    #: Samples that a batch interceptor discarded.
    dropped_by_interceptor: int = 0
    #: Samples whose LIFESPAN ended before all readers had acknowledged them, or while they were kept for late joiners.
    expired_samples: int = 0

    def snapshot(self) -> dict[str, int]:
        return asdict(self)


READER_POLICY: Final = ReaderPolicy()
WRITER_POLICY: Final = WriterPolicy()
BATCH_POLICY: Final = BatchPolicy()
PUBLICATION_POLICY: Final = PublicationPolicy()
