"""The curves of docs/growth.svg: what becomes of rates, times and memory as something grows.

``writers`` of one topic, ``instances`` of a topic with a key, ``length`` of a log, ``partitions`` of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tests.bench.growth import logs, rates

CURVES: Final = ("writers", "instances", "length", "partitions")


def growth(domain: int, curves: Iterable[str] = CURVES) -> dict[str, Any]:
    """The curves asked for, by name; their functions say what is in them."""
    measured = {
        "writers": lambda: rates.by_writers(domain),
        "instances": lambda: rates.by_keys(domain),
        "length": logs.by_length,
        "partitions": logs.by_partitions,
    }
    return {name: measured[name]() for name in curves}  # type: ignore[operator]


def lines(found: dict[str, Any]) -> list[str]:
    """What is printed."""
    shown = []
    for shape, by_count in found.get("writers", {}).items():
        for count, of in by_count.items():
            shown.append(
                f"{count} writers, {shape}: {_rate(of)}, {of['receiver_memory']:.0f} MB; matched in "
                f"{of['matched']:.2f} s"
            )
    for rule, by_count in found.get("instances", {}).items():
        for count, of in by_count.items():
            shown.append(
                f"{count} instances, {rule}: {_rate(of)}, {of['receiver_memory']:.0f} and "
                f"{of['writer_memory']:.0f} MB; {of['rejected']:.0f} samples rejected"
            )
    for length, of in found.get("length", {}).items():
        shown.append(
            f"a log of {length} GB: appended in {of['append']:.2f} s, opened again after a kill in "
            f"{1e3 * of['open']:.1f} ms, a micro-batch planned at its beginning in {1e3 * of['plan_first']:.1f} ms, at "
            f"its end in {1e3 * of['plan_last']:.1f} ms"
        )
    for count, of in found.get("partitions", {}).items():
        shown.append(
            f"{count} partitions asked for, {of['planned']} made: planned in {1e3 * of['plan']:.1f} ms, read in "
            f"{of['read']:.3f} s of one core, by Spark in {of.get('spark', 0):.3f} s"
        )
    return shown


def _rate(of: dict[str, float]) -> str:
    return (
        f"{of['samples'] / 1e6:.3f} million samples/s, CPU seconds for a million: receiver {of['receiver']:.3f}, "
        f"writers {of['writer']:.3f}"
    )
