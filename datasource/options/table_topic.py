"""Options about the topic, and about where a query starts and how much it takes."""

from __future__ import annotations

from typing import Final

from ...transport.limits import STRING_MAX
from .spec import AppliesTo, Kind, OptionSpec

#: Bytes of a name; a string on the wire ends with NUL.
_NAME_MAX: Final = STRING_MAX - 1

_READ, _WRITE = AppliesTo.READ, AppliesTo.WRITE

TOPIC_OPTIONS: Final[tuple[OptionSpec, ...]] = (
    # --- what -----------------------------------------------------------------------------------
    OptionSpec(
        "topic",
        Kind.TEXT,
        None,
        'Topic name; `.load("name")` and `.save("name")` set it too. Required.',
        maximum=_NAME_MAX,
    ),
    OptionSpec("domain", Kind.INTEGER, "0", "DDS domain id.", minimum=0, maximum=232),
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
        maximum=1 << 20,
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
        "A batch read ends after listening for so long; `infinite` needs `read.max_rows`. `Trigger.AvailableNow` "
        "listens for so long and then takes what came by then.",
        _READ,
    ),
)
