"""Options of a writer's batches and of the time at which its datagrams are sent."""

from __future__ import annotations

from typing import Final

from ..transport.protocol.policies import (
    BATCH_POLICY,
    BatchWire,
    Compression,
    FlowControllerPolicy,
    Scheduling,
)
from .spec import YEAR, AppliesTo, OptionKind, OptionSpec, value_text

_WRITE = AppliesTo.WRITE
_FLOW = FlowControllerPolicy()


def _batch(
    field: str,
    kind: OptionKind,
    doc: str,
    *,
    prefix: str = "batch.",
    default: str = "",
    choices: tuple[str, ...] = (),
    minimum: int | None = None,
    maximum: int | None = None,
) -> OptionSpec:
    default = default or value_text(kind, getattr(BATCH_POLICY, field))
    return OptionSpec(prefix + field, kind, default, doc, _WRITE, choices, minimum, maximum)


def _flow(
    name: str,
    kind: OptionKind,
    doc: str,
    *,
    choices: tuple[str, ...] = (),
    minimum: int | None = None,
    maximum: int | None = None,
) -> OptionSpec:
    default = value_text(kind, getattr(_FLOW, name.rpartition(".")[2]))
    return OptionSpec(f"flow_controller.{name}", kind, default, doc, _WRITE, choices, minimum, maximum)


BATCH_OPTIONS: Final[tuple[OptionSpec, ...]] = (
    _batch(
        "enable",
        OptionKind.BOOLEAN,
        "BATCH enable: samples are collected and sent as one batch. The other `batch.` options require "
        "this or `turbo_mode`.",
    ),
    _batch(
        "max_data_bytes",
        OptionKind.SIZE_LIMIT,
        "BATCH max_data_bytes: maximum size of the serialized samples in a batch, without metadata. A "
        "larger sample is sent alone. `auto`: as much as fits one datagram, which is the upper bound in "
        "any case. RTI's default is 1024.",
        default="auto",
        minimum=1,
    ),
    _batch(
        "max_samples",
        OptionKind.COUNT,
        "BATCH max_samples: maximum number of samples in a batch. Must not be `unlimited` together with "
        "`batch.max_data_bytes`.",
        minimum=1,
    ),
    _batch(
        "max_flush_delay",
        OptionKind.DURATION,
        "BATCH max_flush_delay: a batch is sent this long after its first sample was written, by a "
        "separate thread. At the end of a task the batch is sent in any case.",
    ),
    _batch(
        "source_timestamp_resolution",
        OptionKind.DURATION,
        "BATCH source_timestamp_resolution: a sample carries the timestamp of the sample before it unless "
        "the two differ by more than this. `infinite`: one timestamp for the whole batch. `0s`: a "
        "timestamp for each sample, which adds 8 bytes to each.",
    ),
    _batch(
        "thread_safe_write",
        OptionKind.BOOLEAN,
        "BATCH thread_safe_write. `false` requires `batch.source_timestamp_resolution=infinite` and no "
        "`batch.max_flush_delay`. A sink always writes with a single thread. Writes take a lock with either "
        "value, because it costs less than one percent of a write.",
    ),
    _batch(
        "wire",
        OptionKind.WORD,
        "How batches are sent. `auto`: as RTI's DATA_BATCH to readers that announce support for it (ours "
        "do), and as DATA submessages that share datagrams to all others. `data_batch`: as DATA_BATCH "
        "also to readers of RTI Connext. `data`: as DATA to all readers.",
        choices=tuple(wire.value for wire in BatchWire),
    ),
    _batch(
        "auto_flush_size",
        OptionKind.SIZE_LIMIT,
        "Size at which a batch is sent, if that is less than `batch.max_data_bytes` (BatchAutoFlushSize "
        "of ZeroC Ice, whose default is 1MB: more than a datagram holds).",
        minimum=1,
    ),
    _batch(
        "compression",
        OptionKind.WORD,
        "Codec for batches to readers that support it (ours do). On fast links compression costs more "
        "time than it saves.",
        choices=tuple(codec.value for codec in Compression),
    ),
    OptionSpec(
        "batch.compression_level",
        OptionKind.INTEGER,
        None,
        "Compression level: 1 to 12 for `lz4`, 1 to 22 for `zstd`. Default: the codec's own default.",
        _WRITE,
        minimum=1,
        maximum=22,
    ),
    _batch(
        "compression_threshold",
        OptionKind.SIZE,
        "Minimum size of a batch, or with `data_compression` of the samples in a datagram, that is compressed; "
        "smaller ones are sent uncompressed. Ice compresses from 100 bytes on.",
    ),
    _batch(
        "data_compression",
        OptionKind.WORD,
        "Codec for samples that are not in batches: for each large one, and for those that share a datagram. They are "
        "compressed if all readers to which they are sent support the codec (ours do), and are repaired uncompressed. "
        "`batch.compression_level` and `batch.compression_threshold` apply.",
        prefix="",
        choices=tuple(codec.value for codec in Compression),
    ),
    OptionSpec(
        "batch.interceptor",
        OptionKind.TEXT,
        None,
        "A function of your own, as `module:callable`, which Spark's workers import. It is called with a "
        "`BatchRequest` before each sample is queued, and calls the request's `enqueue()`, `hold()` or `drop()`, and "
        "perhaps `flush()`. Default: the one that the environment variable `SPARK_RTPS_BATCH_INTERCEPTOR` of the "
        "workers names for all sinks.",
        _WRITE,
    ),
    _batch(
        "turbo_mode",
        OptionKind.BOOLEAN,
        "Adapts the size of batches to the write rate, the size of samples and back-pressure. Ignored "
        "with `batch.enable=true`.",
        prefix="",
    ),
    _batch(
        "disable_inline_keyhash",
        OptionKind.BOOLEAN,
        "DATA_WRITER_PROTOCOL disable_inline_keyhash: samples in a batch carry no key hash, which saves "
        "24 bytes each; readers compute the key from the data.",
        prefix="",
    ),
    _batch(
        "max_batches",
        OptionKind.COUNT,
        "DATA_WRITER_RESOURCE_LIMITS max_batches: maximum number of batches that a writer keeps. Either "
        "this limit or `resource_limits.max_samples` applies, whichever is reached first.",
        prefix="",
        minimum=1,
    ),
    OptionSpec(
        "coalescing",
        OptionKind.BOOLEAN,
        "true",
        "Whether samples of one write that are not in a batch share datagrams. Every DDS implementation "
        "reads both forms.",
        _WRITE,
    ),
    OptionSpec(
        "async_publisher.disable_asynchronous_batch",
        OptionKind.BOOLEAN,
        "false",
        "ASYNCHRONOUS_PUBLISHER disable_asynchronous_batch: no thread flushes batches, so "
        "`batch.max_flush_delay` cannot be set.",
        _WRITE,
    ),
    OptionSpec(
        "publish_mode",
        OptionKind.WORD,
        "synchronous",
        "PUBLISH_MODE kind. `asynchronous`: a write hands its datagrams to a flow controller, whose "
        "thread sends them.",
        _WRITE,
        choices=("synchronous", "asynchronous"),
    ),
    _flow(
        "name",
        OptionKind.TEXT,
        "Name of the flow controller. Writers of one process with the same flow controller share its tokens. "
        "`fixed_rate` sends once per period the samples that were written during it; all other names, `default` "
        "included, are configured by the `flow_controller.` options. All of them require `publish_mode=asynchronous`.",
    ),
    _flow(
        "scheduling",
        OptionKind.WORD,
        "Which of the flow controller's writers sends next: each in turn, the one with the earliest "
        "deadline (time of the write plus `latency_budget`), or the one with the highest "
        "`transport_priority`.",
        choices=tuple(kind.value for kind in Scheduling),
    ),
    _flow(
        "token_bucket.max_tokens",
        OptionKind.COUNT,
        "Maximum number of tokens in the token bucket. Each datagram costs tokens; a batch is one datagram.",
        minimum=1,
    ),
    _flow(
        "token_bucket.tokens_added_per_period",
        OptionKind.COUNT,
        "Number of tokens added to the token bucket per period.",
        minimum=1,
    ),
    _flow(
        "token_bucket.tokens_leaked_per_period",
        OptionKind.COUNT,
        "Number of tokens removed from the token bucket per period, after waiting datagrams were sent.",
        minimum=0,
    ),
    _flow(
        "token_bucket.period",
        OptionKind.DURATION,
        "Period of the token bucket.",
        minimum=100_000,
        maximum=YEAR,
    ),
    _flow(
        "token_bucket.bytes_per_token",
        OptionKind.SIZE_LIMIT,
        "Number of bytes that one token pays for. `unlimited`: one token pays for one datagram.",
        minimum=1,
    ),
    OptionSpec(
        "transport_priority",
        OptionKind.INTEGER,
        "0",
        "TRANSPORT_PRIORITY of the writer. Flow controllers with `highest_priority_first` send the "
        "highest priority first.",
        _WRITE,
        minimum=-(1 << 31),
        maximum=(1 << 31) - 1,
    ),
)
