"""Results as tables: on the terminal, and in Markdown between markers of a document."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tests.simulation.bottleneck_sections import FLOW_COLUMNS, Cell, FlowSection
from tests.simulation.network import MS
from tests.simulation.scenarios import Result
from tests.simulation.sections import Row, Section

AnySection = Section | FlowSection


def _ms(nanoseconds: float) -> str:
    value = nanoseconds / MS
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _per_thousand(count: int, result: Result) -> str:
    value = result.per_thousand(count)
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def _least(row: Row) -> str:
    """Repairs without which it cannot be done, where they may be lost too."""
    loss = row.scenario.link.loss
    return f"{100 * loss / (1 - loss):.1f} %"


#: Heading, and what is below it; the key is the column's name in a section.
COLUMNS: Final[dict[str, tuple[str, Cell]]] = {
    "least": ("least", lambda row, _: _least(row)),
    "repairs": ("repairs", lambda _, r: f"{100 * r.repair_ratio:,.1f} %"),
    "copies": ("history sent", lambda row, r: f"{r.repair_ratio / row.scenario.late_readers:.2f} times"),
    "wire bytes": ("bytes/sample", lambda row, r: f"{r.data_bytes / r.samples / row.scenario.readers:.0f}"),
    "datagrams": ("datagrams", lambda _, r: _per_thousand(r.datagrams, r)),
    "batches": ("DATA_BATCHes", lambda _, r: _per_thousand(r.batches, r)),
    "heartbeat batches": ("HEARTBEAT_BATCHes", lambda _, r: _per_thousand(r.heartbeat_batches, r)),
    "acknack batches": ("ACKNACK_BATCHes", lambda _, r: _per_thousand(r.acknack_batches, r)),
    "ack bytes": ("ack bytes", lambda _, r: _per_thousand(r.ack_bytes, r)),
    "heartbeats": ("HEARTBEATs", lambda _, r: _per_thousand(r.heartbeats, r)),
    "ACKNACKs": ("ACKNACKs", lambda _, r: _per_thousand(r.acknacks, r)),
    "NACKs": ("NACKs", lambda _, r: _per_thousand(r.nacks, r)),
    "duplicates": ("duplicates", lambda _, r: f"{100 * r.duplicates / r.deliveries:.1f} %"),
    "lost": ("lost", lambda _, r: f"{100 * r.lost / (r.lost + r.deliveries):.2f} %"),
    "peak ACKNACKs": ("peak ACKNACKs/ms", lambda _, r: f"{r.peak_acknacks}"),
    "peak repairs": ("peak repairs KiB/ms", lambda _, r: f"{r.peak_repair_bytes / 1024:.0f}"),
    "p50": ("p50 ms", lambda _, r: _ms(float(np.percentile(r.latencies, 50)))),
    "p99": ("p99 ms", lambda _, r: _ms(float(np.percentile(r.latencies, 99)))),
    "max": ("max ms", lambda _, r: _ms(float(r.latencies.max()))),
    "late p50": ("late p50 ms", lambda _, r: _ms(float(np.percentile(r.late_latencies, 50)))),
    "late max": ("late max ms", lambda _, r: _ms(float(r.late_latencies.max()))),
    **FLOW_COLUMNS,
}


def cells(section: AnySection, row: Any, result: Any) -> list[str]:
    return [*row.label.values(), *(COLUMNS[name][1](row, result) for name in section.columns)]


def headings(section: AnySection) -> list[str]:
    return [*section.rows[0].label, *(COLUMNS[name][0] for name in section.columns)]


def markdown(section: AnySection, results: Sequence[Any]) -> str:
    lines = [headings(section), ["---:"] * len(headings(section))]
    lines += [cells(section, row, result) for row, result in zip(section.rows, results, strict=True)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def insert(document: str, section: AnySection, results: Sequence[Any]) -> str:
    """The document with the section's table between its markers."""
    pattern = re.compile(rf"(<!-- {section.name} -->\n).*?(<!-- /{section.name} -->)", re.DOTALL)
    return pattern.sub(lambda match: match[1] + markdown(section, results) + "\n" + match[2], document)
