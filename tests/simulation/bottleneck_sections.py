"""The sections about the bottleneck: windows, strategies and what happens to them, writers that share it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.simulation.bottleneck import Bottleneck
from tests.simulation.flow import CUBIC, STATIC, FlowResult, FlowScenario
from tests.simulation.network import MS, SECOND

#: Aeron's initial window, and one that fits the queue and the link together.
STATIC_128: Final = replace(STATIC, max_window=128 << 10)
STATIC_56: Final = replace(STATIC, max_window=56 << 10)
STRATEGIES: Final = ("min", "max", "tagged")
#: For each of 64 readers as much as one of 6 has of the other, and the same delay when the queue is full.
WIDE: Final = Bottleneck(100_000_000, queue=640 << 10)
ONE_READER: Final = FlowScenario(strategy="unicast", warm_up=4 * SECOND, duration=12 * SECOND)
GROUP_OF_FOUR: Final = FlowScenario(readers=4, warm_up=3 * SECOND, duration=9 * SECOND)

SITUATIONS: Final[dict[str, FlowScenario]] = {
    "one slow reader": replace(GROUP_OF_FOUR, slow=1, slow_rate=50_000),
    "bursts": replace(GROUP_OF_FOUR, burst=256 << 10),
    "1 % loss": replace(GROUP_OF_FOUR, link=Bottleneck(loss=0.01)),
    "a reader vanishes": replace(GROUP_OF_FOUR, vanish_at=5 * SECOND),
    "64 readers": FlowScenario(
        WIDE, readers=64, warm_up=500 * MS, duration=1_500 * MS, term_length=256 << 10
    ),
}
#: Two writers, of which the second starts later.
SHARED: Final = FlowScenario(readers=2, writers=2, warm_up=10 * SECOND, duration=30 * SECOND)


@dataclass(frozen=True, slots=True)
class FlowRow:
    """One line of a table: what is special about it, and the scenario."""

    label: dict[str, str]
    scenario: FlowScenario


@dataclass(frozen=True, slots=True)
class FlowSection:
    name: str
    title: str
    columns: tuple[str, ...]
    rows: list[FlowRow]


_USE: Final = ("throughput", "overruns", "queue peak", "queue mean", "retransmission", "loss")
_GROUP: Final = ("slowest", "fairness", "dropped", "missed", "stall", "answers", "writer", "reader")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


Cell = Callable[[Any, Any], str]
FLOW_COLUMNS: Final[dict[str, tuple[str, Cell]]] = {
    "throughput": ("throughput", lambda _, r: _percent(r.throughput)),
    "slowest": ("slowest reader", lambda _, r: _percent(min(r.shares))),
    "each": ("each writer", lambda _, r: ", ".join(_percent(share) for share in r.writers)),
    "fairness": ("fairness", lambda _, r: f"{r.fairness:.2f}"),
    "overruns": ("overruns", lambda _, r: _percent(r.overrun_share)),
    "queue peak": ("queue peak KiB", lambda _, r: f"{r.queue_peak / 1024:.0f}"),
    "queue mean": ("queue mean KiB", lambda _, r: f"{r.queue_mean / 1024:.0f}"),
    "retransmission": ("sent again", lambda _, r: _percent(r.retransmission)),
    "loss": ("loss", lambda _, r: _percent(r.loss)),
    "dropped": ("drops", lambda _, r: f"{r.dropped_readers}"),
    "missed": ("samples missed", lambda _, r: f"{sum(r.missed):,}"),
    "stall": ("longest stall ms", lambda _, r: f"{r.stall / MS:.0f}"),
    "answers": ("answers", lambda _, r: f"{r.answers:.2f}"),
    "writer": ("writer KiB", lambda _, r: f"{r.writer_bytes / 1024:,.0f}"),
    "reader": ("reader KiB", lambda _, r: f"{r.reader_bytes / 1024:,.0f}"),
}


def _windows() -> Iterator[FlowRow]:
    controls = {
        "static, 4 MiB": STATIC,
        "static, 128 KiB": STATIC_128,
        "static, 56 KiB": STATIC_56,
        "cubic": CUBIC,
        "cubic, min_rtt": replace(CUBIC, measure_rtt=False),
        "cubic, tcp_mode": replace(CUBIC, tcp_mode=True),
    }
    for loss in (0.0, 0.01):
        for name, control in controls.items():
            if loss and control in (STATIC, STATIC_128):
                continue  # what the queue drops is so much more
            label = {"random loss": f"{100 * loss:g} %", "congestion control": name}
            scenario = replace(ONE_READER, link=Bottleneck(loss=loss), control=control)
            if control == STATIC:  # a window is half a term at most
                scenario = replace(scenario, term_length=8 << 20)
            yield FlowRow(label, scenario)


def _situations() -> Iterator[FlowRow]:
    for situation, scenario in SITUATIONS.items():
        for strategy in STRATEGIES:
            for name, control in (("static", STATIC_128), ("cubic", CUBIC)):
                label = {"situation": situation, "strategy": strategy, "congestion control": name}
                yield FlowRow(label, replace(scenario, strategy=strategy, control=control))


def _sharing() -> Iterator[FlowRow]:
    for name, control in (("static, 56 KiB", STATIC_56), ("cubic", CUBIC)):
        yield FlowRow({"congestion control": name}, replace(SHARED, control=control))


def bottleneck_sections() -> list[FlowSection]:
    return [
        FlowSection(
            "window", "A window for a slow link", (*_USE, "stall", "writer", "reader"), list(_windows())
        ),
        FlowSection("bottleneck", "Readers behind a bottleneck", (*_USE, *_GROUP), list(_situations())),
        FlowSection(
            "sharing", "Two writers at one bottleneck", (*_USE, "each", "fairness"), list(_sharing())
        ),
    ]


__all__ = ["FLOW_COLUMNS", "FlowResult", "FlowRow", "FlowSection", "bottleneck_sections"]
