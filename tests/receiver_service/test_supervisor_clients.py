"""Subscriptions that clients of a receiver service make and remove; without a process."""

from __future__ import annotations

import pytest

from spark_rtps.receiver_service import supervisor as supervisor_module
from spark_rtps.transport.qos import HistoryKind
from tests.receiver_service.supervisor_scene import Asked, Scene

A = '[subscriptions.a]\ntopic = "A"\n'


class TestClients:
    def test_a_subscription_is_made_and_found_again(self, scene: Scene) -> None:
        scene.begin(A)
        assert scene.ask("subscribe", options={"topic": "C", "reliability": "best_effort"}) == ("C", None)
        assert scene.receivers[-1].config.topic == "C" and scene.recorded()["C"]["dynamic"] is True
        count = len(scene.receivers)
        again = {"topic": "C", "reliability": "best_effort", "payload": "binary", "columns": "x"}
        assert scene.ask("subscribe", options=again) == ("C", None)
        assert len(scene.receivers) == count

    def test_the_files_subscriptions_are_found_too(self, scene: Scene) -> None:
        scene.begin(A)
        assert scene.ask("subscribe", options={"topic": "A", "log.max_bytes": "1GiB"}) == ("a", None)
        assert len(scene.receivers) == 1

    @pytest.mark.parametrize(
        "other",
        [{"reliability": "best_effort"}, {"partition": "p"}, {"domain": "3"}, {"ownership": "exclusive"}],
    )
    def test_other_qos_or_another_place_is_another_subscription(
        self, scene: Scene, other: dict[str, str]
    ) -> None:
        scene.begin(A)
        assert scene.ask("subscribe", options={"topic": "A", **other}) == ("A", None)
        assert scene.ask("subscribe", options={"topic": "A", **other}) == ("A", None)
        assert len(scene.receivers) == 2

    def test_the_files_defaults_hold(self, scene: Scene) -> None:
        scene.begin("domain = 9\n" + A)
        scene.ask("subscribe", options={"topic": "C"})
        assert scene.receivers[-1].config.node.domain == 9

    def test_a_clients_subscription_survives_the_supervisor(self, scene: Scene) -> None:
        scene.begin(A)
        scene.ask("subscribe", options={"topic": "C", "history.depth": "7"})
        log = scene.keeper("C").log
        scene.begin(A)
        assert scene.keeper("C").log == log and scene.keeper("C").wanted.dynamic
        assert scene.receivers[-1].config.qos.history_depth == 7

    def test_a_new_subscription_is_reported_before_its_answer(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scene.begin(A)
        seen: list[list[str]] = []
        server = scene.servers[0]
        monkeypatch.setattr(
            server,
            "send_answer",
            lambda *_, **__: seen.append([each["name"] for each in server.reported[-1]]),
        )
        server.waiting.append(Asked("subscribe", 1, {"topic": "C"}))
        scene.steps()
        assert seen == [["a", "C"]]

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"topic": "C", "reliabilty": "x"}, "did you mean 'reliability'"),
            ({"topic": "C", "reliability": "x"}, "must be one of"),
            ({"reliability": "reliable"}, "name the topic"),
            ({"topic": "C*"}, "is a pattern"),
            ({"topic": "C", "partition": "p" * 17_000}, "at most 16384 are allowed"),
            ({"topic": "C", "qos.file": "/etc/passwd"}, "file of the client's host"),
            ({"topic": "C", "congestion_control": "os:system"}, "cannot load code"),
        ],
    )
    def test_invalid_subscriptions_are_refused(self, scene: Scene, options: dict[str, str], why: str) -> None:
        scene.begin(A)
        name, error = scene.ask("subscribe", options=options)
        assert name is None and error is not None and why in error
        assert len(scene.receivers) == 1

    def test_a_file_of_the_clients_host_is_not_opened(self, scene: Scene) -> None:
        scene.begin(A)
        assert scene.ask("subscribe", options={"topic": "C", "type.file": "/etc/passwd"}) == ("C", None)
        assert "type.file" not in scene.recorded()["C"]["options"]

    def test_a_filter_that_nobody_here_can_check_is_left_to_the_query(self, scene: Scene) -> None:
        scene.begin(A)
        options = {"topic": "C", "filter": "x > %0", "filter.parameters": "1", "type": "Point"}
        assert scene.ask("subscribe", options=options) == ("C", None)
        assert scene.receivers[-1].config.filter is None

    def test_a_filter_over_a_type_that_is_known(self, scene: Scene) -> None:
        scene.begin(A)
        options = {"topic": "C", "filter": "x > 1", "type": "geometry_msgs/msg/Point"}
        assert scene.ask("subscribe", options=options) == ("C", None)
        assert scene.receivers[-1].config.filter == ("x > 1", ())
        assert scene.ask("subscribe", options={**options, "filter": "x > 2"}) == ("C-2", None)
        assert scene.ask("subscribe", options={**options, "filter": "z > 2"}) == ("C-3", None)
        name, error = scene.ask("subscribe", options={**options, "filter": "w > 2"})
        assert name is None and "option 'filter'" in str(error)

    def test_a_query_that_names_key_columns_wants_a_key(self, scene: Scene) -> None:
        scene.begin(A)
        options = {"topic": "C", "type": "Point", "key": "id", "history": "keep_last", "history.depth": "9"}
        assert scene.ask("subscribe", options=options) == ("C", None)
        config = scene.receivers[-1].config
        assert (config.type_name, config.keyed) == ("Point", True)
        assert scene.ask("subscribe", options=options) == ("C", None)
        assert scene.recorded()["C"]["options"]["keyed"] == "true"
        ros = {"topic": "D", "type": "geometry_msgs/msg/Point", "key": "x"}
        assert scene.ask("subscribe", options=ros) == ("D", None)
        assert scene.receivers[-1].config.keyed is False, "what is known of the type counts more"

    @pytest.mark.parametrize(
        ("options", "keyed"),
        [
            ({"history": "keep_last", "type": "Point"}, None),
            ({"history": "keep_all"}, None),
            ({"history": "keep_last", "keyed": "false"}, False),
            ({"history": "keep_last", "deadline": "1s"}, False),
        ],
    )
    def test_the_first_writer_has_a_key_or_none(
        self, scene: Scene, options: dict[str, str], keyed: bool | None
    ) -> None:
        """Unless instances have to be told apart: that needs an answer before."""
        scene.begin(A)
        assert scene.ask("subscribe", options={"topic": "C", **options}) == ("C", None)
        config = scene.receivers[-1].config
        assert (config.type_name, config.keyed) == (None, keyed)
        assert config.qos.history is (HistoryKind.KEEP_ALL if keyed is None else HistoryKind.KEEP_LAST)

    def test_their_number_is_bounded(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(supervisor_module, "DYNAMIC_MAX", 1)
        scene.begin(A)
        scene.ask("subscribe", options={"topic": "C"})
        name, error = scene.ask("subscribe", options={"topic": "D"})
        assert name is None and "1 subscriptions of clients" in str(error)

    def test_removed_on_request(self, scene: Scene) -> None:
        scene.begin(A)
        scene.ask("subscribe", options={"topic": "C"})
        assert scene.ask("unsubscribe", name="C") == ("C", None)
        assert set(scene.states()) == {"a"} and scene.receivers[-1].dispose is True
        assert "C" not in scene.recorded()

    @pytest.mark.parametrize(("name", "why"), [("a", "of the receiver's file"), ("x", "no such")])
    def test_subscriptions_that_a_client_may_not_remove(self, scene: Scene, name: str, why: str) -> None:
        scene.begin(A)
        found, error = scene.ask("unsubscribe", name=name)
        assert found is None and why in str(error) and set(scene.states()) == {"a"}
