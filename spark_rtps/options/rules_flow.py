"""Options of flow control, of flow controllers and of publication logs that contradict each other."""

from __future__ import annotations

from typing import Final

from ..transport.errors import OptionError
from ..transport.structure import INFINITE
from .spec import AppliesTo, size_text
from .table_flow import TERM_LENGTH_MAX, TERM_LENGTH_MIN
from .values import Values

#: Strategies of flow control that wait for ``flow_control.group_min_size``.
GROUPING: Final = ("min", "tagged")


def check_flow(values: Values, role: AppliesTo) -> None:
    """OptionError for the first contradiction found."""
    _check_flow_controller(values)
    _check_flow_control(values)
    _check_inactivity(values)
    _check_tethering(values, role)
    _check_publication(values)


def _check_flow_controller(values: Values) -> None:
    name = values.text("flow_controller.name")
    if name == "on_demand":  # a flow controller that DDS predefines
        fix = "sends only when it is triggered, and nothing triggers it here; use another name"
        raise OptionError("flow_controller.name", name, fix)


def _check_flow_control(values: Values) -> None:
    strategy, tag, group = (f"flow_control.{name}" for name in ("strategy", "group_tag", "group_min_size"))
    for each in (strategy, "flow_control.multicast_strategy"):
        if values.word(each) == "tagged" and values.value(tag) is None:
            fix = f"needs {tag}, the tag of the readers that set the pace; set {tag}, or use min"
            raise OptionError(each, values.given(each), fix)
    unreliable = values.word("reliability") != "reliable"
    if values.integer(group) and values.word(strategy) in GROUPING and unreliable:
        fix = (
            f"counts reliable readers, but a writer with reliability={values.word('reliability')} has none and would "
            f"never write; remove {group}"
        )
        raise OptionError(group, values.given(group), fix)


def _check_inactivity(values: Values) -> None:
    """Raise OptionError if nothing limits the time of readers without progress, which count as not answering."""
    name, retries = (
        "reliable_writer.inactivate_nonprogressing_readers",
        "reliable_writer.max_heartbeat_retries",
    )
    timeout = "flow_control.receiver_timeout"
    if values.boolean(name) and values.integer(retries) == values.integer(timeout) == INFINITE:
        where = "" if values.has(name) else " (set by the QoS profile)"
        fix = (
            f"has no effect{where} while a reader may be without progress forever; set {retries}, to 150 as in RTI "
            f"Connext, or {timeout}"
        )
        raise OptionError(name, values.given(name), fix)


def _check_tethering(values: Values, role: AppliesTo) -> None:
    """Raise OptionError for time-outs of a spy: it reads the sink's log, so the sink's writer applies its own."""
    for name in ("untethered_window_limit_timeout", "untethered_resting_timeout"):
        if role is AppliesTo.READ and values.has(name) and values.boolean("spy"):
            fix = f"has no effect with spy=true: the sink decides how long it waits; set {name} at the sink"
            raise OptionError(name, values.given(name), fix)


def _check_publication(values: Values) -> None:
    name = "publication.term_length"
    length = values.integer(name)
    nearest = sorted({min(max(near, TERM_LENGTH_MIN), TERM_LENGTH_MAX) for near in _powers_around(length)})
    if length not in nearest:
        fix = (
            f"must be a power of two from {size_text(TERM_LENGTH_MIN)} to {size_text(TERM_LENGTH_MAX)}, such as "
            f"{' or '.join(size_text(near) for near in nearest)}"
        )
        raise OptionError(name, values.given(name), fix)
    for ahead in ("publication.term_window", "publication.ipc_term_window"):
        window = values.integer_or_none(ahead)
        if window is not None and window > length // 2:
            _, least = _powers_around(2 * window)
            fix = (
                f"must be at most half of {name}={values.shown(name)}; lower {ahead}, or set "
                f"{name}={size_text(least)}"
            )
            raise OptionError(ahead, values.given(ahead), fix)


def _powers_around(length: int) -> tuple[int, int]:
    """The nearest powers of two: the largest not above a length, and the smallest not below it."""
    return 1 << max(length.bit_length() - 1, 0), 1 << max(length - 1, 0).bit_length()
