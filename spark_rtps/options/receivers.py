"""Options about receiver services, and the options that a query with receiver services may set."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from ..transport.errors import OptionError
from .rules import BEST_AVAILABLE, keeps_all
from .spec import AppliesTo
from .table import BY_KEY
from .table_receivers import RECEIVER_OPTIONS
from .table_ros import ROS_OPTIONS
from .table_type import TYPE_OPTIONS
from .values import Values

_RECEIVER: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,127})\s*=\s*([^\s:/=,]+:([0-9]{1,5}))")
_PORT_MAX: Final = 65_535
#: The last time that logs and recordings can hold in 64 bits, in 2262; later times, such as the year 9999, become it.
_TIMESTAMP_MAX: Final = (1 << 63) - 1
#: Options that a query decides by itself, in addition to those about types and columns.
_OF_QUERIES: Final = frozenset(
    {
        *("topic", "subscribe", "subscribePattern", "domain", "metadata", "payload"),
        *("startingOffsets", "failOnDataLoss", "minPartitions"),
        *("maxRowsPerTrigger", "maxBytesPerTrigger", "metrics.port", "metrics.address"),
        *(spec.name for spec in (*TYPE_OPTIONS, *RECEIVER_OPTIONS, *ROS_OPTIONS)),
    }
)


def receiver_addresses(given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Names and addresses of receiver services, sorted by name. Raises OptionError."""
    found: dict[str, str] = {}
    for each in given:
        match = _RECEIVER.fullmatch(each)
        if match is None or ".." in match[1] or not 0 < int(match[3]) <= _PORT_MAX:
            raise OptionError("receivers", each, "must be name=host:port, such as cell-1=edge1:7420")
        if match[1] == "embedded" or match[1] in found:
            raise OptionError("receivers", each, f"the name {match[1]!r} is taken; give another one")
        found[match[1]] = match[2]
    return tuple(sorted(found.items()))


def timestamp(option: str, text: str | None) -> int | None:
    """Nanoseconds since 1970 from a text in ISO 8601 or in milliseconds since 1970. Raises OptionError."""
    if text is None:
        return None
    fix = "must be ISO 8601, such as 2026-01-31T12:00:00Z, or milliseconds since 1970"
    try:
        # eight digits are a date of ISO 8601, if they can be
        if re.fullmatch(r"[0-9]{1,15}", text) and not _is_date(text):
            return min(int(text) * 1_000_000, _TIMESTAMP_MAX)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(option, text, fix) from None
    moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    if since.days < 0:
        raise OptionError(option, text, fix)
    found = (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000
    return min(found, _TIMESTAMP_MAX)


def _is_date(text: str) -> bool:
    try:
        return len(text) == 8 and datetime.fromisoformat(text).year >= 1970
    except ValueError:
        return False


def _check_positions(values: Values) -> None:
    """Raise OptionError if positions do not name exactly the receivers, or if an end lies before its start."""
    names = [name for name, _ in receiver_addresses(values.names("receivers"))]
    found = {option: values.value(option) for option in ("startingOffsets", "endingOffsets")}
    by_option = {
        option: dict(positions) for option, positions in found.items() if isinstance(positions, tuple)
    }
    for option, positions in by_option.items():
        wrong = sorted(positions.keys() ^ set(names))
        if wrong:
            fix = f"must name exactly the receivers of the option receivers; missing or unknown: {', '.join(wrong)}"
            raise OptionError(option, values.given(option), fix)
    if len(by_option) == len(found):
        for name, begin in by_option["startingOffsets"].items():
            end = by_option["endingOffsets"][name]
            if isinstance(begin, int) and isinstance(end, int) and begin > end:
                fix = f"starts after endingOffsets for {name}: {begin} is greater than {end}"
                raise OptionError("startingOffsets", values.given("startingOffsets"), fix)


def asked_of_receivers(values: Values) -> dict[str, str] | None:
    """The options of the subscription that a query requests, as texts; None: it reads an existing subscription."""
    if not values.boolean("receiver.subscribe"):
        return None
    passed_over = {"qos.profile", "qos.file", *(spec.name for spec in RECEIVER_OPTIONS)}
    # what a profile says is given option by option: its file lies here
    given = {spec.name: values.given(spec.name) for spec in BY_KEY.values() if spec.name not in passed_over}
    asked = {name: text for name, text in given.items() if text is not None}
    if keeps_all(values):  # a file may name a depth although it has no effect
        asked.pop("history.depth", None)
    if values.profile != BEST_AVAILABLE:
        return asked
    # what is left to the topic's writers, the receivers ask them
    return {"qos.profile": BEST_AVAILABLE, **{name: text for name, text in asked.items() if values.has(name)}}


def check_receivers(values: Values) -> None:
    """Raise OptionError for an option that needs ``receivers``, or that the subscriptions of receivers decide."""
    if not values.has("receivers"):
        for spec in RECEIVER_OPTIONS:
            if values.has(spec.name):
                fix = "applies to receiver services; name them by receivers, or remove it"
                raise OptionError(spec.name, values.given(spec.name), fix)
        if isinstance(values.value("startingOffsets"), tuple):
            fix = "has positions of receiver services; name them by receivers, or set latest or earliest"
            raise OptionError("startingOffsets", values.given("startingOffsets"), fix)
        return
    if not values.names("receivers"):
        raise OptionError("receivers", values.given("receivers"), "must name one, such as cell-1=edge1:7420")
    certificate, key, ca = "receiver.certificate", "receiver.key", "receiver.ca"
    for name, needed in ((certificate, key), (key, certificate), (certificate, ca)):
        if values.has(name) and not values.has(needed):
            raise OptionError(name, values.given(name), f"needs {needed}; set it too, or remove {name}")
    for one, other in (("startingTimestamp", "startingOffsets"), ("endingTimestamp", "endingOffsets")):
        if values.has(one) and values.has(other):
            raise OptionError(one, values.given(one), f"excludes {other}; set one")
    begin, end = (timestamp(name, values.text(name)) for name in ("startingTimestamp", "endingTimestamp"))
    if begin is not None and end is not None and begin > end:
        given = values.given("endingTimestamp")
        raise OptionError(
            "startingTimestamp", values.given("startingTimestamp"), f"is later than endingTimestamp={given}"
        )
    _check_positions(values)
    if values.boolean("receiver.subscribe"):
        if values.has("receiver.subscription"):
            fix = "names a subscription that is there, and receiver.subscribe=true asks for one; set one of them"
            raise OptionError("receiver.subscription", values.given("receiver.subscription"), fix)
        return
    for spec in BY_KEY.values():
        if spec.applies_to is not AppliesTo.WRITE and values.has(spec.name) and spec.name not in _OF_QUERIES:
            fix = (
                "is decided by the subscription of the receiver services; remove it here, and set it there, or set "
                "receiver.subscribe=true"
            )
            raise OptionError(spec.name, values.given(spec.name), fix)
