"""What a receiver's configuration asks for reaches its reader, its log and its node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_rtps.transport.errors import LogError
from spark_rtps.transport.limits import FRAGMENTED_SAMPLE_MAX
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.net.receiving_node import NamedType
from spark_rtps.transport.net.spy_node import SpyNode
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec
from spark_rtps.transport.protocol.participant.slices import Slice
from spark_rtps.transport.protocol.policies import CongestionControlPolicy, ReaderCounters, ReaderPolicy
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.receiver import identity as identity_module
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.host import Host
from spark_rtps.transport.receiver.subscription import READER_ENTITY_KEY, ReceiverSubscription
from spark_rtps.transport.receiver.subscription_log import open_log
from spark_rtps.transport.structure import Guid
from tests.log.make_runs import single
from tests.support import domains

QOS = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_LAST, history_depth=3)
WRITER = Guid(b"\1" * 12, b"\0\0\1\2")


def config(directory: Path, **given: Any) -> ReceiverConfig:
    asked: dict[str, Any] = {
        "log_directory": str(directory / "log"),
        "topic": "Square",
        "type_name": "ShapeType",
        "keyed": True,
        "qos": QOS,
        "policy": ReaderPolicy(tether=False, congestion_control=CongestionControlPolicy("cubic")),
        "type": ("struct ShapeType { @key long x; };", "ShapeType"),
        "announces_type": True,
        "records_writer_types": True,
        "reports_instances": True,
        "filter": ("x > %0", ("7",)),
        "slice": Slice(1, 2),
        "accept_writer_removed_batch_samples": True,
        "log_max_bytes": 8 << 20,
        "log_segment_bytes": 1 << 20,
        "log_mode": 0o750,
        "consumption": "committed",
    }
    return ReceiverConfig(**(asked | given))


class Recorder:
    """Stands for a node: it keeps the specification of the reader that it is to make."""

    def __init__(self) -> None:
        self.spec: ReaderSpec | None = None
        self.recipient: Any = None
        self.place: Any = None
        self.directory = SimpleNamespace(qos_of=lambda guid: None, type_of=lambda guid: None)

    def create_reader(self, spec: ReaderSpec, recipient: Any) -> Any:
        self.spec, self.recipient = spec, recipient
        fragments = SimpleNamespace(put_together_at=self.put_together_at)
        return SimpleNamespace(fragments=fragments, counters=ReaderCounters())

    def put_together_at(self, place: Any) -> None:
        self.place = place


def subscribed(
    asked: ReceiverConfig, log: StreamLog, *, keyed: bool = True
) -> tuple[ReceiverSubscription, ReaderSpec]:
    node = Recorder()
    made = ReceiverSubscription(
        asked, NamedType("Named", keyed), log, cast(Any, node), cast(Any, SimpleNamespace())
    )
    assert node.spec is not None and node.recipient is made._appender
    assert node.place == made._appender.place
    return made, node.spec


def test_the_reader_is_the_one_that_is_asked_for(tmp_path: Path) -> None:
    asked = config(tmp_path)
    log = open_log(asked)
    made, spec = subscribed(asked, log)
    assert (spec.topic, spec.type_name, spec.qos, spec.keyed) == ("Square", "Named", QOS, True)
    assert spec.policy == asked.policy
    assert spec.type is not None and spec.type.name == "ShapeType"
    assert spec.awaits_types
    found = spec.content_filter
    assert found is not None
    assert (found.related_topic, found.expression, found.parameters) == ("Square", "x > %0", ("7",))
    assert spec.entity_key == READER_ENTITY_KEY
    assert spec.consumption_held
    assert spec.slice == Slice(1, 2)
    assert spec.sample_size_max == min(FRAGMENTED_SAMPLE_MAX, log.max_bytes // 4)
    cache = made._cache
    assert cache._accept_removed
    assert made._appender._consumption is not None and made._appender._writer_types is not None
    log.close()


def test_a_plain_reader_holds_and_announces_nothing(tmp_path: Path) -> None:
    asked = config(
        tmp_path,
        keyed=None,
        type=None,
        announces_type=False,
        records_writer_types=False,
        reports_instances=False,
        filter=None,
        slice=None,
        consumption="logged",
        qos=replace(QOS, history=HistoryKind.KEEP_ALL),
    )
    log = open_log(asked)
    made, spec = subscribed(asked, log, keyed=False)
    assert not spec.keyed and not spec.consumption_held and not spec.awaits_types
    assert spec.type is None and spec.content_filter is None and spec.slice is None
    assert made._appender._consumption is None and made._appender._writer_types is None
    log.close()


def test_a_reader_resumes_what_its_log_has(tmp_path: Path) -> None:
    asked = config(tmp_path)
    log = open_log(asked)
    log.writers[WRITER] = 41
    _, spec = subscribed(asked, log)
    assert dict(spec.resume) == {WRITER: 41}
    log.close()


@pytest.mark.parametrize(
    ("other", "output"),
    [
        (
            {"node": NodeConfig(domain=domains.RECEIVER_SETTINGS_OTHER)},
            f"of domain {domains.RECEIVER_SETTINGS}, not of domain {domains.RECEIVER_SETTINGS_OTHER}: .* checkpoint",
        ),
        ({"qos": replace(QOS, partition=("b",))}, r"samples of partition \['a'\], not of partition \['b'\]"),
    ],
)
def test_a_log_with_samples_of_other_writers_is_not_resumed(
    tmp_path: Path, other: dict[str, Any], output: str
) -> None:
    asked = config(
        tmp_path, node=NodeConfig(domain=domains.RECEIVER_SETTINGS), qos=replace(QOS, partition=("a",))
    )
    open_log(asked).close()
    changed = replace(asked, **other)
    open_log(changed).close()  # there is nothing in it yet
    with open_log(asked) as log:
        assert log.append(single(WRITER, 1, 100), reception=1)
    for _ in range(2):
        with pytest.raises(LogError, match=output):
            open_log(changed)
    open_log(asked).close()


def test_a_log_of_an_earlier_version_is_resumed_once_in_any_domain(tmp_path: Path) -> None:
    asked = config(tmp_path, node=NodeConfig(domain=domains.RECEIVER_SETTINGS))
    with open_log(asked) as log:
        assert log.append(single(WRITER, 1, 100), reception=1)
        for name in ("domain", "partition", "filter", "filter_parameters", "slice"):
            del log.metadata[name]
        log.amend()
    other = replace(asked, node=NodeConfig(domain=domains.RECEIVER_SETTINGS_OTHER))
    open_log(other).close()
    with pytest.raises(
        LogError,
        match=f"of domain {domains.RECEIVER_SETTINGS_OTHER}, not of domain {domains.RECEIVER_SETTINGS}",
    ):
        open_log(asked)


def test_a_log_that_was_received_with_another_filter_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = config(tmp_path)
    with open_log(asked) as log:
        assert log.append(single(WRITER, 1, 100), reception=1)
    other = replace(asked, filter=("x > %0", ("8",)), slice=None)
    for _ in range(2):
        open_log(other).close()
    assert caplog.text.count("received with filter_parameters=['7'], and those that follow with ['8']") == 1
    assert caplog.text.count("received with slice='1/2', and those that follow with None") == 1


def test_the_log_is_the_one_that_is_asked_for(tmp_path: Path) -> None:
    asked = config(tmp_path)
    log = open_log(asked)
    assert log.max_bytes == 8 << 20
    assert log.metadata["topic"] == "Square" and log.metadata["type"] == "ShapeType"
    assert log.metadata["keyed"] is True and len(str(log.metadata["guid_prefix"])) == 24
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o750
    log.close()
    again = open_log(replace(asked, log_max_bytes=16 << 20))
    assert again.max_bytes == 16 << 20
    again.close()


def test_housekeeping_reaches_all_that_need_it(tmp_path: Path) -> None:
    asked = config(tmp_path, retention="time", retention_ns=1)
    log = open_log(asked)
    made, _ = subscribed(asked, log)
    done: list[str] = []

    def note(what: str) -> Any:
        return lambda *args, **kwargs: done.append(what)

    assert made._retention is not None and made._appender._retention is made._retention
    made._retention = cast(Any, SimpleNamespace(expire=note("expire")))
    made._appender = cast(Any, SimpleNamespace(commit_position=note("commit"), take_dropped=dict))
    made._node = cast(
        Any, SimpleNamespace(offer_room=note("offer room"), counters=SimpleNamespace(receive_overflows=0))
    )
    timers = {"get_timer": lambda: 5, "handle_timer": note("timer"), "counters": None}
    made._cache = cast(Any, SimpleNamespace(**timers, writer_lost=note("lost")))
    made._shown = cast(Any, SimpleNamespace(consumer=0))
    made._losses = cast(Any, SimpleNamespace(report=note("losses")))
    made._clocks = cast(Any, SimpleNamespace(warn_if_new=note("clocks")))
    made.keep(4)
    made.keep(5)
    assert done == ["expire", "commit", "offer room"] * 2 + ["timer"]
    done.clear()
    made.report(6)
    assert done == ["losses", "clocks"]
    assert made.counted == (made.reader, made._cache)
    done.clear()
    made.writer_lost(WRITER, gone=True)
    assert done == ["lost"]
    log.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[NodeConfig, Any]]:
    """The configurations with which nodes are opened."""
    found: list[tuple[NodeConfig, Any]] = []

    def refuse(config: NodeConfig, *, recalled: Any) -> Node:
        found.append((config, recalled))
        raise ZeroDivisionError

    monkeypatch.setattr(identity_module, "Node", SimpleNamespace(open=refuse))
    return found


def test_the_node_is_the_one_that_is_asked_for(tmp_path: Path, opened: list[tuple[NodeConfig, Any]]) -> None:
    asked = config(tmp_path, node=NodeConfig(domain=domains.RECEIVER_OBSERVED, interface="lo", ipc=True))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            Host.open(asked)
    first, second = (each for each, _ in opened)
    assert (first.domain, first.interface, first.ipc) == (domains.RECEIVER_OBSERVED, "lo", True)
    assert first.guid_prefix is not None and first.guid_prefix == second.guid_prefix
    assert second.incarnation == first.incarnation + 1


def test_a_node_is_closed_when_its_receiver_fails_to_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go: list[bool] = []
    node = SimpleNamespace(abandon=lambda: let_go.append(True))
    monkeypatch.setattr(identity_module, "Node", SimpleNamespace(open=lambda config, *, recalled: node))
    with pytest.raises(AttributeError):  # it has no sockets
        Host.open(config(tmp_path))
    assert let_go == [True]


def test_the_participants_of_an_earlier_receiver_are_recalled(
    tmp_path: Path, opened: list[tuple[NodeConfig, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity_module, "read_known_participants", lambda directory: [directory])
    with pytest.raises(ZeroDivisionError):
        Host.open(config(tmp_path))
    assert opened[0][1] == [tmp_path / "log"]


def test_a_spy_needs_no_network(tmp_path: Path, opened: list[tuple[NodeConfig, Any]]) -> None:
    host = Host.open(
        config(tmp_path, spy=True, filter=None, slice=None, node=NodeConfig(domain=domains.RECEIVER_OBSERVED))
    )
    assert isinstance(host.node, SpyNode) and opened == []
    host.close()


def test_a_congestion_control_that_is_not_there_ends_the_receiver_before_it_starts(tmp_path: Path) -> None:
    control = CongestionControlPolicy("no_such_module:make")
    with pytest.raises(Exception, match="no_such_module:make"):
        Host.open(config(tmp_path, policy=ReaderPolicy(congestion_control=control)))
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("ephemeral", [True, False])
def test_an_ephemeral_log_goes_with_its_receiver(tmp_path: Path, ephemeral: bool) -> None:
    host = Host.open(config(tmp_path, spy=True, ephemeral=ephemeral, filter=None, slice=None))
    host.close()
    assert (tmp_path / "log").exists() is not ephemeral
