"""``make bench``: every figure of docs/performance.md, as ratios within one run.

``python -m tests.bench [--json FILE] [--docs DIRECTORY] [FIGURE ...]``: figures are codec, receive, single, blobs,
cost, batching, flow, ipc, ingest, publish, latency, start, growth, cluster, recordings; all by default. Nothing else
should run on the machine meanwhile. ``--docs`` draws growth.svg into the directory.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench import (
    batching,
    blobs,
    codec,
    cost,
    figures,
    flow,
    ipc,
    recordings,
    serving,
    spark_blobs,
    start,
)
from tests.bench.growth import curves
from tests.bench.latency import latency
from tests.support import domains

FIGURES = (
    "codec",
    "receive",
    "single",
    "blobs",
    "cost",
    "batching",
    "flow",
    "ipc",
    "ingest",
    "publish",
    "latency",
    "start",
    "growth",
    "cluster",
    "recordings",
)


def run(wanted: list[str]) -> dict[str, Any]:
    """All figures asked for; rates in samples (rows) a second, latencies in ms."""
    results: dict[str, Any] = {}
    console = Console(stderr=True)

    def note(name: str, value: Any) -> None:
        results[name] = value
        console.print(f"[dim]{name}: {value}[/dim]")

    domain = domains.BENCH[0]
    if "codec" in wanted:
        note("codec", codec.codec())
    if {"receive", "single", "ingest"} & set(wanted):
        note("baseline", figures.single_cyclone(domain))
    if "receive" in wanted:
        note("receive", figures.receive(domain + 1))
    if "single" in wanted:
        note("single", figures.single_ours(domain + 2))
    if "blobs" in wanted:
        note("blobs", blobs.blobs(domain + 7))
        note("spark_blobs", spark_blobs.spark_blobs())
    if "cost" in wanted:
        note("cost", cost.costs(domain + 7))
    if "batching" in wanted:
        note("batching", batching.batching(domain + 7))
    if "flow" in wanted:
        note("flow", flow.flow(domain + 9))
    if "ipc" in wanted:
        note("ipc", ipc.ipc(domain + 13))
    if {"ingest", "publish"} & set(wanted):
        with figures.spark_session() as spark:
            if "ingest" in wanted:
                note("ingest_ceiling", figures.ceiling(spark))
                note("ingest", figures.ingest(spark, domain + 3))
            if "publish" in wanted:
                note("publish_ceiling", figures.ceiling(spark, sink="prebuilt"))
                note("publish", figures.publish(spark, domain + 4))
    if "latency" in wanted:
        note("latency_ms", latency(domain + 5, "shipped"))
        note("latency_default_conf_ms", latency(domain + 6, "default"))
    if "start" in wanted:
        note("start", start.start(domain + 6))
    if "growth" in wanted:
        note("growth", curves.growth(domain + 14))
    if "cluster" in wanted:
        note("cluster", serving.serving(domain + 8))
    if "recordings" in wanted:
        note("recordings", recordings.recordings())
    return results


#: (title, figure, held against, ratio wanted at least)
RATIOS = (
    ("receive: our writer → stream log, reliable", "receive", "baseline", 40.0),
    ("ingest: the same through readStream, typed columns", "ingest", "baseline", 10.0),
    ("ingest, of what Spark can take from Python", "ingest", "ingest_ceiling", 0.33),
    ("publish: writeStream → our receiver", "publish", "publish_ceiling", 0.5),
    ("one sample a datagram, foreign writer", "single", "baseline", 1.0),
)


def report(results: dict[str, Any]) -> Table:
    """The table that is printed."""
    table = Table(title="64-byte samples over loopback UDP, one run, everything on this machine")
    for column in ("figure", "million/s", "against", "million/s", "ratio", "wanted"):
        table.add_column(column, justify="left" if column in ("figure", "against") else "right", no_wrap=True)
    for title, figure, against, wanted in RATIOS:
        if figure in results and against in results:
            mine, theirs = results[figure], results[against]
            table.add_row(
                title,
                f"{mine / 1e6:.3f}",
                against,
                f"{theirs / 1e6:.3f}",
                f"{mine / theirs:.2f}",
                f"≥ {wanted:g}",
            )
    for name, title in (
        ("latency_ms", "write() → row in foreachBatch, shipped conf"),
        ("latency_default_conf_ms", "the same, Spark's defaults"),
    ):
        if name in results:
            (p50, p99), floor = results[name]["ours"], results[name]["floor"]
            shown = f"p50 {p50:.0f}, p99 {p99:.0f} ms"
            table.add_row(title, shown, "Spark's floor", f"{floor:.0f} ms", f"{p50 / floor:.2f}", "≤ 1.1")
            least = results[name]["floor_of_rows"]
            table.add_row(
                "", "", "the floor of rows", f"{least[0]:.0f}, {least[1]:.0f} ms", f"{p50 / least[0]:.2f}"
            )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--docs", type=Path, metavar="DIRECTORY", help="draw growth.svg into this directory")
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(FIGURES))
    arguments = parser.parse_args()
    unknown = set(arguments.figures) - set(FIGURES)
    if unknown:
        parser.error(f"unknown figure {sorted(unknown)[0]!r}; there are {', '.join(FIGURES)}")
    results = run(arguments.figures or list(FIGURES))
    console = Console(width=160)
    if "codec" in results:
        console.print(*codec.tables(results["codec"]))
    if (table := report(results)).row_count:
        console.print(table)
    if "blobs" in results:
        console.print(blobs.table(results["blobs"]))
        console.print(spark_blobs.table(results["spark_blobs"]))
    if "cost" in results:
        console.print(cost.table(results["cost"]))
    if "batching" in results:
        console.print(*batching.tables(results["batching"]))
    if "flow" in results:
        console.print(*flow.tables(results["flow"]))
    if "ipc" in results:
        rates = results["ipc"]
        console.print(
            f"ipc against UDP loopback: {rates['ipc'] / 1e6:.2f} against {rates['udp'] / 1e6:.2f} "
            f"million samples/s, {rates['ratio']:.2f} x"
        )
    if "start" in results:
        for line in start.lines(results["start"]):
            console.print(line)
    if "growth" in results:
        for line in curves.lines(results["growth"]):
            console.print(line)
        if arguments.docs is not None:
            from tests.bench.growth.plot import draw  # matplotlib is wanted here only

            draw(results["growth"], arguments.docs)
    if "cluster" in results:
        for line in serving.lines(results["cluster"]):
            console.print(line)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
