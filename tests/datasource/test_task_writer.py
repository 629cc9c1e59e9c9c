"""What a task of a sink does with its rows: waiting, coherent sets, acknowledgements, what it reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.columns.routing import Routing, plan_routing
from spark_rtps.columns.topic_plan import plan_writing
from spark_rtps.datasource import writer as writer_module
from spark_rtps.datasource.writer import RtpsCommitMessage, TaskWriter
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.transport.errors import EncodeError, OptionError, RtpsError, UsageError

COLUMNS = pa.schema([pa.field("id", pa.int32(), nullable=False)])
SETTINGS = parse_options({"topic": "Alerts", "type": "Alert", "key": "id"}, AppliesTo.WRITE)
PLAN = plan_writing(SETTINGS, COLUMNS)


class Session:
    """Stands for a writer's session: it keeps what is done to it, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.ids: list[int] = []
        self.keyed: list[bool] = []
        self.in_coherent_set = False
        self.failing = ""

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what == self.failing:
            raise RtpsError(f"{what} fails")

    def wait_for_reader(self) -> None:
        self._do("wait for a reader")

    def begin_coherent_set(self) -> None:
        self.in_coherent_set = True
        self._do("begin")

    def end_coherent_set(self) -> None:
        self._do("end")
        self.in_coherent_set = False

    def abort_coherent_set(self) -> None:
        self.in_coherent_set = False
        self._do("abort")

    def write_samples(self, samples: Any, key_hashes: Any) -> None:
        payloads = np.stack([np.frombuffer(samples.payload(i), np.uint8) for i in range(samples.count)])
        self.ids += payloads[:, 4:8].copy().view("<i4").ravel().tolist()
        self.keyed.append(key_hashes is not None and key_hashes.shape == (samples.count, 16))
        self._do("write")

    def wait_for_acknowledgments(self) -> None:
        self._do("acknowledged")


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    made, asked = Session(), []

    class Pool:
        @staticmethod
        def session(settings: Any, plan: Any) -> Session:
            asked.append((settings, plan))
            assert asked == [(SETTINGS, PLAN)]  # once a task
            return made

    monkeypatch.setattr(writer_module, "WRITERS", Pool)
    return made


def batches(*ids: list[int]) -> Any:
    return iter([pa.record_batch({"id": pa.array(each, pa.int32())}, COLUMNS) for each in ids])


def test_rows_are_written_in_one_set_and_acknowledged(session: Session) -> None:
    message = TaskWriter(Routing(SETTINGS, PLAN)).write(batches([1, 2], [], [3]))
    assert message == RtpsCommitMessage(rows=3, samples=3)
    wait, write = "wait for a reader", "write"
    assert session.done == [wait, "begin", write, wait, write, "end", "acknowledged"]
    assert (session.ids, session.keyed) == ([1, 2, 3], [True, True])


def test_a_task_without_rows_needs_no_participant(session: Session) -> None:
    assert TaskWriter(Routing(SETTINGS, PLAN)).write(batches([], [])) == RtpsCommitMessage(0, 0)
    assert session.done == []


@pytest.mark.parametrize("failing", ["write", "end"])
def test_a_task_that_fails_gives_its_set_up(session: Session, failing: str) -> None:
    session.failing = failing
    with pytest.raises(RtpsError, match=f"{failing} fails"):
        TaskWriter(Routing(SETTINGS, PLAN)).write(batches([1]))
    assert session.done[-1] == "abort" and "acknowledged" not in session.done


def test_a_task_that_spark_gave_up_ends_no_set(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "_spark_has_hung_up", lambda: True)
    with pytest.raises(RtpsError, match="Spark gave up the task"):
        TaskWriter(Routing(SETTINGS, PLAN)).write(batches([1]))
    assert session.done[-2:] == ["write", "abort"]


def test_a_task_settles_first(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[list[str]] = []
    monkeypatch.setattr(writer_module, "settle", lambda: settled.append([*session.done]))
    TaskWriter(Routing(SETTINGS, PLAN)).write(batches([1]))
    assert settled == [[]]


class TestRoutes:
    """Rows that name their topics."""

    COLUMNS = pa.schema([("topic", pa.string()), pa.field("id", pa.int32(), nullable=False)])

    @pytest.fixture
    def sessions(self, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Session]:
        made: dict[tuple[str, str], Session] = {}

        class Pool:
            @staticmethod
            def session(settings: Any, plan: Any) -> Session:
                assert settings.topic == plan.topic
                made[plan.topic, plan.type_name] = Session()
                return made[plan.topic, plan.type_name]

        monkeypatch.setattr(writer_module, "WRITERS", Pool)
        return made

    def routing(self, columns: pa.Schema = COLUMNS, **options: str) -> Routing:
        given = {"nullable": "required", **{k.replace("__", "."): v for k, v in options.items()}}
        return plan_routing(parse_options(given, AppliesTo.WRITE), columns)

    def rows(self, *rows: tuple[str | None, int]) -> pa.RecordBatch:
        topics, ids = zip(*rows, strict=True)
        return pa.record_batch([pa.array(topics, pa.string()), pa.array(ids, pa.int32())], self.COLUMNS)

    def test_each_topic_gives_its_set_up_also_where_one_fails_at_that(
        self, sessions: dict[tuple[str, str], Session], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def abort(session: Session) -> None:
            session.done.append("abort")
            raise RtpsError("abort fails")

        monkeypatch.setattr(writer_module, "_spark_has_hung_up", lambda: True)
        monkeypatch.setattr(Session, "abort_coherent_set", abort)
        with pytest.raises(RtpsError, match="abort fails"):
            TaskWriter(self.routing(type="Alert")).write(iter([self.rows(("a", 1), ("b", 2), ("c", 3))]))
        assert [session.done[-1] for session in sessions.values()] == ["abort"] * 3

    def test_each_topic_gets_its_rows_in_order(self, sessions: dict[tuple[str, str], Session]) -> None:
        """In a set and with an acknowledgement of its own; the type that columns make is named after the topic."""
        batches = [self.rows(("a", 1), ("rt/b", 2), ("a", 3)), self.rows(("rt/b", 4))]
        message = TaskWriter(self.routing()).write(iter(batches))
        assert message == RtpsCommitMessage(rows=4, samples=4)
        assert {key: session.ids for key, session in sessions.items()} == {
            ("a", "a"): [1, 3],
            ("rt/b", "rt_b"): [2, 4],
        }
        wait, write = "wait for a reader", "write"
        assert sessions["rt/b", "rt_b"].done == [wait, "begin", write, wait, write, "end", "acknowledged"]

    def test_names_of_ros_are_those_on_the_wire(self, sessions: dict[tuple[str, str], Session]) -> None:
        """However a row spells the topic, as the option does; a name that a source has given stays."""
        names = {
            "ros": "true",
            "ros__namespace": "/robot1",
            "ros__remap": "scan:=front/scan",
            "type": "Alert",
        }
        rows = self.rows(("/a", 1), ("b", 2), ("rt/a", 3), ("scan", 4), ("/a", 5))
        TaskWriter(self.routing(**names)).write(iter([rows]))
        assert {topic: sorted(session.ids) for (topic, _), session in sessions.items()} == {
            "rt/a": [1, 3, 5],
            "rt/robot1/b": [2],
            "rt/robot1/front/scan": [4],
        }
        with pytest.raises(EncodeError, match=r"column 'topic': 'no name' is no name of ROS 2"):
            TaskWriter(self.routing(**names)).write(iter([self.rows(("no name", 1))]))

    def test_one_type_for_all(self, sessions: dict[tuple[str, str], Session]) -> None:
        TaskWriter(self.routing(type="Alert", key="id")).write(iter([self.rows(("a", 1), ("b", 2))]))
        assert set(sessions) == {("a", "Alert"), ("b", "Alert")}
        assert all(session.keyed == [True] for session in sessions.values())

    def test_the_option_overrides_the_column(self, sessions: dict[tuple[str, str], Session]) -> None:
        routing = self.routing(topic="all")
        TaskWriter(routing).write(iter([self.rows(("a", 1), (None, 2))]))
        assert {key: session.ids for key, session in sessions.items()} == {("all", "all"): [1, 2]}
        assert routing.plan.columns.names == ["id"]

    def test_payloads_that_name_their_types(self, sessions: dict[tuple[str, str], Session]) -> None:
        """Those that a source of several topics gave go back to where they came from."""
        columns = pa.schema([("topic", pa.string()), ("type_name", pa.string()), ("value", pa.binary())])
        values = [bytes((0, 1, 0, 0, i, 0, 0, 0)) for i in range(5)]
        batch = pa.record_batch([["a", "b", "a", "b", "a"], ["A", "B", "A", "A", "B"], values], columns)
        TaskWriter(self.routing(columns, payload="binary")).write(iter([batch]))
        assert {key: session.ids for key, session in sessions.items()} == {
            ("a", "A"): [0, 2],
            ("b", "B"): [1],
            ("b", "A"): [3],
            ("a", "B"): [4],
        }

    def test_a_task_that_fails_shows_nothing_to_any_reader(
        self, sessions: dict[tuple[str, str], Session]
    ) -> None:
        with pytest.raises(
            EncodeError, match="column 'topic', row 1: null; fill it, or set the option topic"
        ):
            TaskWriter(self.routing()).write(iter([self.rows(("a", 1)), self.rows(("a", 1), (None, 2))]))
        assert sessions["a", "a"].done[-1] == "abort"

    @pytest.mark.parametrize("name", ["", "a\0b", "a" * 4096])
    def test_an_invalid_topic_name_is_refused(
        self, sessions: dict[tuple[str, str], Session], name: str
    ) -> None:
        with pytest.raises(EncodeError, match="is no name; a name has 1 to 4095 bytes"):
            TaskWriter(self.routing()).write(iter([self.rows((name, 1))]))

    def test_more_topics_than_a_worker_keeps_writers(
        self, sessions: dict[tuple[str, str], Session], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer_module, "WRITERS_MAX", 2)
        with pytest.raises(UsageError, match=r"2 topics at most: .*repartition\('topic'\)"):
            TaskWriter(self.routing()).write(iter([self.rows(("a", 1), ("b", 2), ("c", 3))]))

    def test_neither_option_nor_column(self) -> None:
        for columns in (COLUMNS, COLUMNS.append(pa.field("topic", pa.int32()))):
            with pytest.raises(
                OptionError, match=r"option 'topic': rows name none: name the topic, .* of type STRING"
            ):
                self.routing(columns)

    def test_a_member_of_that_name_is_no_route(self, tmp_path: Any) -> None:
        idl = tmp_path / "m.idl"
        idl.write_text("struct Message { string topic; long id; };")
        with pytest.raises(
            OptionError, match="the type has a member topic, so that the column names no topics"
        ):
            self.routing(type__file=str(idl))
        routing = self.routing(type__file=str(idl), topic="T")
        assert (routing.apart, routing.plan.columns.names) == ((), ["topic", "id"])
