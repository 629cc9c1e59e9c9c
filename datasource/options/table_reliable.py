"""Options of the reliable protocol: RTI's rtps_reliable_writer and rtps_reliable_reader."""

from __future__ import annotations

from typing import Final

from ...transport.protocol.policies import READER_POLICY, WRITER_POLICY
from .spec import YEAR, AppliesTo, Kind, OptionSpec, value_text

#: A timer that fires again and again does so at most ten thousand times a second.
_PERIOD: Final = 100_000


def _writer(
    field: str, kind: Kind, doc: str, minimum: int | None = None, maximum: int | None = None
) -> OptionSpec:
    name, default = f"reliable_writer.{field}", value_text(kind, getattr(WRITER_POLICY, field))
    return OptionSpec(name, kind, default, doc, AppliesTo.WRITE, (), minimum, maximum)


def _reader(
    field: str, kind: Kind, doc: str, minimum: int | None = None, maximum: int | None = None
) -> OptionSpec:
    name, default = f"reliable_reader.{field}", value_text(kind, getattr(READER_POLICY, field))
    return OptionSpec(name, kind, default, doc, AppliesTo.READ, (), minimum, maximum)


RELIABLE_OPTIONS: Final[tuple[OptionSpec, ...]] = (
    _writer(
        "heartbeat_period",
        Kind.DURATION,
        "A HEARTBEAT goes out so often while samples are unacknowledged.",
        _PERIOD,
        YEAR,
    ),
    _writer(
        "fast_heartbeat_period",
        Kind.DURATION,
        "The same from `reliable_writer.high_watermark` unacknowledged samples up, until they are "
        "`reliable_writer.low_watermark` again, and while the send window is full.",
        _PERIOD,
        YEAR,
    ),
    _writer(
        "late_joiner_heartbeat_period",
        Kind.DURATION,
        "The same to a reader that has not caught up with the history it found.",
        _PERIOD,
        YEAR,
    ),
    _writer("low_watermark", Kind.INTEGER, "Unacknowledged samples where the fast heartbeats end.", 0),
    _writer("high_watermark", Kind.COUNT, "Unacknowledged samples where the fast heartbeats begin.", 1),
    _writer(
        "heartbeats_per_max_samples",
        Kind.INTEGER,
        "A HEARTBEAT rides along so many times per send window; `0`: never. Where it is not set, it is no more "
        "than `reliable_writer.max_send_window_size`.",
        0,
        100_000_000,
    ),
    _writer(
        "max_heartbeat_retries",
        Kind.COUNT,
        "HEARTBEATs that a reader may leave unanswered. Then it is inactive, nothing is kept for it, and it may "
        "lose samples, until it acknowledges again. RTI's default is 150.",
        1,
    ),
    _writer(
        "inactivate_nonprogressing_readers",
        Kind.BOOLEAN,
        "Whether a reader that asks for the same oldest sample again and again counts as unanswering.",
    ),
    _writer(
        "min_send_window_size",
        Kind.COUNT,
        "Unacknowledged samples, a batch counting as one, down to which losses shrink the send window. "
        "`unlimited`: they do not.",
        1,
    ),
    _writer(
        "max_send_window_size",
        Kind.COUNT,
        "Unacknowledged samples up to which the send window grows; then writing waits. `unlimited`: "
        "`reliable_writer.send_window_bytes` alone decides.",
        1,
    ),
    _writer(
        "send_window_update_period",
        Kind.DURATION,
        "The send window grows so often while nothing is lost.",
        _PERIOD,
        YEAR,
    ),
    _writer("send_window_increase_factor", Kind.INTEGER, "Percent of it that it grows to.", 100, 10_000),
    _writer(
        "send_window_decrease_factor",
        Kind.INTEGER,
        "Percent of it that a reader's request for repair shrinks it to.",
        1,
        100,
    ),
    _writer(
        "send_window_bytes",
        Kind.SIZE,
        "Unacknowledged bytes at most; then writing waits. One sample always fits.",
        1,
    ),
    _writer(
        "min_nack_response_delay",
        Kind.DURATION,
        "A request for repair is answered so much later, with what was requested meanwhile.",
        0,
        YEAR,
    ),
    _writer(
        "max_nack_response_delay",
        Kind.DURATION,
        "What was sent again is not sent again to the same reader within this time. RTI's default is 200ms.",
        0,
        YEAR,
    ),
    _writer(
        "nack_suppression_duration",
        Kind.DURATION,
        "The same; the longer one counts.",
        0,
        YEAR,
    ),
    _writer(
        "max_bytes_per_nack_response",
        Kind.SIZE,
        "Bytes of one answer to a request for repair; it holds at least one sample.",
        1,
    ),
    _writer(
        "max_samples_per_repair",
        Kind.INTEGER,
        "Samples in one datagram of such an answer.",
        1,
        32,
    ),
    _writer(
        "max_repair_bytes",
        Kind.SIZE,
        "Bytes sent again to one reader within one suppression time, whatever it asks for.",
        1,
    ),
    _writer(
        "disable_positive_acks",
        Kind.BOOLEAN,
        "Readers acknowledge nothing and only request what is missing. A sample counts as acknowledged after "
        "the keep duration: strict reliability ends there.",
    ),
    _writer(
        "disable_positive_acks_min_sample_keep_duration",
        Kind.DURATION,
        "Keep duration at least.",
        0,
        YEAR,
    ),
    _writer(
        "disable_positive_acks_max_sample_keep_duration",
        Kind.DURATION,
        "Keep duration at most.",
        0,
        YEAR,
    ),
    _writer(
        "disable_positive_acks_enable_adaptive_sample_keep_duration",
        Kind.BOOLEAN,
        "Whether the keep duration adapts between the two; if not, it is the minimum.",
    ),
    _writer(
        "disable_positive_acks_decrease_sample_keep_duration_factor",
        Kind.INTEGER,
        "Percent of it that the keep duration shrinks to.",
        1,
        100,
    ),
    _writer(
        "disable_positive_acks_increase_sample_keep_duration_factor",
        Kind.INTEGER,
        "Percent of it that the keep duration grows to.",
        100,
        10_000,
    ),
    _reader(
        "min_heartbeat_response_delay",
        Kind.DURATION,
        "A HEARTBEAT is answered at the earliest so much later, so that many readers do not answer at once.",
        0,
        YEAR,
    ),
    _reader(
        "max_heartbeat_response_delay",
        Kind.DURATION,
        "And at the latest. RTI's default is 500ms.",
        0,
        YEAR,
    ),
    _reader(
        "heartbeat_suppression_duration",
        Kind.DURATION,
        "HEARTBEATs so soon after one that was answered are not answered. Keep it below the writers' "
        "`reliable_writer.heartbeat_period`.",
        0,
        YEAR,
    ),
    _reader(
        "round_trip_time",
        Kind.DURATION,
        "What is missing is requested again after this time at the earliest; the time doubles up to "
        "`reliable_reader.nack_period` while nothing comes.",
        0,
        YEAR,
    ),
    _reader("nack_period", Kind.DURATION, "And at the latest. RTI's default is 5s.", _PERIOD, YEAR),
    _reader(
        "receive_window_size",
        Kind.COUNT,
        "Samples, a batch counting as one, that are kept of a writer ahead of a missing one. `unlimited`: as many "
        "as 32 MiB hold. RTI's default is 256.",
        1,
    ),
    _reader(
        "disable_positive_acks",
        Kind.BOOLEAN,
        "Acknowledge nothing, only request what is missing: writers may drop what was lost before we notice.",
    ),
    OptionSpec(
        "accept_writer_removed_batch_samples",
        Kind.BOOLEAN,
        "false",
        "Whether samples of a batch that their writer marked as removed (replaced, or too old) are taken; "
        "otherwise they are dropped and counted.",
        AppliesTo.READ,
    ),
)
