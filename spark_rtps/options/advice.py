"""Warnings about options that are valid but probably not intended, as sentences for the log."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable, Iterable
from typing import Final

from ..transport.errors import TransportError
from ..transport.net.peers import split_peer
from ..transport.qos import DurabilityKind
from ..transport.structure import INFINITE
from .rules import allowed_networks, durability, is_best_available, keeps_all
from .rules_flow import GROUPING
from .spec import AppliesTo, duration_text
from .table import OPTIONS, PARTICIPANT_OPTIONS
from .values import Values

_PROTOCOL: Final = ("reliable_writer.", "reliable_reader.", "flow_control.", "congestion_control")
#: Options which only apply between a reliable reader and its writers.
_OF_RELIABLE: Final = (
    *(spec.name for spec in OPTIONS if spec.name.startswith(_PROTOCOL)),
    "status_message_timeout",
)
#: Options of a reader which only apply on the network.
_OF_NETWORK: Final = (
    "reliability",
    *(spec.name for spec in OPTIONS if spec.name.startswith(("reliable_reader.", "congestion_control"))),
    "status_message_timeout",
    "flow_control.group_tag",
    *(name for name in PARTICIPANT_OPTIONS if name != "domain"),
)


def advice(values: Values, role: AppliesTo) -> tuple[str, ...]:
    """A sentence, which names the options, for each combination that is probably not intended."""
    found = [] if role is AppliesTo.WRITE else [check(values) for check in _OF_READERS]
    if role is not AppliesTo.READ:
        found += [check(values) for check in _OF_WRITERS]
    found += [_unused_protocol(values), _peers_not_allowed(values)]
    return tuple(sentence for sentence in found if sentence)


def _unused_protocol(values: Values) -> str:
    if values.word("reliability") == "reliable" or values.boolean("spy") or _may_be_reliable(values):
        return ""
    return _unused(values, _OF_RELIABLE, "with reliability=best_effort")


def _may_be_reliable(values: Values) -> bool:
    """Whether RELIABILITY depends on the topic's writers."""
    return is_best_available(values) and not values.has("reliability")


def _unused(values: Values, names: Iterable[str], where: str) -> str:
    unused = [name for name in names if values.has(name)]
    return f"{', '.join(unused)}: no effect {where}" if unused else ""


# --- readers ----------------------------------------------------------------------------------------


def _instances_in_slices(values: Values) -> str:
    if not values.has("slice"):
        return ""
    names = [name for name in ("time_based_filter", "deadline") if 0 < values.integer(name) < INFINITE]
    if values.word("destination_order") == "by_source_timestamp":
        names.append("destination_order")
    shown = ", ".join(f"{name}={values.given(name)}" for name in names)
    return (
        f"{shown} with slice={values.given('slice')}: each slice looks at its own writers alone, also where those of "
        "several slices write the same instance"
        if names
        else ""
    )


def _suppressed_heartbeats(values: Values) -> str:
    suppression = values.integer("reliable_reader.heartbeat_suppression_duration")
    period = values.integer("reliable_writer.heartbeat_period")
    if suppression < period:
        return ""
    return (
        f"reliable_reader.heartbeat_suppression_duration={duration_text(suppression)} is not less than "
        f"reliable_writer.heartbeat_period={duration_text(period)}, the default of our writers: the reader does not "
        "answer some HEARTBEATs of writers with that period"
    )


def _history_for_best_effort(values: Values) -> str:
    if values.word("reliability") == "reliable" or _may_be_reliable(values):
        return ""
    if durability(values) < DurabilityKind.TRANSIENT_LOCAL:
        return ""
    word = values.word("durability")
    name = "startingOffsets=earliest" if word == "volatile" else f"durability={word}"
    return f"{name} has no effect with reliability=best_effort: writers send their history to reliable readers only"


def _unused_tolerance(values: Values) -> str:
    if values.word("destination_order") == "by_source_timestamp" or values.integer("time_based_filter"):
        return ""
    names = ("destination_order.source_timestamp_tolerance",)
    return _unused(values, names, "without destination_order=by_source_timestamp or time_based_filter")


def _peers_not_allowed(values: Values) -> str:
    networks = allowed_networks(values, "peers.allow")
    outside = []
    for peer in values.names("peers") if networks else ():
        with contextlib.suppress(ValueError, TransportError):  # a name, which may resolve to anything
            address = ipaddress.IPv4Address(split_peer(peer)[0])
            if not any(address in network for network in networks):
                outside.append(peer)
    return (
        f"peers={','.join(outside)}: not in peers.allow, so nothing that they send is read" if outside else ""
    )


def _unread_network(values: Values) -> str:
    return (
        _unused(values, _OF_NETWORK, "with spy=true, which needs no network") if values.boolean("spy") else ""
    )


def _static_congestion_control(values: Values) -> str:
    if values.word("congestion_control") != "static" or not _goes_by_windows(values):
        return ""
    names = ("congestion_control.min_rtt", "congestion_control.tcp_mode")
    return _unused(values, names, "with congestion_control=static; set congestion_control=cubic")


def _backoff_of_one(values: Values) -> str:
    group = "reliable_reader.nack_group_size"
    if values.integer(group) > 1 or not _goes_by_windows(values):
        return ""
    return _unused(values, ("reliable_reader.nack_backoff_max",), f"with {group}=1")


def _tethered(values: Values) -> str:
    if not values.boolean("tether"):
        return ""
    names = ("untethered_window_limit_timeout", "untethered_resting_timeout")
    return _unused(values, names, "without tether=false")


def _goes_by_windows(values: Values) -> bool:
    return values.word("reliability") == "reliable" and not values.boolean("spy")


# --- writers ----------------------------------------------------------------------------------------


def _short_lifespan(values: Values) -> str:
    lifespan, delay = values.integer("lifespan"), values.integer("batch.max_flush_delay")
    if not values.boolean("batch.enable") or lifespan >= delay:
        return ""
    return (
        f"lifespan={duration_text(lifespan)} is less than batch.max_flush_delay={duration_text(delay)}: samples "
        "of a batch that does not fill up in time are dropped without having been sent"
    )


def _missed_deadline(values: Values) -> str:
    deadline, delay = values.integer("deadline"), values.integer("batch.max_flush_delay")
    if not values.boolean("batch.enable") or delay == INFINITE or deadline >= delay:
        return ""
    return (
        f"deadline={duration_text(deadline)} is less than batch.max_flush_delay={duration_text(delay)}: samples "
        "that wait in a batch miss it"
    )


def _shallow_history(values: Values) -> str:
    samples, depth = values.integer("batch.max_samples"), values.integer("history.depth")
    batches = values.boolean("batch.enable") or values.boolean("turbo_mode")
    if not batches or keeps_all(values) or depth >= samples:
        return ""
    return (
        f"history.depth={depth} is less than batch.max_samples={values.given('batch.max_samples') or 'unlimited'}: "
        f"readers take only the last {depth} samples of each instance from a batch (without a key: the last {depth} of "
        "all) and drop the others as removed; set history=keep_all to deliver every sample, or "
        "accept_writer_removed_batch_samples=true at the readers"
    )


def _ignored_turbo_mode(values: Values) -> str:
    if not (values.boolean("turbo_mode") and values.boolean("batch.enable")):
        return ""
    return "turbo_mode=true is ignored with batch.enable=true"


def _unused_batch_limits(values: Values) -> str:
    if values.boolean("batch.enable") or values.boolean("turbo_mode"):
        return ""
    names = ("max_batches", "disable_inline_keyhash", "async_publisher.disable_asynchronous_batch")
    return _unused(values, names, "without batch.enable=true")


def _fragmented_batches(values: Values) -> str:
    most, mtu = values.integer_or_none("batch.max_data_bytes"), values.integer_or_none("mtu")
    if not values.boolean("batch.enable") or most is None or mtu is None or most <= mtu:
        return ""
    shown = values.given("batch.max_data_bytes")
    return f"batch.max_data_bytes={shown} is more than mtu={mtu}: batches do not exceed what fits the mtu"


def _strength_of_shared(values: Values) -> str:
    if not values.has("ownership.strength") or values.word("ownership") == "exclusive":
        return ""
    return f"ownership.strength={values.given('ownership.strength')} has no effect with ownership=shared"


def _manual_liveliness(values: Values) -> str:
    kind, lease = values.word("liveliness"), values.integer("liveliness.lease_duration")
    if kind == "automatic" or lease == INFINITE:
        return ""
    return (
        f"liveliness={kind} with liveliness.lease_duration={duration_text(lease)}: a sink asserts its liveliness only "
        "by writing, so between micro-batches readers may take it for dead"
    )


def _no_acknowledgments(values: Values) -> str:
    if not values.boolean("reliable_writer.disable_positive_acks"):
        return ""
    return (
        "reliable_writer.disable_positive_acks=true: a task ends when the keep duration of its samples has passed (at "
        "least reliable_writer.disable_positive_acks_min_sample_keep_duration), not when readers have received them"
    )


def _overflowing_bucket(values: Values) -> str:
    bucket = "flow_controller.token_bucket."
    most, added = values.integer(f"{bucket}max_tokens"), values.integer(f"{bucket}tokens_added_per_period")
    if added <= most:
        return ""
    shown = "unlimited" if added == INFINITE else str(added)
    surplus = "the bucket does not keep the surplus"
    return f"{bucket}tokens_added_per_period={shown} is more than {bucket}max_tokens={most}: {surplus}"


def _ungrouped(values: Values) -> str:
    strategy, by_group = (values.word(f"flow_control.{each}strategy") for each in ("", "multicast_"))
    if ":" in strategy or values.word("reliability") != "reliable":
        return ""
    names = [] if "tagged" in (strategy, by_group) else ["flow_control.group_tag"]
    names += [] if {strategy, by_group} & {*GROUPING} else ["flow_control.group_min_size"]
    return _unused(values, names, f"with flow_control.strategy={strategy}")


def _unused_ipc_window(values: Values) -> str:
    return (
        "" if values.boolean("ipc") else _unused(values, ("publication.ipc_term_window",), "without ipc=true")
    )


def _short_receiver_timeout(values: Values) -> str:
    timeout, period = (
        values.integer(name) for name in ("flow_control.receiver_timeout", "reliable_writer.heartbeat_period")
    )
    if timeout >= period or values.word("reliability") != "reliable":
        return ""
    return (
        f"flow_control.receiver_timeout={duration_text(timeout)} is less than reliable_writer.heartbeat_period="
        f"{duration_text(period)}: the writer no longer waits for a reader that misses one HEARTBEAT"
    )


_OF_READERS: Final[tuple[Callable[[Values], str], ...]] = (
    _instances_in_slices,
    _suppressed_heartbeats,
    _history_for_best_effort,
    _unused_tolerance,
    _unread_network,
    _static_congestion_control,
    _backoff_of_one,
    _tethered,
)
_OF_WRITERS: Final[tuple[Callable[[Values], str], ...]] = (
    _short_lifespan,
    _missed_deadline,
    _shallow_history,
    _ignored_turbo_mode,
    _unused_batch_limits,
    _fragmented_batches,
    _strength_of_shared,
    _manual_liveliness,
    _no_acknowledgments,
    _overflowing_bucket,
    _ungrouped,
    _short_receiver_timeout,
    _unused_ipc_window,
)
