"""Options that contradict each other: the OptionError names both options and how to resolve it."""

from __future__ import annotations

import ipaddress
from typing import Final

from ..transport.errors import OptionError, TransportError, UsageError
from ..transport.limits import MESSAGE_SIZE_MAX, STRING_MAX
from ..transport.net.multicast_addresses import parse_group
from ..transport.net.peers import split_peer
from ..transport.protocol.participant.slices import Slice
from ..transport.protocol.policies import WRITER_POLICY, Compression
from ..transport.qos import DurabilityKind
from ..transport.structure import INFINITE
from .rules_flow import check_flow
from .spec import AppliesTo, OptionKind, duration_text
from .table import BY_KEY, OPTIONS
from .table_ros import ROS_OPTIONS
from .values import CALLABLE, Origin, Values

#: Bytes of a datagram with one batch in addition to the batch's data, rounded up: RTPS header, INFO_DST, INFO_TS, the
#: headers of DATA_BATCH and one sample's metadata, HEARTBEAT_BATCH.
_BATCH_HEADERS: Final = 256
BATCH_DATA_MAX: Final = MESSAGE_SIZE_MAX - _BATCH_HEADERS

_PARTITIONS_BYTES_MAX: Final = (1 << 16) - 8

#: (smaller, larger): the first must not exceed the second, unless one of them is unlimited.
_ORDERED: Final = (
    ("reliable_reader.min_heartbeat_response_delay", "reliable_reader.max_heartbeat_response_delay"),
    ("reliable_writer.min_nack_response_delay", "reliable_writer.max_nack_response_delay"),
    ("reliable_writer.min_send_window_size", "reliable_writer.max_send_window_size"),
    ("reliable_writer.heartbeats_per_max_samples", "reliable_writer.max_send_window_size"),
    (
        "reliable_writer.disable_positive_acks_min_sample_keep_duration",
        "reliable_writer.disable_positive_acks_max_sample_keep_duration",
    ),
    ("reliable_writer.low_watermark", "reliable_writer.high_watermark"),
    ("resource_limits.max_samples_per_instance", "resource_limits.max_samples"),
    ("time_based_filter", "deadline"),
    ("log.segment_bytes", "log.max_bytes"),
    ("reliable_reader.round_trip_time", "reliable_reader.nack_period"),
    ("reliable_writer.fast_heartbeat_period", "reliable_writer.heartbeat_period"),
    ("congestion_control.initial_window", "congestion_control.max_window"),
)

#: Options that only apply to compressed data, and the options that turn compression on.
_OF_COMPRESSION: Final = ("batch.compression_level", "batch.compression_threshold")
_COMPRESSING: Final = ("batch.compression", "data_compression")
#: Options which only apply to batches.
_OF_BATCHES: Final = tuple(
    spec.name
    for spec in OPTIONS
    if spec.name.startswith("batch.") and spec.name not in ("batch.enable", *_OF_COMPRESSION)
)
#: Options which look at the members of a type.
_OF_MEMBERS: Final = (
    "columns",
    "uint64",
    "enum",
    "bitmask",
    "time",
    "event_time",
    "filter",
    "filter.parameters",
)
#: The options that a source of statuses accepts.
_OF_STATUSES: Final = ("statuses", "topic", "log.dir", *(spec.name for spec in ROS_OPTIONS))
_LEVELS: Final = {Compression.LZ4.value: 12, Compression.ZSTD.value: 22}


#: The profile by which a reader requests what the topic's writers offer.
BEST_AVAILABLE: Final = "best_available"


def check_options(values: Values, role: AppliesTo) -> None:
    """OptionError for the first contradiction found."""
    _check_payload(values)
    _check_peers(values)
    _check_serving(values)
    _check_partitions(values)
    _check_slice(values)
    _check_needed(values)
    for low, high in _ORDERED:
        _check_order(values, low, high)
    _check_history(values, role)
    _check_batch(values)
    _check_compression(values)
    check_flow(values, role)
    _check_end(values)


def check_retention(values: Values, *, receiver_service: bool) -> None:
    """Raise OptionError for ``retention`` of a query that has a receiver of its own, and for contradicting options."""
    kept, period, consumption = "retention", "retention.time", "flow_control.consumption"
    for name in (kept, period):
        if values.has(name) and not receiver_service and not values.has("receivers"):
            fix = (
                "applies to the subscriptions of receiver services; remove it here, and set it in their file"
            )
            raise OptionError(name, values.given(name), fix)
    _need(values, (period,), values.word(kept) == "time", f"{kept}=time")
    if values.word(kept) == "time" and not values.has(period):
        raise OptionError(kept, "time", f"needs {period}; set it too, such as {period}=24h")
    if receiver_service and values.word(consumption) == "committed" and values.word(kept) != "committed":
        fix = f"needs {kept}=committed: with {kept}={values.word(kept)} writers do not wait for commits"
        raise OptionError(consumption, "committed", fix)


def check_log_full(values: Values, *, receiver_service: bool) -> None:
    """Raise OptionError if ``on_log_full=drop`` contradicts ``failOnDataLoss``, or if a receiver service would fail."""
    name, loss = "on_log_full", "failOnDataLoss"
    word = values.word(name)
    if word == "drop" and not receiver_service and values.boolean(loss):
        fix = f"loses samples, which {loss}=true does not allow; set {loss}=false too, or {name}=fail"
        raise OptionError(name, word, fix)
    if word == "fail" and (receiver_service or values.has("receivers")):
        fix = "is for a query that has a receiver of its own; a receiver service can hold or drop"
        raise OptionError(name, word, fix)


def durability(values: Values) -> DurabilityKind:
    """DURABILITY, as ``durability`` or ``startingOffsets`` sets it."""
    kind = DurabilityKind[values.word("durability").upper()]
    starting = values.text("startingOffsets")
    if starting is None or values.has("receivers"):  # with receivers it is a position in their logs
        return kind
    wanted = DurabilityKind.TRANSIENT_LOCAL if starting == "earliest" else DurabilityKind.VOLATILE
    if (kind >= DurabilityKind.TRANSIENT_LOCAL) is (wanted >= DurabilityKind.TRANSIENT_LOCAL):
        return kind
    if values.has("durability"):
        means = f"means durability={wanted.name.lower()}, but durability={kind.name.lower()} is set"
        raise OptionError("startingOffsets", starting, f"{means}; set only one of the two")
    return wanted


def is_best_available(values: Values) -> bool:
    """Whether a reader requests the QoS that the topic's writers offer."""
    return values.profile == BEST_AVAILABLE


def writers_slice(values: Values) -> Slice | None:
    """The writers that are read; None: all. Raises OptionError."""
    text = values.text("slice")
    if text is None:
        return None
    try:
        return Slice.parse(text)
    except ValueError as error:
        raise OptionError("slice", text, str(error)) from None


def keeps_all(values: Values) -> bool:
    """Whether HISTORY is KEEP_ALL. A depth means KEEP_LAST, unless a kind of the same or a stronger origin is set."""
    if values.word("history") == "keep_last":
        return False
    return values.origin("history.depth") <= values.origin("history")


def heartbeats_per_window(values: Values) -> int:
    """HEARTBEATs per send window; the default is at most one HEARTBEAT for each sample."""
    name = "reliable_writer.heartbeats_per_max_samples"
    window = values.integer("reliable_writer.max_send_window_size")
    if values.origin(name) is Origin.DEFAULT and window != INFINITE:
        return min(WRITER_POLICY.heartbeats_per_max_samples, window)
    return values.integer(name)


# --- payload, peers and partitions ---------------------------------------------------------------------------


def _check_payload(values: Values) -> None:
    payload = values.word("payload")
    if payload == "binary" and values.boolean("metadata"):
        raise OptionError("metadata", "true", "payload=binary has these columns already; remove metadata")
    if payload == "binary" and values.boolean("log_time"):
        fix = "payload=binary has it as reception_timestamp already; remove log_time"
        raise OptionError("log_time", "true", fix)
    for name in _OF_MEMBERS:
        if values.has(name) and payload != "cdr":
            fix = f"needs payload=cdr: it looks at the type's members; remove {name}"
            raise OptionError(name, values.given(name), fix)
    if payload == "binary" and values.word("mode") == "permissive":
        fix = "has no effect with payload=binary, which decodes nothing; remove mode"
        raise OptionError("mode", values.given("mode"), fix)
    if values.has("key") and values.has("type.file"):
        raise OptionError(
            "key", values.given("key"), "type.file defines the key already; remove one of the two"
        )
    if values.has("key") and payload != "cdr":
        fix = "is only for payload=cdr, where the columns are the type's members; remove key"
        raise OptionError("key", values.given("key"), fix)
    if values.has("keyed") and (payload != "binary" or values.has("type.file")):
        fix = "is only for payload=binary without type.file; use key=<columns>"
        raise OptionError("keyed", values.given("keyed"), fix)
    if values.has("type.extensibility") and not values.has("type.file"):
        fix = "applies to structs of type.file; remove type.extensibility, or give type.file"
        raise OptionError("type.extensibility", values.given("type.extensibility"), fix)
    type_name = values.text("type")
    if type_name is not None and "{" in type_name:
        fix = "is not a name; write the IDL to a file and set type.file to its path"
        raise OptionError("type", f"{type_name[:16]}...", fix)


def check_statuses(values: Values) -> None:
    """Raise OptionError for an option that has no effect for a source of statuses, which joins no network."""
    for spec in OPTIONS:
        if values.has(spec.name) and spec.name not in _OF_STATUSES:
            fix = f"has no effect with statuses=true, which takes {', '.join(_OF_STATUSES[1:])} alone; remove it"
            raise OptionError(spec.name, values.given(spec.name), fix)


def _check_peers(values: Values) -> None:
    for peer in values.names("peers"):
        try:
            split_peer(peer)
        except TransportError:
            raise OptionError("peers", peer, "must be host or host:port, separated by commas") from None
    for name in ("peers.allow", "readers.allow"):
        if values.has(name) and not values.names(name):
            raise OptionError(name, values.given(name), "names no network; remove the option to allow all")
        allowed_networks(values, name)
    group = values.text("multicast.receive")
    if group is not None and group != "off":
        try:
            parse_group(group, values.integer("domain"))
        except UsageError as error:
            raise OptionError("multicast.receive", group, f"cannot be received: {error}") from None


def _check_serving(values: Values) -> None:
    address = values.text("serve.address")
    if address == "none":
        for name in ("serve.port", "serve.certificate", "serve.key"):
            if values.has(name):
                fix = "has no effect with serve.address=none; remove one of them"
                raise OptionError(name, values.given(name), fix)
    if address is None or address == "none":
        return
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        fix = "must be auto, none, an IPv4 address of the driver's host, or 0.0.0.0 for all of them"
        raise OptionError("serve.address", address, fix) from None


def allowed_networks(values: Values, name: str) -> list[ipaddress.IPv4Network]:
    """The networks that an option names. Raises OptionError."""
    return [_network(name, text) for text in values.names(name)]


def _network(name: str, text: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError:
        try:
            fix = f"names a host and a network; write {ipaddress.IPv4Network(text, strict=False)} for the network"
        except ValueError:
            fix = "must be IPv4 networks or addresses, such as 10.1.0.0/16 or 10.1.2.3, separated by commas"
        raise OptionError(name, text, fix) from None


def _check_partitions(values: Values) -> None:
    for name in values.names("partition"):
        if len(name.encode()) >= STRING_MAX:
            raise OptionError(
                "partition", f"{name[:16]}...", f"a name must have fewer than {STRING_MAX} bytes of UTF-8"
            )
    # each name has a length, a NUL and padding
    if sum(len(name.encode()) + 8 for name in values.names("partition")) > _PARTITIONS_BYTES_MAX:
        fix = (
            f"must be at most {_PARTITIONS_BYTES_MAX} bytes in all: one parameter carries all names to peers"
        )
        raise OptionError("partition", f"{values.names('partition')[0][:16]}...", fix)


def _check_slice(values: Values) -> None:
    if writers_slice(values) is None or values.word("ownership") != "exclusive":
        return
    where = "" if values.has("ownership") else " (set by the QoS profile)"
    fix = (
        f"excludes ownership=exclusive{where}: the owner of an instance may be in another slice, and a reader "
        "compares only the writers of its own; remove slice, and divide the data by topic, domain or partition instead"
    )
    raise OptionError("slice", values.given("slice"), fix)


def _check_end(values: Values) -> None:
    """Raise OptionError if a batch read would not end. Streams are checked too: Spark reveals the difference later."""
    name, rows = "read.timeout", "read.max_rows"
    if values.integer(name) == INFINITE and not values.has(rows):
        fix = f"without {rows} a batch read would never end; set {rows} too, or a finite duration"
        raise OptionError(name, values.given(name), fix)


# --- options that need another ----------------------------------------------------------------------


def _check_needed(values: Values) -> None:
    if not values.has("batch.enable") and not values.boolean("turbo_mode"):
        _need(values, _OF_BATCHES, values.boolean("batch.enable"), "batch.enable=true")
    asynchronous = values.word("publish_mode") == "asynchronous"
    flow = tuple(spec.name for spec in OPTIONS if spec.name.startswith("flow_controller."))
    _need(values, flow, asynchronous, "publish_mode=asynchronous")
    compressed = any(values.word(name) != Compression.NONE.value for name in _COMPRESSING)
    codecs = " or ".join(sorted(_LEVELS))
    _need(values, _OF_COMPRESSION, compressed, " or ".join(f"{name}={codecs}" for name in _COMPRESSING))
    _need(values, ("filter.parameters",), values.has("filter"), "filter")
    _need(values, ("columnNameOfCorruptRecord",), values.has("mode"), "mode=permissive")
    _need(values, ("ros.node", "ros.namespace", "ros.remap"), values.boolean("ros"), "ros=true")
    _need(values, ("serve.certificate",), values.has("serve.key"), "serve.key")
    _need(values, ("serve.key",), values.has("serve.certificate"), "serve.certificate")


def _need(values: Values, names: tuple[str, ...], there: bool, needed: str) -> None:
    for name in names:
        if values.has(name) and not there:
            raise OptionError(name, values.given(name), f"has no effect without {needed}; set {needed} too")


# --- order ------------------------------------------------------------------------------------------


def _check_order(values: Values, low: str, high: str) -> None:
    if low == "log.segment_bytes" and values.origin(low) is Origin.DEFAULT:
        return  # the default segment size is reduced for a log of this size
    heartbeats = low == "reliable_writer.heartbeats_per_max_samples"
    smaller = heartbeats_per_window(values) if heartbeats else values.integer_or_none(low)
    larger = values.integer(high)
    if smaller is None or smaller <= larger:
        return
    if (
        smaller == INFINITE and BY_KEY[low].kind is not OptionKind.DURATION
    ):  # an infinite duration exceeds all others
        return
    # the error names the option which the user set
    if values.origin(high) > values.origin(low):
        fix = f"must be at least {low}, {values.shown(low)}; raise it, or lower {low}"
        raise OptionError(high, values.shown(high), fix)
    fix = f"must not be greater than {high}, {values.shown(high)}; lower it, or raise {high}"
    raise OptionError(low, values.shown(low), fix)


# --- history ----------------------------------------------------------------------------------------


def _check_history(values: Values, role: AppliesTo) -> None:
    depth, samples = "history.depth", "resource_limits.max_samples"
    if keeps_all(values):
        if values.has(depth):
            raise OptionError(
                depth, values.given(depth), "has no meaning with history=keep_all; remove one of the two"
            )
        late = durability(values) >= DurabilityKind.TRANSIENT_LOCAL
        # a history from which nothing is removed reaches the bound and stays there
        batches = values.boolean("batch.enable") or values.boolean("turbo_mode")
        bounds = (samples, "max_batches") if batches else (samples,)
        for bound in bounds if role is AppliesTo.WRITE and late else ():
            if values.integer(bound) != INFINITE:
                where = "" if values.has(bound) else " (set by the QoS profile)"
                fix = (
                    f"with durability={durability(values).name.lower()} and history=keep_all{where} writing would stop "
                    f"for good once this limit is reached; set {bound}=unlimited, durability=volatile, or "
                    "history=keep_last"
                )
                raise OptionError(bound, values.given(bound), fix)
        return
    _check_order(values, depth, "resource_limits.max_samples_per_instance")
    _check_order(values, depth, samples)


# --- batches ----------------------------------------------------------------------------------------


def _check_batch(values: Values) -> None:
    size, samples = "batch.max_data_bytes", "batch.max_samples"
    most, enabled = values.integer_or_none(size), values.boolean("batch.enable")
    if enabled and most == values.integer(samples) == INFINITE:
        fix = f"cannot be combined with {samples}=unlimited; set a number for one of the two, or {size}=auto"
        raise OptionError(size, "unlimited", fix)
    if most is not None and BATCH_DATA_MAX < most < INFINITE and (enabled or values.has(size)):
        fix = (
            f"must be at most {BATCH_DATA_MAX}: a batch travels in one UDP datagram and is not fragmented; "
            "auto selects what fits"
        )
        raise OptionError(size, values.given(size), fix)
    if enabled or values.boolean("turbo_mode"):
        _check_flushing(values)
    interceptor = values.text("batch.interceptor")
    if interceptor is not None and not CALLABLE.fullmatch(interceptor):
        fix = "must be module:callable, such as my.package:my_function"
        raise OptionError("batch.interceptor", interceptor, fix)


def _check_flushing(values: Values) -> None:
    delay = values.integer("batch.max_flush_delay")
    resolution = values.integer("batch.source_timestamp_resolution")
    disabled = "async_publisher.disable_asynchronous_batch"
    if delay != INFINITE and values.boolean(disabled):
        fix = f"needs {disabled}=false, because the publisher's thread flushes after the delay"
        raise OptionError("batch.max_flush_delay", duration_text(delay), fix)
    if values.boolean("batch.thread_safe_write"):
        return
    safe = "batch.thread_safe_write"
    if resolution != INFINITE:
        fix = f"needs batch.source_timestamp_resolution=infinite, not {duration_text(resolution)}"
        raise OptionError(safe, "false", fix)
    if delay != INFINITE:
        fix = f"needs batch.max_flush_delay=infinite, not {duration_text(delay)}: another thread would flush"
        raise OptionError(safe, "false", fix)
    if values.origin(disabled) is not Origin.DEFAULT and not values.boolean(disabled):
        raise OptionError(
            safe, "false", f"needs {disabled}=true: another thread would flush; remove one of the two"
        )


def _check_compression(values: Values) -> None:
    level = values.integer_or_none("batch.compression_level")
    for name in _COMPRESSING:
        codec = values.word(name)
        most = _LEVELS.get(codec)
        if level is not None and most is not None and level > most:
            fix = f"{name}={codec} has levels 1 to {most}"
            raise OptionError("batch.compression_level", level, fix)
