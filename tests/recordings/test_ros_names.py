"""Recordings by ROS 2's names: ``format("ros2")``, whatever the files call their topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_rtps.columns.topic_plan import TopicPlan
from spark_rtps.datasource.recording_reader import RecordingReader
from spark_rtps.datasource.recording_stream_reader import RecordingStreamReader
from spark_rtps.datasource.schema import plan_source
from spark_rtps.datasource.source import Ros2DataSource
from spark_rtps.options import AppliesTo, Settings
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.types.ros import ros_type
from spark_rtps.transport.wire.samples import Samples
from tests.protocol.hostile_scene import RELIABLE
from tests.recordings.recording_scene import Message, messages, write_bag, write_mcap
from tests.support.pcap import write_pcap
from tests.support.virtual_network import SECOND, VirtualNetwork

STRING, INT = "std_msgs/msg/String", "std_msgs/msg/Int32"
#: As recorders of ROS 2 name topics, and as those of DDS do.
NAMES = {"ros": "/{}", "wire": "rt/{}"}


def source(recording: Path, **options: str) -> Ros2DataSource:
    given = {name.replace("__", "."): text for name, text in options.items()}
    return Ros2DataSource({"recording": str(recording), **given})


def planned(found: Ros2DataSource) -> tuple[Settings, TopicPlan]:
    schema = found.schema()  # which may change the settings
    settings = found._settings(AppliesTo.READ)
    return settings, plan_source(settings, schema, found._topic_type)


def rows(recording: Path, **options: str) -> list[dict[str, Any]]:
    """The rows of a batch, as Spark makes it."""
    reader = RecordingReader(*planned(source(recording, **options)))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def drive(names: str) -> list[Message]:
    found = [
        *messages(NAMES[names].format("robot1/words"), STRING, 5, seed=1),
        *messages(NAMES[names].format("robot1/more"), STRING, 4, seed=2),
        *messages(NAMES[names].format("count"), INT, 3, seed=3),
    ]
    return sorted(found, key=lambda m: m.time)


def values(given: list[Message], name: str) -> list[Any]:
    return [m.value["data"] for m in given if m.topic.endswith(name)]


@pytest.fixture(params=[("mcap", "ros"), ("mcap", "wire"), ("bag", "ros")], ids=" ".join)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[Message]]:
    form, names = request.param
    given = drive(names)
    path = tmp_path / f"drive.{form}"
    return (write_mcap if form == "mcap" else write_bag)(path, given), given


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "/robot1/words"},
        {"topic": "rt/robot1/words"},
        {"topic": "words", "ros__namespace": "/robot1"},
        {"topic": "~", "ros__namespace": "robot1", "ros__node": "words"},
        {"topic": "/said", "ros__remap": "/said:=/robot1/words"},
    ],
    ids=str,
)
def test_a_topic(recorded: tuple[Path, list[Message]], options: dict[str, str]) -> None:
    path, given = recorded
    assert [row["data"] for row in rows(path, **options)] == values(given, "/words")


@pytest.mark.parametrize(
    "options",
    [
        {"subscribePattern": ".*", "ros__namespace": "/robot1"},
        {"subscribePattern": "/robot1/words|/robot1/more"},
        {"subscribe": "more, /robot1/words", "ros__namespace": "/robot1"},
    ],
    ids=str,
)
def test_topics_together_have_their_names_on_the_wire(
    recorded: tuple[Path, list[Message]], options: dict[str, str]
) -> None:
    path, given = recorded
    found = rows(path, **options)
    for name in ("words", "more"):
        assert [row["data"] for row in found if row["topic"] == f"rt/robot1/{name}"] == values(given, name)
    assert len(found) == 9
    (raw,) = {row["topic"] for row in rows(path, topic="/count", payload="binary")}
    assert raw == "rt/count"


def test_topics_of_several_types(recorded: tuple[Path, list[Message]]) -> None:
    path, given = recorded
    found = rows(path, subscribePattern="/.*")
    assert sorted(row["value"] for row in found) == sorted(m.data for m in given)
    assert {row["topic"] for row in found} == {"rt/robot1/words", "rt/robot1/more", "rt/count"}


def test_names_that_no_file_has(recorded: tuple[Path, list[Message]]) -> None:
    path, _ = recorded
    with pytest.raises(OptionError, match=r"no such topic; .*did you mean 'rt/robot1/words'"):
        rows(path, topic="/robot1/word")
    with pytest.raises(OptionError, match=r"no 'rt/robot1/word'; .*did you mean 'rt/robot1/words'"):
        rows(path, subscribe="/count,/robot1/word")
    with pytest.raises(OptionError, match="is no name of ROS 2"):
        rows(path, topic="/robot 1")


def test_a_stream_of_files_of_both_kinds(tmp_path: Path) -> None:
    first, second = drive("ros"), drive("wire")
    write_mcap(tmp_path / "1.mcap", first)
    reader = RecordingStreamReader(*planned(source(tmp_path, topic="/count")))

    def read(start: Any) -> tuple[Any, list[Any]]:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        parts = reader.partitions(start, end)
        found = [v for part in parts for batch in reader.read(part) for v in batch.column("data").to_pylist()]
        return end, found

    end, found = read(reader.initialOffset())
    assert found == values(first, "/count")
    write_mcap(tmp_path / "2.mcap", second)
    assert read(end)[1] == values(second, "/count")


def test_a_capture(tmp_path: Path) -> None:
    """There topics have their names on the wire anyway."""
    network = VirtualNetwork()
    network.log = log = []  # type: ignore[var-annotated]
    struct, given = ros_type(STRING), messages("/words", STRING, 6)
    writer = network.add().create_writer(WriterSpec("rt/words", struct.name, RELIABLE), now=network.now)
    network.add().create_reader(ReaderSpec("rt/words", struct.name, RELIABLE), now=network.now)
    network.run(SECOND)
    for m in given:
        payload = np.frombuffer(m.data + bytes(-len(m.data) % 4), np.uint8)
        writer.write_samples(Samples.uniform(payload, 1, len(payload)), timestamp=0, now=network.now)
        network.run(SECOND // 10)
    path = tmp_path / "words.pcap"
    path.write_bytes(write_pcap([datagram for _, _, datagram in log]))
    assert [row["data"] for row in rows(path, topic="/words", type=STRING)] == values(given, "/words")


def test_the_environment_decides_nothing(
    recorded: tuple[Path, list[Message]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = recorded
    monkeypatch.setenv("ROS_DOMAIN_ID", "7")
    settings, _ = planned(source(path, topic="/count"))
    assert settings.domain == 0 and settings.left_to_writers == ()
