"""Options about the process: network, stream log, and how a sink waits."""

from __future__ import annotations

import mmap
from typing import Final

from ...transport.limits import MESSAGE_SIZE_LEAST, STRING_MAX, UDP_PAYLOAD_MAX
from .spec import AppliesTo, Kind, OptionSpec

_READ, _WRITE = AppliesTo.READ, AppliesTo.WRITE

#: We announce ourselves several times in a lease: a shorter one is a flood.
_LEASE_MIN: Final = 100_000_000

PROCESS_OPTIONS: Final[tuple[OptionSpec, ...]] = (
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
    OptionSpec(
        "participant.name", Kind.TEXT, "spark-rtps", "Name that discovery tools show.", maximum=STRING_MAX - 1
    ),
    OptionSpec(
        "participant.lease_duration",
        Kind.DURATION,
        "30s",
        "How long peers keep us after our last announcement: a query that is killed and back by then misses "
        "nothing of a volatile reliable topic. A sink's writers, too, stay so long after Spark has ended "
        "their worker.",
        minimum=_LEASE_MIN,
    ),
    OptionSpec(
        "receive_buffer",
        Kind.SIZE,
        "32MiB",
        "Socket receive buffer to ask the kernel for (`net.core.rmem_max` may give less).",
        minimum=1,
        maximum=(1 << 30),
    ),
    OptionSpec(
        "mtu",
        Kind.SIZE,
        "auto",
        "Bytes of an IP packet to fill at most. `auto`: what the interfaces take unfragmented, and 63 KiB on "
        "loopback.",
        minimum=MESSAGE_SIZE_LEAST + 28,
        maximum=65_535,
    ),
    OptionSpec(
        "message_size_max",
        Kind.SIZE,
        str(UDP_PAYLOAD_MAX),
        "A longer RTPS message is dropped, counted, and logged with its sender. Our writers heed it.",
        minimum=MESSAGE_SIZE_LEAST,
        maximum=UDP_PAYLOAD_MAX,
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
        minimum=mmap.PAGESIZE,  # of which a segment is made
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
        "acknowledgment_timeout",
        Kind.DURATION,
        "30s",
        "How long a task waits at its end until every matched reliable reader has acknowledged all, before "
        "it fails.",
        _WRITE,
    ),
)
