"""Every option of the ``rtps`` data source: one table for parsing, for the README and for the command line.

DDS policies have DDS's own names in snake_case with dots; what Spark users know from other sources has
Spark's names in camelCase. Defaults are written the way a user would write them.
"""

from __future__ import annotations

from typing import Final

from .spec import OptionSpec
from .table_batch import BATCH_OPTIONS
from .table_flow import FLOW_OPTIONS
from .table_process import PROCESS_OPTIONS
from .table_qos import QOS_OPTIONS
from .table_reliable import RELIABLE_OPTIONS
from .table_topic import TOPIC_OPTIONS
from .table_type import TYPE_OPTIONS

OPTIONS: Final[tuple[OptionSpec, ...]] = (
    *TOPIC_OPTIONS,
    *TYPE_OPTIONS,
    *QOS_OPTIONS,
    *BATCH_OPTIONS,
    *RELIABLE_OPTIONS,
    *FLOW_OPTIONS,
    *PROCESS_OPTIONS,
)

BY_KEY: Final[dict[str, OptionSpec]] = {spec.name.lower(): spec for spec in OPTIONS}

#: Keys that Spark itself puts among a source's or sink's options.
SPARK_KEYS: Final = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})


def options_table_markdown() -> str:
    """The table of all options, as the README shows it."""
    rows = ["| option | for | values | default | meaning |", "|---|---|---|---|---|"]
    for spec in OPTIONS:
        default = "" if spec.default is None else f"`{spec.default}`"
        rows.append(f"| `{spec.name}` | {spec.applies_to.value} | {spec.values()} | {default} | {spec.doc} |")
    return "\n".join(rows) + "\n"
