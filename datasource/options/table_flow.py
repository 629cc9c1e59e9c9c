"""Options of the publication log, of flow control and of congestion control (Aeron's), and of what is seen of them."""

from __future__ import annotations

from typing import Any, Final

from ...transport.protocol.policies import READER_POLICY, CongestionControlPolicy, FlowControlPolicy
from .spec import YEAR, AppliesTo, Kind, OptionSpec, value_text

_READ, _WRITE, _BOTH = AppliesTo.READ, AppliesTo.WRITE, AppliesTo.BOTH

#: A time-out is looked at so often at most.
_TIMEOUT: Final = 1_000_000
_TIMER: Final = 100_000
_GROUP_MAX: Final = 1 << 16
_TAG_BITS: Final = 63
_WINDOW_MAX: Final = 1 << 30
#: Of the publication log, see `log.publication_metadata`, which loads NumPy.
TERM_LENGTH_MIN: Final = 64 << 10
TERM_LENGTH_MAX: Final = 1 << 30


def _option(
    name: str,
    kind: Kind,
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
        Kind.PLUGIN,
        "Which reliable readers set the pace: the slowest (`min`), the fastest (`max`: who falls behind is dropped and "
        "rejoins at the newest), the slowest of those with `flow_control.group_tag` (`tagged`), or the only one "
        "(`unicast`). Or a class of your own, imported by the workers.",
        _WRITE,
        of=_FLOW,
        choices=("min", "max", "tagged", "unicast"),
    ),
    _option(
        "flow_control.receiver_timeout",
        Kind.DURATION,
        "A reader that answers nothing for so long sets the pace no more, until it answers again.",
        _WRITE,
        of=_FLOW,
        minimum=_TIMEOUT,
    ),
    OptionSpec(
        "flow_control.group_tag",
        Kind.INTEGER,
        None,
        "Of a reader: its tag. Of a writer: the tag of the readers that set the pace with "
        "`flow_control.strategy=tagged`.",
        _BOTH,
        minimum=-(1 << _TAG_BITS),
        maximum=(1 << _TAG_BITS) - 1,
    ),
    _option(
        "flow_control.group_min_size",
        Kind.INTEGER,
        "Nothing is written until so many reliable readers are there (`min`), or tagged ones (`tagged`).",
        _WRITE,
        of=_FLOW,
        minimum=0,
        maximum=_GROUP_MAX,
    ),
    OptionSpec(
        "flow_control.consumption",
        Kind.WORD,
        "logged",
        "What our writers are told to be consumed: what is in the stream log, or what Spark has `committed`. With "
        "`committed` a writer is never further ahead of the query than `congestion_control.max_window`, which then "
        "bounds a micro-batch too.",
        _READ,
        choices=("logged", "committed"),
    ),
    _option(
        "status_message_timeout",
        Kind.DURATION,
        "A status message goes out at least so often while samples are consumed; and in any case when a quarter "
        "of the window is.",
        _READ,
        of=READER_POLICY,
        minimum=_TIMER,
        maximum=YEAR,
    ),
    _option(
        "reliable_reader.nack_group_size",
        Kind.INTEGER,
        "How many readers of a multicast stream are thought to lose the same samples at once: requests for repair "
        "wait at random, so that one may do for all. `1`: no waiting.",
        _READ,
        of=READER_POLICY,
        minimum=1,
        maximum=_GROUP_MAX,
    ),
    _option(
        "reliable_reader.nack_backoff_max",
        Kind.DURATION,
        "The longest such wait.",
        _READ,
        of=READER_POLICY,
        minimum=0,
        maximum=YEAR,
    ),
    # --- congestion control -------------------------------------------------------------------------
    OptionSpec(
        "congestion_control",
        Kind.PLUGIN,
        _CONGESTION.kind,
        "How the window that a reader offers to each of our writers follows what the network loses: not at all "
        "(`static`), or as TCP's CUBIC does. Or a class of your own, imported by the receiver.",
        _READ,
        choices=("static", "cubic"),
    ),
    OptionSpec(
        "congestion_control.initial_window",
        Kind.SIZE,
        "auto",
        "Bytes offered at first, by `static` for ever. `auto`: `congestion_control.max_window`; `cubic`: ten "
        "datagrams.",
        _READ,
        minimum=1,
        maximum=_WINDOW_MAX,
    ),
    _option(
        "congestion_control.max_window",
        Kind.SIZE,
        "Bytes offered at most.",
        _READ,
        of=_CONGESTION,
        minimum=1,
        maximum=_WINDOW_MAX,
    ),
    _option(
        "congestion_control.min_rtt",
        Kind.DURATION,
        "Round-trip time that `cubic` begins with, and keeps unless `congestion_control.measure_rtt=true`.",
        _READ,
        of=_CONGESTION,
        minimum=1_000,
        maximum=YEAR,
    ),
    _option(
        "congestion_control.measure_rtt",
        Kind.BOOLEAN,
        "Whether to measure the round-trip time to each of our writers.",
        _READ,
        of=_CONGESTION,
    ),
    _option(
        "congestion_control.tcp_mode",
        Kind.BOOLEAN,
        "Whether `cubic` is never slower than TCP Reno would be.",
        _READ,
        of=_CONGESTION,
    ),
    # --- publication log ------------------------------------------------------------------------------
    OptionSpec(
        "publication.term_length",
        Kind.SIZE,
        "16MiB",
        "Size of each of the three terms of a writer's publication log, a power of two from 64KiB to 1GiB. "
        "What was sent last, a term of it, can always be sent again from there.",
        _WRITE,
    ),
    OptionSpec(
        "publication.term_window",
        Kind.SIZE,
        "auto",
        "How far ahead of what is sent may be written; then writing waits. `auto`, and at most: half of "
        "`publication.term_length`.",
        _WRITE,
        minimum=TERM_LENGTH_MIN // 2,
        maximum=TERM_LENGTH_MAX // 2,
    ),
    _option(
        "publication.unblock_timeout",
        Kind.DURATION,
        "Room in the publication log that was claimed and not filled for so long is skipped.",
        _WRITE,
        of=_FLOW,
        minimum=_TIMEOUT,
    ),
    OptionSpec(
        "offer_timeout",
        Kind.DURATION,
        "auto",
        "How long a task's write waits without getting on before it fails, naming the reader that holds it up, its "
        "position and the limit. `auto`: `max_blocking_time`.",
        _WRITE,
    ),
    # --- on one host ----------------------------------------------------------------------------------
    _option(
        "ipc",
        Kind.BOOLEAN,
        "Whether to exchange samples by the publication log, in memory, instead of UDP where both ends are ours, on "
        "one host, and say so.",
        _BOTH,
        of=_FLOW,
    ),
    OptionSpec(
        "spy",
        Kind.BOOLEAN,
        "false",
        "Read what sinks on this host publish from their publication logs, without the network. Spies take no part "
        "in the flow control of readers.",
        _READ,
    ),
    _option(
        "spies_simulate_connection",
        Kind.BOOLEAN,
        "Whether a spy alone makes a writer connected, without any reader and whatever "
        "`flow_control.group_min_size` says.",
        _WRITE,
        of=_FLOW,
    ),
    _option(
        "tether",
        Kind.BOOLEAN,
        "Whether writers wait for this reader. `false`: if it stays in the last eighth of the window, it is rested, "
        "misses what comes meanwhile, and rejoins at the newest.",
        _READ,
        of=READER_POLICY,
    ),
    _option(
        "untethered_window_limit_timeout",
        Kind.DURATION,
        "How long a reader with `tether=false` may stay there, and how long it then still holds the window, until "
        "it is rested.",
        _BOTH,
        of=READER_POLICY,
        minimum=_TIMEOUT,
    ),
    _option(
        "untethered_resting_timeout",
        Kind.DURATION,
        "How long it rests.",
        _BOTH,
        of=READER_POLICY,
        minimum=_TIMEOUT,
    ),
    # --- to be seen -----------------------------------------------------------------------------------
    OptionSpec(
        "metrics.port",
        Kind.INTEGER,
        "0",
        "TCP port where Prometheus finds the metrics of all sources and sinks of this host; `0`: none. Needs "
        "`pip install 'spark-rtps[metrics]'`.",
        _BOTH,
        minimum=0,
        maximum=65_535,
    ),
)
