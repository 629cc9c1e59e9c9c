"""The figures of the sections about the bottleneck."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.simulation.bottleneck import SLOT
from tests.simulation.flow import FlowResult
from tests.simulation.network import SECOND
from tests.simulation.plots import COLOURS, Draw, Rows, draw_bars, grouped, panels

#: Slots that a rate is the mean of.
_MEAN: Final = SECOND // 4 // SLOT


def _mean(values: list[float]) -> Any:
    whole = np.array(values[: len(values) // _MEAN * _MEAN])
    return whole.reshape(-1, _MEAN).mean(1)


def _times(count: int, slots: int = 1) -> Any:
    return (np.arange(count) + 0.5) * slots * SLOT / SECOND


def _together(result: FlowResult) -> list[float]:
    return [sum(each) for each in zip(*result.rates, strict=True)]


def _window(rows: Rows) -> Any:
    figure, (queue, rate) = panels(2)
    lossless = [(row, r) for row, r in rows if row.label["random loss"] == "0 %"]
    shown = ("static, 4 MiB", "static, 56 KiB", "cubic")
    chosen = [(row, r) for row, r in lossless if row.label["congestion control"] in shown]
    for colour, (row, result) in zip(COLOURS, chosen, strict=False):
        name = row.label["congestion control"]
        queue.plot(_times(len(result.queue)), np.array(result.queue) / 1024, color=colour, lw=1, label=name)
        rates = 100 * _mean(_together(result))
        rate.plot(_times(len(rates), _MEAN), rates, color=colour, lw=1)
    queue.set(xlabel="s", ylabel="KiB in the queue", ylim=(0, 70))
    queue.legend(frameon=False, fontsize=7, loc="lower right")
    rate.set(xlabel="s", ylabel="samples delivered, % of the link", ylim=(0, 125))
    return figure


def _bottleneck(rows: Rows) -> Any:
    figure, axes = panels(3)
    cubic, static = (
        [(row, r) for row, r in rows if row.label["congestion control"] == name]
        for name in ("cubic", "static")
    )
    for axis, title, chosen, value in (
        (axes[0], "cubic: samples delivered, % of the link", cubic, lambda _, r: 100 * r.throughput),
        (axes[1], "cubic: sent again, %", cubic, lambda _, r: 100 * r.retransmission),
        (axes[2], "static: sent again, %", static, lambda _, r: 100 * r.retransmission),
    ):
        by_situation = grouped(chosen, "situation")
        draw_bars(axis, by_situation, "strategy", value)
        axis.set_xticks(range(len(by_situation)), by_situation, rotation=35, ha="right", fontsize=7)
        axis.set(ylabel=title)
    axes[0].legend(title="strategy", frameon=False, fontsize=7, title_fontsize=7)
    return figure


def _sharing(rows: Rows) -> Any:
    figure, axes = panels(len(rows))
    for axis, (row, result) in zip(axes, rows, strict=True):
        for number, (colour, rates) in enumerate(zip(COLOURS, result.rates, strict=False)):
            mean = 100 * _mean(rates)
            axis.plot(_times(len(mean), _MEAN), mean, color=colour, lw=1, label=f"writer {number + 1}")
        axis.set(xlabel=f"s, {row.label['congestion control']}", ylabel="% of the link", ylim=(0, 110))
    axes[0].legend(frameon=False, fontsize=7)
    return figure


FLOW_FIGURES: Final[dict[str, Draw]] = {"window": _window, "bottleneck": _bottleneck, "sharing": _sharing}
