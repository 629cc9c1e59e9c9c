"""The reference of all options as Markdown: ``spark-rtps options`` prints it, ``docs/options.md`` holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from .spec import OptionSpec
from .table_batch import BATCH_OPTIONS
from .table_flow import FLOW_OPTIONS
from .table_process import PROCESS_OPTIONS
from .table_qos import QOS_OPTIONS
from .table_receivers import RECEIVER_OPTIONS
from .table_recordings import RECORDING_OPTIONS
from .table_reliable import RELIABLE_OPTIONS
from .table_ros import ROS_OPTIONS
from .table_topic import TOPIC_OPTIONS
from .table_type import TYPE_OPTIONS


class PageSection(NamedTuple):
    """One table of the page: its heading, introduction and options."""

    title: str
    about: str
    options: Sequence[OptionSpec]


SECTIONS: Final = (
    PageSection("Topic, start and amount", "More in [reading.md](reading.md).", TOPIC_OPTIONS),
    PageSection("Types and columns", "More in [types.md](types.md).", TYPE_OPTIONS),
    PageSection(
        "QoS policies",
        "The policies of DDS under their own names. More in [reliability.md](reliability.md).",
        QOS_OPTIONS,
    ),
    PageSection(
        "Batches and publishing",
        "RTI's BATCH, ASYNCHRONOUS_PUBLISHER and flow controllers. More in [batching.md](batching.md).",
        BATCH_OPTIONS,
    ),
    PageSection(
        "Reliable protocol",
        "RTI's DATA_WRITER_PROTOCOL and DATA_READER_PROTOCOL. The defaults suit a local network and lose nothing. "
        "More in [reliability.md](reliability.md).",
        RELIABLE_OPTIONS,
    ),
    PageSection(
        "Flow control, congestion control, one host",
        "Aeron's strategies and log buffers. More in [flow-control.md](flow-control.md).",
        FLOW_OPTIONS,
    ),
    PageSection(
        "Network, stream log, sink",
        "More in [operations.md](operations.md), [cluster.md](cluster.md) and [writing.md](writing.md).",
        PROCESS_OPTIONS,
    ),
    PageSection(
        "Receiver services",
        "For queries that read receiver services instead of having a receiver of their own. More in "
        "[receivers.md](receivers.md).",
        RECEIVER_OPTIONS,
    ),
    PageSection(
        "Recordings",
        "Files instead of a network. More in [recordings.md](recordings.md).",
        RECORDING_OPTIONS,
    ),
    PageSection("ROS 2", "ROS 2's names, environment and graph. More in [ros2.md](ros2.md).", ROS_OPTIONS),
)

_HEAD: Final = """\
# Options

This page is generated from the option tables: `spark-rtps options` prints it, `make docs` writes it to
`docs/options.md`.

DDS policies have DDS's own names in snake_case; options that Spark users know from other sources have Spark's names in
camelCase. Keys and words are accepted in upper and lower case. An unknown key is an error that names the nearest
option; an invalid value, or options that contradict each other, are errors that state what is allowed.

| kind of value | how it is written |
|---|---|
| duration | `250us`, `200ms`, `3s`, `5min`, `12h`, `7d`, `infinite` |
| size | bytes, as `4096`, `64KiB` (also `64k`), `1MB` |
| `true`, `false` | also `yes`, `no`, `on`, `off`, `1`, `0` |
| words | as listed, or as the constant of DDS, for example `RELIABLE_RELIABILITY_QOS` |
| comma-separated list | `a,b.c`; spaces around commas are ignored |
| `module:class` | a class or function that Python can import where it is used |
"""


def options_page() -> str:
    """The whole page, one table for each section."""
    parts = [_HEAD, *(f"## {s.title}\n\n{s.about}\n\n{_table(s.options)}" for s in SECTIONS)]
    return "\n".join(parts)


def _table(options: Sequence[OptionSpec]) -> str:
    rows = ["| option | for | values | default | meaning |", "|---|---|---|---|---|"]
    for spec in options:
        default = "" if spec.default is None else f"`{spec.default}`"
        rows.append(f"| `{spec.name}` | {spec.applies_to.value} | {spec.values()} | {default} | {spec.doc} |")
    return "\n".join(rows) + "\n"
