"""Our receiver as the tests see it: a receiver process, and the columns of its log."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_rtps.transport.log.log_view import Cursor, LogView
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec
from spark_rtps.transport.protocol.policies import READER_POLICY, ReaderPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.process import ReceiverProcess
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.samples import KEY_ONLY, Run, Samples
from tests.interop.cyclone_types import IDL
from tests.support.waiting import PATIENCE, wait_until


class Received(NamedTuple):
    """A sample out of the log; ``row`` is None for one without payload."""

    writer: str
    sn: int
    flags: int
    row: dict[str, Any] | None


@cache
def codec(name: str) -> Codec:
    """The codec of a type of the interop IDL."""
    struct = parse_idl(IDL)[f"interop::{name}"]
    assert isinstance(struct, Struct)
    return Codec(struct)


def qos(*, reliable: bool = True, transient_local: bool = False, keep: int = 0, **more: Any) -> Qos:
    """``keep``: KEEP_LAST depth, 0 for KEEP_ALL."""
    return Qos(
        reliability=ReliabilityKind.RELIABLE if reliable else ReliabilityKind.BEST_EFFORT,
        durability=DurabilityKind.TRANSIENT_LOCAL if transient_local else DurabilityKind.VOLATILE,
        history=HistoryKind.KEEP_LAST if keep else HistoryKind.KEEP_ALL,
        history_depth=keep or 1,
        **more,
    )


class Subscription:
    """A receiver of ours on one topic. ``with`` it; the process is ended at the end."""

    def __init__(
        self,
        directory: Path,
        domain: int,
        topic: str,
        kind: str,
        *,
        subscribe: Qos | None = None,
        type_name: str | None = None,
        receiver: Mapping[str, Any] | None = None,
        **node: Any,
    ) -> None:
        """``receiver`` are fields of its ReceiverConfig, ``node`` of its NodeConfig."""
        self.codec = codec(kind)
        self.config = ReceiverConfig(
            str(directory),
            topic,
            type_name or f"interop::{kind}",
            self.codec.struct.is_keyed,
            subscribe or qos(),
            type=(IDL, f"interop::{kind}"),
            reports_instances=True,
            node=replace(NodeConfig(domain=domain, interface="lo"), **node),
            log_max_bytes=256 << 20,
            log_segment_bytes=32 << 20,
        )
        self.config = replace(self.config, **(receiver or {}))
        self.process = ReceiverProcess.start(self.config)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.stop()

    def restart(self) -> None:
        """Another receiver on the same log."""
        self.process = ReceiverProcess.start(self.config)

    def wait_for_match(self, count: int = 1, timeout: float = PATIENCE) -> None:
        wait_until(
            lambda: self.process.counters().get("reader.matched_writers") == count,
            f"{count} writers matched with {self.config.topic}",
            timeout,
        )

    @property
    def rows(self) -> int:
        return self.process.counters()["log.rows"]

    def wait_for(self, count: int, timeout: float = PATIENCE) -> list[Received]:
        """Everything in the log, once there are ``count`` samples."""

        def what() -> str:
            return f"{count} samples of {self.config.topic}; {self.process.counters()}"

        wait_until(lambda: self.rows >= count, what, timeout)
        return self.received()

    def counters(self, received: int) -> dict[str, int]:
        """The counters, once they count that many samples: they are written some times a second."""
        wait_until(
            lambda: self.process.counters().get("reader.received_samples", 0) >= received,
            lambda: f"{received} samples in {self.process.counters()}",
        )
        return self.process.counters()

    def wait_for_counter(self, name: str, count: int, timeout: float = PATIENCE) -> None:
        """Until a counter is at least so high."""
        wait_until(
            lambda: self.process.counters().get(name, 0) >= count,
            lambda: f"{name} >= {count} in {self.process.counters()}",
            timeout,
        )

    def runs(self) -> list[Run]:
        """The log's runs; they view its memory."""
        view = LogView(Path(self.config.log_directory))
        end = self.process.cursor()
        return [frame.run for frame in view.frames(Cursor(0), end)] if end > Cursor(0) else []

    def received(self) -> list[Received]:
        """Everything in the log now."""
        return _received(self.runs(), self.codec)


class LocalReader:
    """A reader of a node of ours: no receiver, no log, no cache, but what the protocol delivers."""

    def __init__(
        self, node: Node, topic: str, kind: str, requested: Qos, policy: ReaderPolicy = READER_POLICY
    ) -> None:
        self.node = node
        self.codec = codec(kind)
        self._runs: list[Run] = []
        with node.lock:
            keyed = self.codec.struct.is_keyed
            spec = ReaderSpec(topic, f"interop::{kind}", requested, keyed=keyed, policy=policy)
            self.reader = node.create_reader(spec, self)

    def room(self) -> int:
        return INFINITE

    def deliver(self, reader: StatefulReader, runs: list[Run]) -> None:
        self._runs += [run.copy() for run in runs]

    def received(self) -> list[Received]:
        """Everything so far."""
        with self.node.lock:
            runs = list(self._runs)
        return _received(runs, self.codec)

    def runs(self) -> list[Run]:
        with self.node.lock:
            return list(self._runs)

    def wait_for(self, count: int, timeout: float = PATIENCE) -> list[Received]:
        """Everything, once there are ``count`` samples."""

        def there() -> int:
            return sum(run.count for run in self.runs())

        wait_until(lambda: there() >= count, lambda: f"{count} samples; {self.reader.counters}", timeout)
        return self.received()

    def wait_for_match(self, count: int = 1, timeout: float = PATIENCE) -> None:
        wait_until(lambda: len(self.reader.writers) == count, f"{count} writers matched", timeout)


def _received(runs: list[Run], codec: Codec) -> list[Received]:
    found: list[Received] = []
    for run in runs:
        numbers = run.sequence_numbers().tolist()
        rows = rows_of(run, codec)
        flags = run.sample_flags().tolist()
        found += [Received(str(run.writer), *each) for each in zip(numbers, flags, rows, strict=True)]
    return found


def rows_of(run: Run, codec: Codec) -> list[dict[str, Any] | None]:
    """A run's samples decoded; all of them must be well-formed."""
    rows: list[dict[str, Any] | None] = [None] * run.count
    samples, flags = run.samples(), run.sample_flags()
    whole = samples.all_lengths() > 0
    for keys_only in (False, True):
        index = np.flatnonzero(whole & (((flags & KEY_ONLY) != 0) == keys_only))
        if not len(index):
            continue
        part = samples
        if len(index) < run.count:
            part = Samples.ragged(samples.data, samples.all_offsets()[index], samples.all_lengths()[index])
        decoded = codec.decode_samples(part, keys_only=keys_only)
        assert decoded.malformed is None
        decoded.batch.validate(full=True)
        for i, row in zip(index.tolist(), decoded.batch.to_pylist(), strict=True):
            rows[i] = _plain(row)
    return rows


def batch_of(codec: Codec, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as the codec's columns."""
    return pa.RecordBatch.from_pylist(rows, schema=codec.arrow_schema)


def _plain(value: Any) -> Any:
    """Without decimals: uint64 comes as decimal(20, 0)."""
    if isinstance(value, Decimal):
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
