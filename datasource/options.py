"""Option strings to frozen settings: parsed once, checked here, nowhere else."""

from __future__ import annotations

import difflib
import enum
import math
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from ..transport.errors import OptionError, TransportError
from ..transport.net.peers import split_peer
from ..transport.qos import (
    LENGTH_UNLIMITED,
    DataRepresentation,
    DurabilityKind,
    HistoryKind,
    LivelinessKind,
    OwnershipKind,
    Qos,
    ReliabilityKind,
)
from ..transport.structure import INFINITE, NANOSECONDS
from ..transport.types.model import Extensibility
from .option_table import BY_KEY, OPTIONS, SPARK_KEYS, AppliesTo, Kind, OptionSpec

__all__ = ["OnNoReader", "Payload", "Settings", "default_log_dir", "parse_options"]


class Payload(enum.Enum):
    CDR = "cdr"
    BINARY = "binary"
    ARROW = "arrow"


class OnNoReader(enum.Enum):
    WAIT = "wait"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Settings:
    """All options of one reader or writer. Durations in nanoseconds, sizes in bytes."""

    topic: str
    domain: int
    type: str | None
    type_file: str | None
    type_name: str | None
    type_extensibility: Extensibility
    key: tuple[str, ...]
    keyed: bool
    payload: Payload
    metadata: bool
    qos: Qos
    representation: DataRepresentation
    # network
    interface: str | None
    peers: tuple[str, ...]
    multicast: bool
    participant_name: str
    participant_lease_duration: int
    receive_buffer: int
    # reading
    max_rows_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_partitions: int
    fail_on_data_loss: bool
    read_max_rows: int | None
    read_timeout: int
    log_dir: Path
    log_max_bytes: int
    log_segment_bytes: int
    log_retention: int
    # writing
    on_no_reader: OnNoReader
    connect_timeout: int
    acknowledgment_timeout: int


def parse_options(options: Mapping[str, str], role: AppliesTo) -> Settings:
    """Settings for reading (``AppliesTo.READ``) or writing (``AppliesTo.WRITE``).

    With ``AppliesTo.BOTH`` keys and values are checked, but not whether they suit one of the two.

    Raises:
        OptionError: an unknown key, a value that cannot be, or two options that contradict each other.
    """
    values = _Values(options, role)
    topic = values.text("topic")
    if topic is None:
        raise OptionError("topic", None, 'name the topic: .option("topic", "Square") or .load("Square")')
    payload = Payload(values.word("payload"))
    metadata = values.boolean("metadata")
    if payload is Payload.BINARY and metadata:
        raise OptionError("metadata", "true", "payload=binary has these columns already; remove the option")
    if values.has("key") and values.has("type.file"):
        raise OptionError("key", values.given("key"), "type.file says what the key is; remove one of the two")
    if values.has("key") and payload is not Payload.CDR:
        fix = "only for payload=cdr: there the columns are the type's members; remove it"
        raise OptionError("key", values.given("key"), fix)
    if values.has("keyed") and (payload is not Payload.BINARY or values.has("type.file")):
        raise OptionError(
            "keyed", values.given("keyed"), "only for payload=binary without type.file; use key=<columns>"
        )
    return Settings(
        topic=topic,
        domain=values.integer("domain"),
        type=values.text("type"),
        type_file=values.text("type.file"),
        type_name=values.text("type.name"),
        type_extensibility=_extensibility(values),
        key=values.names("key"),
        keyed=values.boolean("keyed"),
        payload=payload,
        metadata=metadata,
        qos=_qos(values, role),
        representation=DataRepresentation[values.word("data_representation").upper()],
        interface=values.text("interface"),
        peers=_peers(values.names("peers")),
        multicast=values.boolean("multicast"),
        participant_name=values.text("participant.name") or "",
        participant_lease_duration=values.integer("participant.lease_duration"),
        receive_buffer=values.integer("receive_buffer"),
        max_rows_per_trigger=values.integer_or_none("maxRowsPerTrigger"),
        max_bytes_per_trigger=values.integer_or_none("maxBytesPerTrigger"),
        min_partitions=values.integer("minPartitions"),
        fail_on_data_loss=values.boolean("failOnDataLoss"),
        read_max_rows=values.integer_or_none("read.max_rows"),
        read_timeout=values.integer("read.timeout"),
        log_dir=_log_dir(values),
        log_max_bytes=_log_max_bytes(values),
        log_segment_bytes=values.integer("log.segment_bytes"),
        log_retention=values.integer("log.retention"),
        on_no_reader=OnNoReader(values.word("on_no_reader")),
        connect_timeout=values.integer("connect_timeout"),
        acknowledgment_timeout=values.integer("acknowledgment_timeout"),
    )


# --- values by name -------------------------------------------------------------------------------


class _Values:
    """Parsed values of all options, given or default, by their names."""

    def __init__(self, options: Mapping[str, str], role: AppliesTo) -> None:
        self._given: dict[str, str] = {}
        self._parsed: dict[str, object] = {}
        for key, value in options.items():
            spec = BY_KEY.get(key.lower())
            if spec is None:
                if key.lower() not in SPARK_KEYS:
                    raise _unknown(key, value)
                continue
            if AppliesTo.BOTH not in (spec.applies_to, role) and spec.applies_to is not role:
                raise OptionError(
                    spec.name, value, f"applies only to a {spec.applies_to.value}; remove it here"
                )
            self._given[spec.name] = value
        path = next((v for k, v in options.items() if k.lower() == "path"), None)
        if path is not None:
            if self._given.setdefault("topic", path) != path:
                raise OptionError(
                    "topic", self._given["topic"], f"the path names another topic, {path!r}; give one"
                )
        for spec in OPTIONS:
            text = self._given.get(spec.name, spec.default)
            if text is not None:
                self._parsed[spec.name] = _parse(spec, text)

    def has(self, name: str) -> bool:
        return name in self._given

    def given(self, name: str) -> str | None:
        return self._given.get(name)

    def text(self, name: str) -> str | None:
        return cast("str | None", self._parsed.get(name))

    def word(self, name: str) -> str:
        return cast(str, self._parsed[name])

    def integer(self, name: str) -> int:
        return cast(int, self._parsed[name])

    def integer_or_none(self, name: str) -> int | None:
        return cast("int | None", self._parsed.get(name))

    def boolean(self, name: str) -> bool:
        return cast(bool, self._parsed.get(name, False))

    def names(self, name: str) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self._parsed.get(name, ()))


def _unknown(key: str, value: str) -> OptionError:
    known = {name: spec.name for name, spec in BY_KEY.items()}
    near = [spec.name for name, spec in BY_KEY.items() if name.rsplit(".", 1)[-1] == key.lower()]
    near += [known[k] for k in difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.5)]
    hint = f"did you mean {near[0]!r}? " if near else ""
    return OptionError(
        key, value, f"is not an option of the rtps source; {hint}`spark-rtps options` lists all"
    )


# --- one value ------------------------------------------------------------------------------------

_UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": NANOSECONDS,
    "sec": NANOSECONDS,
    "min": 60 * NANOSECONDS,
    "m": 60 * NANOSECONDS,
    "h": 3_600 * NANOSECONDS,
    "d": 86_400 * NANOSECONDS,
}
# k, m, g alone are binary, as everywhere in Spark
_UNITS_BYTES: Final = {
    "": 1,
    "b": 1,
    **{f"{p}b": 1000**i for i, p in enumerate("kmgt", 1)},
    **{f"{p}ib": 1024**i for i, p in enumerate("kmgt", 1)},
    **{p: 1024**i for i, p in enumerate("kmgt", 1)},
}
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zµ]*)", re.IGNORECASE)
_INFINITE_WORDS: Final = frozenset({"infinite", "infinity", "inf", "duration_infinite"})
_UNLIMITED_WORDS: Final = frozenset({"unlimited", "length_unlimited", "-1"})
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


def _parse(spec: OptionSpec, text: str) -> object:
    text = text.strip()
    match spec.kind:
        case Kind.TEXT:
            if not text:
                raise OptionError(spec.name, text, "must not be empty")
            return text
        case Kind.LIST:
            return tuple(part for part in (p.strip() for p in text.split(",")) if part)
        case Kind.BOOLEAN:
            if text.lower() in _TRUE | _FALSE:
                return text.lower() in _TRUE
            raise OptionError(spec.name, text, "must be true or false")
        case Kind.WORD:
            return _word(spec, text)
        case Kind.INTEGER:
            return _bounded(spec, text, _integer(spec, text, "must be an integer"))
        case Kind.COUNT:
            if text.lower() in _UNLIMITED_WORDS:
                return LENGTH_UNLIMITED
            return _bounded(spec, text, _integer(spec, text, "must be an integer or unlimited"))
        case Kind.DURATION:
            if text.lower() in _INFINITE_WORDS:
                return INFINITE
            fix = "must be a duration such as 200ms, 3s, 5min or infinite"
            return _bounded(spec, text, _quantity(spec, text, _UNITS_NS, fix))
        case Kind.SIZE:
            fix = "must be a size such as 4096, 64KiB or 1MB"
            return _bounded(spec, text, _quantity(spec, text, _UNITS_BYTES, fix))


def _integer(spec: OptionSpec, text: str, fix: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise OptionError(spec.name, text, fix) from None


def _quantity(spec: OptionSpec, text: str, units: Mapping[str, int], fix: str) -> int:
    found = _QUANTITY.fullmatch(text)
    if found is None or found[2].lower() not in units:
        raise OptionError(spec.name, text, fix)
    value = float(found[1]) * units[found[2].lower()]
    if math.isinf(value):
        raise OptionError(spec.name, text, fix)
    return min(round(value), INFINITE)


def _bounded(spec: OptionSpec, text: str, value: int) -> int:
    low, high = spec.minimum, spec.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        allowed = f"between {low} and {high}" if high is not None else f"at least {low}"
        raise OptionError(spec.name, text, f"must be {allowed}")
    return value


def _word(spec: OptionSpec, text: str) -> str:
    """One of ``spec.choices``, in ROS 2's words or as DDS constant (``RELIABLE_RELIABILITY_QOS``)."""
    word = text.lower().replace("-", "_")
    if word not in spec.choices:
        policy = spec.name.lower().replace(".", "_")
        word = word.removesuffix("_qos").removesuffix(f"_{policy}")
    if word not in spec.choices:
        raise OptionError(spec.name, text, f"must be one of {', '.join(spec.choices)}")
    return word


# --- values that depend on each other ------------------------------------------------------------


def _qos(values: _Values, role: AppliesTo) -> Qos:
    qos = Qos(
        reliability=ReliabilityKind[values.word("reliability").upper()],
        durability=_durability(values),
        deadline=values.integer("deadline"),
        latency_budget=values.integer("latency_budget"),
        liveliness=LivelinessKind[values.word("liveliness").upper()],
        liveliness_lease_duration=values.integer("liveliness.lease_duration"),
        ownership=OwnershipKind[values.word("ownership").upper()],
        partition=values.names("partition"),
    )
    if role is not AppliesTo.WRITE:
        # the stream log keeps all; both representations are decoded
        both = (DataRepresentation.XCDR1, DataRepresentation.XCDR2)
        return replace(qos, history=HistoryKind.KEEP_ALL, data_representation=both)
    return replace(
        qos,
        max_blocking_time=values.integer("max_blocking_time"),
        history=_history(values),
        history_depth=values.integer("history.depth"),
        max_samples=_max_samples(values),
        lifespan=values.integer("lifespan"),
        ownership_strength=values.integer("ownership.strength"),
        data_representation=(DataRepresentation[values.word("data_representation").upper()],),
    )


def _durability(values: _Values) -> DurabilityKind:
    durability = DurabilityKind[values.word("durability").upper()]
    starting = values.text("startingOffsets")
    if starting is None:
        return durability
    wanted = DurabilityKind.TRANSIENT_LOCAL if starting == "earliest" else DurabilityKind.VOLATILE
    if values.has("durability") and durability is not wanted:
        means, given = wanted.name.lower(), durability.name.lower()
        fix = f"means durability={means}, but durability={given}; give one of the two"
        raise OptionError("startingOffsets", starting, fix)
    return wanted


def _history(values: _Values) -> HistoryKind:
    history = HistoryKind[values.word("history").upper()]
    if not values.has("history.depth"):
        return history
    if values.has("history") and history is HistoryKind.KEEP_ALL:
        raise OptionError(
            "history.depth", values.given("history.depth"), "has no meaning with history=keep_all"
        )
    return HistoryKind.KEEP_LAST


def _max_samples(values: _Values) -> int:
    """No bound that a history for late joiners, which nothing empties, reaches once and for all."""
    most = values.integer("resource_limits.max_samples")
    keeps_all = _history(values) is HistoryKind.KEEP_ALL
    if most != LENGTH_UNLIMITED and keeps_all and _durability(values) is DurabilityKind.TRANSIENT_LOCAL:
        fix = (
            "with durability=transient_local and history=keep_all writing would stop for ever when it is "
            "reached; set history=keep_last"
        )
        raise OptionError("resource_limits.max_samples", values.given("resource_limits.max_samples"), fix)
    return most


def _extensibility(values: _Values) -> Extensibility:
    if values.has("type.extensibility") and not values.has("type.file"):
        fix = "says what structs of type.file are; remove it, or give type.file"
        raise OptionError("type.extensibility", values.given("type.extensibility"), fix)
    return Extensibility(values.word("type.extensibility"))


def _peers(peers: tuple[str, ...]) -> tuple[str, ...]:
    for peer in peers:
        try:
            split_peer(peer)
        except TransportError:
            raise OptionError("peers", peer, "must be host or host:port, separated by commas") from None
    return peers


def default_log_dir() -> Path:
    """Where logs lie without ``log.dir``: a name that anybody can guess, and make before we do."""
    return Path(tempfile.gettempdir()) / f"spark-rtps-{os.getuid()}"


def _log_dir(values: _Values) -> Path:
    given = values.text("log.dir")
    if given is None:
        return default_log_dir()
    return Path(given.removeprefix("file://")).expanduser().absolute()


def _log_max_bytes(values: _Values) -> int:
    most, segment = values.integer("log.max_bytes"), values.integer("log.segment_bytes")
    if most < segment:
        fix = f"must be at least log.segment_bytes, {segment}"
        raise OptionError("log.max_bytes", values.given("log.max_bytes"), fix)
    return most
