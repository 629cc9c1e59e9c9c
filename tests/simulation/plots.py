"""The figures of docs/simulation.md, one for each section that has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np

mpl.use("svg")
# The same numbers make the same file, byte for byte.
mpl.rcParams.update({"svg.hashsalt": "spark-rtps", "svg.fonttype": "none", "font.size": 9})
from matplotlib import pyplot as plt  # noqa: E402  (after the choice of the backend)

from spark_rtps.transport.protocol.policies import READER_POLICY  # noqa: E402
from tests.simulation.scenarios import Result  # noqa: E402
from tests.simulation.sections import Row  # noqa: E402

Rows = list[tuple[Any, Any]]
Draw = Callable[[Rows], Any]
COLOURS: Final = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")


def plot(
    name: str, rows: Sequence[Any], results: Sequence[Any], directory: Path, figures: Mapping[str, Draw]
) -> None:
    """Draw a section's figure into ``directory``, if it has one."""
    draw = figures.get(name)
    if draw is None:
        return
    figure = draw(list(zip(rows, results, strict=True)))
    figure.savefig(directory / f"simulation-{name}.svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def panels(count: int) -> tuple[Any, list[Any]]:
    figure, axes = plt.subplots(1, count, figsize=(3.4 * count, 3.0), layout="constrained")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    return figure, list(axes)


def grouped(rows: Rows, label: str) -> dict[str, Rows]:
    """Rows by what they have under a label, in order."""
    groups: dict[str, Rows] = {}
    for row, result in rows:
        groups.setdefault(row.label[label], []).append((row, result))
    return groups


def _loss(rows: Rows) -> Any:
    figure, (repairs, requests, latency) = panels(3)
    for colour, (readers, group) in zip(COLOURS, grouped(rows, "readers").items(), strict=False):
        losses = [100 * row.scenario.link.loss for row, _ in group]
        name = f"{readers} reader{'s' if readers != '1' else ''}"
        repairs.plot(losses, [100 * r.repair_ratio for _, r in group], "o-", color=colour, ms=3, label=name)
        each = [r.per_thousand(r.nacks) / row.scenario.readers for row, r in group]
        requests.plot(losses, each, "o-", color=colour, ms=3)
        for percent, style in ((50, ":"), (99, "-")):
            latency.plot(losses, [r.latency(percent) for _, r in group], style, color=colour)
    share = np.linspace(0, 0.3, 31)
    repairs.plot(100 * share, 100 * share / (1 - share), "k--", lw=1, label="least possible")
    repairs.set(xlabel="loss %", ylabel="repairs, % of the data")
    repairs.legend(frameon=False, fontsize=7)
    requests.set(xlabel="loss %", ylabel="NACKs per reader, 1,000 samples")
    latency.set(xlabel="loss %", ylabel="ms to delivery: p99, dotted p50", yscale="log")
    return figure


def _delay(rows: Rows) -> Any:
    figure, (repairs, latency) = panels(2)
    rows = [(row, r) for row, r in rows if row.scenario.reader == READER_POLICY]
    for colour, (loss, group) in zip(COLOURS, grouped(rows, "loss").items(), strict=False):
        for reorders, style in ((False, "o-"), (True, "s--")):
            chosen = [(row, r) for row, r in group if (row.scenario.link.jitter > 0) == reorders]
            delays = [row.scenario.link.delay / 1e6 for row, _ in chosen]
            name = f"{loss} loss, {'reordered' if reorders else 'in order'}"
            repairs.plot(
                delays, [100 * r.repair_ratio for _, r in chosen], style, color=colour, ms=3, label=name
            )
            latency.plot(delays, [r.latency(99) for _, r in chosen], style, color=colour, ms=3)
    repairs.set(xlabel="delay ms", ylabel="repairs, % of the data", xscale="log")
    repairs.legend(frameon=False, fontsize=7)
    latency.set(xlabel="delay ms", ylabel="p99 ms to delivery", xscale="log", yscale="log")
    return figure


def draw_bars(axis: Any, groups: dict[str, Rows], label: str, value: Callable[[Row, Result], float]) -> None:
    """A cluster of bars for each group, a bar for each row of it."""
    names = list(groups)
    bars = [row.label[label] for row, _ in next(iter(groups.values()))]
    width = 0.8 / len(bars)
    for i, (colour, name) in enumerate(zip(COLOURS, bars, strict=False)):
        at = np.arange(len(names)) + (i - (len(bars) - 1) / 2) * width
        axis.bar(at, [value(*groups[group][i]) for group in names], width, color=colour, label=name)
    axis.set_xticks(range(len(names)), names)


def _suppression(rows: Rows) -> Any:
    figure, (repairs, requests, latency) = panels(3)
    groups = grouped(rows, "readers")
    draw_bars(repairs, groups, "suppresses", lambda _, r: 100 * r.repair_ratio)
    draw_bars(requests, groups, "suppresses", lambda row, r: r.per_thousand(r.nacks) / row.scenario.readers)
    draw_bars(latency, groups, "suppresses", lambda _, r: r.latency(99))
    repairs.set(xlabel="readers", ylabel="repairs, % of the data")
    requests.set(xlabel="readers", ylabel="NACKs per reader, 1,000 samples")
    latency.set(xlabel="readers", ylabel="p99 ms to delivery")
    repairs.legend(title="suppresses", frameon=False, fontsize=7, title_fontsize=7)
    return figure


def _response(rows: Rows) -> Any:
    figure, (peak, latency) = panels(2)
    groups = grouped(rows, "loss")
    draw_bars(peak, groups, "response delay", lambda _, r: r.peak_acknacks)
    draw_bars(latency, groups, "response delay", lambda _, r: r.latency(99))
    peak.set(xlabel="loss", ylabel="ACKNACKs in the worst ms")
    latency.set(xlabel="loss", ylabel="p99 ms to delivery")
    peak.legend(title="response delay", frameon=False, fontsize=7, title_fontsize=7)
    return figure


def _late(rows: Rows) -> Any:
    figure, (history, caught_up) = panels(2)
    groups: dict[str, Rows] = {}
    for row, result in rows:
        groups.setdefault(f"{row.label['late joiners']}\n{row.label['loss']}", []).append((row, result))
    draw_bars(history, groups, "suppression", lambda row, r: r.repair_ratio / row.scenario.late_readers)
    draw_bars(caught_up, groups, "suppression", lambda _, r: float(r.late_latencies.max()) / 1e6)
    history.set(xlabel="late joiners, loss", ylabel="times the history is sent to each")
    caught_up.set(xlabel="late joiners, loss", ylabel="ms until the last one has it all")
    history.legend(title="suppression", frameon=False, fontsize=7, title_fontsize=7)
    return figure


def _batch(rows: Rows) -> Any:
    figure, (datagrams, answers, latency) = panels(3)
    groups = grouped(rows, "loss")
    draw_bars(datagrams, groups, "sent as", lambda row, r: r.per_thousand(r.datagrams) / row.scenario.readers)
    draw_bars(answers, groups, "sent as", lambda row, r: r.per_thousand(r.ack_bytes) / row.scenario.readers)
    draw_bars(latency, groups, "sent as", lambda _, r: r.latency(99))
    datagrams.set(xlabel="loss", ylabel="datagrams per reader, 1,000 samples", yscale="log")
    answers.set(xlabel="loss", ylabel="bytes of answers, the same")
    latency.set(xlabel="loss", ylabel="p99 ms to delivery")
    answers.legend(title="sent as", frameon=False, fontsize=7, title_fontsize=7)
    return figure


FIGURES: Final[dict[str, Draw]] = {
    "loss": _loss,
    "delay": _delay,
    "suppression": _suppression,
    "response": _response,
    "late": _late,
    "batch": _batch,
}
