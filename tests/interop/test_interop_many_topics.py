"""Several topics of live Cyclone writers in one log: which are followed, whose each row is, and that none is lost."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from spark_rtps.columns.decoding import decode_range
from spark_rtps.columns.topic_plan import TopicPlan
from spark_rtps.datasource.batch_reader import RtpsBatchReader
from spark_rtps.datasource.receiver_session import ReceiverSession
from spark_rtps.datasource.schema import plan_source
from spark_rtps.datasource.source import RtpsDataSource
from spark_rtps.options import AppliesTo, Payload, Settings, parse_options
from spark_rtps.transport.errors import RtpsError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.cyclone_types import Blob, Growing, Part, Vehicle
from tests.support.waiting import wait_until

COLUMNS = StructType().add("topic", "string").add("speed", "double").add("id", "long")


@pytest.fixture
def domain(shared_domain: int) -> int:
    return shared_domain


def options(domain: int, directory: Path, **given: object) -> dict[str, str]:
    asked = {"domain": domain, "interface": "lo", "log.dir": directory, **given}
    return {key.replace("__", "."): str(value) for key, value in asked.items()}


def planned(
    domain: int, directory: Path, schema: StructType = COLUMNS, **given: object
) -> tuple[Settings, TopicPlan]:
    settings = parse_options(options(domain, directory, **given), AppliesTo.READ)
    return settings, plan_source(settings, schema)


@contextmanager
def receiving(settings: Settings, plan: TopicPlan, log: str | None = None) -> Iterator[ReceiverSession]:
    if log is None:
        session = ReceiverSession.on_new_log(settings, plan)
    else:
        session = ReceiverSession.on_old_log(settings, plan, log)
    try:
        yield session
    finally:
        session.stop()


def rows_of(session: ReceiverSession, plan: TopicPlan, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: session.counters()["log.rows"] >= count, f"{count} samples")
    batches = decode_range(LogView(session.directory), Cursor(0), session.tail(), plan)
    return [row for batch in batches for row in batch.to_pylist()]


def vehicles(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": i, "note": "n" * (i % 7), "speed": i / 2} for i in range(first, first + count)]


def reported(rows: list[dict[str, Any]]) -> set[tuple[str, int, float]]:
    return {(row["topic"], row["id"], row["speed"]) for row in rows}


def expected(topic: str, first: int, count: int) -> set[tuple[str, int, float]]:
    return {(topic, row["id"], row["speed"]) for row in vehicles(first, count)}


def test_topics_join_later_and_all_samples_come_once(
    shared_peer: CyclonePeer, domain: int, topic: str, tmp_path: Path
) -> None:
    """Of a receiver that is killed and started again, the readers have the same GUIDs: nothing is lost or doubled."""
    peer = shared_peer
    one, two, three, other = (f"{topic}/{name}" for name in ("one", "two", "three", "other"))
    settings, plan = planned(domain, tmp_path, subscribePattern=f"{topic}/(one|two|three)")
    peer.writer(one, Vehicle)
    peer.writer(other, Vehicle)
    with receiving(settings, plan) as session:
        peer.wait_for_match(one)
        peer.write(one, vehicles(0, 10))
        peer.writer(two, Vehicle)  # nobody knew of it when the receiver started
        peer.wait_for_match(two)
        peer.write(two, vehicles(100, 10))
        found = rows_of(session, plan, 20)
        assert reported(found) == expected(one, 0, 10) | expected(two, 100, 10)
        guids = [peer.matched(each) for each in (one, two)]
        os.kill(session._receiver.pid, signal.SIGKILL)
        peer.write(one, vehicles(10, 10))
        wait_until(lambda: session.tail() and session.supervision.deaths, "another receiver")
        peer.write(two, vehicles(110, 10))
        peer.writer(three, Vehicle)
        peer.wait_for_match(three)
        peer.write(three, vehicles(200, 10))
        found = rows_of(session, plan, 50)
        assert [peer.matched(each) for each in (one, two)] == guids
        assert peer.matched(three)[0][:24] == guids[0][0][:24], "there is one participant"
    assert len(found) == 50
    assert reported(found) == expected(one, 0, 20) | expected(two, 100, 20) | expected(three, 200, 10)
    assert [path.name for path in tmp_path.iterdir()] == [session.log], "there is one log"
    assert peer.matched(other) == []


def test_a_list_of_topics_by_name_of_the_type(
    shared_peer: CyclonePeer, domain: int, topic: str, tmp_path: Path
) -> None:
    """The readers are there before their writers, and a topic that is left out of the list later is read no more."""
    peer = shared_peer
    one, two = f"{topic}_1", f"{topic}_2"
    asked = {"type": "interop::Vehicle", "key": "id", "startingOffsets": "earliest"}
    settings, plan = planned(domain, tmp_path, subscribe=f"{one}, {two},{one}", **asked)
    with receiving(settings, plan) as session:
        for name, first in ((one, 0), (two, 100)):
            peer.writer(name, Vehicle, transient_local=True)
            peer.write(name, vehicles(first, 3))
        assert reported(rows_of(session, plan, 6)) == expected(one, 0, 3) | expected(two, 100, 3)
    settings, plan = planned(domain, tmp_path, subscribe=two, **asked)
    with receiving(settings, plan, session.log) as session:
        peer.wait_for_match(two)
        assert peer.matched(one) == []
        peer.write(two, vehicles(103, 3))
        assert reported(rows_of(session, plan, 9)) == expected(one, 0, 3) | expected(two, 100, 6)


def test_types_that_differ(shared_peer: CyclonePeer, domain: int, topic: str, tmp_path: Path) -> None:
    """Rows name the topic, what its writer calls the type, and the hash that the writer announces for it."""
    peer = shared_peer
    for name, kind in (("v1", Vehicle), ("v2", Vehicle), ("p", Part)):
        peer.writer(f"{topic}_{name}", kind)
    source = RtpsDataSource(options(domain, tmp_path, subscribePattern=f"{topic}_.*"))
    schema = source.schema()
    assert schema.names[:3] == ["topic", "type_name", "type_hash"] and schema.names[-1] == "value"
    settings = source._settings(AppliesTo.READ)
    assert settings.payload is Payload.BINARY
    plan = plan_source(settings, schema)
    with receiving(settings, plan) as session:
        for name, row in (
            ("v1", vehicles(1, 1)),
            ("v2", vehicles(2, 1)),
            ("p", [{"plant": "p", "number": 1, "weight": 0.5}]),
        ):
            peer.wait_for_match(f"{topic}_{name}")
            peer.write(f"{topic}_{name}", row)
        rows = sorted(rows_of(session, plan, 3), key=lambda row: str(row["topic"]))
    assert [row["type_name"] for row in rows] == ["interop::Part", "interop::Vehicle", "interop::Vehicle"]
    part, vehicle, same = (row["type_hash"] for row in rows)
    assert vehicle == same != part
    assert len(bytes.fromhex(part)) == len(bytes.fromhex(vehicle)) == 14
    assert rows[0]["value"][4:10] == b"\x02\0\0\0p\0"
    with pytest.raises(Exception, match="option 'payload' = 'cdr': the topics have different types"):
        RtpsDataSource(options(domain, tmp_path, subscribePattern=f"{topic}_.*", payload="cdr")).schema()


def test_topics_of_one_announced_type(
    shared_peer: CyclonePeer, domain: int, topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Typed columns, also of topics that come later; one of another type is left out, which is said."""
    peer = shared_peer
    peer.writer(f"{topic}_1", Vehicle)
    source = RtpsDataSource(options(domain, tmp_path, subscribePattern=f"{topic}_.*", metadata="true"))
    schema = source.schema()
    assert schema.names == ["topic", "id", "note", "speed", "_rtps"]
    settings = source._settings(AppliesTo.READ)
    plan = plan_source(settings, schema, source._topic_type)
    with receiving(settings, plan) as session:
        peer.writer(f"{topic}_2", Blob)
        peer.writer(f"{topic}_3", Vehicle)
        peer.wait_for_match(f"{topic}_3")
        peer.wait_for_match(f"{topic}_1")
        peer.write(f"{topic}_1", vehicles(1, 2))
        peer.write(f"{topic}_3", vehicles(30, 2))
        rows = rows_of(session, plan, 4)
        output = ""

        def is_logged() -> bool:
            """That type has to be asked for, which may take longer than the rows of the others."""
            nonlocal output
            output += capfd.readouterr().err
            return "its type is 'interop::Blob', and that of the columns is 'interop::Vehicle'" in output

        wait_until(is_logged, lambda: f"the topic that is left out in {output!r}")
        assert peer.matched(f"{topic}_2") == []
    assert reported(rows) == expected(f"{topic}_1", 1, 2) | expected(f"{topic}_3", 30, 2)
    assert {row["_rtps"]["topic"] for row in rows} == {f"{topic}_1", f"{topic}_3"}
    assert {row["_rtps"]["type_name"] for row in rows} == {"interop::Vehicle"}


def test_partitions_with_wildcards(shared_peer: CyclonePeer, domain: int, topic: str, tmp_path: Path) -> None:
    """A pattern of topics and one of partitions: only what matches both is followed."""
    peer = shared_peer
    for name, partition in (("a", "cell1"), ("b", "cell2"), ("c", "hall")):
        peer.writer(f"{topic}_{name}", Vehicle, partition=[partition])
    settings, plan = planned(domain, tmp_path, subscribePattern=f"{topic}_.", partition="cell*")
    with receiving(settings, plan) as session:
        for name in ("a", "b"):
            peer.wait_for_match(f"{topic}_{name}")
            peer.write(f"{topic}_{name}", vehicles(1, 2))
        rows = rows_of(session, plan, 4)
        readers = LogView(session.directory).metadata["readers"]
    assert reported(rows) == expected(f"{topic}_a", 1, 2) | expected(f"{topic}_b", 1, 2)
    assert isinstance(readers, list) and {each["topic"] for each in readers} == {f"{topic}_a", f"{topic}_b"}  # type: ignore[call-overload]


def test_a_batch_read(shared_peer: CyclonePeer, domain: int, topic: str, tmp_path: Path) -> None:
    peer = shared_peer
    for name in ("1", "2"):
        peer.writer(f"{topic}_{name}", Vehicle, transient_local=True)
        peer.write(f"{topic}_{name}", vehicles(int(name) * 10, 2))
    asked = {"startingOffsets": "earliest", "read.max_rows": 4, "read.timeout": "60s"}
    reader = RtpsBatchReader(*planned(domain, tmp_path, subscribe=f"{topic}_1,{topic}_2", **asked))
    rows = [row for batch in reader.read(reader.partitions()[0]) for row in batch.to_pylist()]
    assert reported(rows) == expected(f"{topic}_1", 10, 2) | expected(f"{topic}_2", 20, 2)


def test_a_batch_read_that_finds_another_spelling(
    shared_peer: CyclonePeer, domain: int, topic: str, tmp_path: Path
) -> None:
    peer = shared_peer
    peer.writer(f"rt/{topic}", Growing)
    output = ""
    for timeout in ("2s", "10s", "30s"):  # as long as a loaded machine has discovered nobody by then
        asked = {"read.timeout": timeout, "payload": "binary"}
        source = RtpsDataSource(options(domain, tmp_path, subscribePattern=f"{topic}.*", **asked))
        settings = source._settings(AppliesTo.READ)
        reader = RtpsBatchReader(settings, plan_source(settings, source.schema()))
        try:
            found = list(reader.read(reader.partitions()[0]))
        except RtpsError as error:
            output = str(error)
            break
        assert found == []
    assert re.search(f"any topic of .* has no writer on .*did you mean 'rt/{topic}'", output)
