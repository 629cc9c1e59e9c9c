"""What a supervisor does when processes die, files change and clients ask; without a process."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import logging
import os
import shutil
import signal
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.receiver_service import subscribing
from spark_rtps.receiver_service import supervisor as supervisor_module
from spark_rtps.receiver_service.config_file import ReceiverFileError
from spark_rtps.receiver_service.records import LogRecord
from spark_rtps.transport.errors import LogError, LogLostError, OptionError, TransportError
from spark_rtps.transport.log.stream_log import StreamLog
from tests.receiver_service.supervisor_scene import Asked, FakeReceiver, InlineExecutor, Scene

A = '[subscriptions.a]\ntopic = "A"\n'
B = '[subscriptions.b]\ntopic = "B"\n'


class TestStart:
    def test_receivers_and_server(self, scene: Scene) -> None:
        supervisor = scene.begin(A + B)
        assert supervisor.is_ready and supervisor.port == 7777
        assert [each.config.topic for each in scene.receivers] == ["A", "B"]
        assert all(each.config.records_writer_types for each in scene.receivers)
        reported = scene.servers[0].reported[-1]
        assert [(each["name"], each["state"], each["error"]) for each in reported] == [
            ("a", "running", None),
            ("b", "running", None),
        ]
        assert reported[0]["log"] == scene.recorded()["a"]["log"]

    def test_retention(self, scene: Scene) -> None:
        scene.begin(A + B + '"retention" = "time"\n"retention.time" = "2s"\n')
        kept = [(each.config.retention, each.config.retention_ns) for each in scene.receivers]
        assert kept == [("bytes", 0), ("time", 2_000_000_000)]

    def test_the_log_is_written_down_before_anything_is_received(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there: list[bool] = []
        start = Scene._receiver

        def looking(self: Any, config: Any) -> Any:
            there.append(config.log_directory.rpartition("/")[2] in str(scene.recorded()))
            return start(self, config)

        monkeypatch.setattr(Scene, "_receiver", looking)
        scene.begin(A)
        assert there == [True]

    def test_another_supervisor_goes_on_with_the_same_logs(self, scene: Scene) -> None:
        scene.begin(A + B)
        before = scene.recorded()
        scene.begin(A + B)
        assert scene.recorded() == before
        assert scene.receivers[2].config.log_directory == scene.receivers[0].config.log_directory

    def test_a_receiver_gets_the_furthest_commit_of_groups(self, scene: Scene) -> None:
        scene.begin(A)
        scene.committed(scene.keeper("a").log, one=64, two=192)
        scene.begin(A)
        assert scene.receivers[-1].config.log_reached == 192

    def test_unreadable_commits_of_groups_are_an_error(self, scene: Scene) -> None:
        scene.begin(A)
        scene.committed(scene.keeper("a").log, one=192)
        groups = scene.root / scene.keeper("a").log / "groups.json"
        groups.rename(groups.with_name("kept"))
        groups.mkdir()
        scene.begin(A)
        assert len(scene.receivers) == 1 and "cannot be read" in str(scene.keeper("a").error)
        groups.rmdir()
        groups.with_name("kept").rename(groups)
        scene.steps(10)
        assert scene.receivers[-1].config.log_reached == 192

    def test_a_server_that_never_can_listen(self, scene: Scene) -> None:
        scene.server_refused = True
        scene.begin(A)
        with pytest.raises(TransportError, match="in use"):
            scene.steps(40)

    def test_a_server_that_can_start_a_moment_later(self, scene: Scene) -> None:
        scene.server_refused = True
        scene.begin(A)
        scene.server_refused = False
        scene.steps(10)
        assert scene.supervisor.is_ready

    def test_a_type_of_the_first_writer_is_reported(self, scene: Scene) -> None:
        scene.begin(A)
        assert scene.servers[0].reported[-1][0]["type"] is None
        log = StreamLog.open(scene.root / scene.keeper("a").log, max_bytes=1 << 20)
        log.amend(type="First")
        log.close()
        scene.steps()
        assert scene.servers[0].reported[-1][0]["type"] == "First"

    def test_records_that_cannot_be_read(self, scene: Scene) -> None:
        (scene.root / "subscriptions.json").write_text('{"a": {"log": "../../etc", "options": {}}}')
        with pytest.raises(LogError, match="maps subscriptions to their logs"):
            scene.begin(A)


class TestDeaths:
    def test_a_receiver_is_started_again_on_its_log_at_once(self, scene: Scene) -> None:
        scene.begin(A)
        scene.receivers[0].died = "killed"
        scene.steps(3, seconds=0.1)
        assert len(scene.receivers) == 2 and scene.states() == {"a": "running"}
        assert scene.receivers[1].config.log_directory == scene.receivers[0].config.log_directory

    def test_a_receiver_that_has_worked_is_restarted_at_once(self, scene: Scene) -> None:
        """However often it is killed, but for too often."""
        scene.begin(A)
        for count in (2, 3, 4):
            scene.steps(30, seconds=0.1)
            scene.receivers[-1].died = scene.servers[-1].died = "killed"  # type: ignore[assignment]
            scene.steps(3, seconds=0.1)
            assert (len(scene.receivers), len(scene.servers)) == (count, count)

    def test_a_receiver_that_dies_at_once_is_restarted_later(self, scene: Scene) -> None:
        scene.begin(A)
        for count in (2, 2):
            scene.receivers[-1].died = "killed"
            scene.steps(4, seconds=0.1)
            assert len(scene.receivers) == count
        scene.steps(4, seconds=0.1)
        assert len(scene.receivers) == 3

    def test_too_many_deaths(self, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
        scene.begin(A + B)
        while scene.states()["a"] != "failed":
            scene.receivers[-1 if scene.receivers[-1].config.topic == "A" else 0].died = "killed again"
            scene.steps(1)
        assert scene.states() == {"a": "failed", "b": "running"}
        assert scene.servers[0].reported[-1][0]["error"] == "killed again"
        assert "trying again in a minute" in caplog.text
        count = len(scene.receivers)
        scene.steps(50)
        assert len(scene.receivers) == count
        scene.steps(15)
        assert scene.states()["a"] == "running" and scene.servers[0].reported[-1][0]["error"] is None

    def test_a_receiver_that_cannot_start(self, scene: Scene) -> None:
        scene.refused["A"] = TransportError("no such interface")
        supervisor = scene.begin(A + B)
        assert supervisor.is_ready and scene.keeper("a").error == "no such interface"
        del scene.refused["A"]
        scene.steps(10)
        assert scene.states() == {"a": "running", "b": "running"}

    @pytest.mark.parametrize("error", [ValueError("no JSON"), RuntimeError("can't start new thread")])
    def test_an_unexpected_error_of_a_start_is_a_death_like_others(
        self, scene: Scene, error: Exception
    ) -> None:
        scene.refused["A"] = error
        supervisor = scene.begin(A + B)
        assert supervisor.is_ready and scene.states()["b"] == "running"
        assert str(error) in str(scene.servers[0].reported[-1][0]["error"])
        scene.steps(20)
        assert len(scene.receivers) == 1 and scene.receivers[0].dispose is None
        del scene.refused["A"]
        scene.steps(100)
        assert scene.states() == {"a": "running", "b": "running"}
        assert supervisor.drain(dispose=True, patience=1, pause=lambda: None) == []
        assert [each.dispose for each in scene.receivers] == [True, True] and scene.servers[0].stopped

    def test_an_error_while_watching_stops_a_receiver_before_its_restart(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scene.begin(A)

        def half_written() -> None:
            raise ValueError("the file of its error holds no JSON")

        monkeypatch.setattr(scene.receivers[0], "check", half_written)
        scene.steps(5)
        assert [each.dispose for each in scene.receivers] == [False, None]
        assert scene.states() == {"a": "running"} and scene.keeper("a").error is None

    def test_back_off(self, scene: Scene) -> None:
        tries: list[float] = []

        class Refusing(dict):  # type: ignore[type-arg]
            def __contains__(self, _topic: object) -> bool:
                tries.append(scene.now / 1e9)
                return True

            def __getitem__(self, _topic: object) -> Exception:
                return TransportError("no")

        scene.refused = Refusing()
        scene.begin(A)
        scene.steps(300, seconds=0.1)
        pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
        assert pauses[1:] == sorted(pauses[1:]) and pauses[-1] >= 4 and len(tries) == 6

    def test_the_server_is_started_again_at_its_port(self, scene: Scene) -> None:
        scene.begin(A)
        scene.servers[0].died = True
        scene.steps()
        assert [each.asked_port for each in scene.servers] == [0, 7777]
        assert scene.servers[1].reported[-1][0]["name"] == "a"
        assert len(scene.receivers) == 1

    def test_a_server_that_dies_all_the_time_is_not_alive(self, scene: Scene) -> None:
        supervisor = scene.begin(A)
        for _ in range(60):
            if not supervisor.is_alive:
                break
            scene.servers[-1].died = True
            scene.steps(1)
        assert not supervisor.is_alive
        scene.steps(70)
        assert supervisor.is_alive


class TestHanging:
    """A receiver that shows no sign of life is killed, and started again as any that died."""

    def test_a_hanging_receiver_is_killed(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        scene.begin(A)
        killed: list[tuple[int, int]] = []
        monkeypatch.setattr("os.kill", lambda *reported: killed.append(reported))
        heartbeat = scene.now
        monkeypatch.setattr(scene.receivers[0], "counters", lambda: {"receiver.heartbeat_ns": heartbeat})
        scene.steps(59)
        assert not killed
        scene.steps(3)
        assert killed == [(scene.receivers[0].pid, signal.SIGKILL)]
        scene.steps(50)  # the kernel does not end it, such as while a disk does not answer
        assert len(killed) == 1
        scene.steps(15)
        assert len(killed) == 2

    def test_a_receiver_paused_with_its_supervisor_is_not_killed(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in a container that was paused: the supervisor may look before the receiver goes on."""
        scene.begin(A)
        monkeypatch.setattr("os.kill", lambda *_: pytest.fail("killed"))
        beats = scene.now
        monkeypatch.setattr(FakeReceiver, "counters", lambda _: {"receiver.heartbeat_ns": beats})
        for _ in range(3):
            scene.steps(5)
            scene.steps(1, seconds=3_600.0)
            scene.steps(3)
            beats = scene.now
        scene.steps(30)
        assert scene.states() == {"a": "running"}

    def test_a_receiver_that_has_just_begun_is_not_killed(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(FakeReceiver, "counters", lambda _: {"receiver.heartbeat_ns": 0})
        monkeypatch.setattr("os.kill", lambda *_: pytest.fail("killed"))
        scene.begin(A)
        scene.steps(5)


class TestLostLogs:
    def test_a_log_that_has_not_begun_is_none_that_is_gone(
        self, scene: Scene, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Clients know it from the moment of their subscription on, and a restart may come before its receiver."""
        scene.begin(A)
        scene.refused["C"] = TransportError("no such interface")
        assert scene.ask("subscribe", options={"topic": "C"}) == ("C", None)
        log = scene.keeper("C").log
        scene.begin(A)
        assert scene.keeper("C").log == log
        del scene.refused["C"]
        scene.steps(10)
        assert scene.receivers[-1].config.log_directory.endswith(log) and "NEW log" not in caplog.text
        shutil.rmtree(scene.root / log)
        scene.begin(A)
        assert scene.keeper("C").log != log and "NEW log" in caplog.text

    def test_a_log_that_cannot_be_looked_at_is_none_that_is_gone(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As of a file system of another host; from Python 3.14 on, Path.exists() is os.path.exists()."""
        scene.begin(A)
        log, stat = scene.keeper("a").log, os.stat

        def refuse(path: Any, **given: Any) -> os.stat_result:
            if log in str(path):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
            return stat(path, **given)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "exists", os.path.exists)
            patched.setattr(os, "stat", refuse)
            scene.begin(A)
            scene.steps(5)
            assert scene.keeper("a").log == log and "NEW log" not in caplog.text
            assert "its log cannot be opened: [Errno 116]" in str(scene.keeper("a").error)
            assert "unexpected" not in caplog.text
        scene.steps(5)
        assert scene.states() == {"a": "running"}
        assert scene.receivers[-1].config.log_directory.endswith(log)

    def test_a_log_that_is_gone(self, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
        scene.begin(A)
        old = scene.keeper("a").log
        shutil.rmtree(scene.root / old)
        scene.begin(A)
        new = scene.keeper("a").log
        assert new != old and scene.states() == {"a": "running"}
        assert scene.recorded()["a"]["log"] == new
        assert "NEW log" in caplog.text and old in caplog.text

    def test_a_log_that_cannot_be_resumed(self, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
        scene.begin(A)
        old = scene.keeper("a").log
        scene.refused["A"] = LogLostError("its end is lost")
        scene.receivers[0].died = "killed"
        scene.steps(2, seconds=0.1)
        del scene.refused["A"]
        scene.steps(20)
        assert scene.states() == {"a": "running"} and scene.keeper("a").log != old
        assert "its end is lost" in caplog.text
        assert scene.receivers[-1].config.log_directory.endswith(scene.recorded()["a"]["log"])
        assert (scene.root / old).exists()

    def test_another_topic_under_the_name(self, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
        scene.begin(A)
        old = scene.keeper("a").log
        scene.begin(A.replace('"A"', '"C"'))
        assert scene.keeper("a").log != old and "NEW" in caplog.text

    def test_a_type_that_is_named_later(self, scene: Scene) -> None:
        (scene.path / "p.idl").write_text("struct P { long x; };")
        scene.begin(A)
        old = scene.keeper("a").log
        scene.begin(A + 'type.file = "p.idl"\n')
        assert scene.keeper("a").log == old


class TestReload:
    def test_an_unchanged_subscription_continues(self, scene: Scene) -> None:
        supervisor = scene.begin(A + B)
        output = supervisor.reload(scene.config(B + A))
        scene.steps()
        assert output == [] and len(scene.receivers) == 2 and len(scene.servers) == 1

    def test_a_changed_subscription_is_restarted_on_its_log(self, scene: Scene) -> None:
        supervisor = scene.begin(A + B)
        output = supervisor.reload(scene.config(A + 'reliability = "best_effort"\n' + B))
        scene.steps(5)
        assert output == ["a has changed and starts again"]
        old, _, new = scene.receivers
        assert old.dispose is False and new.config.log_directory == old.config.log_directory
        assert new.config.qos != old.config.qos

    def test_retention_is_a_change(self, scene: Scene) -> None:
        supervisor = scene.begin(A)
        supervisor.reload(scene.config(A + 'retention = "committed"\n'))
        scene.steps(5)
        assert len(scene.receivers) == 2 and scene.servers[0].reported[-1][0]["retention"] == "committed"

    def test_another_topic_takes_a_new_log(self, scene: Scene) -> None:
        supervisor = scene.begin(A)
        supervisor.reload(scene.config('[subscriptions.a]\ntopic = "C"\n'))
        scene.steps(5)
        old, new = scene.receivers
        assert new.config.topic == "C" and new.config.log_directory != old.config.log_directory
        assert old.dispose is True  # its writers wait for nobody: no receiver goes on with that log

    @pytest.mark.parametrize("other", ["domain = 7", 'partition = "b"'])
    def test_other_writers_take_a_new_log(self, scene: Scene, other: str) -> None:
        supervisor = scene.begin(A)
        supervisor.reload(scene.config(f"{A}{other}\n"))
        scene.steps(5)
        old, new = scene.receivers
        assert new.config.log_directory != old.config.log_directory

    def test_a_change_that_is_taken_back_before_it_is_carried_out(self, scene: Scene) -> None:
        supervisor = scene.begin(A)
        log = scene.keeper("a").log
        other = A.replace('"A"', '"B"')
        assert supervisor.reload(scene.config(other)) == ["a has changed and starts again"]
        assert supervisor.reload(scene.config(A)) == ["a has changed and starts again"]
        scene.steps(6)
        assert [each.config.topic for each in scene.receivers] == ["A"]
        assert scene.receivers[0].dispose is None and scene.keeper("a").log == log

    def test_a_change_that_is_taken_back_while_the_receiver_stops(self, scene: Scene) -> None:
        supervisor = scene.begin(A)
        log = scene.keeper("a").log
        supervisor.reload(scene.config(A.replace('"A"', '"B"')))
        scene.steps(1)
        supervisor.reload(scene.config(A))
        scene.steps(6)
        assert [each.config.topic for each in scene.receivers] == ["A", "A"]
        assert scene.keeper("a").log == log and scene.states() == {"a": "running"}

    def test_clients_find_what_a_change_that_is_not_carried_out_receives(self, scene: Scene) -> None:
        supervisor = scene.begin(A)
        supervisor.reload(scene.config(A.replace('"A"', '"B"')))
        scene.servers[-1].waiting.append(Asked("subscribe", 5, {"topic": "A"}))
        scene.steps(6)
        assert scene.servers[-1].answers == [(5, "A", None)]
        assert {each.wanted.settings.topic for each in supervisor.keepers} == {"A", "B"}

    def test_a_pattern_whose_options_a_found_topic_cannot_have_changes_nothing(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scene.topics.add("rt/imu")
        supervisor = scene.begin(A + TestPatterns.ROBOT)
        before, states = supervisor.config, scene.states()
        config = scene.config(B + TestPatterns.ROBOT)

        def refuse(*_: object, **__: object) -> None:
            raise OptionError("topic", "rt/imu", "no")

        monkeypatch.setattr(supervisor_module, "wanted", refuse)
        with pytest.raises(OptionError):
            supervisor.reload(config)
        scene.steps()
        assert supervisor.config is before and scene.states() == states

    def test_added_and_removed(self, scene: Scene) -> None:
        supervisor = scene.begin(A)
        log = scene.keeper("a").log
        output = supervisor.reload(scene.config(B))
        scene.steps()
        assert scene.states() == {"b": "running"} and scene.receivers[0].dispose is True
        assert len(output) == 2 and log in output[0]
        supervisor.reload(scene.config(A + B))
        scene.steps()
        assert scene.keeper("a").log == log  # it was kept

    def test_the_server_changes(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        supervisor = scene.begin(A)
        monkeypatch.setenv("T", "x" * 20)
        text = A + '[tokens]\nadmin = "env:T"\n'
        assert supervisor.reload(scene.config(text)) == ["the server starts again"]
        scene.steps()
        assert scene.servers[0].stopped and scene.servers[1].config.tokens == {"admin": "x" * 20}
        assert len(scene.receivers) == 1 and scene.servers[1].reported

    def test_the_directory_stays(self, scene: Scene) -> None:
        supervisor = scene.begin(A)
        before = supervisor.config
        scene.file.write_text('directory = "elsewhere"\n')
        from spark_rtps.receiver_service.config import read_config

        with pytest.raises(ReceiverFileError, match="restart the receiver"):
            supervisor.reload(read_config(scene.file))
        assert supervisor.config is before and scene.states() == {"a": "running"}

    def test_clients_subscriptions_stay(self, scene: Scene) -> None:
        supervisor = scene.begin(A)
        scene.ask("subscribe", options={"topic": "C"})
        supervisor.reload(scene.config(A))
        scene.steps()
        assert set(scene.states()) == {"a", "C"}


class TestFullDisk:
    def test_a_full_disk_is_logged_once_and_everything_continues(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        scene.begin(A)
        write = supervisor_module.write_records  # type: ignore[attr-defined]

        def full(*_: object) -> None:
            raise LogError("no space left")

        monkeypatch.setattr(supervisor_module, "write_records", full)
        name, error = scene.ask("subscribe", options={"topic": "C"})
        assert name is None and error == "no space left"
        scene.steps(10)
        assert scene.states() == {"a": "running"} and caplog.text.count("no space left") == 1
        monkeypatch.setattr(supervisor_module, "write_records", write)
        scene.steps()
        assert set(scene.recorded()) == {"a"}

    @pytest.mark.parametrize("is_replaced", [False, True])
    def test_a_refused_request_changes_nothing(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
    ) -> None:
        """Also where the file was replaced, and only the sync of its folder failed."""
        scene.begin(A)
        scene.ask("subscribe", options={"topic": "X"})
        scene.steps()
        before = scene.recorded()
        write = supervisor_module.write_records  # type: ignore[attr-defined]

        def full(directory: Path, records: Mapping[str, LogRecord]) -> None:
            if is_replaced:
                write(directory, records)
            raise LogError("no space left")

        monkeypatch.setattr(supervisor_module, "write_records", full)
        assert scene.ask("subscribe", options={"topic": "Y"}) == (None, "no space left")
        assert scene.ask("unsubscribe", name="X") == (None, "no space left")
        assert scene.states() == {"a": "running", "X": "running"}
        assert [each.config.topic for each in scene.receivers] == ["A", "X"]
        assert [each.dispose for each in scene.receivers] == [None, None]
        monkeypatch.setattr(supervisor_module, "write_records", write)
        scene.steps(1)
        assert scene.recorded() == before
        assert scene.ask("unsubscribe", name="X") == ("X", None)
        scene.begin(A)
        assert scene.states() == {"a": "running"}


class TestPatterns:
    ROBOT = '[subscriptions.robot]\ntopic = "rt/*"\nreliability = "best_effort"\n'

    def test_one_subscription_for_each_topic_also_later(self, scene: Scene) -> None:
        scene.topics |= {"rt/imu", "Square"}
        scene.begin(self.ROBOT)
        assert scene.states() == {"robot/rt/imu": "running"}
        scene.topics.add("rt/odom")
        scene.steps()
        assert set(scene.states()) == {"robot/rt/imu", "robot/rt/odom"}
        assert {each.config.topic for each in scene.receivers} == {"rt/imu", "rt/odom"}
        assert scene.servers[0].reported[-1][0]["topic"] == "rt/imu"

    def test_found_topics_go_on_before_they_are_seen_again(self, scene: Scene) -> None:
        scene.topics.add("rt/imu")
        scene.begin(self.ROBOT)
        log = scene.keeper("robot/rt/imu").log
        scene.topics.clear()
        scene.begin(self.ROBOT)
        assert scene.states() == {"robot/rt/imu": "running"} and scene.keeper("robot/rt/imu").log == log

    def test_their_number_is_bounded(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(supervisor_module, "PATTERN_TOPICS_MAX", 3)
        scene.topics |= {f"rt/{i}" for i in range(9)}
        scene.begin(self.ROBOT)
        scene.steps(10)
        assert len(scene.states()) == 3
        assert caplog.text.count("are not received") == 1

    def test_names_on_the_wire_become_names(self, scene: Scene) -> None:
        scene.topics |= {"rt/a b", "rt/a_b", "rt/../../etc", "rt/" + "x" * 200, "rt/\x1b[2J"}
        scene.begin(self.ROBOT)
        names = set(scene.states())
        assert len(names) == 5 and {"robot/rt/a_b", "robot/rt/a_b-2"} < names
        assert all(len(name) <= 128 and ".." not in name for name in names)

    @pytest.mark.parametrize("name", ["", " ", " Square", "a\0b", "\ud800", "x" * 5_000])
    def test_a_name_that_no_option_can_hold_keeps_no_other_topic_out(
        self, scene: Scene, caplog: pytest.LogCaptureFixture, name: str
    ) -> None:
        scene.topics |= {name, "Square", "Circle"}
        scene.begin('[subscriptions.all]\ntopic = "*"\n')
        scene.steps(5)
        assert scene.states() == {"all/Circle": "running", "all/Square": "running"}
        assert [each.config.topic for each in scene.receivers] == ["Circle", "Square"]
        assert caplog.text.count("is not received") == 1

    def test_names_that_no_option_can_hold_are_logged_within_bounds(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(supervisor_module, "_REFUSED_LOGGED_MAX", 3)
        scene.topics |= {" " * n for n in range(1, 9)} | {"Square"}
        scene.begin('[subscriptions.all]\ntopic = "*"\n')
        scene.steps(5)
        assert caplog.text.count("is not received") == 3 and scene.states() == {"all/Square": "running"}

    def test_names_that_no_option_can_hold_are_tried_once(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A peer may have thousands of them, and each look meets all again."""
        tried: list[str] = []

        def wanted(name: str, options: dict[str, str], **given: Any) -> Any:
            tried.append(options["topic"])
            return subscribing.wanted(name, options, **given)

        monkeypatch.setattr(supervisor_module, "wanted", wanted)
        monkeypatch.setattr(supervisor_module, "_REFUSED_LOGGED_MAX", 3)
        blank = {" Square", "Square\t", "Square\u3000", "Squ\0are"}
        long = {"\N{REPLACEMENT CHARACTER}" * n for n in range(1_366, 1_374)}  # what is no UTF-8 on the wire
        scene.topics |= {"Square"} | blank | long
        scene.begin('[subscriptions.all]\ntopic = "*"\n')
        scene.steps(20)
        assert sorted(tried) == ["Square", *sorted(long)]
        scene.topics -= long
        scene.steps(20)
        scene.topics |= long
        scene.steps(20)
        assert len(tried) == 1 + 2 * len(long), "those that are gone are not remembered"

    def test_reload_without_it(self, scene: Scene) -> None:
        scene.topics.add("rt/imu")
        supervisor = scene.begin(self.ROBOT)
        supervisor.reload(scene.config(self.ROBOT))
        scene.steps()
        assert len(scene.receivers) == 1
        supervisor.reload(scene.config(self.ROBOT.replace("best_effort", "reliable")))
        scene.steps(5)
        assert len(scene.receivers) == 2
        supervisor.reload(scene.config(A))
        scene.steps()
        assert scene.states() == {"a": "running"}


class Waiting(InlineExecutor):
    """Threads that are all busy: what they are given waits until it is allowed."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future


class TestSlowStarts:
    """A start may take two minutes, and a stop half a minute."""

    def test_slow_starts_delay_neither_the_server_nor_other_stops(self, scene: Scene) -> None:
        slow = Waiting()
        scene.starts = slow
        supervisor = scene.begin(A + B)
        assert supervisor.port is not None and len(slow.waiting) == 2
        supervisor.reload(dataclasses.replace(supervisor.config, port=7421))
        scene.steps()
        assert [each.asked_port for each in scene.servers] == [0, 7421]
        assert supervisor.drain(dispose=True, patience=1, pause=lambda: None) == []
        assert scene.receivers == [] and all(future.cancelled() for future, _ in slow.waiting)


class TestDrain:
    def test_receivers_then_server_and_what_is_left(self, scene: Scene) -> None:
        from spark_rtps.transport.log.counters import Counters

        supervisor = scene.begin(A + B)
        log = scene.keeper("a").log
        counters = Counters.create(scene.root / log / "counters")
        counters.counter("log.position").set(1000)
        scene.committed(log, slow=100, quick=1000)
        left = supervisor.drain(dispose=False, patience=10, pause=lambda: None)
        assert left == ["a (topic 'A'): group slow is 900 bytes behind"]
        assert [each.dispose for each in scene.receivers] == [False, False] and scene.servers[0].stopped

    def test_a_receiver_that_does_not_end(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        supervisor = scene.begin(A)
        monkeypatch.setattr(scene.keeper("a"), "do_work", lambda now: None)
        assert supervisor.drain(dispose=True, patience=0.05, pause=lambda: None) == [
            "a: its receiver has not ended"
        ]


def test_logs_are_uuids(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    scene.begin(A)
    assert str(uuid.UUID(scene.recorded()["a"]["log"])) == scene.recorded()["a"]["log"]
