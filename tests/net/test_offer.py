"""Writing without waiting: offers and claims answer a position, or why not; from several threads at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.buffer_claim import BufferClaim
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import FlowControlPolicy, PublicationPolicy, WriterPolicy
from spark_rtps.transport.protocol.writing.publication import PublicationResult
from spark_rtps.transport.qos import DurabilityKind, HistoryKind
from tests.net.net_scene import RELIABLE, Scene, scene_of
from tests.support import domains
from tests.support.numbered_samples import numbered
from tests.support.waiting import PATIENCE

#: A thread may be held up between a claim and its commit: it keeps the claim for as long as anything takes.
FLOW = FlowControlPolicy(term_length=64 << 10, unblock_timeout=60_000_000_000)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_of(domains.NET_OFFER) as scene:
        yield scene


def claimed(writer: BlockingWriter, number: int, source: int = 0) -> BufferClaim:
    """Room for one more, as soon as there is any, filled."""
    payload = numbered(number, 1, source=source, size=16).data
    while not isinstance(claim := writer.try_claim(16), BufferClaim):
        assert claim in (PublicationResult.BACK_PRESSURED, PublicationResult.ADMIN_ACTION)
        writer.node.do_work()
        time.sleep(0.001)
    claim.data[:] = payload
    return claim


def test_an_offer_without_a_reader_is_not_connected(scene: Scene) -> None:
    writer = scene.node().create_writer(
        WriterSpec("T", "Type", RELIABLE, policy=PublicationPolicy(flow_control=FLOW))
    )
    assert writer.offer(numbered(0, 3)) == PublicationResult.NOT_CONNECTED
    assert writer.try_claim(16) == PublicationResult.NOT_CONNECTED
    assert writer.writer.last_sn == 0


def test_an_offer_answers_the_position_behind_it(scene: Scene) -> None:
    node = scene.node()
    received = scene.reader(scene.node())
    writer = scene.writer(node, flow_control=FLOW)
    first = writer.offer(numbered(0, 3))
    second = writer.offer(numbered(3, 3))
    assert 0 < first < second == writer.writer.positions.pub_pos
    scene.wait(lambda: received.numbers == [0, 1, 2, 3, 4, 5])


def test_an_offer_is_all_or_nothing(scene: Scene) -> None:
    received = scene.reader(scene.node())
    policy = WriterPolicy(send_window_bytes=20_000)
    writer = scene.writer(scene.node(), flow_control=FLOW, writer=policy)
    answers = [writer.offer(numbered(100 * i, 100, size=64)) for i in range(30)]
    taken = [i for i, answer in enumerate(answers) if answer > 0]
    later = {PublicationResult.BACK_PRESSURED, PublicationResult.ADMIN_ACTION}
    assert {answer for answer in answers if answer <= 0} <= later
    expected = [100 * i + n for i in taken for n in range(100)]
    scene.wait(lambda: received.numbers == expected)
    with pytest.raises(UsageError, match="never fit at once"):
        writer.offer(numbered(0, 1_000, size=64))


def test_an_offer_after_the_node_has_closed(scene: Scene) -> None:
    scene.reader(scene.node())
    node = scene.node()
    writer = scene.writer(node, flow_control=FLOW)
    node.close()
    assert writer.offer(numbered(0, 1)) == PublicationResult.CLOSED
    assert writer.try_claim(16) == PublicationResult.CLOSED


def test_claims_of_several_threads_arrive_once_and_in_order(scene: Scene) -> None:
    received = scene.reader(scene.node())
    writer = scene.writer(scene.node(), flow_control=FLOW)

    def publish(source: int) -> None:
        rng = np.random.default_rng(source)
        for number in range(150):
            with claimed(writer, number, source):
                time.sleep(float(rng.random()) / 5_000)

    threads = [threading.Thread(target=publish, args=(source,)) for source in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for source in range(4):
        scene.wait(lambda source=source: received.of(source) == list(range(150)))  # type: ignore[misc]


def test_a_claim_that_is_forgotten_blocks_nobody_for_long(scene: Scene) -> None:
    received = scene.reader(scene.node())
    writer = scene.writer(scene.node(), flow_control=replace(FLOW, unblock_timeout=300_000_000))
    forgotten = claimed(writer, 0)
    writer.write_samples(numbered(1, 2))
    scene.wait(lambda: received.numbers == [1, 2])
    assert not forgotten.commit()
    assert writer.writer.counters.unblocked_publications == 1
    assert writer.wait_for_acknowledgments(PATIENCE) == {}


def test_a_claim_whose_filling_fails_is_given_up(scene: Scene) -> None:
    received = scene.reader(scene.node())
    writer = scene.writer(scene.node(), flow_control=FLOW)
    with pytest.raises(ZeroDivisionError), claimed(writer, 0):
        raise ZeroDivisionError
    with claimed(writer, 1):
        pass
    scene.wait(lambda: received.numbers == [1])


@pytest.mark.parametrize("closes", ["writer", "node"])
def test_a_claim_is_given_up_when_its_writer_is_closed_and_what_is_behind_it_is_sent(
    scene: Scene, closes: str
) -> None:
    received, node = scene.reader(scene.node()), scene.node()
    writer = scene.writer(node, flow_control=FLOW)
    late = claimed(writer, 0)
    writer.write_samples(numbered(1, 2))
    if closes == "writer":
        node.delete_endpoint(writer.guid)
    else:
        node.close()
    assert not late.commit()
    scene.wait(lambda: received.numbers == [1, 2])


def test_a_keyed_writer_takes_nothing_without_key_hashes(scene: Scene) -> None:
    """KEEP_LAST would take all instances for one."""
    scene.reader(scene.node(), keyed=True)
    writer = scene.writer(scene.node(), keyed=True, flow_control=FLOW)
    with pytest.raises(UsageError, match="written with key_hashes"):
        writer.write_samples(numbered(0, 2))
    with pytest.raises(UsageError, match="written with key_hashes"):
        writer.offer(numbered(0, 2))
    with pytest.raises(UsageError, match="2 samples need as many key hashes"):
        writer.write_samples(numbered(0, 2), key_hashes=hashes_of(1))
    claim = claimed(writer, 0)
    with pytest.raises(UsageError, match="needs its key_hash"):
        claim.commit()
    claim.abort()
    with pytest.raises(UsageError, match="needs its key_hash"), claimed(writer, 0):
        pass
    assert not writer.writer.claims.open and not writer.writer.counters.written_samples


def test_claims_of_a_keyed_topic_replace_only_their_own_instance(scene: Scene) -> None:
    """KEEP_LAST 1: of two instances, written by claims that are committed out of order, each is kept."""
    kept = replace(RELIABLE, durability=DurabilityKind.TRANSIENT_LOCAL, history=HistoryKind.KEEP_LAST)
    received = scene.reader(scene.node(), keyed=True)
    writer = scene.writer(scene.node(), kept, keyed=True, flow_control=FLOW)
    claims = []
    for number, instance in enumerate((1, 2, 1, 2, 1)):
        claims.append(claimed(writer, number))
        claims[-1].key_hash = hashes_of(instance)[-1]
    for claim in reversed(claims):
        assert claim.commit()
    scene.wait(lambda: received.numbers == [0, 1, 2, 3, 4])
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    late = scene.reader(scene.node(), kept, keyed=True)
    scene.wait(lambda: late.numbers == [3, 4])


def hashes_of(count: int) -> np.ndarray:
    """Key hashes of the instances 1, 2, ... ``count``."""
    hashes = np.zeros((count, 16), np.uint8)
    hashes[:, 0] = np.arange(1, count + 1)
    return hashes
