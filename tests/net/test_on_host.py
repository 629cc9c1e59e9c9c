"""Readers and writers on one host: what goes by the log, and what by UDP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.log import named_logs
from spark_rtps.transport.log.named_logs import NamedLogs
from spark_rtps.transport.net import ipc_writing
from spark_rtps.transport.net.recipients import Discard
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import (
    BatchPolicy,
    Compression,
    FlowControlPolicy,
    PublicationPolicy,
    ReaderPolicy,
)
from spark_rtps.transport.qos import Qos
from tests.net.net_scene import BEST_EFFORT, RELIABLE, Scene, scene_of
from tests.net.on_host_scene import (
    COHERENT,
    IPC,
    LASTING,
    TERM,
    files,
    ipc_writer,
    pass_the_first_window,
    readers_on_host,
)
from tests.support import domains
from tests.support.numbered_samples import numbered
from tests.support.waiting import PATIENCE


@pytest.fixture
def scene(directory: Path) -> Iterator[Scene]:
    with scene_of(domains.NET_ON_HOST) as scene:
        yield scene


# --- what goes by the log ------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [RELIABLE, BEST_EFFORT], ids=["reliable", "best_effort"])
@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"coalescing": False},
        {"batch": BatchPolicy(enable=True, max_data_bytes=4_000)},
        {"batch": BatchPolicy(enable=True, max_data_bytes=20_000, compression=Compression.LZ4)},
    ],
    ids=["coalesced", "single", "batches", "compressed"],
)
def test_samples_go_by_the_log_alone(scene: Scene, qos: Qos, policy: dict[str, Any]) -> None:
    got = scene.reader(scene.node(ipc=True), qos)
    writer = ipc_writer(scene, scene.node(), qos, **policy)
    for i in range(50):
        writer.write_samples(numbered(100 * i, 100, size=80))
    writer.flush()
    scene.wait(lambda: len(got.numbers) == 5_000)
    assert got.numbers == list(range(5_000))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert scene.samples_sent(writer) == [] and got.reader.counters.lost_samples == 0


def test_many_terms(scene: Scene) -> None:
    got = scene.reader(scene.node(ipc=True))
    writer = ipc_writer(scene, scene.node(), flow_control=FlowControlPolicy(ipc=True, term_length=64 << 10))
    pass_the_first_window(scene, writer, got)
    by_udp, written = len(scene.samples_sent(writer)), len(got.numbers)
    for i in range(100):
        writer.write_samples(numbered(written + 100 * i, 100, size=200))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == list(range(written + 10_000)))
    assert len(scene.samples_sent(writer)) == by_udp


def test_a_large_sample_is_one_frame_and_a_larger_one_goes_by_udp(scene: Scene) -> None:
    got = scene.reader(scene.node(ipc=True))
    writer = ipc_writer(scene, scene.node())
    writer.write_samples(numbered(0, 1, size=100_000))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert scene.samples_sent(writer) == []
    writer.write_samples(numbered(1, 1, size=TERM))
    writer.write_samples(numbered(2, 1))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == [0, 1, 2])
    assert len(scene.samples_sent(writer)) == TERM // 63_488 + 1


def test_a_coherent_set(scene: Scene) -> None:
    got = scene.reader(scene.node(ipc=True), COHERENT)
    writer = ipc_writer(scene, scene.node(), COHERENT)
    writer.begin_coherent_set()
    writer.write_samples(numbered(0, 3_000))
    writer.end_coherent_set()
    writer.begin_coherent_set()
    writer.write_samples(numbered(3_000, 3_000))
    writer.abort_coherent_set()
    writer.write_samples(numbered(6_000, 10))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == [*range(3_000), *range(6_000, 6_010)])


def test_a_late_joiner_gets_history_by_udp_and_then_the_log(scene: Scene) -> None:
    node = scene.node()
    writer = ipc_writer(scene, node, LASTING, readers=0)
    writer.write_samples(numbered(0, 1_000))
    got = scene.reader(scene.node(ipc=True), LASTING)
    scene.wait(lambda: got.numbers == list(range(1_000)) and readers_on_host(writer) == 1)
    before = len(scene.samples_sent(writer))
    writer.write_samples(numbered(1_000, 1_000))
    scene.wait(lambda: got.numbers == list(range(2_000)))
    assert len(scene.samples_sent(writer)) == before


def test_a_writer_and_a_reader_of_one_participant(scene: Scene) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node)
    writer = ipc_writer(scene, node)
    writer.write_samples(numbered(0, 1_000))
    scene.wait(lambda: got.numbers == list(range(1_000)))
    assert scene.samples_sent(writer) == []


def test_readers_of_one_participant_share_an_image(scene: Scene) -> None:
    node = scene.node(ipc=True)
    first = scene.reader(node)
    writer = ipc_writer(scene, scene.node())
    writer.write_samples(numbered(0, 1_000))
    second = scene.reader(node)
    scene.wait(lambda: readers_on_host(writer) == 2)
    writer.write_samples(numbered(1_000, 1_000))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: first.numbers == list(range(2_000)) and second.numbers[-1:] == [1_999])
    assert second.numbers == list(range(second.numbers[0], 2_000)) and second.numbers[0] >= 1_000
    node.delete_endpoint(first.reader.guid)
    scene.wait(lambda: len(writer.writer.readers) == 1)
    writer.write_samples(numbered(2_000, 1_000))
    scene.wait(lambda: second.numbers[-1] == 2_999)
    assert len(first.numbers) == 2_000 and scene.samples_sent(writer) == []


def test_readers_elsewhere_are_sent_datagrams(scene: Scene) -> None:
    here, elsewhere = scene.reader(scene.node(ipc=True)), scene.reader(scene.node())
    writer = scene.writer(scene.node(), readers=2, flow_control=IPC)
    scene.wait(lambda: readers_on_host(writer) == 1)
    writer.write_samples(numbered(0, 1_000))
    scene.wait(lambda: here.numbers == elsewhere.numbers == list(range(1_000)))
    assert scene.samples_sent(writer) != []


def test_several_writers(scene: Scene) -> None:
    got = scene.reader(scene.node(ipc=True))
    writers = [ipc_writer(scene, scene.node()) for _ in range(3)]
    for i in range(20):
        for source, writer in enumerate(writers):
            writer.write_samples(numbered(100 * i, 100, source=source))
    scene.wait(lambda: all(got.of(source) == list(range(2_000)) for source in range(3)))


# --- what does not ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reads", "publishes"),
    [(False, IPC), (True, FlowControlPolicy(term_length=TERM))],
    ids=["reader", "writer"],
)
def test_ipc_needs_both_sides(scene: Scene, reads: bool, publishes: FlowControlPolicy) -> None:
    got = scene.reader(scene.node(ipc=reads))
    writer = scene.writer(scene.node(), flow_control=publishes)
    writer.write_samples(numbered(0, 100))
    scene.wait(lambda: got.numbers == list(range(100)))
    assert scene.samples_sent(writer) != [] and readers_on_host(writer) == 0


def test_a_log_for_spies_alone_is_not_read(scene: Scene, directory: Path) -> None:
    got = scene.reader(scene.node(ipc=True))
    only_spies = FlowControlPolicy(spies_simulate_connection=True, term_length=TERM)
    writer = scene.writer(scene.node(), flow_control=only_spies)
    assert len(files(directory)) == 1
    writer.write_samples(numbered(0, 100))
    scene.wait(lambda: got.numbers == list(range(100)))
    assert scene.samples_sent(writer) != []


def test_a_log_that_cannot_be_found_is_another_hosts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    writer_node = scene.node()
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(named_logs, "_SHARED_MEMORY", tmp_path / "other")
    got = scene.reader(scene.node(ipc=True))
    writer = scene.writer(writer_node, flow_control=IPC)
    writer.write_samples(numbered(0, 100))
    scene.wait(lambda: got.numbers == list(range(100)))
    assert scene.samples_sent(writer) != []


@pytest.mark.parametrize("lie", ["token", "guid", "name"])
def test_a_log_that_is_another_writers_is_not_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, directory: Path, lie: str
) -> None:
    node = scene.node()
    create = NamedLogs.create

    def other(self: NamedLogs, length: int, about: Any) -> Any:
        if lie == "guid":
            return create(self, length, {**about, "guid": "somebody else's"})
        log: Any = create(self, length, about)
        if lie == "token":
            log.token += 1
        else:
            log.path = Path("/etc/passwd")
        return log

    monkeypatch.setattr(NamedLogs, "create", other)
    monkeypatch.setattr(ipc_writing, "remove", lambda log: None)
    got = scene.reader(scene.node(ipc=True))
    writer = scene.writer(node, flow_control=IPC)
    writer.write_samples(numbered(0, 100))
    scene.wait(lambda: got.numbers == list(range(100)))
    assert scene.samples_sent(writer) != []


def test_no_room_for_a_log_is_a_warning(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(fd: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    got = scene.reader(scene.node(ipc=True))
    writer = scene.writer(scene.node(), flow_control=IPC)
    assert (
        "No space left on device" in caplog.text and "readers on this host receive datagrams" in caplog.text
    )
    writer.write_samples(numbered(0, 100))
    scene.wait(lambda: got.numbers == list(range(100)))


def test_a_directory_that_is_not_ours_is_a_warning(
    scene: Scene, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory.mkdir()
    directory.chmod(0o755)
    scene.writer(scene.node(), readers=0, flow_control=IPC)
    assert "only this user can enter" in caplog.text


def test_policies_reach_the_slot(scene: Scene) -> None:
    node = scene.node(ipc=True)
    with node.lock:
        reader = node.create_reader(
            ReaderSpec("T", "Type", RELIABLE, policy=ReaderPolicy(tether=False)), Discard()
        )
    writer = scene.writer(scene.node(), readers=0, flow_control=IPC)
    scene.wait(lambda: readers_on_host(writer) == 1)
    (slot,) = writer.writer._unsent.log.subscribers()
    assert slot.guid == reader.guid and not slot.is_tethered and not slot.is_spy


def test_the_default_is_as_before(scene: Scene, directory: Path) -> None:
    node = scene.node()
    node.create_writer(WriterSpec("T", "Type", RELIABLE, policy=PublicationPolicy()))
    assert files(directory) == []


def test_a_writer_that_cannot_be_leaves_no_file(
    scene: Scene, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = scene.node()

    def refuse(*arguments: Any, **options: Any) -> None:
        raise UsageError("no")

    monkeypatch.setattr(node.participant, "create_writer", refuse)
    with pytest.raises(UsageError):
        node.create_writer(WriterSpec("T", "Type", RELIABLE, policy=PublicationPolicy(flow_control=IPC)))
    assert files(directory) == []
