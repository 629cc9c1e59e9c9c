"""``subscribe`` and ``subscribePattern`` of receiver services' subscriptions: in the file, asked for, kept, changed."""

from __future__ import annotations

import pytest

from spark_rtps.serving.wire_format.receiver_service import SubscriptionInfo
from spark_rtps.transport.protocol.discovery.topic_selection import TopicSelection
from spark_rtps.transport.qos import HistoryKind
from spark_rtps.transport.receiver.config import ReceiverConfig
from tests.receiver_service.supervisor_scene import Scene

LIST = '[subscriptions.a]\nsubscribe = ["rt/imu", "rt/odom"]\n'
PATTERN = '[subscriptions.a]\nsubscribePattern = "rt/.*"\n'


def test_topics_together_have_a_single_receiver(scene: Scene) -> None:
    """A regular expression is no pattern of the kind that makes a subscription of each topic."""
    scene.topics = {"rt/imu", "rt/odom"}
    scene.begin(PATTERN)
    scene.steps()
    (receiver,) = scene.receivers
    assert receiver.config.topics == TopicSelection(pattern="rt/.*")
    assert (receiver.config.type_name, receiver.config.keyed) == (None, None)
    assert receiver.config.qos.history is HistoryKind.KEEP_ALL  # nobody here knows instances
    assert receiver.config.records_writer_types
    assert ReceiverConfig.from_json(receiver.config.to_json()) == receiver.config
    (reported,) = scene.servers[0].reported[-1]
    assert reported["topic"] == "rt/.*" and reported["topics"] == {"names": (), "pattern": "rt/.*"}


def test_the_first_writer_of_each_topic_says_whether_there_is_a_key(scene: Scene) -> None:
    """The name of a type selects topics; of one topic it would be no more than what its first writer says."""
    scene.begin(f'{LIST}type = "Point"\n[subscriptions.b]\nsubscribe = "rt/a"\ntype = "P"\nkeyed = true\n')
    one, other = (each.config for each in scene.receivers)
    assert (one.topics, one.type_name, one.keyed) == (
        TopicSelection(names=("rt/imu", "rt/odom")),
        "Point",
        None,
    )
    assert (other.type_name, other.keyed) == ("P", True)


def test_a_filter_needs_the_type_that_all_topics_have(scene: Scene) -> None:
    (scene.path / "point.idl").write_text("struct Point { long id; double x; };")
    scene.begin(f'{LIST}type.file = "point.idl"\ntype.extensibility = "final"\nfilter = "x > 1"\n')
    config = scene.receivers[0].config
    assert (config.type_name, config.keyed, config.filter) == ("Point", False, ("x > 1", ()))


def test_another_selection_starts_it_again_on_its_log(scene: Scene) -> None:
    supervisor = scene.begin(LIST)
    log = scene.keeper("a").log
    assert supervisor.reload(scene.config('[subscriptions.a]\nsubscribe = "rt/odom,rt/imu"\n')) == []
    for text in (LIST.replace("odom", "gps"), PATTERN):
        assert supervisor.reload(scene.config(text)) == ["a has changed and starts again"]
        scene.steps(5)
        assert scene.keeper("a").log == log
    assert scene.receivers[-1].config.topics == TopicSelection(pattern="rt/.*")
    scene.begin(LIST)  # nor does another supervisor begin a new log
    assert scene.keeper("a").log == log


@pytest.mark.parametrize("text", ['subscribe = "rt/imu"', 'subscribePattern = "rt/imu"'])
def test_a_log_of_one_topic_is_not_resumed_with_several(scene: Scene, text: str) -> None:
    scene.begin('[subscriptions.a]\ntopic = "rt/imu"\n')
    log = scene.keeper("a").log
    scene.begin(f"[subscriptions.a]\n{text}\n")
    assert scene.keeper("a").log != log


def test_clients_ask_for_them_and_find_them_again(scene: Scene) -> None:
    scene.begin(LIST + "[subscriptions.b]\nsubscribePattern = 'rt/.*'\n")
    assert scene.ask("subscribe", options={"subscribe": "rt/odom,rt/imu"}) == ("a", None)
    assert scene.ask("subscribe", options={"subscribePattern": "rt/.*"}) == ("b", None)
    assert scene.ask("subscribe", options={"topic": "rt/imu"}) == ("rt/imu", None)
    assert scene.ask("subscribe", options={"subscribe": "rt/imu"}) == ("rt/imu-2", None)
    made, error = scene.ask(
        "subscribe", options={"subscribePattern": "rt/x.*", "type": "std_msgs/msg/String"}
    )
    assert error is None and made == "rt/x._"
    assert scene.keeper(made).wanted.plan.struct is not None
    log = scene.keeper(made).log
    scene.begin(LIST)
    assert scene.keeper(made).log == log
    assert scene.receivers[-1].config.topics == TopicSelection(pattern="rt/x.*")


@pytest.mark.parametrize(
    "wrong",
    [
        "rt/.*",
        {},
        {"names": [], "pattern": None},
        {"names": ["a"], "pattern": "a"},
        {"names": [1], "pattern": None},
        {"names": ["a"] * 2000, "pattern": None},
        {"names": [], "pattern": 3},
    ],
)
def test_reports_of_a_receiver_are_checked(wrong: object) -> None:
    reported = {
        "name": "a",
        "topic": "rt/.*",
        "log": "6f6d6c0a-7a3f-4f5c-9e53-9a4b54a1c001",
        "state": "running",
        "directory": "/x",
        "retention": "bytes",
        **dict.fromkeys(("domain", "base", "position", "rows"), 0),
    }
    assert SubscriptionInfo.parse(reported).topics is None
    assert SubscriptionInfo.parse({**reported, "topics": {"names": ["a", "b"], "pattern": None}}).topics == (
        TopicSelection(names=("a", "b"))
    )
    with pytest.raises(ValueError, match=r"are not topics|has to be"):
        SubscriptionInfo.parse({**reported, "topics": wrong})
