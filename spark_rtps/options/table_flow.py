"""Options of the publication log, of flow control and congestion control (Aeron's), and of their metrics."""

from __future__ import annotations

from typing import Any, Final

from ..transport.protocol.policies import READER_POLICY, CongestionControlPolicy, FlowControlPolicy
from .spec import YEAR, AppliesTo, OptionKind, OptionSpec, value_text

_READ, _WRITE, _BOTH = AppliesTo.READ, AppliesTo.WRITE, AppliesTo.BOTH

#: The shortest time-out: they are checked at this interval.
_TIMEOUT: Final = 1_000_000
_TIMER: Final = 100_000
_GROUP_MAX: Final = 1 << 16
_TAG_BITS: Final = 63
_WINDOW_MAX: Final = 1 << 30
#: Limits of the publication log, as in `log.publication_log_metadata`, which would import NumPy.
TERM_LENGTH_MIN: Final = 64 << 10
TERM_LENGTH_MAX: Final = 1 << 30


def _option(
    name: str,
    kind: OptionKind,
    doc: str,
    applies_to: AppliesTo,
    *,
    of: Any,
    choices: tuple[str, ...] = (),
    minimum: int | None = None,
    maximum: int | None = None,
) -> OptionSpec:
    """An option whose default is that of the policy ``of``."""
    default = value_text(kind, getattr(of, name.rpartition(".")[2]))
    return OptionSpec(name, kind, default, doc, applies_to, choices, minimum, maximum)


_FLOW = FlowControlPolicy()
_CONGESTION = CongestionControlPolicy()

FLOW_OPTIONS: Final[tuple[OptionSpec, ...]] = (
    # --- flow control -----------------------------------------------------------------------------
    _option(
        "flow_control.strategy",
        OptionKind.PLUGIN,
        "Which reliable readers set the pace of the writer. `min`: the slowest. `max`: the fastest; a reader that "
        "falls a whole term behind is dropped and rejoins at the newest sample. `tagged`: the slowest of those with "
        "the tag `flow_control.group_tag`. `unicast`: the only reader. Or a class of your own, as `module:class`, "
        "which Spark's workers import. With `min`, a reader that makes no progress stops the sink, and all its "
        "readers, until the task fails after `offer_timeout`. With `flow_control.receiver_timeout` the sink continues "
        "without a reader that does not answer, and with `reliable_writer.inactivate_nonprogressing_readers` also "
        "without one that answers but acknowledges nothing. `max` and `tagged` do not wait for such a reader at all, "
        "and `readers.allow` excludes readers on other hosts than those it names. Aeron's default for several readers "
        "is `max`, with which a reliable reader may lose samples.",
        _WRITE,
        of=_FLOW,
        choices=("min", "max", "tagged", "unicast"),
    ),
    _option(
        "flow_control.multicast_strategy",
        OptionKind.PLUGIN,
        "The strategy that takes the place of `flow_control.strategy` while samples are sent to a multicast group. "
        "`auto`: the same one.",
        _WRITE,
        of=_FLOW,
        choices=("auto", "min", "max", "tagged", "unicast"),
    ),
    _option(
        "flow_control.receiver_timeout",
        OptionKind.DURATION,
        "Time without an answer after which a reader no longer sets the pace, until it answers again. "
        "With `reliable_writer.inactivate_nonprogressing_readers=true`, an answer that acknowledges no "
        "more than those before it is none. Aeron's default is 5s.",
        _WRITE,
        of=_FLOW,
        minimum=_TIMEOUT,
    ),
    OptionSpec(
        "flow_control.group_tag",
        OptionKind.INTEGER,
        None,
        "For a source: the tag that its reader announces. For a sink: the tag of the readers that set the "
        "pace with `flow_control.strategy=tagged`.",
        _BOTH,
        minimum=-(1 << _TAG_BITS),
        maximum=(1 << _TAG_BITS) - 1,
    ),
    _option(
        "flow_control.group_min_size",
        OptionKind.INTEGER,
        "Number of reliable readers that must be matched before anything is written. With "
        "`flow_control.strategy=tagged` only tagged readers count; the strategies `max` and `unicast` "
        "ignore it.",
        _WRITE,
        of=_FLOW,
        minimum=0,
        maximum=_GROUP_MAX,
    ),
    OptionSpec(
        "flow_control.consumption",
        OptionKind.WORD,
        "logged",
        "When data counts as consumed in the status messages to our writers. `logged`: once it is in the "
        "stream log. `committed`: once Spark has committed it; then a writer is never further ahead of "
        "the query than `congestion_control.max_window`, which also bounds a micro-batch.",
        _READ,
        choices=("logged", "committed"),
    ),
    _option(
        "status_message_timeout",
        OptionKind.DURATION,
        "Longest interval between status messages while samples are being consumed. A status message is "
        "also sent whenever a quarter of the window has been consumed.",
        _READ,
        of=READER_POLICY,
        minimum=_TIMER,
        maximum=YEAR,
    ),
    _option(
        "reliable_reader.nack_group_size",
        OptionKind.INTEGER,
        "Estimated number of readers of a multicast group that lose the same samples. Their requests for "
        "repair are delayed at random, so that the first ones may serve all: two, or as many as the sink's "
        "`reliable_writer.multicast_resend_threshold`. `1`: no delay.",
        _READ,
        of=READER_POLICY,
        minimum=1,
        maximum=_GROUP_MAX,
    ),
    _option(
        "reliable_reader.nack_backoff_max",
        OptionKind.DURATION,
        "Longest random delay of a request for repair with `reliable_reader.nack_group_size` above 1.",
        _READ,
        of=READER_POLICY,
        minimum=0,
        maximum=YEAR,
    ),
    # --- congestion control -------------------------------------------------------------------------
    OptionSpec(
        "congestion_control",
        OptionKind.PLUGIN,
        _CONGESTION.kind,
        "How the window that a reader offers to each of our writers follows losses on the network. `static`: it does "
        "not. `cubic`: as in TCP CUBIC. Or a class of your own, as `module:class`, which the receiver imports.",
        _READ,
        choices=("static", "cubic"),
    ),
    OptionSpec(
        "congestion_control.initial_window",
        OptionKind.SIZE,
        "auto",
        "Size of the window that a reader offers at first; with `static` it stays at that. `auto`: "
        "`congestion_control.max_window` for `static`, ten datagrams for `cubic`. Aeron's default is 128KiB, which is "
        "two of our largest datagrams on loopback, where a writer would pause after each of them.",
        _READ,
        minimum=1,
        maximum=_WINDOW_MAX,
    ),
    _option(
        "congestion_control.max_window",
        OptionKind.SIZE,
        "Maximum size of the window that a reader offers to a writer. It is bounded by half of the writer's "
        "`publication.term_length` as well, and from 4MiB on by the writer's share of half the receive buffer that "
        "the kernel grants (`receive_buffer`).",
        _READ,
        of=_CONGESTION,
        minimum=1,
        maximum=_WINDOW_MAX,
    ),
    _option(
        "congestion_control.min_rtt",
        OptionKind.DURATION,
        "Round-trip time that `cubic` starts with. It keeps this value unless "
        "`congestion_control.measure_rtt=true`.",
        _READ,
        of=_CONGESTION,
        minimum=1_000,
        maximum=YEAR,
    ),
    _option(
        "congestion_control.measure_rtt",
        OptionKind.BOOLEAN,
        "Whether the reader measures the round-trip time to each of our writers.",
        _READ,
        of=_CONGESTION,
    ),
    _option(
        "congestion_control.tcp_mode",
        OptionKind.BOOLEAN,
        "Whether `cubic` is at least as fast as TCP Reno would be.",
        _READ,
        of=_CONGESTION,
    ),
    # --- publication log ------------------------------------------------------------------------------
    OptionSpec(
        "publication.term_length",
        OptionKind.SIZE,
        "32MiB",
        "Size of each of the three terms of a writer's publication log: a power of two from 64KiB to "
        "1GiB. At least the last term that was sent can always be sent again from the log.",
        _WRITE,
    ),
    OptionSpec(
        "publication.term_window",
        OptionKind.SIZE,
        "auto",
        "How far writing may be ahead of sending before a write waits. The maximum, which `auto` selects, "
        "is half of `publication.term_length`.",
        _WRITE,
        minimum=TERM_LENGTH_MIN // 2,
        maximum=TERM_LENGTH_MAX // 2,
    ),
    OptionSpec(
        "publication.ipc_term_window",
        OptionKind.SIZE,
        "auto",
        "How far sending may be ahead of a reader that maps the publication log of a writer with `ipc=true`. "
        "The maximum, which `auto` selects, is half of `publication.term_length`.",
        _WRITE,
        minimum=TERM_LENGTH_MIN // 2,
        maximum=TERM_LENGTH_MAX // 2,
    ),
    _option(
        "publication.unblock_timeout",
        OptionKind.DURATION,
        "Time after which space in the publication log that was claimed but not filled is skipped.",
        _WRITE,
        of=_FLOW,
        minimum=_TIMEOUT,
    ),
    OptionSpec(
        "offer_timeout",
        OptionKind.DURATION,
        "auto",
        "How long a write waits without any progress before the task fails. The error names the reader "
        "that holds it up, its position and the limit. `auto`: `max_blocking_time`.",
        _WRITE,
    ),
    # --- on one host ----------------------------------------------------------------------------------
    _option(
        "ipc",
        OptionKind.BOOLEAN,
        "Whether samples are exchanged through the memory-mapped publication log instead of UDP, if "
        "source and sink are on one host and both set this option.",
        _BOTH,
        of=_FLOW,
    ),
    OptionSpec(
        "spy",
        OptionKind.BOOLEAN,
        "false",
        "Reads what sinks on this host publish directly from their publication logs, without the network. "
        "The sinks need `ipc=true` or `spies_simulate_connection=true`. Spies take no part in the sinks' "
        "`flow_control.strategy`, but a sink waits for a spy that is slow unless it has `tether=false`. A spy "
        "does not receive samples larger than an eighth of the sink's `publication.term_length`, or 16MiB, and counts "
        "them as lost: they do not fit a message of the log.",
        _READ,
    ),
    _option(
        "spies_simulate_connection",
        OptionKind.BOOLEAN,
        "Whether a spy alone makes a writer connected, without any reader and whatever "
        "`flow_control.group_min_size` requires. The publication log is then open to spies.",
        _WRITE,
        of=_FLOW,
    ),
    _option(
        "tether",
        OptionKind.BOOLEAN,
        "Whether writers wait for this reader. `false`: writers stop waiting for a reader that delays others. If it "
        "stays in the last eighth of its window, or without space for a datagram, for "
        "`untethered_window_limit_timeout` while another reader has consumed everything, it is reported as "
        "unavailable; after the same time again it rests, misses the samples that are sent in the meantime, and "
        "rejoins at the newest sample. A reader that delays no other one loses nothing.",
        _READ,
        of=READER_POLICY,
    ),
    _option(
        "untethered_window_limit_timeout",
        OptionKind.DURATION,
        "How long a reader with `tether=false` may delay others before it is unavailable; it rests after the same "
        "time again. A reader that maps the sink's publication log (`ipc`, `spy`) is subject to the sink's value, and "
        "stops reading when it is unavailable.",
        _BOTH,
        of=READER_POLICY,
        minimum=_TIMEOUT,
    ),
    _option(
        "untethered_resting_timeout",
        OptionKind.DURATION,
        "How long a reader with `tether=false` rests before it rejoins at the newest sample. A reader that "
        "maps the sink's publication log (`ipc`, `spy`) is subject to the sink's value.",
        _BOTH,
        of=READER_POLICY,
        minimum=_TIMEOUT,
    ),
    # --- to be seen -----------------------------------------------------------------------------------
    OptionSpec(
        "metrics.port",
        OptionKind.INTEGER,
        "0",
        "TCP port on which Prometheus finds the metrics of all sources and sinks of this host; `0`: none. "
        "Requires `pip install 'spark-rtps[metrics]'`.",
        _BOTH,
        minimum=0,
        maximum=65_535,
    ),
    OptionSpec(
        "metrics.address",
        OptionKind.TEXT,
        "127.0.0.1",
        "Address at which the metrics port (`metrics.port`) listens. The default serves this host alone; for a "
        "Prometheus on another host set the address of one interface, or `0.0.0.0` for all. There is no "
        "authentication.",
        _BOTH,
    ),
)
