"""Commands that look into the logs of receiver services: they show what they show of a log on this host."""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from spark_rtps.cli import app
from spark_rtps.commands import echo_receiver as echo_receiver_module
from spark_rtps.commands import receivers
from spark_rtps.commands.echo_receiver import recorded_runs
from spark_rtps.monitoring.report_json import streams_as_json
from spark_rtps.monitoring.stream_counters import State, Stream, StreamKind
from spark_rtps.serving.client import connections
from spark_rtps.serving.server.http_messages import HttpResponse
from spark_rtps.serving.wire_format import log_scan
from spark_rtps.serving.wire_format.served import Served
from spark_rtps.transport.log.segment import PAGE
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.net.receiving_node import TypeIdentity
from spark_rtps.transport.receiver.writer_types import WriterTypes
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_struct
from spark_rtps.transport.wire.samples import Run
from tests.commands.log_scene import OTHER, WRITER, filled, flip, held
from tests.commands.receiver_scene import TOKEN, FakeReceiver, recording
from tests.log.make_runs import single
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("root")

POINT = parse_struct("@final struct Point { @key long x; string<20> note; };", "Point", "here")
KEYED = Guid(bytes(range(12)), b"\0\0\1\2")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in ("receivers", "log_show", "log_verify", "echo_receiver"):
        monkeypatch.setattr(f"spark_rtps.commands.{module}.PATIENCE_SECONDS", 0.5)
    monkeypatch.setenv("SPARK_RTPS_TOKEN", TOKEN)
    yield
    connections.close_all()


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    return filled(tmp_path / "logs" / str(uuid.uuid4()))


@pytest.fixture
def points(tmp_path: Path) -> StreamLog:
    """A log of a writer that told its type."""
    directory = tmp_path / "logs" / str(uuid.uuid4())
    metadata: dict[str, Any] = {"topic": "Square", "type": "Point", "guid_prefix": "01" * 12}
    log = StreamLog.create(directory, max_bytes=64 * PAGE, segment_bytes=PAGE, metadata=metadata)
    WriterTypes(directory, lambda _: POINT).record_writer(KEYED)
    return log


def point(number: int, note: str = "") -> Run:
    batch = pa.record_batch({"x": pa.array([number], pa.int32()), "note": [note]})
    return Run.single(KEYED, number, np.frombuffer(Codec(POINT).encode_batch(batch).payload(0), np.uint8))


def run(*arguments: object, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == exit_code, (result.output, result.exception)
    return result


class TestLog:
    @pytest.mark.parametrize("command", ["frames", "dump"])
    @pytest.mark.parametrize("options", [(), ("--json",), ("--from", PAGE, "--limit", 3)])
    def test_lines_are_those_of_the_host_itself(
        self, log: StreamLog, command: str, options: tuple[object, ...]
    ) -> None:
        here = run("log", command, log.directory, *options).stdout
        with FakeReceiver(recording(log.directory)) as receiver:
            for name in ("squares", "Square", log.directory.name):
                there = run("log", command, name, "-r", receiver.address, *options).stdout
                assert there == here

    def test_show(self, log: StreamLog) -> None:
        here = json.loads(run("log", "show", log.directory, "--json").stdout)
        stream = Stream(StreamKind.SOURCE, log.directory, "Square", None, 0, "", 77, State.ALIVE, {})
        answers = recording(log.directory)

        def with_stream(target: str) -> Any:
            return streams_as_json([stream], [], 1) if target == "/v1/streams" else answers(target)

        with FakeReceiver(with_stream) as receiver:
            there = json.loads(run("log", "show", "squares", "-r", receiver.address, "--json").stdout)
            shown = run("log", "show", "squares", "-r", receiver.address, "--verify").stdout
        assert there.pop("receiver") == {"pid": 77, "state": "alive"}
        assert here.pop("receiver") is None
        (group,) = there.pop("groups")
        assert (group["name"], group["behind_bytes"]) == ("spark", log.position - 64)
        assert here.pop("groups") == []
        assert here.pop("disk_bytes") > there.pop("disk_bytes") == 4 * PAGE
        assert there == here
        assert "process 77, alive" in shown and str(OTHER) in shown

    def test_damage_there(self, log: StreamLog) -> None:
        flip(log, held(log)[3].position + 150)
        here = run("log", "verify", log.directory, "--json", exit_code=1).stdout
        with FakeReceiver(recording(log.directory)) as receiver:
            at = ("squares", "-r", receiver.address)
            assert run("log", "verify", *at, "--json", exit_code=1).stdout == here
            assert "damaged" in run("log", "verify", *at, exit_code=1).stdout
            assert "is damaged at position" in run("log", "dump", *at, exit_code=1).stderr
            run("log", "frames", *at)
            run("log", "frames", *at, "--verify", exit_code=1)
            run("log", "show", *at, "--verify", exit_code=1)

    def test_a_path_there_does_not_control_the_terminal(self, log: StreamLog) -> None:
        flip(log, held(log)[3].position + 150)
        answers = recording(log.directory, directory="/var/\x1b[2J\x9b")

        def forgetful(target: str) -> Any:
            found = answers(target)
            if isinstance(found, HttpResponse) and target.endswith(log.directory.name):
                assert isinstance(found.body, bytes)
                return {**json.loads(found.body), "base": None}  # which is said, too
            return found

        with FakeReceiver(forgetful) as receiver:
            result = run("log", "dump", "squares", "-r", receiver.address, exit_code=1)
            frames = run("log", "frames", "squares", "-r", receiver.address)
        for printed in (result.stderr, frames.stderr):
            assert "/var/\ufffd[2J\ufffd" in printed and not {"\x1b", "\x9b"} & set(printed)
        assert "is damaged at position" in result.stderr

    def test_writers_whose_samples_are_trimmed(self, log: StreamLog) -> None:
        while log.position < 6 * PAGE:
            log.append(single(OTHER, log.rows, 1000), reception=0)
        log.trim(5 * PAGE)
        here = json.loads(run("log", "show", log.directory, "--json").stdout)
        with FakeReceiver(recording(log.directory)) as receiver:
            found = json.loads(run("log", "show", "squares", "-r", receiver.address, "--json").stdout)
        assert found["writers"] == here["writers"] and len(here["writers"]) > 1
        assert found["base"] == log.base > 0

    @pytest.mark.parametrize("options", [(), ("--verify",)])
    def test_a_log_is_scanned_by_its_server(
        self, log: StreamLog, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
    ) -> None:
        """A frame at a time here, and none is fetched."""
        monkeypatch.setattr(log_scan, "_SECONDS", 0.0)
        while log.position < 6 * PAGE:
            log.append(single(OTHER, 2 * log.rows, 1000), reception=log.rows)
        for frame in (held(log)[3], held(log)[-2]):
            flip(log, frame.position + 150)
        failed = 1 if options else 0
        here = json.loads(run("log", "show", log.directory, "--json", *options, exit_code=failed).stdout)
        with FakeReceiver(recording(log.directory)) as receiver:
            at = ("squares", "-r", receiver.address)
            there = json.loads(run("log", "show", *at, "--json", *options, exit_code=failed).stdout)
            run("log", "verify", *at, exit_code=1)
        for name in ("receiver", "groups", "disk_bytes"):
            del here[name], there[name]
        assert there == here
        assert any(writer["missing"] for writer in here["writers"])
        assert sum("/walk" in each for each in receiver.asked) > here["frames"]
        assert not any("/frames" in each for each in receiver.asked)

    @pytest.mark.parametrize(
        "lie",
        [
            {"stop": 0}, {"stop": -1}, {"frames": 1.5}, {"segments": [[1, 2]]}, {"segments": [1]}, {"writers": None},
            {"writers": [["00", 1, 1, 1, 1, 1, 1]]}, {"writers": [["zz" * 16, 1, 1, 1, 1, 1, 1]]}, {"errors": [1]},
            {"damage": [[1, 2, None, "x", None]]}, {"errors": ["x"] * 99}, {"base": "0"},
        ],
    )  # fmt: skip
    def test_an_impossible_log_description_is_an_error(self, log: StreamLog, lie: dict[str, object]) -> None:
        answers = recording(log.directory)

        def lying(target: str) -> Any:
            found = answers(target)
            if "/walk" in target:
                assert isinstance(found, HttpResponse) and isinstance(found.body, bytes)
                return {**json.loads(found.body), **lie}
            return found

        with FakeReceiver(lying) as receiver:
            error = run("log", "verify", "squares", "-r", receiver.address, exit_code=1).exception
        assert "invalid data for what the log holds" in str(error)

    def test_trimmed_meanwhile(self, log: StreamLog) -> None:
        while log.position < 6 * PAGE:
            log.append(single(OTHER, log.rows, 1000), reception=0)
        answers, asked = recording(log.directory), []

        def trimming(target: str) -> Any:
            asked.append(target)
            if "/frames" in target and sum("/frames" in each for each in asked) == 2:
                log.trim(5 * PAGE)
            return answers(target)

        with FakeReceiver(trimming) as receiver:
            found = run("log", "frames", "squares", "-r", receiver.address, "--json").stdout.splitlines()
        assert json.loads(found[0])["position"] == 0
        assert json.loads(found[-1])["position"] >= 5 * PAGE

    def test_no_such_subscription(self, log: StreamLog) -> None:
        with FakeReceiver(recording(log.directory)) as receiver:
            error = run("log", "show", "circles", "-r", receiver.address, exit_code=1).exception
        assert str(error).endswith("has no subscription circles; it has squares")

    def test_a_topic_of_several(self, log: StreamLog) -> None:
        answers = recording(log.directory)

        def twice(target: str) -> Any:
            found = answers(target)
            if target == "/v1/subscriptions":
                (one,) = found["subscriptions"]  # type: ignore[call-overload, misc, str-unpack]
                return {"subscriptions": [one, one | {"name": "others"}]}  # type: ignore[operator]
            return found

        with FakeReceiver(twice) as receiver:
            error = run("log", "show", "Square", "-r", receiver.address, exit_code=1).exception
            run("log", "show", "others", "-r", receiver.address)
        assert str(error).endswith("have the topic Square: others, squares")

    @pytest.mark.parametrize(
        "changed", [{"log": "../../etc"}, {"log": "A" * 32}, {"name": 3}, {"directory": None}]
    )
    def test_a_subscription_that_cannot_be(self, log: StreamLog, changed: dict[str, object]) -> None:
        with FakeReceiver(recording(log.directory, **changed)) as receiver:
            error = run("log", "show", "squares", "-r", receiver.address, exit_code=1).exception
        assert "sent invalid data" in str(error)

    def test_a_log_that_the_server_does_not_have(self, log: StreamLog) -> None:
        with FakeReceiver(recording(log.directory, log=str(uuid.UUID(int=7)))) as receiver:
            error = run("log", "show", "squares", "-r", receiver.address, exit_code=1).exception
        assert "does not have it" in str(error)


class TestEcho:
    def test_echo_shows_recorded_samples(self, points: StreamLog) -> None:
        for number in (1, 2, 3):
            points.append(point(number, "\x1b[2J\x9b"), reception=0)
        with FakeReceiver(recording(points.directory)) as receiver:
            at = ("-r", receiver.address, "--timeout", "0s")
            shown = run("echo", "squares", *at, "--from", "earliest").stdout
            second = run("echo", "Square", *at, "--from", points.position // 3 // 32 * 32).stdout
            limited = run("echo", "squares", "-r", receiver.address, "--from", "earliest", "-n", 2).stdout
            raw = run("echo", "squares", *at, "--from", "earliest", "--hex", "-n", 1).stdout
        assert [json.loads(line)["x"] for line in shown.splitlines()] == [1, 2, 3]
        assert json.loads(shown.splitlines()[0]) == {"x": 1, "note": "\x1b[2J\x9b"}
        assert "\x1b" not in shown and "\x9b" not in shown
        assert [json.loads(line)["x"] for line in second.splitlines()] == [2, 3]
        assert len(limited.splitlines()) == 2
        assert set(json.loads(raw)) == {"_hex"}

    def test_topics_that_share_a_log(self, tmp_path: Path) -> None:
        """Each line names its topic; a type of a file is found by what the topic's writer calls it."""
        directory = tmp_path / "logs" / str(uuid.uuid4())
        metadata: dict[str, Any] = {"topic": "rt/.*", "type": None, "readers": [], "guid_prefix": "01" * 12}
        log = StreamLog.create(directory, max_bytes=64 * PAGE, segment_bytes=PAGE, metadata=metadata)
        types = WriterTypes(directory, lambda _: POINT, lambda _: TypeIdentity("Mine", None))
        for number, topic in enumerate(("rt/a", "rt/b"), 1):
            types.record_writer(KEYED, topic, log.position)  # the GUID is another topic's writer from here on
            log.append(point(number), reception=0)
        selection = {"names": [], "pattern": "rt/.*"}
        file = tmp_path / "t.idl"
        file.write_text("@final struct Mine { long y; string<20> other; };")
        with FakeReceiver(recording(directory, topic="rt/.*", type=None, topics=selection)) as receiver:
            at = ("-r", receiver.address, "--timeout", "0s", "--from", "earliest")
            shown = run("echo", "rt/.*", *at).stdout.splitlines()
            (mine, _) = run("echo", "squares", *at, "--type-file", file).stdout.splitlines()
        assert [json.loads(line) for line in shown] == [
            {"_topic": "rt/a", "x": 1, "note": ""},
            {"_topic": "rt/b", "x": 2, "note": ""},
        ]
        assert json.loads(mine) == {"_topic": "rt/a", "y": 1, "other": ""}

    def test_echo_shows_samples_as_they_come(self, points: StreamLog) -> None:
        points.append(point(1), reception=0)
        with FakeReceiver(recording(points.directory)) as receiver:

            def go_on() -> None:
                wait_until(lambda: any("/tail" in target for target in receiver.asked))
                points.append(point(2), reception=0)

            thread = threading.Thread(target=go_on)
            thread.start()
            shown = run("echo", "squares", "-r", receiver.address, "-n", 1, "--timeout", "60s").stdout
            thread.join()
        assert [json.loads(line)["x"] for line in shown.splitlines()] == [2]

    def test_nothing_comes(self, points: StreamLog) -> None:
        with FakeReceiver(recording(points.directory)) as receiver:
            assert run("echo", "squares", "-r", receiver.address, "--timeout", "50ms").stdout == ""

    def test_nothing_comes_for_longer_than_a_request_waits(
        self, points: StreamLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The receiver answers a request that waits when its wait is over, which is not too slow."""
        monkeypatch.setattr(echo_receiver_module, "_POLL_SECONDS", 0.5)
        with FakeReceiver(recording(points.directory)) as receiver:
            assert run("echo", "squares", "-r", receiver.address, "--timeout", "700ms").stdout == ""
            assert sum("/tail" in target for target in receiver.asked) == 2

    def test_echo_ends_in_time_with_many_samples_left(
        self, log: StreamLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with FakeReceiver(recording(log.directory)) as receiver:
            deadline = time.monotonic() + 60
            runs = recorded_runs(Served((receiver.address,), TOKEN), "squares", "earliest", deadline)
            next(runs)
            monkeypatch.setattr(echo_receiver_module, "time", SimpleNamespace(monotonic=lambda: deadline))
            assert len(held(log)) > 2 and list(runs) == []

    def test_a_type_of_a_file(self, points: StreamLog, tmp_path: Path) -> None:
        points.append(point(1, "a"), reception=0)
        file = tmp_path / "t.idl"
        file.write_text("@final struct Mine { long y; string<20> other; };")
        with FakeReceiver(recording(points.directory)) as receiver:
            at = ("-r", receiver.address, "--from", "earliest", "-n", 1, "--type-file", file)
            shown = run("echo", "squares", *at, "--type", "Mine").stdout
            error = run("echo", "squares", *at, exit_code=1).exception
        assert json.loads(shown) == {"y": 1, "other": "a"}
        assert "defines no struct 'ShapeType'" in str(error)

    def test_writers_without_an_announced_type(self, log: StreamLog) -> None:
        with FakeReceiver(recording(log.directory)) as receiver:
            at = ("-r", receiver.address, "--from", "earliest", "-n", 3)
            shown = run("echo", "squares", *at).stdout.splitlines()
        assert ["_hex" in json.loads(line) for line in shown] == [True] * 3

    @pytest.mark.parametrize("place", ["soon", "-1", "9" * 19])
    def test_places_that_are_none(self, place: str) -> None:
        assert (
            "not a position in a log"
            in run("echo", "s", "-r", "127.0.0.1:1", f"--from={place}", exit_code=2).output
        )

    def test_a_place_needs_a_receiver(self) -> None:
        assert "there is no log" in run("echo", "Square", "--from", "earliest", exit_code=2).output

    def test_a_position_that_was_trimmed(self, log: StreamLog) -> None:
        while log.position < 6 * PAGE:
            log.append(single(WRITER, log.rows, 1000), reception=0)
        log.trim(5 * PAGE)
        with FakeReceiver(recording(log.directory)) as receiver:
            error = run(
                "echo", "squares", "-r", receiver.address, "--from", "0", "-t", "1s", exit_code=1
            ).exception
        assert "does not have it" in str(error)

    @pytest.mark.parametrize("reported", [{}, {"position": -1}, {"position": 1 << 63}, []])
    def test_an_end_that_cannot_be(self, points: StreamLog, reported: Any) -> None:
        answers = recording(points.directory)
        with FakeReceiver(lambda target: reported if "/tail" in target else answers(target)) as receiver:
            error = run("echo", "squares", "-r", receiver.address, "-t", "1s", exit_code=1).exception
        assert "sent invalid data" in str(error)


class TestType:
    def test_announced_types_of_writers_are_used(self, points: StreamLog, tmp_path: Path) -> None:
        with FakeReceiver(recording(points.directory, type=None)) as receiver:
            found = json.loads(run("type", "squares", "-r", receiver.address, "--json").stdout)
            file = tmp_path / "t.idl"
            file.write_text("@final struct Point { @key long x; string<20> note; };")
            at = ("type", "Square", "-r", receiver.address, "--against", file)
            assert "-- Point can read this topic" in run(*at).stdout
            file.write_text("@final struct Point { @key long long x; };")
            run(*at, exit_code=1)
        assert (found["topic"], found["type"], found["told_by"]) == ("Square", "Point", f"writer {KEYED}")
        assert "@key int32 x;" in found["idl"]
        assert found["schema"] == "`x` int, `note` string"

    def test_where_pyspark_is_not_installed(self, points: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "spark_rtps.datasource.schema", None)
        with FakeReceiver(recording(points.directory)) as receiver:
            shown = run("type", "squares", "-r", receiver.address).stdout
            found = json.loads(run("type", "squares", "-r", receiver.address, "--json").stdout)
        assert "struct Point" in shown and "Spark schema" not in shown
        assert found["schema"] is None

    def test_without_announced_types_there_is_no_schema(self, log: StreamLog) -> None:
        with FakeReceiver(recording(log.directory)) as receiver:
            error = run("type", "squares", "-r", receiver.address, exit_code=1).exception
        assert "no writer in its log has announced a type" in str(error)

    def test_several(self, points: StreamLog) -> None:
        other = parse_struct("struct Other { long y; };", "Other", "here")
        types = WriterTypes(points.directory, lambda _: other)
        types.record_writer(WRITER)
        types = WriterTypes(points.directory, lambda _: POINT)
        types.record_writer(OTHER)
        with FakeReceiver(recording(points.directory)) as receiver:
            result = run("type", "squares", "-r", receiver.address)
        assert "struct Point" in result.stdout and "struct Other" not in result.stdout
        assert "1 more types are announced" in result.stderr


@pytest.mark.parametrize("command", ["echo", "type"])
@pytest.mark.parametrize("option", ["--domain=3", "--interface=lo", "--peers=h"])
def test_nothing_is_joined(command: str, option: str) -> None:
    assert "uses its own" in run(command, "s", "-r", "127.0.0.1:1", option, exit_code=2).output


def test_named_subscriptions_are_few_in_an_error(monkeypatch: pytest.MonkeyPatch, log: StreamLog) -> None:
    monkeypatch.setattr(receivers, "_NAMED_MAX", 2)
    answers = recording(log.directory)

    def many(target: str) -> Any:
        (one,) = answers(target)["subscriptions"]  # type: ignore[call-overload, misc, str-unpack]
        return {"subscriptions": [one | {"name": f"n{number}"} for number in range(9)]}  # type: ignore[operator]

    with FakeReceiver(many) as receiver:
        error = run("log", "show", "circles", "-r", receiver.address, exit_code=1).exception
    assert str(error).endswith("it has n0, n1")
