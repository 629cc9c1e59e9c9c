"""Options of a writer's batches and of when its datagrams leave."""

from __future__ import annotations

from typing import Final

from ...transport.protocol.policies import (
    BATCH_POLICY,
    BatchWire,
    Compression,
    FlowControllerPolicy,
    Scheduling,
)
from .spec import YEAR, AppliesTo, Kind, OptionSpec, value_text

_WRITE = AppliesTo.WRITE
_FLOW = FlowControllerPolicy()


def _batch(
    field: str,
    kind: Kind,
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
    kind: Kind,
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
        Kind.BOOLEAN,
        "BATCH enable: samples are collected and sent as one. The other `batch.` options need it, or "
        "`turbo_mode`.",
    ),
    _batch(
        "max_data_bytes",
        Kind.SIZE_LIMIT,
        "BATCH max_data_bytes: serialized bytes of a batch, metadata not counted; a larger sample goes alone. "
        "`auto`: what fits one datagram, which bounds it in any case. RTI's default is 1024.",
        default="auto",
        minimum=1,
    ),
    _batch(
        "max_samples",
        Kind.COUNT,
        "BATCH max_samples: samples of a batch. Not `unlimited` together with `batch.max_data_bytes`.",
        minimum=1,
    ),
    _batch(
        "max_flush_delay",
        Kind.DURATION,
        "BATCH max_flush_delay: a batch is sent so long after its first sample was written, by a thread of its "
        "own. A task flushes at its end in any case.",
    ),
    _batch(
        "source_timestamp_resolution",
        Kind.DURATION,
        "BATCH source_timestamp_resolution: a sample has the previous one's timestamp unless they differ by "
        "more. `infinite`: one for the batch; `0s`: each its own, 8 bytes more.",
    ),
    _batch(
        "thread_safe_write",
        Kind.BOOLEAN,
        "BATCH thread_safe_write. `false` needs `batch.source_timestamp_resolution=infinite` and no "
        "`batch.max_flush_delay`. A sink writes with one thread in any case.",
    ),
    _batch(
        "wire",
        Kind.WORD,
        "How batches travel. `auto`: as RTI's DATA_BATCH to readers that say they read it (ours), as DATA that "
        "share datagrams to all others. `data_batch`: as such also to RTI Connext's readers. `data`: as DATA to "
        "all.",
        choices=tuple(wire.value for wire in BatchWire),
    ),
    _batch(
        "auto_flush_size",
        Kind.SIZE_LIMIT,
        "A batch is sent at so many bytes, if `batch.max_data_bytes` is not reached before (Ice's "
        "BatchAutoFlushSize).",
        minimum=1,
    ),
    _batch(
        "compression",
        Kind.WORD,
        "Codec of batches to readers that have it (ours). It costs more than it gives on fast links.",
        choices=tuple(codec.value for codec in Compression),
    ),
    OptionSpec(
        "batch.compression_level",
        Kind.INTEGER,
        None,
        "Level of the codec: `lz4` 1 to 12, `zstd` 1 to 22. Default: the codec's own.",
        _WRITE,
        minimum=1,
        maximum=22,
    ),
    _batch(
        "compression_threshold",
        Kind.SIZE,
        "Batches of fewer bytes are not compressed.",
    ),
    OptionSpec(
        "batch.interceptor",
        Kind.TEXT,
        None,
        "`module:callable`, imported by the workers; called as `(sample_size, queued_samples, queued_bytes, "
        "flush)` before each sample is queued, and may call `flush()`.",
        _WRITE,
    ),
    _batch(
        "turbo_mode",
        Kind.BOOLEAN,
        "Batches are sized by write rate, sample size and back-pressure. Ignored with `batch.enable=true`.",
        prefix="",
    ),
    _batch(
        "disable_inline_keyhash",
        Kind.BOOLEAN,
        "DATA_WRITER_PROTOCOL disable_inline_keyhash: samples of a batch go without their key hash, 24 bytes "
        "less each; readers take the key from the data.",
        prefix="",
    ),
    _batch(
        "max_batches",
        Kind.COUNT,
        "DATA_WRITER_RESOURCE_LIMITS max_batches: batches a writer keeps. This or `resource_limits.max_samples`, "
        "whichever is reached first.",
        prefix="",
        minimum=1,
    ),
    OptionSpec(
        "coalescing",
        Kind.BOOLEAN,
        "true",
        "Whether samples of one write that are not in a batch share datagrams. Every DDS reads both.",
        _WRITE,
    ),
    OptionSpec(
        "async_publisher.disable_asynchronous_batch",
        Kind.BOOLEAN,
        "false",
        "ASYNCHRONOUS_PUBLISHER disable_asynchronous_batch: no thread flushes batches; `batch.max_flush_delay` "
        "needs one.",
        _WRITE,
    ),
    OptionSpec(
        "publish_mode",
        Kind.WORD,
        "synchronous",
        "PUBLISH_MODE. `asynchronous`: what is written is handed to a flow controller, whose thread sends it.",
        _WRITE,
        choices=("synchronous", "asynchronous"),
    ),
    _flow(
        "name",
        Kind.TEXT,
        "Writers of one process that name the same flow controller share its tokens. `fixed_rate` "
        "sends once per period what was written in it; all others, `default` too, as the options below say. All of "
        "`flow_controller.` needs `publish_mode=asynchronous`.",
    ),
    _flow(
        "scheduling",
        Kind.WORD,
        "Which of its writers sends next: in turn, by `latency_budget`, or by `transport_priority`.",
        choices=tuple(kind.value for kind in Scheduling),
    ),
    _flow(
        "token_bucket.max_tokens",
        Kind.COUNT,
        "Tokens that the bucket holds at most. A batch counts as one large sample.",
        minimum=1,
    ),
    _flow("token_bucket.tokens_added_per_period", Kind.COUNT, "Tokens added per period.", minimum=1),
    _flow(
        "token_bucket.tokens_leaked_per_period",
        Kind.COUNT,
        "Tokens thrown away per period, after what is waiting was sent.",
        minimum=0,
    ),
    _flow(
        "token_bucket.period",
        Kind.DURATION,
        "Period of the token bucket.",
        minimum=100_000,
        maximum=YEAR,
    ),
    _flow(
        "token_bucket.bytes_per_token",
        Kind.SIZE_LIMIT,
        "Bytes that one token sends. `unlimited`: a token a datagram.",
        minimum=1,
    ),
    OptionSpec(
        "transport_priority",
        Kind.INTEGER,
        "0",
        "TRANSPORT_PRIORITY: `highest_priority_first` flow controllers go by it, the highest first.",
        _WRITE,
        minimum=-(1 << 31),
        maximum=(1 << 31) - 1,
    ),
)
