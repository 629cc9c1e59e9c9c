"""Every option of the ``rtps`` data source: one table for parsing, for the README and for the command line.

DDS policies have DDS's own names in snake_case with dots; what Spark users know from other sources has
Spark's names in camelCase. Defaults are written the way a user would write them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Kind(enum.Enum):
    """How the text of an option is read; the value is what the table shows."""

    TEXT = "text"
    INTEGER = "integer"
    COUNT = "integer or `unlimited`"
    BOOLEAN = "`true`, `false`"
    DURATION = "duration"
    SIZE = "size"
    WORD = "one of"
    LIST = "comma-separated list"


class AppliesTo(enum.Enum):
    READ = "read"
    WRITE = "write"
    BOTH = "read, write"


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option. ``default`` is None where there is none, or where ``doc`` says what it depends on."""

    name: str
    kind: Kind
    default: str | None
    doc: str
    applies_to: AppliesTo = AppliesTo.BOTH
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None


_READ, _WRITE = AppliesTo.READ, AppliesTo.WRITE

OPTIONS: Final[tuple[OptionSpec, ...]] = (
    # --- what -----------------------------------------------------------------------------------
    OptionSpec(
        "topic", Kind.TEXT, None, 'Topic name; `.load("name")` and `.save("name")` set it too. Required.'
    ),
    OptionSpec("domain", Kind.INTEGER, "0", "DDS domain id.", minimum=0, maximum=232),
    OptionSpec(
        "type",
        Kind.TEXT,
        None,
        "The topic's type: a struct of `type.file`, by its qualified name or the end of it. Without "
        "`type.file`: the name of the type that the columns make; default is the topic's name.",
    ),
    OptionSpec("type.file", Kind.TEXT, None, "IDL file that defines the type, on the driver."),
    OptionSpec(
        "type.name",
        Kind.TEXT,
        None,
        "Type name announced to peers where it differs from the type's own (ROS 2: "
        "`std_msgs::msg::dds_::String_`).",
    ),
    OptionSpec(
        "type.extensibility",
        Kind.WORD,
        "appendable",
        "What structs of `type.file` without an annotation are. `appendable` is XTypes' default, and RTI's; "
        "Cyclone's idlc takes `final`. They differ in XCDR2.",
        choices=("appendable", "final"),
    ),
    OptionSpec(
        "key",
        Kind.LIST,
        None,
        "Columns that are the key (`@key`) of a type made from columns (`payload=cdr`). With `type.file` the "
        "IDL says it.",
    ),
    OptionSpec(
        "keyed",
        Kind.BOOLEAN,
        None,
        "Whether the topic's type has a key, where nothing else tells: `payload=binary` without `type.file`. "
        "Default false.",
    ),
    OptionSpec(
        "payload",
        Kind.WORD,
        "cdr",
        "`cdr`: typed columns. `binary`: one row a sample, its serialized payload (encapsulation header "
        "included) in column `value`. `arrow`: a sample is a whole Arrow record batch, topic type "
        "`spark_rtps::ArrowBatch`.",
        choices=("cdr", "binary", "arrow"),
    ),
    OptionSpec(
        "metadata",
        Kind.BOOLEAN,
        "false",
        "Add a column `_rtps` (writer, sequence_number, source_timestamp, reception_timestamp, "
        "instance_state) and show disposed and unregistered instances as rows; without it those are "
        "skipped. Such rows are null but for the key: columns declared NOT NULL would have them dropped.",
        _READ,
    ),
    OptionSpec(
        "data_representation",
        Kind.WORD,
        "xcdr1",
        "DATA_REPRESENTATION of what is written. Readers take both.",
        _WRITE,
        choices=("xcdr1", "xcdr2"),
    ),
    # --- from where, how much -----------------------------------------------------------------------
    OptionSpec(
        "startingOffsets",
        Kind.WORD,
        None,
        "Where a new query starts: `latest` takes what is written from now on; `earliest` also the history "
        "that TRANSIENT_LOCAL writers keep, which is `durability=transient_local`. Default follows "
        "`durability`.",
        _READ,
        choices=("latest", "earliest"),
    ),
    OptionSpec(
        "maxRowsPerTrigger", Kind.INTEGER, None, "At most so many samples in a micro-batch.", _READ, minimum=1
    ),
    OptionSpec(
        "maxBytesPerTrigger",
        Kind.SIZE,
        None,
        "At most so many bytes of the stream log in a micro-batch, but at least one sample. With "
        "`maxRowsPerTrigger`: whichever is reached first.",
        _READ,
        minimum=1,
    ),
    OptionSpec(
        "minPartitions",
        Kind.INTEGER,
        "1",
        "Cut a micro-batch into at least so many tasks, as far as it has frames; big ones are cut anyway.",
        _READ,
        minimum=1,
    ),
    OptionSpec(
        "failOnDataLoss",
        Kind.BOOLEAN,
        "true",
        "Whether a restart fails when the stream log its checkpoint refers to is gone or damaged; if not, it warns "
        "and starts a new log.",
        _READ,
    ),
    OptionSpec(
        "read.max_rows", Kind.INTEGER, None, "A batch read ends after so many samples.", _READ, minimum=1
    ),
    OptionSpec(
        "read.timeout",
        Kind.DURATION,
        "5s",
        "A batch read ends after listening for so long. `Trigger.AvailableNow` listens for so long and "
        "then takes what came by then.",
        _READ,
    ),
    # --- QoS ------------------------------------------------------------------------------------------
    OptionSpec(
        "reliability",
        Kind.WORD,
        "reliable",
        "RELIABILITY. A `reliable` reader does not match `best_effort` writers (ROS 2 sensor data): the "
        "receiver says so on stderr.",
        choices=("reliable", "best_effort"),
    ),
    OptionSpec(
        "durability",
        Kind.WORD,
        "volatile",
        "DURABILITY. A `transient_local` reader gets the history writers keep, and does not match "
        "`volatile` ones.",
        choices=("volatile", "transient_local"),
    ),
    OptionSpec(
        "history",
        Kind.WORD,
        "keep_all",
        "HISTORY of the writer. `keep_last`: late joiners of a `transient_local` topic find the last "
        "`history.depth` samples of each instance. Either way what matched readers have not acknowledged is "
        "never dropped.",
        _WRITE,
        choices=("keep_all", "keep_last"),
    ),
    OptionSpec(
        "history.depth", Kind.INTEGER, "1", "HISTORY depth; implies `history=keep_last`.", _WRITE, minimum=1
    ),
    OptionSpec(
        "resource_limits.max_samples",
        Kind.COUNT,
        "unlimited",
        "RESOURCE_LIMITS max_samples of the writer. With `history=keep_all`: how many samples may wait for "
        "acknowledgements, then writing waits too. With `keep_last` of a keyed, `transient_local` topic: how "
        "many are kept for late joiners, of all instances together.",
        _WRITE,
        minimum=1,
    ),
    OptionSpec("deadline", Kind.DURATION, "infinite", "DEADLINE period, offered or requested."),
    OptionSpec("latency_budget", Kind.DURATION, "0s", "LATENCY_BUDGET duration, offered or requested."),
    OptionSpec(
        "lifespan", Kind.DURATION, "infinite", "LIFESPAN of what is written; readers apply it.", _WRITE
    ),
    OptionSpec(
        "liveliness",
        Kind.WORD,
        "automatic",
        "LIVELINESS kind, offered or requested. A reader watches only whether `automatic` writers live; "
        "those of the manual kinds it matches and takes for alive as long as their participant is.",
        choices=("automatic", "manual_by_participant", "manual_by_topic"),
    ),
    OptionSpec(
        "liveliness.lease_duration",
        Kind.DURATION,
        "infinite",
        "LIVELINESS lease_duration, offered or requested.",
    ),
    OptionSpec(
        "ownership",
        Kind.WORD,
        "shared",
        "OWNERSHIP; both sides must agree. A reader gets the samples of all writers either way.",
        choices=("shared", "exclusive"),
    ),
    OptionSpec(
        "ownership.strength", Kind.INTEGER, "0", "OWNERSHIP_STRENGTH of the writer.", _WRITE, minimum=0
    ),
    OptionSpec("partition", Kind.LIST, None, "PARTITION names; POSIX wildcards allowed."),
    # --- network --------------------------------------------------------------------------------------
    OptionSpec(
        "interface",
        Kind.TEXT,
        None,
        "Network interface to use, by name or address. Default: all but loopback; loopback where there is no other.",
    ),
    OptionSpec(
        "peers",
        Kind.LIST,
        None,
        "Hosts to announce to by unicast, as `host` or `host:port`; names are resolved.",
    ),
    OptionSpec("multicast", Kind.BOOLEAN, "true", "Whether to use multicast for discovery."),
    OptionSpec("participant.name", Kind.TEXT, "spark-rtps", "Name that discovery tools show."),
    OptionSpec(
        "participant.lease_duration",
        Kind.DURATION,
        "30s",
        "How long peers keep us after our last announcement: a query that is killed and back by then misses "
        "nothing of a volatile reliable topic. A sink's writers, too, stay so long after Spark has ended "
        "their worker.",
        minimum=1,
    ),
    OptionSpec(
        "receive_buffer",
        Kind.SIZE,
        "32MiB",
        "Socket receive buffer to ask the kernel for (`net.core.rmem_max` may give less).",
        minimum=1,
    ),
    # --- stream log -----------------------------------------------------------------------------------
    OptionSpec(
        "log.dir",
        Kind.TEXT,
        None,
        "Directory of the stream logs; each query makes its own folder there. A restart from a checkpoint "
        "needs it again. Default: `spark-rtps-<uid>` in the system's temporary directory, which has to be "
        "yours.",
        _READ,
    ),
    OptionSpec(
        "log.max_bytes",
        Kind.SIZE,
        "4GiB",
        "Most a stream log holds between Spark's commits; when full, reliable writers are slowed down and "
        "best-effort samples are dropped and counted. A micro-batch takes at most half of it.",
        _READ,
        minimum=16 << 20,
    ),
    OptionSpec(
        "log.segment_bytes",
        Kind.SIZE,
        "64MiB",
        "Size of one file of the log. Holds for new logs: a restart goes on with the size its log began with.",
        _READ,
        minimum=1,
    ),
    OptionSpec(
        "log.retention",
        Kind.DURATION,
        "7d",
        "A new query removes logs in `log.dir` that no query has touched for so long.",
        _READ,
    ),
    # --- sink -----------------------------------------------------------------------------------------
    OptionSpec(
        "on_no_reader",
        Kind.WORD,
        "wait",
        "`wait`: a task waits up to `connect_timeout` for a reader, then fails; it fails too if readers left "
        "without having acknowledged what nobody else has. `drop`: rows go to whoever is there. Either way "
        "a new worker process looks around for one second first.",
        _WRITE,
        choices=("wait", "drop"),
    ),
    OptionSpec("connect_timeout", Kind.DURATION, "10s", "How long `on_no_reader=wait` waits.", _WRITE),
    OptionSpec(
        "max_blocking_time",
        Kind.DURATION,
        "30s",
        "RELIABILITY max_blocking_time: how long a write waits while readers are behind, before the task "
        "fails.",
        _WRITE,
    ),
    OptionSpec(
        "acknowledgment_timeout",
        Kind.DURATION,
        "30s",
        "How long a task waits at its end until every matched reliable reader has acknowledged all, before "
        "it fails.",
        _WRITE,
    ),
)

BY_KEY: Final[dict[str, OptionSpec]] = {spec.name.lower(): spec for spec in OPTIONS}

#: Keys that Spark itself puts among a source's or sink's options.
SPARK_KEYS: Final = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})


def options_table_markdown() -> str:
    """The table of all options, as the README shows it."""
    rows = ["| option | for | values | default | meaning |", "|---|---|---|---|---|"]
    for spec in OPTIONS:
        values = ", ".join(f"`{c}`" for c in spec.choices) if spec.choices else spec.kind.value
        default = "" if spec.default is None else f"`{spec.default}`"
        rows.append(f"| `{spec.name}` | {spec.applies_to.value} | {values} | {default} | {spec.doc} |")
    return "\n".join(rows) + "\n"
