"""docs/growth.svg: a panel for each thing that grows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.simulation.plots import COLOURS, plt  # type: ignore[attr-defined]

Points = Mapping[str, Mapping[str, float]]


def draw(found: dict[str, Any], directory: Path) -> None:
    """Draw the curves that were found into growth.svg."""
    figure, axes = plt.subplots(2, 3, figsize=(10.2, 6.0), layout="constrained")
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    writers, receiver, writer, memory, length, partitions = axes.flat
    shapes, rules = found.get("writers", {}), found.get("instances", {})
    _lines(writers, ((name, points, "receiver") for name, points in shapes.items()))
    writers.set(xlabel="writers of one topic", ylabel="receiver: CPU s for a million samples", xscale="log")
    _lines(receiver, ((name, points, "receiver") for name, points in rules.items()))
    receiver.set(xlabel="instances", ylabel="receiver: CPU s for a million samples", xscale="log")
    _lines(writer, ((name, points, "writer") for name, points in rules.items()))
    writer.set(xlabel="instances", ylabel="writer: CPU s for a million samples", xscale="log")
    held = (("receiver", "exclusive"), ("writer", "deadline"), ("writer", "keep_last"))
    of_rules = [(f"{who}, {rule}", rules[rule], f"{who}_memory") for who, rule in held if rule in rules]
    _lines(memory, of_rules)
    memory.set(xlabel="instances", ylabel="MB", xscale="log")
    points = found.get("length", {})
    planned = (("plan at the beginning", points, "plan_first"), ("plan at the end", points, "plan_last"))
    _lines(length, (("open after a kill", points, "open"), *planned), factor=1e3)
    length.set(xlabel="length of the log, GB", ylabel="ms")
    points = found.get("partitions", {})
    read = (("read, one core", points, "read"), ("by Spark, two cores", points, "spark"))
    _lines(partitions, (*read, ("plan", points, "plan")), factor=1e3)
    partitions.set_xscale("log", base=2)
    partitions.set(xlabel="partitions of 100 MB", ylabel="ms")
    figure.savefig(directory / "growth.svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def _lines(axis: Any, curves: Iterable[tuple[str, Points, str]], *, factor: float = 1) -> None:
    for (label, points, name), colour in zip(curves, COLOURS, strict=False):
        x = [float(size) for size, of in points.items() if name in of]
        y = [factor * of[name] for of in points.values() if name in of]
        axis.plot(x, y, "o-", color=colour, ms=3, label=label)
    axis.set_ylim(bottom=0)
    if axis.get_lines():
        axis.legend(frameon=False, fontsize=7)
