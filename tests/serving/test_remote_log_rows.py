"""Tasks that do not find a log's folder: the same rows, warnings, reports and errors as beside the log."""

from __future__ import annotations

import logging
import os
import pickle
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_rtps.columns import decoding, malformed
from spark_rtps.columns.topic_plan import BINARY_SCHEMA, METADATA_SCHEMA, TopicPlan
from spark_rtps.datasource import log_reading
from spark_rtps.datasource.log_reading import read_log
from spark_rtps.datasource.range_calculator import LogPartition, plan_partitions
from spark_rtps.monitoring.decoding_report import DecodingReport, read_decoding_report
from spark_rtps.monitoring.range_tally import RangeTally
from spark_rtps.options import Mode, Payload
from spark_rtps.serving.client import remote_log
from spark_rtps.serving.client.remote_log import RemoteLog
from spark_rtps.serving.wire_format.log_location import LogLocation
from spark_rtps.serving.wire_format.loopback import loopback_network
from spark_rtps.serving.wire_format.served import Served
from spark_rtps.transport.errors import (
    LogAccessError,
    LogDamagedError,
    LogLostError,
    MalformedSampleError,
    RangeServerError,
    RtpsError,
)
from spark_rtps.transport.log import buffers
from spark_rtps.transport.log.checksum import body_checksum, header_checksum
from spark_rtps.transport.log.frame import HEADER_BYTES, Cursor
from spark_rtps.transport.log.segment import read_metadata, segment_path
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.log_once import LogOnce
from spark_rtps.transport.receiver.writer_types import HAS_WRITER_TYPES, WriterTypes
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.wire.samples import Run
from tests.serving.log_server_scene import LOG, TOKEN, SceneServer
from tests.support.stream_logs import (
    NOTE,
    OTHER,
    POINT,
    RECEPTION,
    WRITER,
    encoded,
    notes,
    points,
    run_of,
)

DATA = arrow_schema(POINT)
RTPS = pa.field("_rtps", pa.struct(list(METADATA_SCHEMA)))
PLAN = TopicPlan("T", "Point", True, Payload.CDR, POINT, DATA, DATA.append(RTPS))
BINARY = TopicPlan("T", "Any", False, Payload.BINARY, None, BINARY_SCHEMA, BINARY_SCHEMA)


class Scene:
    """A log of points, of which some are malformed, in a folder of the log's name."""

    def __init__(self, home: Path) -> None:
        self.directory = home / LOG
        given: dict[str, Any] = {HAS_WRITER_TYPES: True}
        with StreamLog.create(
            self.directory, max_bytes=64 << 20, segment_bytes=1 << 18, metadata=given
        ) as log:
            types = WriterTypes(self.directory, {WRITER: POINT}.get)
            types.record_writer(WRITER)
            types.record_writer(OTHER)
            sn = 1
            while log.position < 700_000:
                count = 500 if sn % 3 else 20
                assert log.append(run_of(encoded(points(sn, count)), sn), reception=RECEPTION)
                bad = np.frombuffer(bytes([0, 1, 0, 0, 7, 7, 7, 7]), np.uint8)
                assert log.append(Run.single(OTHER, sn, bad, timestamp=5), reception=RECEPTION + 1)
                sn += count
            self.end = Cursor(log.position)

    def parts(self, served: Served | None, pieces: int = 3) -> list[LogPartition]:
        return plan_partitions(
            self.directory, Cursor(0, 3), self.end, min_partitions=pieces, host="far", served=served
        )


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture(autouse=True)
def nothing_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(malformed, "_REPORTED", {})
    monkeypatch.setattr(remote_log, "_LOGGED", LogOnce(64))


def elsewhere(part: LogPartition) -> LogPartition:
    """The part as a host sees it on which the folder of that name is another one."""
    assert part.place is not None
    return replace(part, place=replace(part.place, inode=part.place.inode + 1))


def rows(parts: list[LogPartition], plan: TopicPlan, **options: bool) -> pa.Table:
    return pa.Table.from_batches(
        [batch for part in parts for batch in read_log(part, plan, **options)], plan.columns
    )


def counted(reports: list[Any]) -> DecodingReport:
    import json

    report = DecodingReport()
    for each in reports:
        RangeTally.from_json(json.dumps(each).encode()).add_to(report)
    return report


@pytest.mark.parametrize(
    "plan", [PLAN, BINARY, replace(PLAN, announced=False)], ids=["cdr", "binary", "told"]
)
def test_the_same_rows_and_the_same_report(scene: Scene, server: SceneServer, plan: TopicPlan) -> None:
    parts = scene.parts(server.served)
    assert len(parts) == 3
    here = rows(parts, plan)
    assert not server.asked, "the folder is here"
    fetched = rows([elsewhere(part) for part in parts], plan)
    assert fetched.equals(here)
    assert fetched.num_rows > 1000
    assert server.fetched
    there, sent = read_decoding_report(scene.directory), counted(server.reports)
    assert (sent.malformed, sent.lost) == (there.malformed, there.lost)
    assert list(sent.counted) == list(there.counted)
    assert bool(sent.malformed) == (plan is not BINARY)
    assert server.accepted == 1


def test_a_range_that_is_read_twice_counts_once(scene: Scene, server: SceneServer) -> None:
    part = elsewhere(scene.parts(server.served, 1)[0])
    assert rows([part], PLAN).equals(rows([part], PLAN))
    once, twice = counted(server.reports[:1]), counted(server.reports)
    assert once.malformed == twice.malformed


@pytest.mark.parametrize("place", ["another boot", "no place", "no folder", "another device"])
def test_a_log_is_fetched_unless_it_is_on_this_host(
    scene: Scene, server: SceneServer, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = scene.parts(server.served, 1)
    here = rows([part], PLAN)
    assert part.place is not None
    match place:
        case "another boot":
            part = replace(part, place=replace(part.place, boot_id="another"))
        case "another device":
            part = replace(part, place=replace(part.place, device=part.place.device + 1))  # type: ignore[type-var]
        case "no place":
            part = replace(part, place=None)
        case "no folder":
            moved = scene.directory.with_name("moved")
            scene.directory.rename(moved)
            server.directory = moved
    assert rows([part], PLAN).equals(here)
    assert server.fetched


def test_a_folder_that_may_not_be_read_is_fetched(
    scene: Scene, server: SceneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = scene.parts(server.served, 1)
    here = rows([part], PLAN)
    monkeypatch.setattr(log_reading.os, "access", lambda *_: False)  # type: ignore[attr-defined]
    assert rows([part], PLAN).equals(here)
    assert server.fetched
    with pytest.raises(LogAccessError, match="may not read the stream log"):
        rows([replace(part, served=None)], PLAN)


def test_without_a_server_all_is_as_it_was(scene: Scene) -> None:
    (part,) = scene.parts(None, 1)
    assert rows([elsewhere(part)], PLAN).equals(rows([part], PLAN))
    scene.directory.rename(scene.directory.with_name("moved"))
    with pytest.raises(LogLostError, match="it lies on host far, this task ran on") as raised:
        rows([part], PLAN)
    assert "set log.dir to" in str(raised.value)


def test_a_partition_travels_and_hides_the_token(scene: Scene) -> None:
    served = Served(("10.0.0.5:41234",), TOKEN, None)
    (part,) = scene.parts(served, 1)
    assert pickle.loads(pickle.dumps(part)) == part
    assert pickle.loads(pickle.dumps(part)).place == LogLocation.of_directory(scene.directory)
    assert TOKEN not in repr(part)
    assert (
        LogLocation.of_directory(scene.directory / "none") is None
        and LogLocation.of_directory(Path("a\0b")) is None
    )


def test_failfast_and_what_is_lost(scene: Scene, server: SceneServer) -> None:
    parts = [elsewhere(part) for part in scene.parts(server.served)]
    with pytest.raises(MalformedSampleError, match="is malformed"):
        rows(parts, replace(PLAN, mode=Mode.FAILFAST))
    assert server.reports[0]["failed"] >= 0
    path = segment_path(scene.directory, 1 << 18)
    with open(path, "r+b") as file:
        file.seek(5000)
        file.write(bytes(3000))
    with pytest.raises(LogDamagedError, match="are lost") as raised:
        rows(parts, PLAN)
    assert "failOnDataLoss=false" in str(raised.value)
    server.reports.clear()
    here = rows(scene.parts(None), PLAN, fail_on_data_loss=False)
    assert rows(parts, PLAN, fail_on_data_loss=False).equals(here)
    there, sent = read_decoding_report(scene.directory), counted(server.reports)
    assert list(sent.lost) == list(there.lost)
    path.unlink()
    lost = rows(parts, PLAN, fail_on_data_loss=False)
    assert lost.num_rows < here.num_rows
    server.instead = lambda path: (410, {"base": 1 << 19}, {}) if "frames" in path else None
    server.change_about = lambda reported: {**reported, "base": 1 << 19}
    with pytest.raises(LogLostError, match="no longer in the log"):
        rows(parts, PLAN)
    assert rows(parts, PLAN, fail_on_data_loss=False).num_rows == 0
    assert {part["lost"][-1][0] for part in server.reports if part["lost"]} >= {"no longer in the log"}


def test_a_report_that_cannot_be_delivered_fails_no_task(
    scene: Scene, server: SceneServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.instead = lambda path: (400, {"error": "no"}, {}) if path.endswith("report") else None
    parts = [elsewhere(part) for part in scene.parts(server.served)]
    with caplog.at_level(logging.WARNING):
        fetched = rows(parts, PLAN)
    assert fetched.equals(rows(scene.parts(None), PLAN))
    assert caplog.text.count("that gave no rows") == 1


def test_errors_say_what_to_set(scene: Scene, server: SceneServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "RemoteLog", lambda *args: RemoteLog(*args, patience=0.2))
    (part,) = (elsewhere(part) for part in scene.parts(server.served, 1))
    with pytest.raises(LogAccessError, match="refuses the token") as refused:
        rows([replace(part, served=Served((server.address,), "wrong", None))], PLAN)
    assert "log.mode" not in str(refused.value)
    with pytest.raises(RangeServerError, match="is not reached") as unreached:
        rows([replace(part, served=Served(("127.0.0.1:1",), TOKEN, None))], PLAN)
    assert "set serve.address and serve.port" in str(unreached.value)
    assert isinstance(pickle.loads(pickle.dumps(unreached.value)), RangeServerError)


def test_loopback_of_another_host_is_not_waited_for(scene: Scene, server: SceneServer) -> None:
    network = loopback_network([server.address, "localhost:7420"])
    assert network is not None
    (part,) = (elsewhere(part) for part in scene.parts(replace(server.served, network=network), 1))
    assert rows([part], PLAN).num_rows
    elsewhen = replace(part, served=replace(server.served, network=f"{network}0"))
    with pytest.raises(RangeServerError, match="of the driver's host only") as unreached:
        rows([elsewhen], PLAN)
    assert "the address in receivers" in str(unreached.value)
    assert unreached.value.addresses == server.served.addresses
    for others in ("10.0.0.5:7420", "edge1:7420"):
        assert loopback_network([server.address, others]) is None


def test_a_task_that_ends_early_leaves_nothing(
    scene: Scene, server: SceneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with LIMIT, or when the task is killed."""
    monkeypatch.setattr(decoding, "ROWS", 100)
    go, sent = threading.Event(), iter(range(1000))
    server.pause = lambda: None if next(sent) < 3 else (go.wait(20), None)[1]
    batches = read_log(elsewhere(scene.parts(server.served, 1)[0]), BINARY)
    assert next(batches).num_rows
    assert fetching()
    batches.close()  # type: ignore[attr-defined]
    assert not fetching()
    go.set()


def fetching() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "spark-rtps fetch"]


def test_memory_is_used_again_only_when_nothing_refers_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_kept", [])
    first = buffers.buffer(1 << 20)
    first[:] = 7
    view = first[8:16].view(np.uint32)
    del first
    second = buffers.buffer(1 << 20)
    second[:] = 9
    assert view.tobytes() == b"\7" * 8
    place = second.ctypes.data
    del second
    assert buffers.buffer(1 << 10).ctypes.data == place
    with pytest.raises(MemoryError):
        buffers.buffer(1 << 62)


# --- frames that no receiver writes ---------------------------------------------------------------

FIELDS = {
    "rows_before": (16, "<q"),
    "count": (24, "<I"),
    "stride": (28, "<I"),
    "first_sn": (40, "<q"),
    "payload_offset": (72, "<I"),
    "payload_length": (76, "<I"),
    "timestamp_offset": (80, "<i"),
    "key_hash_offset": (84, "<i"),
    "flags": (88, "<I"),
}
WRONG = {
    "<q": [-1, -(1 << 63), (1 << 63) - 1, 1 << 61, 0, 7],
    "<I": [0, 1, 2, 3, 4, 7, 1000, 1 << 20, (1 << 31) + 1, (1 << 32) - 1],
    "<i": [-2, -(1 << 31), 0, 3, 100, 1 << 20, (1 << 31) - 1],
}


@pytest.fixture(scope="module")
def forged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SceneServer, bytes, Cursor]]:
    directory = tmp_path_factory.mktemp("forged") / LOG
    with StreamLog.create(directory, max_bytes=1 << 20, segment_bytes=1 << 16, metadata={}) as log:
        assert log.append(run_of(encoded(points(1, 20)), 1), reception=RECEPTION)
        assert log.append(run_of(encoded(notes(1, 20), NOTE), 21), reception=RECEPTION)
        end = Cursor(log.position)
    with SceneServer(directory) as server:
        yield server, segment_path(directory, 0).read_bytes(), end


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_server_that_forges_frames(forged: tuple[SceneServer, bytes, Cursor], data: st.DataObject) -> None:
    """With right checksums. Rows or an error by name, and no memory but the frame's is read."""
    server, sound, end = forged
    raw = bytearray(sound)
    seed = read_metadata(server.directory).seed
    first_length = struct.unpack_from("<i", raw)[0]
    at = data.draw(st.sampled_from([0, -(-first_length // 32) * 32]))
    (length,) = struct.unpack_from("<i", raw, at)
    for name in data.draw(st.lists(st.sampled_from(list(FIELDS)), max_size=3, unique=True)):
        place, form = FIELDS[name]
        struct.pack_into(form, raw, at + place, data.draw(st.sampled_from(WRONG[form])))
    for _ in range(data.draw(st.integers(0, 3))):  # the index, if there is one
        place = data.draw(st.integers(HEADER_BYTES, length - 4))
        struct.pack_into("<I", raw, at + place, data.draw(st.sampled_from(WRONG["<I"])))
    body = np.frombuffer(raw, np.uint8)[at + HEADER_BYTES : at + length]
    struct.pack_into("<I", raw, at + 96, body_checksum(body, seed))
    struct.pack_into("<I", raw, at + 100, header_checksum(bytes(raw[at : at + 100]), seed))
    segment_path(server.directory, 0).write_bytes(raw)
    part = LogPartition(str(server.directory), "far", 0, 0, end.position, 0, server.served, None)
    for plan in (PLAN, BINARY):
        for fail in (True, False):
            with suppress(RtpsError):
                found = rows([part], plan, fail_on_data_loss=fail)
                assert found.num_rows <= 40
                assert found.nbytes < 1 << 16


def test_writer_types_of_any_form(scene: Scene, server: SceneServer) -> None:
    plan = replace(PLAN, announced=False)
    (part,) = (elsewhere(part) for part in scene.parts(server.served, 1))
    path = scene.directory / "writer_types.jsonl"
    for text in (
        "1",
        "[]",
        "null",
        '{"idl": 5, "type": [], "number": {}}',
        '{"writer": 1, "is": []}',
        "[" * 9999,
    ):
        path.write_text(f"{zlib.crc32(text.encode()):08x} {text}\n")
        os.utime(path)
        with pytest.raises(LogDamagedError, match="is damaged in line 1"):
            rows([part], plan)
