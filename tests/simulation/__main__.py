"""``make simulate`` prints the table, ``make plots`` also puts it and its figures into docs/.

``python -m simulation [--docs DIRECTORY] [SECTION ...]``; all sections by default.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .scenarios import Result, simulate
from .sections import Section, sections
from .table import cells, headings, insert


def show(console: Console, section: Section, results: list[Result]) -> None:
    table = Table(title=section.title, title_justify="left")
    for heading in headings(section):
        table.add_column(heading, justify="right")
    for row, result in zip(section.rows, results, strict=True):
        table.add_row(*cells(section, row, result))
    console.print(table)


def main() -> None:
    known = {section.name: section for section in sections()}
    parser = argparse.ArgumentParser(description="The reliable protocol over seeds, in virtual time.")
    parser.add_argument("section", nargs="*", choices=[[], *known], help="default: all")
    parser.add_argument("--docs", type=Path, help="put tables and figures into this directory")
    arguments = parser.parse_args()
    console = Console(width=180)
    done: dict[str, tuple[Section, list[Result]]] = {}
    for name in arguments.section or known:
        section = known[name]
        results = [simulate(row.scenario, row.seeds) for row in section.rows]
        show(console, section, results)
        done[name] = (section, results)
    if arguments.docs is not None:
        from .plots import plot  # matplotlib is wanted here only

        document = arguments.docs / "simulation.md"
        text = document.read_text(encoding="utf-8")
        for section, results in done.values():
            text = insert(text, section, results)
            plot(section, results, arguments.docs)
        document.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
