"""Options of the reliable protocol: RTI's rtps_reliable_writer and rtps_reliable_reader."""

from __future__ import annotations

from typing import Final

from ..transport.protocol.policies import READER_POLICY, SEND_WINDOW_BYTES, WRITER_POLICY
from .spec import YEAR, AppliesTo, OptionKind, OptionSpec, size_text, value_text

#: A timer that fires again and again does so at most ten thousand times a second.
_PERIOD: Final = 100_000
_GROUP_MAX: Final = 1 << 16


def _writer(
    field: str, kind: OptionKind, doc: str, minimum: int | None = None, maximum: int | None = None
) -> OptionSpec:
    name, default = f"reliable_writer.{field}", value_text(kind, getattr(WRITER_POLICY, field))
    return OptionSpec(name, kind, default, doc, AppliesTo.WRITE, (), minimum, maximum)


def _reader(
    field: str, kind: OptionKind, doc: str, minimum: int | None = None, maximum: int | None = None
) -> OptionSpec:
    name, default = f"reliable_reader.{field}", value_text(kind, getattr(READER_POLICY, field))
    return OptionSpec(name, kind, default, doc, AppliesTo.READ, (), minimum, maximum)


RELIABLE_OPTIONS: Final[tuple[OptionSpec, ...]] = (
    _writer(
        "heartbeat_period",
        OptionKind.DURATION,
        "Period of HEARTBEATs to a reader while samples await its acknowledgement. RTI's default is 200ms "
        "(3s before version 7.6).",
        _PERIOD,
        YEAR,
    ),
    _writer(
        "fast_heartbeat_period",
        OptionKind.DURATION,
        "Period of HEARTBEATs while the send window is full, and from the time when "
        "`reliable_writer.high_watermark` samples await acknowledgement until no more than "
        "`reliable_writer.low_watermark` do. RTI's default is 200ms (3s before version 7.6).",
        _PERIOD,
        YEAR,
    ),
    _writer(
        "late_joiner_heartbeat_period",
        OptionKind.DURATION,
        "Period of HEARTBEATs to a reader that has not yet caught up with the history it found when it "
        "joined. RTI's default is 200ms (3s before version 7.6).",
        _PERIOD,
        YEAR,
    ),
    _writer(
        "low_watermark",
        OptionKind.INTEGER,
        "Number of unacknowledged samples at which the writer returns to the normal heartbeat period.",
        0,
    ),
    _writer(
        "high_watermark",
        OptionKind.COUNT,
        "Number of unacknowledged samples from which the writer uses the fast heartbeat period. RTI's "
        "default is 1.",
        1,
    ),
    _writer(
        "heartbeats_per_max_samples",
        OptionKind.INTEGER,
        "Number of HEARTBEATs that are sent along with data for each full send window; `0`: none. The "
        "default is lowered to `reliable_writer.max_send_window_size` if that is smaller.",
        0,
        100_000_000,
    ),
    _writer(
        "max_heartbeat_retries",
        OptionKind.COUNT,
        "Number of HEARTBEATs that a reader may leave unanswered. After that it is inactive: the writer "
        "keeps nothing for it, so it may lose samples, until it acknowledges again. RTI's default is 150.",
        1,
    ),
    _writer(
        "inactivate_nonprogressing_readers",
        OptionKind.BOOLEAN,
        "Whether a reader that answers but acknowledges no more than before, and not everything, counts as "
        "a reader that does not answer: for `reliable_writer.max_heartbeat_retries` or "
        "`flow_control.receiver_timeout`, one of which has to be set.",
    ),
    _writer(
        "min_send_window_size",
        OptionKind.COUNT,
        "Lower bound of the send window, in unacknowledged samples (a batch counts as one). Losses shrink "
        "the window down to this size. `unlimited`: losses do not shrink it.",
        1,
    ),
    _writer(
        "max_send_window_size",
        OptionKind.COUNT,
        "Upper bound of the send window, in unacknowledged samples (a batch counts as one). A write waits "
        "while the window is full. `unlimited`: only `reliable_writer.send_window_bytes` limits it.",
        1,
    ),
    _writer(
        "send_window_update_period",
        OptionKind.DURATION,
        "How often the send window grows while nothing is lost.",
        _PERIOD,
        YEAR,
    ),
    _writer(
        "send_window_increase_factor",
        OptionKind.INTEGER,
        "New size of the send window when it grows, as a percentage of the old size.",
        100,
        10_000,
    ),
    _writer(
        "send_window_decrease_factor",
        OptionKind.INTEGER,
        "New size of the send window when a reader requests a repair, as a percentage of the old size.",
        1,
        100,
    ),
    OptionSpec(
        "reliable_writer.send_window_bytes",
        OptionKind.SIZE,
        "auto",
        "Maximum number of unacknowledged bytes. A write waits while this limit is reached. A single "
        f"sample always fits. `auto`: {size_text(SEND_WINDOW_BYTES)}, or half of `publication.term_length` if that is "
        "more and all readers announce how many bytes they can take, as readers of this package do.",
        AppliesTo.WRITE,
        minimum=1,
    ),
    _writer(
        "min_nack_response_delay",
        OptionKind.DURATION,
        "Delay before the writer answers a request for repair. The answer includes everything that was "
        "requested in the meantime.",
        0,
        YEAR,
    ),
    _writer(
        "max_nack_response_delay",
        OptionKind.DURATION,
        "Time within which a repaired sample is not sent to the same reader again, unless "
        "`reliable_writer.nack_suppression_duration` is longer. RTI's default is 200ms.",
        0,
        YEAR,
    ),
    _writer(
        "nack_suppression_duration",
        OptionKind.DURATION,
        "Time within which a repaired sample is not sent to the same reader again, unless "
        "`reliable_writer.max_nack_response_delay` is longer.",
        0,
        YEAR,
    ),
    _writer(
        "multicast_resend_threshold",
        OptionKind.INTEGER,
        "Number of readers of one multicast group that must request the same sample within 20ms for it to be sent to "
        "the group again. If fewer request it, it is sent to each of them alone. `1`: every repair goes to the group, "
        "as in Aeron.",
        1,
        _GROUP_MAX,
    ),
    _writer(
        "max_bytes_per_nack_response",
        OptionKind.SIZE,
        "Maximum size of one answer to a request for repair. An answer always holds at least one sample. "
        "RTI's default is 128KiB.",
        1,
    ),
    _writer(
        "max_samples_per_repair",
        OptionKind.INTEGER,
        "Maximum number of samples in one datagram of an answer to a request for repair.",
        1,
        32,
    ),
    _writer(
        "max_repair_bytes",
        OptionKind.SIZE,
        "Maximum number of bytes of repairs to one reader within one suppression time (the longer of "
        "`reliable_writer.max_nack_response_delay` and `reliable_writer.nack_suppression_duration`), "
        "whatever the reader requests.",
        1,
    ),
    _writer(
        "disable_positive_acks",
        OptionKind.BOOLEAN,
        "Readers send no acknowledgements and only request what is missing. A sample counts as "
        "acknowledged once its keep duration has passed, so reliability is no longer strict.",
    ),
    _writer(
        "disable_positive_acks_min_sample_keep_duration",
        OptionKind.DURATION,
        "Minimum keep duration of a sample with `reliable_writer.disable_positive_acks`. RTI's default is "
        "1ms, less than most repairs take.",
        0,
        YEAR,
    ),
    _writer(
        "disable_positive_acks_max_sample_keep_duration",
        OptionKind.DURATION,
        "Maximum keep duration of a sample with `reliable_writer.disable_positive_acks`.",
        0,
        YEAR,
    ),
    _writer(
        "disable_positive_acks_enable_adaptive_sample_keep_duration",
        OptionKind.BOOLEAN,
        "Whether the keep duration adapts to losses between its minimum and its maximum. If false, it is "
        "always the minimum.",
    ),
    _writer(
        "disable_positive_acks_decrease_sample_keep_duration_factor",
        OptionKind.INTEGER,
        "New keep duration after a whole keep duration without a request for repair, as a percentage of "
        "the old one.",
        1,
        100,
    ),
    _writer(
        "disable_positive_acks_increase_sample_keep_duration_factor",
        OptionKind.INTEGER,
        "New keep duration after a request for repair, as a percentage of the old one.",
        100,
        10_000,
    ),
    _reader(
        "min_heartbeat_response_delay",
        OptionKind.DURATION,
        "Minimum delay before the reader answers a HEARTBEAT. The delay is drawn at random between "
        "minimum and maximum, so that many readers do not answer at once.",
        0,
        YEAR,
    ),
    _reader(
        "max_heartbeat_response_delay",
        OptionKind.DURATION,
        "Maximum delay before the reader answers a HEARTBEAT. RTI's default is 500ms.",
        0,
        YEAR,
    ),
    _reader(
        "heartbeat_suppression_duration",
        OptionKind.DURATION,
        "Time after an answered HEARTBEAT within which the reader leaves further HEARTBEATs unanswered. "
        "It should be less than the writers' `reliable_writer.heartbeat_period`. RTI's default is 62.5ms.",
        0,
        YEAR,
    ),
    _reader(
        "round_trip_time",
        OptionKind.DURATION,
        "Time after which the reader first repeats a request for missing samples. The interval doubles up "
        "to `reliable_reader.nack_period` while nothing arrives. RTI's default is 0s.",
        0,
        YEAR,
    ),
    _reader(
        "nack_period",
        OptionKind.DURATION,
        "Longest interval between repeated requests for missing samples. RTI's default is 5s.",
        _PERIOD,
        YEAR,
    ),
    _reader(
        "receive_window_size",
        OptionKind.COUNT,
        "Maximum number of samples (a batch counts as one) that the reader holds back per writer while an "
        "earlier one is missing. `unlimited`: as many as fit in 32 MiB. RTI's default is 256.",
        1,
    ),
    _reader(
        "disable_positive_acks",
        OptionKind.BOOLEAN,
        "The reader sends no acknowledgements and only requests what is missing. Writers may discard a "
        "lost sample before the reader notices the loss.",
    ),
    OptionSpec(
        "accept_writer_removed_batch_samples",
        OptionKind.BOOLEAN,
        "false",
        "Whether the reader takes samples of a batch which their writer marked as removed (because they "
        "were replaced or are too old). If false, they are dropped and counted.",
        AppliesTo.READ,
    ),
)
