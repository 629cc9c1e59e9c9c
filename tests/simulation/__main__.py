"""``make simulate`` prints the table, ``make plots`` also puts it and its figures into docs/.

``python -m tests.simulation [--docs DIRECTORY] [SECTION ...]``; all sections by default.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.simulation.bottleneck_sections import FlowRow, bottleneck_sections
from tests.simulation.flow import FlowResult, flow
from tests.simulation.scenarios import Result, simulate
from tests.simulation.sections import Row, sections
from tests.simulation.table import AnySection, cells, headings, insert


def measure(row: Row | FlowRow) -> Result | FlowResult:
    return flow(row.scenario) if isinstance(row, FlowRow) else simulate(row.scenario, row.seeds)


def show(console: Console, section: AnySection, results: Sequence[Any]) -> None:
    table = Table(title=section.title, title_justify="left")
    for heading in headings(section):
        table.add_column(heading, justify="right")
    for row, result in zip(section.rows, results, strict=True):
        table.add_row(*cells(section, row, result))
    console.print(table)


def main() -> None:
    every: list[AnySection] = [*sections(), *bottleneck_sections()]
    known = {section.name: section for section in every}
    parser = argparse.ArgumentParser(description="The reliable protocol over seeds, in virtual time.")
    parser.add_argument("section", nargs="*", choices=[[], *known], help="default: all")
    parser.add_argument("--docs", type=Path, help="put tables and figures into this directory")
    arguments = parser.parse_args()
    console = Console(width=180)
    done: dict[str, tuple[AnySection, list[Any]]] = {}
    with ProcessPoolExecutor() as pool:
        names = arguments.section or list(known)
        running = {name: [pool.submit(measure, row) for row in known[name].rows] for name in names}
        for name in names:
            results = [future.result() for future in running[name]]
            show(console, known[name], results)
            done[name] = (known[name], results)
    if arguments.docs is not None:
        from tests.simulation.bottleneck_plots import FLOW_FIGURES  # matplotlib is wanted here only
        from tests.simulation.plots import FIGURES, plot

        document = arguments.docs / "simulation.md"
        text = document.read_text(encoding="utf-8")
        for section, results in done.values():
            text = insert(text, section, results)
            plot(section.name, section.rows, results, arguments.docs, FIGURES | FLOW_FIGURES)
        document.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
