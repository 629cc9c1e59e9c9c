"""Which topics a receiver of several follows, under which keys, and which it leaves out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from spark_rtps.transport.errors import LogError
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.net.receiving_node import NamedType
from spark_rtps.transport.protocol.discovery.topic_selection import TopicSelection
from spark_rtps.transport.receiver import followed_topics as module
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.followed_topics import Followed, FollowedTopics, followed_topics
from spark_rtps.transport.receiver.new_log import READERS
from spark_rtps.transport.receiver.subscription_log import open_log

PATTERN = TopicSelection(pattern="rt/.*")


class Domain:
    """Stands for a node: the topics that are written, and the type that each has."""

    def __init__(self, **types: str) -> None:
        self.types = types
        #: What later writers of a topic call its type.
        self.later: dict[str, str] = {}
        self.changes = 0
        self.directory = self
        #: The keys of the readers of an earlier receiver that writers were told to forget.
        self.withdrawn: list[tuple[int, bool]] = []

    def withdraw_reader(self, entity_key: int, *, keyed: bool) -> None:
        self.withdrawn.append((entity_key, keyed))

    def write(self, topic: str, type_name: str = "T") -> None:
        self.types[topic] = type_name
        self.changes += 1

    def written_topics(self) -> set[str]:
        return set(self.types)

    def first_writer(self, topic: str, qos: object, type_name: str | None = None) -> NamedType:
        is_later = type_name is not None and self.later.get(topic) == type_name
        return NamedType(self.later[topic] if is_later else self.types[topic], keyed=topic.endswith("k"))


def config(directory: Path, topics: TopicSelection = PATTERN, **given: Any) -> ReceiverConfig:
    asked = {
        "type_name": None,
        "keyed": None,
        "log_max_bytes": 1 << 20,
        "log_segment_bytes": 1 << 16,
        **given,
    }
    return ReceiverConfig(str(directory / "log"), str(topics), topics=topics, **asked)


def following(asked: ReceiverConfig, log: StreamLog, node: Domain) -> FollowedTopics:
    return followed_topics(asked, log, cast(Any, node))


def reported(followed: Any) -> list[tuple[str, str, bool, int]]:
    found: list[Followed] = list(followed)
    assert all(each.config.topics is None for each in found)
    return [(each.config.topic, *each.named, each.entity_key) for each in found]


def test_topics_are_followed_once_and_kept(tmp_path: Path) -> None:
    asked, node = config(tmp_path), Domain()
    with open_log(asked) as log:
        topics = following(asked, log, node)
        assert reported(topics.begin()) == []
        node.write("rt/b")
        node.write("rt/a_k", "A")
        node.write("other")
        assert reported(topics.new_topics()) == [("rt/a_k", "A", True, 1), ("rt/b", "T", False, 2)]
        assert reported(topics.new_topics()) == []
        node.write("rt/c")
        assert reported(topics.new_topics()) == [("rt/c", "T", False, 3)]
    with open_log(asked) as log:  # a successor has the same readers, whoever writes
        again = following(asked, log, Domain())
        assert reported(again.begin()) == [
            ("rt/a_k", "A", True, 1),
            ("rt/b", "T", False, 2),
            ("rt/c", "T", False, 3),
        ]


def test_another_selection_goes_on_with_the_log(tmp_path: Path) -> None:
    """The readers of topics that are selected still are the same, and no key is given twice."""
    asked, node = config(tmp_path), Domain()
    with open_log(asked) as log:
        for topic in ("rt/a_k", "rt/b"):
            node.write(topic)
            assert len(reported(following(asked, log, node).new_topics())) >= 1
        assert node.withdrawn == []
    fewer = config(tmp_path, TopicSelection(names=("rt/b", "x")), type_name="T", keyed=False)
    with open_log(fewer) as log:
        assert log.metadata["topic"] == "rt/b,x"
        found = reported(following(fewer, log, node).begin())
        key = found[0][3]
        assert (1, True) in node.withdrawn, "no writer waits for the reader of rt/a_k"
        assert key not in dict(node.withdrawn)
        assert found[0][:3] == ("rt/b", "T", False) and found[1][:3] == ("x", "T", False)
        assert found[1][3] > key > 1


def test_logs_of_one_topic_and_of_several_are_not_mixed(tmp_path: Path) -> None:
    several = config(tmp_path)
    open_log(several).close()
    one = replace(several, topic="rt/a", topics=None)
    with pytest.raises(LogError, match="start the query with a new checkpoint"):
        open_log(one)
    one = replace(one, log_directory=str(tmp_path / "one"))
    open_log(one).close()
    with pytest.raises(LogError, match="start the query with a new checkpoint"):
        open_log(replace(several, log_directory=one.log_directory))


def test_other_types_and_more_topics_than_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 2)
    asked, node = config(tmp_path, type_name="T", keyed=False), Domain()
    with open_log(asked) as log:
        topics = following(asked, log, node)
        for number in range(4):
            node.write(f"rt/{number}")
        node.write("rt/other", "O")
        assert [topic for topic, *_ in reported(topics.new_topics())] == ["rt/0", "rt/1"]
        node.changes += 1
        assert reported(topics.new_topics()) == []
        assert log.metadata[READERS] is not None
    assert "topic 'rt/2': selected by 'rt/.*', but not read: the limit of 2 topics is reached" in caplog.text
    assert "topic 'rt/other': selected by 'rt/.*', but not read: its type is 'O'" in caplog.text
    assert len(caplog.records) == 3, "each is said once"


def test_a_writer_of_another_type_keeps_no_topic_out(tmp_path: Path) -> None:
    asked, node = config(tmp_path, type_name="T"), Domain()
    with open_log(asked) as log:
        topics = following(asked, log, node)
        node.write("rt/imu", "stray")
        assert reported(topics.new_topics()) == []
        node.later["rt/imu"] = "T"
        node.changes += 1
        assert reported(topics.new_topics()) == [("rt/imu", "T", False, 1)]


def test_a_topic_that_cannot_be_written_down_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a successor might give its key to another topic."""

    def full(self: StreamLog, **_: object) -> None:
        raise LogError("no space left")

    asked, node = config(tmp_path), Domain()
    with open_log(asked) as log:
        topics = following(asked, log, node)
        node.write("rt/a")
        with monkeypatch.context() as patch:
            patch.setattr(StreamLog, "amend", full)
            assert reported(topics.new_topics()) == reported(topics.new_topics()) == []
        assert reported(topics.new_topics()) == [("rt/a", "T", False, 1)]
    assert caplog.text.count("no space left") == 1


def test_the_configuration_survives_its_way_to_the_process(tmp_path: Path) -> None:
    for topics in (PATTERN, TopicSelection(names=("a", "b"))):
        given = config(tmp_path, topics)
        assert ReceiverConfig.from_json(given.to_json()) == given
