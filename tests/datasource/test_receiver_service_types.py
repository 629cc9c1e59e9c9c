"""The type that a query takes of those which writers told receiver services, and what it reads of each writer."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from spark_rtps.datasource.receiver_service_stream_reader import ReceiverServiceStreamReader
from spark_rtps.datasource.receiver_service_types import receiver_service_type
from spark_rtps.datasource.schema import plan_source, source_schema
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.receiver.writer_types import WriterTypes
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.model import Extensibility, Member, Primitive, PrimitiveKind, String, Struct
from tests.datasource.receiver_service_scene import FakeReceiver, ReceiverServices, ids, settings_of
from tests.support.stream_logs import NOTE, OTHER, POINT, RECEPTION, WRITER, encoded, run_of

AT_ONCE = {"type.discovery_timeout": "0s"}
ID = Member("id", Primitive(PrimitiveKind.INT32), 0, key=True)
NAME = Member("name", String(), 1)
WEIGHT = Member("weight", Primitive(PrimitiveKind.FLOAT64), 2)


def evolving(*members: Member, extensibility: Extensibility = Extensibility.APPENDABLE) -> Struct:
    return Struct("Evolving", (ID, *members), extensibility)


@pytest.fixture
def services(tmp_path: Path) -> ReceiverServices:
    return ReceiverServices(tmp_path)


def test_the_type_is_the_one_writers_announce(services: ReceiverServices) -> None:
    found = receiver_service_type(settings_of(), services.connect)
    assert (found.struct, found.inferred) == (POINT, True)


def test_a_first_writer_is_waited_for(services: ReceiverServices) -> None:
    services.a.types = services.b.types = {}
    with pytest.raises(OptionError, match="no writer has announced"):
        receiver_service_type(settings_of(**AT_ONCE), services.connect)
    reported = threading.Timer(0.2, services.b.types.update, ({OTHER: NOTE},))
    reported.start()
    assert receiver_service_type(settings_of(), services.connect).struct == NOTE
    reported.join()


@pytest.mark.parametrize("extensibility", [Extensibility.APPENDABLE, Extensibility.MUTABLE])
def test_a_growing_type_is_read_as_the_one_with_most_members(
    services: ReceiverServices, extensibility: Extensibility
) -> None:
    small, middle, large = (
        evolving(*members, extensibility=extensibility) for members in ((), (NAME,), (NAME, WEIGHT))
    )
    services.a.types, services.b.types = {WRITER: small, OTHER: large}, {WRITER: middle}
    assert receiver_service_type(settings_of(), services.connect).struct == large


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (POINT, NOTE, "Note at b does not read Point at a|Point at a does not read Note at b"),
        (
            evolving(NAME, extensibility=Extensibility.FINAL),
            evolving(extensibility=Extensibility.FINAL),
            "Evolving at a does not read Evolving at b .*final",
        ),
    ],
)
def test_types_that_contradict_each_other(
    services: ReceiverServices, one: Struct, other: Struct, why: str
) -> None:
    services.a.types, services.b.types = {WRITER: one}, {WRITER: other}
    with pytest.raises(OptionError, match=why) as failed:
        receiver_service_type(settings_of(), services.connect)
    assert "TYPE_CONSISTENCY" in str(failed.value)


def test_compared_types_are_bounded(services: ReceiverServices) -> None:
    services.b.types = {}
    services.a.types = {number: evolving(Member(f"m{number}", String(), 1)) for number in range(40)}  # type: ignore[misc]
    with pytest.raises(OptionError, match="40 types: at most 32"):
        receiver_service_type(settings_of(), services.connect)


def test_each_writer_is_read_as_the_type_that_stands_for_its_own(services: ReceiverServices) -> None:
    """Members that it lacks are null, those that only it has are left out; a type that is another one is malformed."""
    old, new, newer = (
        evolving(NAME),
        evolving(NAME, WEIGHT),
        evolving(NAME, WEIGHT, Member("late", String(), 3)),
    )
    rows = {
        old: pa.record_batch({"id": pa.array([1], pa.int32()), "name": ["old"]}),
        new: pa.record_batch({"id": pa.array([2], pa.int32()), "name": ["new"], "weight": [2.5]}),
    }
    services.a.types, services.b.types = {WRITER: old}, {WRITER: new}
    settings = settings_of(startingOffsets="earliest")
    found = receiver_service_type(settings, services.connect)
    plan = plan_source(settings, source_schema(settings, found), found)
    reader = ReceiverServiceStreamReader(settings, plan, make=services.connect)
    zero = reader.initialOffset()
    fill(services.a, WRITER, old, rows[old])
    fill(services.b, WRITER, new, rows[new])
    late = pa.record_batch(
        {"id": pa.array([3], pa.int32()), "name": ["newer"], "weight": [3.5], "late": ["x"]}
    )
    fill(services.b, OTHER, newer, late)
    parts = reader.partitions(zero, reader.latestOffset(zero, reader.getDefaultReadLimit()))
    table = pa.Table.from_batches(batch for part in parts for batch in reader.read(part))
    assert sorted(table.to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "name": "old", "weight": None},
        {"id": 2, "name": "new", "weight": 2.5},
        {"id": 3, "name": "newer", "weight": 3.5},
    ]


def test_a_writer_with_another_type_is_no_row_of_the_query(
    services: ReceiverServices, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(startingOffsets="earliest")
    found = receiver_service_type(settings, services.connect)
    plan = plan_source(settings, source_schema(settings, found), found)
    reader = ReceiverServiceStreamReader(settings, plan, make=services.connect)
    zero = reader.initialOffset()
    fill(services.a, WRITER, POINT, pa.record_batch({"id": pa.array([1], pa.int32()), "x": [0.5]}))
    fill(services.a, OTHER, NOTE, pa.record_batch({"id": pa.array([2], pa.int32()), "text": ["12345678"]}))
    one = reader.latestOffset(zero, reader.getDefaultReadLimit())
    assert ids(reader, reader.partitions(zero, one)) == [1]
    assert "the type that its writer announced does not fit: " in caplog.text


def fill(receiver: FakeReceiver, writer: Guid, struct: Struct, batch: pa.RecordBatch) -> None:
    """A writer tells its type, and writes."""
    WriterTypes(receiver.root / receiver.log, {writer: struct}.get).record_writer(writer)
    assert receiver.stream.append(run_of(encoded(batch, struct), 1, writer=writer), reception=RECEPTION)
