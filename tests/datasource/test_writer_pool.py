"""The writers of one worker: what they are made from, how long they are kept, how they are flushed and shown."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_rtps.api.flushing import FLUSHERS
from spark_rtps.columns.topic_plan import TopicPlan, plan_writing
from spark_rtps.datasource import writer_pool
from spark_rtps.datasource.writer_pool import WRITERS, WriterPool
from spark_rtps.monitoring import metrics
from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.options.participants import node_config, publication_policy
from spark_rtps.transport.errors import TransportError
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.receiver.addresses import Addresses, write_addresses
from spark_rtps.transport.structure import Locator

COLUMNS = pa.schema([pa.field("id", pa.int32(), nullable=False)])


@dataclass(eq=False)
class Writer:
    node: Node
    guid: int
    error: Exception | None = None
    flushes: int = 0

    def flush(self) -> None:
        self.flushes += 1
        if self.error is not None:
            raise self.error


@dataclass(eq=False)
class Node:
    """Stands for a participant: it is told what to make, and what to delete."""

    config: NodeConfig
    after_cycle: Any
    is_started: bool = False
    specs: list[WriterSpec] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)
    lock: Any = field(default_factory=threading.RLock)

    def start(self) -> Node:
        self.is_started = True
        return self

    def create_writer(self, spec: WriterSpec) -> Writer:
        self.specs.append(spec)
        return Writer(self, len(self.specs))

    def delete_endpoint(self, guid: int) -> None:
        self.deleted.append(guid)


class Counters:
    """Stands for the counters files."""

    def __init__(self) -> None:
        self.shown: dict[Writer, tuple[str, int]] = {}

    def add_writer(self, writer: Writer, *, type_name: str, domain: int) -> None:
        self.shown[writer] = type_name, domain

    def remove_writer(self, writer: Writer) -> None:
        del self.shown[writer]

    def update_if_due(self, node: Any) -> None: ...


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    made: list[Node] = []

    class Nodes:
        @staticmethod
        def open(config: NodeConfig, *, after_cycle: Any) -> Node:
            made.append(Node(config, after_cycle))
            return made[-1]

    monkeypatch.setattr(writer_pool, "Node", Nodes)
    monkeypatch.setattr(writer_pool, "PublisherCounters", Counters)
    return made


def settings(**options: str) -> Settings:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return parse_options({"topic": "Alerts", "type": "Alert", "key": "id", **given}, AppliesTo.WRITE)


def plan_of(asked: Settings) -> TopicPlan:
    return plan_writing(asked, COLUMNS)


def session(pool: WriterPool, asked: Settings) -> Any:
    return pool.session(asked, plan_of(asked))


def test_a_writer_takes_no_ports_of_a_receiver_that_is_down_briefly(
    nodes: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_pool, "default_log_dir", lambda: tmp_path)
    (tmp_path / "log").mkdir()
    write_addresses(tmp_path / "log", Addresses.from_locators(0, [Locator("127.0.0.1", 7410)], 10**9))
    session(WriterPool(), settings())
    assert nodes[0].config.reserved_ports == (7410,)


def test_participant_and_writer_are_those_that_are_asked_for(nodes: list[Node]) -> None:
    asked = settings(
        domain="7",
        interface="lo",
        ipc="true",
        batch__enable="true",
        batch__interceptor="a.module:function",
        flow_control__strategy="tagged",
        flow_control__group_tag="3",
        flow_control__group_min_size="2",
        reliable_writer__heartbeat_period="33ms",
        partition="a",
    )
    pool, plan = WriterPool(), plan_of(asked)
    made = session(pool, asked)
    (node,) = nodes
    assert replace(node.config, reserved_ports=()) == node_config(asked)
    assert node.config.domain == 7 and node.is_started
    assert node.after_cycle == pool._counters.update_if_due
    (spec,) = node.specs
    assert (spec.topic, spec.type_name, spec.keyed) == ("Alerts", "Alert", True)
    assert spec.policy == publication_policy(asked) and spec.policy.flow_control.group_min_size == 2
    assert spec.policy.interceptor == "a.module:function" and spec.policy.flow_control.ipc
    assert spec.qos.partition == ("a",) and spec.qos.data_representation == (plan.representation,)
    assert asked.qos.data_representation == ()  # the type decides
    assert plan.announced and spec.type == plan.struct
    assert pool._counters.shown[made._writer] == ("Alert", 7)  # type: ignore[attr-defined]
    assert made._counters is pool._counters and made._settings is asked


def test_a_new_participant_looks_around_and_an_old_one_has(nodes: list[Node]) -> None:
    pool, begun = WriterPool(), time.monotonic_ns()
    first = session(pool, settings())
    assert begun + 10**9 <= first._look_around_until <= time.monotonic_ns() + 10**9
    assert session(pool, settings(reliability="best_effort"))._look_around_until == first._look_around_until
    assert len(nodes) == 1 and len(nodes[0].specs) == 2


def test_tasks_share_a_writer_as_long_as_they_ask_for_the_same(nodes: list[Node]) -> None:
    pool = WriterPool()
    one = session(pool, settings())._writer
    assert session(pool, settings())._writer is one
    for other in (
        {"domain": "1"},
        {"transport_priority": "1"},
        {"history": "keep_last"},
        {"batch.enable": "true"},
    ):
        assert session(pool, settings(**other))._writer is not one
    assert len(nodes) == 2


def test_the_writer_that_was_used_longest_ago_makes_room(
    nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_pool, "WRITERS_MAX", 2)
    pool = WriterPool()
    first, second = (session(pool, settings(partition=name))._writer for name in "ab")
    session(pool, settings(partition="a"))
    third = session(pool, settings(partition="c"))._writer
    assert nodes[0].deleted == [second.guid]
    assert set(pool._counters.shown) == {first, third}  # type: ignore[attr-defined]
    assert session(pool, settings(partition="a"))._writer is first


def test_a_forked_process_begins_anew(nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WriterPool()
    writer = session(pool, settings())._writer
    monkeypatch.setattr(os, "getpid", lambda: 1)
    pool.flush()
    assert writer.flushes == 0
    assert session(pool, settings())._writer is not writer and len(nodes) == 2


def test_metrics_are_exported_where_a_port_is_given(
    nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[Any, ...]] = []

    def start(port: int, directories: list[Any], *, address: str, shared: bool) -> None:
        started.append((port, directories, address, shared))

    monkeypatch.setattr(metrics, "start_exporter", start)
    pool = WriterPool()
    session(pool, settings())
    assert started == []
    session(pool, settings(metrics__port="9464", metrics__address="127.0.0.2"))
    assert started == [(9464, [writer_pool.default_log_dir()], "127.0.0.2", True)]  # type: ignore[attr-defined]


def test_errors_are_recorded_from_the_first_task_on(
    nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[None] = []
    monkeypatch.setattr(writer_pool, "record_errors", lambda: recorded.append(None))
    session(WriterPool(), settings())
    assert recorded == [None]


def test_a_flush_reaches_all_writers_of_the_worker(nodes: list[Node]) -> None:
    pool = WriterPool()
    writers = [session(pool, settings(partition=name))._writer for name in "abc"]
    writers[0].error = TransportError("lost")
    with pytest.raises(TransportError, match="lost"):
        pool.flush()
    assert [each.flushes for each in writers] == [1, 1, 1]
    assert WRITERS in FLUSHERS._members
