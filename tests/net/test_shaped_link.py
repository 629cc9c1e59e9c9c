"""Flow and congestion control over real sockets, with a slow and lossy link between writers and readers.

The same scenarios on a shaped veth between two network namespaces and, everywhere, through a relay in user space. How
long things take decides nothing: what arrives does, and what the counters say of how.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from spark_rtps.options.explanations import explained
from spark_rtps.transport.errors import AcknowledgmentError
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import (
    CongestionControlPolicy,
    FlowControlPolicy,
    PublicationPolicy,
    ReaderPolicy,
)
from spark_rtps.transport.structure import NANOSECONDS
from tests.net.net_scene import RELIABLE
from tests.net.shaped_link import Link, LongVeth, NoNamespaces, Relay, Shape, Veth
from tests.support import domains
from tests.support.child_environment import child_environment
from tests.support.numbered_samples import numbered
from tests.support.paced_reader import PacedReader
from tests.support.stopped import stopped
from tests.support.waiting import PATIENCE, wait_until

DOMAIN = domains.NET_SHAPED_LINK
SIZE = 1_000
#: 20 Mbit/s, and what a small router queues.
SLOW = Shape(rate=2_500_000, queue=64 << 10)
LOSSY = Shape(loss=0.01)
#: From one continent to another.
LONG = Shape(loss=0.02, delay=0.04)
TERM = 4 << 20
#: What a slow reader takes: more than one datagram after another, in one burst of its socket.
ROOM = 1_280 << 10
TAG = 7


def number(payload: memoryview) -> int:
    return int.from_bytes(payload[8:12], "little")


class Scene:
    """A link, a writer before it, readers behind it."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._cleanup = contextlib.ExitStack()
        self._cleanup.callback(link.close)
        self._readers: list[PacedReader] = []

    def close(self) -> None:
        self._cleanup.close()

    def _node(self) -> Node:
        node = Node.open(
            NodeConfig(domain=DOMAIN, lease_duration=80_000_000_000_000, **self.link.config)
        ).start()
        self._cleanup.callback(node.close)
        return node

    def reader(self, **options: Any) -> PacedReader:
        with self.link.readers():
            reader = PacedReader(self._node(), "T", "Type", number=number, **options)
        self._readers.append(reader)
        return reader

    def process(self) -> subprocess.Popen[str]:
        """A reader in a process of its own; it tells its GUID, and how many samples it has."""
        command = [sys.executable, "-m", "tests.support.paced_reader", str(DOMAIN), "T", "Type"]
        command += [json.dumps(self.link.config), *self.link.reader_arguments()]
        with self.link.readers():
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment())
        self._cleanup.enter_context(process)
        self._cleanup.callback(process.kill)
        return process

    def writer(self, readers: int, **flow_control: Any) -> BlockingWriter:
        """A writer that so many readers are ready for, each of which has said what it takes."""
        policy = FlowControlPolicy(**{"term_length": TERM, **flow_control})
        with self.link.writers():
            writer = self._node().create_writer(
                WriterSpec("T", "Type", RELIABLE, policy=PublicationPolicy(flow_control=policy))
            )

        def ready() -> bool:
            with writer.node.lock:
                proxies = list(writer.writer.readers.values())
                known = all(not proxy.receiver.presumed and proxy.is_ready for proxy in proxies)
            matched = sum(writer.guid in reader.reader.writers for reader in self._readers)
            return len(proxies) == readers and matched == len(self._readers) and known

        wait_until(ready)
        return writer


def veth(shape: Shape) -> Link:
    return LongVeth(shape) if shape.delay else Veth(shape)


@pytest.fixture(params=[veth, Relay], ids=["veth", "relay"])
def scene_on(request: pytest.FixtureRequest) -> Iterator[Callable[[Shape], Scene]]:
    """Makes a scene on a link of some shape."""
    with contextlib.ExitStack() as cleanup:

        def make(shape: Shape) -> Scene:
            try:
                link = request.param(shape)
            except NoNamespaces as error:
                pytest.skip(f"this kernel shapes no veth for us: {error}")
            return cleanup.enter_context(contextlib.closing(Scene(link)))

        yield make


def write(writer: BlockingWriter, first: int, count: int, *, timeout: float = PATIENCE) -> None:
    writer.write_samples(numbered(first, count, size=SIZE), timeout=timeout)


def all_acknowledged(writer: BlockingWriter) -> None:
    assert writer.wait_for_acknowledgments(PATIENCE) == {}


@contextlib.contextmanager
def writing(writer: BlockingWriter, first: int, count: int) -> Iterator[None]:
    """The same in a thread; it has written all at the end."""
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(write, writer, first, count)
        yield
        written.result()


# --- a slow link -----------------------------------------------------------------------------------------


def test_on_a_slow_link_static_windows_flood_the_queue_and_cubic_fits_it(
    scene_on: Callable[[Shape], Scene],
) -> None:
    count, overflowed, repaired = 1_500, {}, {}
    for kind in ("static", "cubic"):
        scene = scene_on(SLOW)
        control = CongestionControlPolicy(kind, measure_rtt=kind == "cubic")
        reader = scene.reader(policy=ReaderPolicy(congestion_control=control))
        writer = scene.writer(1, term_length=4 << 20)
        write(writer, 0, count)
        all_acknowledged(writer)
        wait_until(lambda reader=reader: len(reader.numbers) >= count)  # type: ignore[misc]
        assert reader.numbers == list(range(count))
        sent, got = writer.writer.counters, reader.reader.counters
        assert sent.status_messages_received > 0
        assert got.lost_samples == 0
        # It sends what it may, not more; what is sent again is not.
        assert got.overruns == 0
        assert (got.rtt_measurements > 0) == (kind == "cubic")
        assert (sent.flow_control_limits > 0) == (kind == "cubic")
        overflowed[kind], repaired[kind] = scene.link.overflowed(), sent.repaired_samples
        scene.close()
    assert overflowed["static"] > 0 and repaired["static"] > 0
    assert repaired["cubic"] * 4 < repaired["static"]


# --- loss ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "count"), [("static", 3_000), ("cubic", 1_000)])
def test_one_percent_loss(scene_on: Callable[[Shape], Scene], kind: str, count: int) -> None:
    scene = scene_on(LOSSY)
    control = CongestionControlPolicy(kind)
    reader = scene.reader(policy=ReaderPolicy(congestion_control=control))
    writer = scene.writer(1)
    write(writer, 0, count)
    all_acknowledged(writer)
    wait_until(lambda: len(reader.numbers) >= count)
    assert reader.numbers == list(range(count))
    sent, got = writer.writer.counters, reader.reader.counters
    assert scene.link.lost() > 0
    assert got.nacks_sent > 0 and sent.nacks_received > 0
    assert 0 < sent.repaired_samples < count // 2
    assert got.lost_samples == 0
    assert sent.dropped_readers == sent.inactive_readers == 0


# --- a long way ------------------------------------------------------------------------------------------


def test_on_a_long_way_a_repair_is_awaited_before_it_is_requested_again(
    scene_on: Callable[[Shape], Scene],
) -> None:
    count, round_trip = 600, int(2 * LONG.delay * NANOSECONDS)
    scene = scene_on(LONG)
    control = CongestionControlPolicy("cubic", measure_rtt=True)
    reader = scene.reader(policy=ReaderPolicy(congestion_control=control))
    writer = scene.writer(1)
    written = 0
    while not reader.reader.counters.rtt_measurements:  # a question and its answer may be lost, too
        write(writer, written, 1)
        written += 1
        time.sleep(LONG.delay)
    write(writer, written, count)
    count += written
    all_acknowledged(writer)
    wait_until(lambda: len(reader.numbers) >= count)
    assert reader.numbers == list(range(count))
    sent, got = writer.writer.counters, reader.reader.counters
    assert round_trip <= got.rtt_ns
    assert 0 < sent.repaired_samples <= 2 * scene.link.lost()
    assert got.duplicate_samples <= scene.link.lost()
    assert got.lost_samples == 0
    assert sent.dropped_readers == sent.inactive_readers == 0


# --- a slow reader ---------------------------------------------------------------------------------------


def held_back_by(writer: BlockingWriter, reader: PacedReader) -> bool:
    """All that its window lets pass is sent, and more waits."""
    with writer.node.lock:
        limit, slowest = writer.writer.pacing.send_limit
        return (
            bool(writer.writer.state.blocked_by)
            and slowest == reader.reader.guid
            and writer.writer.positions.snd_pos <= limit + 2 * SIZE
            and writer.writer.counters.flow_control_limits > 0
        )


@pytest.mark.parametrize(
    ("strategy", "tags"),
    [({"strategy": "min"}, (None, None)), ({"strategy": "tagged", "group_tag": TAG}, (None, TAG))],
    ids=["min", "the tagged one"],
)
def test_a_slow_reader_sets_the_pace(
    scene_on: Callable[[Shape], Scene], strategy: dict[str, Any], tags: tuple[int | None, int | None]
) -> None:
    count = 4_000  # three rooms full
    scene = scene_on(LOSSY)
    fast = scene.reader(policy=ReaderPolicy(group_tag=tags[0]))
    slow = scene.reader(policy=ReaderPolicy(group_tag=tags[1]), room=ROOM, paced=True)
    writer = scene.writer(2, **strategy)
    with writing(writer, 0, count):
        wait_until(lambda: held_back_by(writer, slow))
        assert slow.count * SIZE <= ROOM
        assert fast.count * SIZE <= ROOM + 2 * SIZE
        while slow.count < count:
            before = slow.count
            slow.consume(ROOM // 4)
            wait_until(lambda before=before: slow.count > before or slow.count == count)  # type: ignore[misc]
    all_acknowledged(writer)
    for reader in (fast, slow):
        wait_until(lambda reader=reader: len(reader.numbers) >= count)  # type: ignore[misc]
        assert reader.numbers == list(range(count))
        assert reader.reader.counters.lost_samples == 0
    sent = writer.writer.counters
    assert sent.status_messages_received > 0 and sent.back_pressured > 0
    assert sent.dropped_readers == 0


@pytest.mark.parametrize(
    ("strategy", "tags"),
    [({"strategy": "max"}, (None, None)), ({"strategy": "tagged", "group_tag": TAG}, (TAG, None))],
    ids=["max", "the other one is tagged"],
)
def test_a_slow_reader_falls_behind_and_rejoins(
    scene_on: Callable[[Shape], Scene], strategy: dict[str, Any], tags: tuple[int | None, int | None]
) -> None:
    count = 12_000  # several terms
    scene = scene_on(LOSSY)
    # What it takes can always be sent again.
    control = CongestionControlPolicy(max_window=TERM // 2)
    fast = scene.reader(policy=ReaderPolicy(group_tag=tags[0], congestion_control=control))
    slow = scene.reader(policy=ReaderPolicy(group_tag=tags[1]), room=ROOM, paced=True)
    writer = scene.writer(2, **strategy)
    write(writer, 0, count)
    wait_until(lambda: len(fast.numbers) >= count)
    sent = writer.writer.counters
    wait_until(lambda: sent.dropped_readers > 0)
    assert slow.count * SIZE <= ROOM
    slow.consume_from_now_on()
    all_acknowledged(writer)
    write(writer, count, 100)
    all_acknowledged(writer)
    wait_until(lambda: fast.numbers[-1:] == [count + 99] == slow.numbers[-1:])
    assert fast.numbers == list(range(count + 100))
    assert fast.reader.counters.lost_samples == 0
    # It has what it took before, misses some, and has all from where it rejoined.
    assert slow.numbers == sorted(set(slow.numbers))
    assert slow.numbers[-100:] == list(range(count, count + 100))
    missed = count + 100 - len(slow.numbers)
    assert missed > 0
    with slow.node.lock:
        assert slow.reader.counters.lost_samples == missed


def test_a_reader_that_stops_is_named_with_its_position_and_the_limit(
    scene_on: Callable[[Shape], Scene],
) -> None:
    scene = scene_on(Shape())
    slow = scene.reader(room=ROOM, paced=True)
    writer = scene.writer(1)
    with pytest.raises(AcknowledgmentError):
        write(writer, 0, 8_000, timeout=0.5)
    wait_until(lambda: held_back_by(writer, slow))
    with pytest.raises(AcknowledgmentError) as caught, explained():  # with all that it takes acknowledged
        write(writer, writer.writer.last_sn, 1_000, timeout=0.5)
    limit, who = writer.writer.pacing.send_limit
    assert who == slow.reader.guid
    proxy, positions = writer.writer.readers[who], writer.writer.positions
    output = str(caught.value)
    assert f"{who} (acknowledged {proxy.acked} of {writer.writer.last_sn})" in output
    assert f"pub-pos {positions.pub_pos}, " in output and f"snd-lmt {limit}, " in output
    assert "raise offer_timeout" in output and "flow_control.receiver_timeout" in output
    slow.consume_from_now_on()
    all_acknowledged(writer)
    wait_until(lambda: slow.count == writer.writer.last_sn)
    assert slow.numbers == list(range(slow.count))


def test_a_process_that_stops_is_named_and_goes_on_where_it_was(scene_on: Callable[[Shape], Scene]) -> None:
    scene = scene_on(Shape())
    process = scene.process()
    assert process.stdout is not None
    guid = process.stdout.readline().strip()
    writer = scene.writer(1)
    write(writer, 0, 100)
    all_acknowledged(writer)
    with (
        stopped(process.pid),
        pytest.raises(
            AcknowledgmentError, match=rf"waiting for reader {re.escape(guid)} \(acknowledged 100 of "
        ),
    ):
        write(writer, 100, 10_000, timeout=0.5)
    all_acknowledged(writer)
    while int(process.stdout.readline()) < writer.writer.last_sn:
        pass


# --- a reader that vanishes ------------------------------------------------------------------------------


def test_a_reader_that_vanishes_is_let_go_after_receiver_timeout(scene_on: Callable[[Shape], Scene]) -> None:
    count = 3_000
    scene = scene_on(LOSSY)
    reader, process = scene.reader(), scene.process()
    writer = scene.writer(2, receiver_timeout=2_000_000_000)
    with writing(writer, 0, count):
        assert process.stdout is not None
        assert process.stdout.readline() and int(process.stdout.readline()) > 0
        process.kill()
        process.wait()
    write(writer, count, 1_000)  # more than goes without an answer
    all_acknowledged(writer)
    wait_until(lambda: len(reader.numbers) >= count + 1_000)
    assert reader.numbers == list(range(count + 1_000))
    sent = writer.writer.counters
    assert (sent.active_readers, sent.inactive_readers, sent.reader_activity_changes) == (1, 1, 1)
    assert reader.reader.counters.lost_samples == 0
