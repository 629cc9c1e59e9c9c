"""Topics that share the log of a receiver service: which subscription a query reads, its types, and its rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_rtps.datasource.receiver_service_stream_reader import ReceiverServiceStreamReader
from spark_rtps.datasource.receiver_service_types import receiver_service_type
from spark_rtps.datasource.schema import plan_source, source_schema
from spark_rtps.options import Payload
from spark_rtps.transport.errors import OptionError, UsageError
from spark_rtps.transport.net.receiving_node import TypeIdentity
from spark_rtps.transport.protocol.discovery.topic_selection import TopicSelection
from spark_rtps.transport.receiver.writer_types import WriterTopic, WriterTypes
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.model import Struct
from tests.datasource.receiver_service_scene import FakeReceiver, ReceiverServices, settings_of
from tests.support.stream_logs import NOTE, OTHER, POINT, RECEPTION, WRITER, encoded, points, run_of

AT_ONCE = {"type.discovery_timeout": "0s"}
BOTH = TopicSelection(names=("p", "q"))


@pytest.fixture
def services(tmp_path: Path) -> ReceiverServices:
    found = ReceiverServices(tmp_path)
    for each in (found.a, found.b):
        each.selection, each.types = BOTH, {}
    return found


def tell(receiver: FakeReceiver, writer: Guid, topic: str, struct: Struct, name: str = "") -> None:
    """A writer of a topic tells its type."""
    receiver.types[writer] = struct
    receiver.topics[writer] = [WriterTopic(topic, name or struct.name)]


def write(receiver: FakeReceiver, writer: Guid, batch: pa.RecordBatch) -> None:
    (topic,) = receiver.topics[writer]
    struct = receiver.types[writer]
    identity = TypeIdentity(topic.type_name, f"hash of {topic.type_name}")
    reported = WriterTypes(receiver.root / receiver.log, {writer: struct}.get, {writer: identity}.get)
    reported.record_writer(writer, topic.topic)
    assert receiver.stream.append(run_of(encoded(batch, struct), 1, writer=writer), reception=RECEPTION)


def notes(count: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(count), pa.int32()), "text": ["12345678"] * count})


def test_the_subscription_is_found_by_its_topics(services: ReceiverServices) -> None:
    services.reader(subscribe="q, p").initialOffset()
    with pytest.raises(
        UsageError, match=r"no subscriptions are of topic 'p'; there are: t \(subscribe='p,q'\)"
    ):
        services.reader(topic="p").initialOffset()
    with pytest.raises(UsageError, match="are of subscribePattern='p,q'"):
        services.reader(subscribePattern="p,q").initialOffset()
    services.a.selection = services.b.selection = TopicSelection(pattern="p|q")
    services.reader(subscribePattern="p|q").initialOffset()


def test_a_single_type_is_that_of_all_topics(services: ReceiverServices) -> None:
    tell(services.a, WRITER, "p", POINT)
    tell(services.b, OTHER, "q", POINT)
    found = receiver_service_type(settings_of(subscribe="p,q"), services.connect)
    assert found is not None and (found.struct, found.type_name, found.inferred) == (POINT, "Point", True)


def test_each_topic_of_a_list_is_waited_for(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(services.a, WRITER, "p", POINT)
    looks = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        tell(services.b, OTHER, "q", NOTE)

    monkeypatch.setattr("spark_rtps.datasource.receiver_service_types.time.sleep", pause)
    assert receiver_service_type(settings_of(subscribe="p,q"), services.connect) is None
    assert len(looks) == 1
    assert receiver_service_type(settings_of(subscribe="p,q", type="Note"), services.connect).struct == NOTE


def test_types_that_differ_are_no_type(services: ReceiverServices) -> None:
    tell(services.a, WRITER, "p", POINT)
    tell(services.a, OTHER, "q", replace(NOTE, name="Point"), "Point")
    assert receiver_service_type(settings_of(subscribe="p,q"), services.connect) is None


def test_topics_without_an_announced_type(services: ReceiverServices) -> None:
    with pytest.raises(OptionError, match=r"no writer has announced .* or set payload=binary"):
        receiver_service_type(settings_of(subscribe="p,q", **AT_ONCE), services.connect)


def rows_of(services: ReceiverServices, **options: object) -> list[dict[str, Any]]:
    settings = settings_of(startingOffsets="earliest", subscribe="p,q", **options)
    found = None if settings.payload is Payload.BINARY else receiver_service_type(settings, services.connect)
    plan = plan_source(settings, source_schema(settings, found), found)
    reader = ReceiverServiceStreamReader(settings, plan, make=services.connect)
    zero = reader.initialOffset()
    parts = reader.partitions(zero, reader.latestOffset(zero, reader.getDefaultReadLimit()))
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def test_rows_have_their_topics(services: ReceiverServices) -> None:
    for writer, topic, first in ((WRITER, "p", 0), (OTHER, "q", 10)):
        tell(services.a, writer, topic, POINT)
        write(services.a, writer, points(first, 2))
    found = rows_of(services)
    assert [(row["topic"], row["id"]) for row in found] == [("p", 0), ("p", 1), ("q", 10), ("q", 11)]


def test_a_type_selects_the_topics_that_have_it(
    services: ReceiverServices, caplog: pytest.LogCaptureFixture
) -> None:
    """A log of several topics has all types."""
    tell(services.a, WRITER, "p", POINT)
    tell(services.a, OTHER, "q", NOTE)
    write(services.a, WRITER, points(0, 3))
    write(services.a, OTHER, notes(2))
    raw = rows_of(services, payload="binary")
    assert {(row["topic"], row["type_name"], row["type_hash"]) for row in raw} == {
        ("p", "Point", "hash of Point"),
        ("q", "Note", "hash of Note"),
    }
    assert len(raw) == 5
    assert [row["text"] for row in rows_of(services, type="Note")] == ["12345678"] * 2
    assert "topic 'p' is skipped: its type is 'Point', not 'Note' as the query reads" in caplog.text
    assert {row["topic"] for row in rows_of(services, payload="binary", type="Note")} == {"q"}
