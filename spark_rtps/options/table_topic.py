"""Options about the topic, the start of a query and the size of its micro-batches."""

from __future__ import annotations

from typing import Final

from ..transport.limits import STRING_MAX, TOPICS_MAX
from .spec import AppliesTo, OptionKind, OptionSpec

#: Bytes of a name; a string on the wire ends with NUL.
_NAME_MAX: Final = STRING_MAX - 1

_READ, _WRITE = AppliesTo.READ, AppliesTo.WRITE

TOPIC_OPTIONS: Final[tuple[OptionSpec, ...]] = (
    # --- what -----------------------------------------------------------------------------------
    OptionSpec(
        "topic",
        OptionKind.TEXT,
        None,
        'Name of the topic. `.load("name")` and `.save("name")` set it too. A source needs it, or `subscribe`, or '
        "`subscribePattern`. A sink needs it, or rows with a column `topic` of type STRING, which it overrides.",
        maximum=_NAME_MAX,
    ),
    OptionSpec(
        "subscribe",
        OptionKind.LIST,
        None,
        "Names of topics to read together, separated by commas, in place of `topic`: one participant, one stream log, "
        "and a column `topic`. Topics of one type are typed columns. If their types differ, and with `payload=binary`, "
        "each row has its topic, the name and the hash of its type, and the serialized payload, which `from_cdr` "
        "decodes. With `receivers`, the subscription that has the same topics is read. Only one of `topic`, "
        "`subscribe` and `subscribePattern` can be set.",
        _READ,
        maximum=TOPICS_MAX,
    ),
    OptionSpec(
        "subscribePattern",
        OptionKind.TEXT,
        None,
        "Regular expression (of Python) for the names of topics to read together, as `subscribe` does: `rt/.*`. It has "
        "to match a whole name. Topics that appear later are read from then on. With `type`, only topics of that type "
        "are read.",
        _READ,
        maximum=_NAME_MAX,
    ),
    OptionSpec("domain", OptionKind.INTEGER, "0", "DDS domain id.", minimum=0, maximum=232),
    OptionSpec(
        "slice",
        OptionKind.TEXT,
        None,
        "The part of the topic's writers to read, as index and count: `0/4`, `1/4`, `2/4` and `3/4` for four "
        "receivers that share one topic. A writer's GUID decides to which slice it belongs, so that together they "
        "read each sample once, in order per writer. Writers of other slices send to the reader too, and are "
        "acknowledged; their samples are dropped unread and counted as `reader.of_other_slices`. Excludes "
        "`ownership=exclusive`. Default: all writers.",
        _READ,
    ),
    OptionSpec(
        "payload",
        OptionKind.WORD,
        "cdr",
        "The rows that a sample becomes. `cdr`: typed columns. `binary`: one row per sample, with its serialized "
        "payload (encapsulation header included) in the column `value`. `arrow`: each sample is a whole Arrow record "
        "batch; the topic's type is `spark_rtps::ArrowBatch`.",
        choices=("cdr", "binary", "arrow"),
    ),
    OptionSpec(
        "metadata",
        OptionKind.BOOLEAN,
        "false",
        "Adds a struct column `_rtps` (writer, sequence_number, source_timestamp, reception_timestamp, "
        "instance_state) and turns disposed and unregistered instances into rows, which are otherwise "
        "skipped. In such rows every column but the key is null, so Spark drops them if a column is "
        "declared NOT NULL.",
        _READ,
    ),
    OptionSpec(
        "statuses",
        OptionKind.BOOLEAN,
        "false",
        "Rows are changes of DDS communication statuses instead of samples: those of all sources and sinks on the "
        "driver's host whose logs are in `log.dir` or in its default directory. With `topic`, they are those of one "
        "topic, else those of all. The first rows of a query are the current statuses; after that each change is a "
        "row. Excludes all other options but those of ROS 2, which decide what `topic` means.",
        _READ,
    ),
    # --- from where, how much -----------------------------------------------------------------------
    OptionSpec(
        "startingOffsets",
        OptionKind.OFFSETS,
        None,
        "Where a new query starts. `latest`: with the samples that are written from now on. `earliest`: also with the "
        "history that TRANSIENT_LOCAL writers keep, as `durability=transient_local` requests it; with `receivers`, "
        "with the oldest sample that they have kept. With `receivers` it may also be JSON that has a position, "
        '`"latest"` or `"earliest"` for each of them: `{"cell-1": 12345, "cell-2": "earliest"}`. A position '
        "that is not the beginning of a frame, or is trimmed, is an error; if `failOnDataLoss` is false, the next "
        "position in the log takes its place. Default: `earliest` if `durability` is not `volatile` and for "
        "`spark.read` of `receivers`, else `latest`.",
        _READ,
        choices=("latest", "earliest"),
    ),
    OptionSpec(
        "maxRowsPerTrigger",
        OptionKind.INTEGER,
        None,
        "Maximum number of samples in a micro-batch.",
        _READ,
        minimum=1,
    ),
    OptionSpec(
        "maxBytesPerTrigger",
        OptionKind.SIZE,
        None,
        "Maximum number of bytes of the stream log in a micro-batch, which always takes at least one "
        "sample. If `maxRowsPerTrigger` is set too, whichever limit is reached first applies.",
        _READ,
        minimum=1,
    ),
    OptionSpec(
        "minPartitions",
        OptionKind.INTEGER,
        "1",
        "Minimum number of tasks that a micro-batch is divided into, as far as it has enough frames. "
        "Large micro-batches are divided into a multiple of it.",
        _READ,
        minimum=1,
        maximum=1 << 20,
    ),
    OptionSpec(
        "failOnDataLoss",
        OptionKind.BOOLEAN,
        "true",
        "Whether a query fails if its stream log is gone or damaged, or does not hold what the checkpoint refers to. "
        "If false, the query always continues: it leaves damaged frames out, and continues at the next frame that the "
        "log holds, or with a new log. A warning names the loss and the position at which the query continues; "
        "`spark-rtps loss` and `latestOffset.status.lost` of the query's progress count it.",
        _READ,
    ),
    OptionSpec(
        "read.max_rows",
        OptionKind.INTEGER,
        None,
        "Number of samples after which a batch read ends.",
        _READ,
        minimum=1,
    ),
    OptionSpec(
        "read.timeout",
        OptionKind.DURATION,
        "5s",
        "How long a batch read listens before it ends; `infinite` requires `read.max_rows`. A query with "
        "`Trigger.AvailableNow` listens for this long and then processes what has arrived.",
        _READ,
    ),
)
