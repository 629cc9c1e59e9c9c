"""The topics that a source reads together: ``subscribe`` and ``subscribePattern``, as Kafka's source calls them."""

from __future__ import annotations

import re
from typing import Final

from ..transport.errors import OptionError
from ..transport.limits import STRING_MAX
from ..transport.protocol.discovery.topic_selection import TopicSelection
from .values import Values

#: The options that name several topics.
SEVERAL: Final = "subscribe, subscribePattern"
_STRATEGIES: Final = ("topic", "subscribe", "subscribePattern")
_ONE: Final = f"only one of the options {', '.join(_STRATEGIES[:-1])} and {_STRATEGIES[-1]} can be set"


def topic_selection(values: Values) -> TopicSelection | None:
    """The topics to read together; None: only ``topic`` is read. Raises OptionError."""
    given = [name for name in _STRATEGIES if values.has(name)]
    if len(given) > 1:
        name = given[-1]
        others = ", ".join(f"{each}={values.given(each)}" for each in given[:-1])
        raise OptionError(name, values.given(name), f"{_ONE}, and there is {others}; remove all but one")
    if values.has("subscribe"):
        _check(values, "subscribe")
        return TopicSelection(names=_names(values))
    if values.has("subscribePattern"):
        _check(values, "subscribePattern")
        return TopicSelection(pattern=_pattern(values))
    return None


def _names(values: Values) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(values.names("subscribe")))
    if not names:
        raise OptionError(
            "subscribe", values.given("subscribe"), "must name a topic: subscribe=rt/imu,rt/odom"
        )
    for name in names:
        if len(name.encode()) >= STRING_MAX:
            fix = f"a name must have fewer than {STRING_MAX} bytes of UTF-8"
            raise OptionError("subscribe", f"{name[:16]}...", fix)
    return names


def _pattern(values: Values) -> str:
    pattern = values.text("subscribePattern")
    assert pattern is not None
    try:
        re.compile(pattern, re.DOTALL)
    except (re.error, RecursionError, OverflowError) as error:
        hint = "; a pattern is a regular expression: write .* for any text" if pattern[:1] in "*?" else ""
        raise OptionError("subscribePattern", pattern, f"is no regular expression: {error}{hint}") from None
    return pattern


def _check(values: Values, name: str) -> None:
    """Raise OptionError for an option that has no meaning for several topics."""
    if values.boolean("spy"):
        fix = "cannot be used with spy=true, which reads one publication log: set topic"
        raise OptionError(name, values.given(name), fix)
