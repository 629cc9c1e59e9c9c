"""Arguments of Python programs as options: keywords and mappings become the texts of the options' tables.

A value may be a text as for Spark, or the equivalent Python value: a bool, a number, a sequence of names, bytes, a
timedelta. A number means seconds for a duration, and bytes for a size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final, TypeAlias

from ..options import AppliesTo, Settings, parse_options
from ..options.spec import OptionKind
from ..options.table import BY_KEY, PARTICIPANT_OPTIONS, SPARK_KEYS
from ..options.texts import list_text, size
from ..transport.errors import OptionError, UsageError
from ..transport.structure import NANOSECONDS

#: A value of an option; None: the option is not set.
OptionValue: TypeAlias = str | bytes | bool | int | float | timedelta | Iterable[str] | None
Options: TypeAlias = Mapping[str, OptionValue]

#: The limit for samples that wait in a subscription, or are kept for another read, in bytes.
CAPACITY: Final = 64 << 20

#: Options of Spark queries only, and the alternative for a Python program.
SPARK_OPTIONS: Final[Mapping[str, str]] = {
    "startingOffsets": "set durability=transient_local for the history that writers keep",
    "maxRowsPerTrigger": "give max_rows to read() or take()",
    "maxBytesPerTrigger": "give max_rows to read() or take()",
    "minPartitions": "remove it",
    "statuses": "read the statuses of a subscription or publication, or give it a listener",
    "failOnDataLoss": "remove it",
    "read.max_rows": "give max_rows to read() or take()",
    "read.timeout": "give timeout to read() or take()",
    "flow_control.consumption": "remove it: samples count as consumed once they wait in the subscription",
    "spy": "remove it",
    "metrics.port": "remove it",
    "metrics.address": "remove it",
    "log.dir": "remove it: a subscription holds its samples in memory",
    "log.mode": "remove it: a subscription holds its samples in memory",
    "leave_on_stop": "remove it",
    "on_log_full": "remove it: a subscription holds its samples in memory",
    "log.max_bytes": "give buffer_size to subscribe()",
    "log.segment_bytes": "remove it: a subscription holds its samples in memory",
    "log.retention": "remove it: a subscription holds its samples in memory",
    "recording": "read recordings with spark.read",
    "startingTime": "read recordings with spark.read",
    "endingTime": "read recordings with spark.read",
    "log_time": "set metadata=true, and read _rtps.reception_timestamp",
    "log.retention_bytes": "remove it: a subscription holds its samples in memory",
}
_SPARK_BY_KEY: Final = {name.lower(): name for name in SPARK_OPTIONS}
_ANY_TOPIC: Final = "any"


def participant_settings(options: Options) -> tuple[dict[str, str], Settings]:
    """The texts of a participant's options, and their settings.

    Raises OptionError for an unknown option, for one of a topic, and for an invalid value.
    """
    texts = _texts(options)
    for name in texts:
        if name.lower() in BY_KEY and name not in PARTICIPANT_OPTIONS:
            fix = "is about one topic; give it to subscribe() or publish()"
            raise OptionError(name, texts[name], fix)
    return texts, parse_options({**texts, "topic": _ANY_TOPIC}, AppliesTo.BOTH)


def topic_settings(
    topic: str, role: AppliesTo, *, of_participant: Mapping[str, str], options: Options, keywords: Options
) -> Settings:
    """The settings of one subscription (``AppliesTo.READ``) or publication (``AppliesTo.WRITE``).

    ``of_participant`` are the texts of its participant's options. ``keywords`` are options that were given as
    arguments, by their option names.

    Raises OptionError for an unknown option, for one of the participant or of Spark alone, for an option that is given
    twice, and for an invalid value.
    """
    texts, named = _texts(options), _texts(keywords)
    for name in named:
        if name in texts and texts[name] != named[name]:
            fix = f"the argument is {named[name]!r}, and the mapping `options` has {texts[name]!r}; give one of the two"
            raise OptionError(name, texts[name], fix)
    texts |= named
    for name, text in texts.items():
        if name in PARTICIPANT_OPTIONS:
            raise OptionError(name, text, "holds for the whole participant; give it to Participant()")
        if name == "topic":
            raise OptionError(name, text, "the topic is the first argument; remove the option")
    return parse_options({**of_participant, **texts, "topic": topic}, role)


def size_argument(name: str, value: int | str, *, least: int) -> int:
    """Bytes, as a number or a text with a unit. Raises UsageError if it is invalid or too small."""
    try:
        found = size(value) if isinstance(value, str) else int(value)
    except ValueError:
        raise UsageError(f"{name} is {value!r}; it must be bytes, or a text such as 64MiB") from None
    if found < least:
        raise UsageError(f"{name} is {value!r}; it must be at least {least} bytes")
    return found


def _texts(options: Options) -> dict[str, str]:
    """The options that are set, by their own names, as texts."""
    found: dict[str, str] = {}
    for key, value in options.items():
        if value is None:
            continue
        lower = str(key).lower()
        if lower in _SPARK_BY_KEY:
            name = _SPARK_BY_KEY[lower]
            raise OptionError(name, value, f"belongs to Spark's queries; {SPARK_OPTIONS[name]}")
        if lower in SPARK_KEYS:
            raise OptionError(key, value, "belongs to Spark's queries; remove it")
        spec = BY_KEY.get(lower)
        found[key if spec is None else spec.name] = _text(key, value, None if spec is None else spec.kind)
    return found


def _text(key: str, value: OptionValue, kind: OptionKind | None) -> str:
    """A value in the form of Spark's options."""
    match value:
        case str():
            return value
        case bytes():
            return f"0x{value.hex()}"
        case bool():
            return "true" if value else "false"
        case timedelta():
            return f"{round(value.total_seconds() * NANOSECONDS)}ns"
        case int() | float() if kind is OptionKind.DURATION:
            return "infinite" if math.isinf(value) else f"{round(value * NANOSECONDS)}ns"
        case int() | float():
            return str(value)
    try:
        return list_text(value)  # type: ignore[arg-type]  # other values raise TypeError
    except TypeError:
        fix = "must be a text, a number, a bool, a timedelta or names"
        raise OptionError(key, value, fix) from None
