"""Small cases of the simulation, and that it measures what it says it does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from spark_rtps.transport.protocol.policies import BATCH_POLICY, WRITER_POLICY, BatchPolicy, Compression
from spark_rtps.transport.wire.batch import AckNackBatch, frame_batch
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import AckNack
from tests.simulation.hunt import PATIENCE, scenario
from tests.simulation.network import FRAMING, MS, SECOND, US, Link, Network
from tests.simulation.scenarios import Result, Scenario, Simulation, Wrong, simulate
from tests.simulation.sections import SPREAD_READER, UNSUPPRESSED_READER, UNSUPPRESSED_WRITER, sections
from tests.simulation.table import cells, headings, insert, markdown
from tests.simulation.traffic import Meter

SMALL: Final = Scenario(samples=400)
BATCHES: Final = BatchPolicy(enable=True, max_flush_delay=MS)


def run(seeds: int = 2, **what: object) -> Result:
    return simulate(replace(SMALL, **what), range(1, 1 + seeds))


# --- what is shown ---------------------------------------------------------------------------------


@pytest.mark.parametrize("readers", [1, 4, 16])
@pytest.mark.parametrize("loss", [0.0, 0.1, 0.3])
def test_all_is_delivered_once_in_order_at_about_the_least_repairs(loss: float, readers: int) -> None:
    result = run(link=Link(loss=loss), readers=readers)
    assert len(result.latencies) == result.deliveries == 2 * 400 * readers
    assert result.duplicates <= result.deliveries // 100
    least = loss / (1 - loss)
    assert result.repair_ratio <= 1.5 * least
    assert (result.nacks > 0) == (loss > 0)


def test_a_quiet_network_needs_no_repairs_and_adds_no_latency() -> None:
    result = run(readers=16)
    assert result.repair_bytes == result.nacks == result.gaps == 0
    assert result.latency(100) < 1


def test_reordered_samples_are_not_taken_for_lost() -> None:
    result = run(link=Link(delay=MS, jitter=2 * MS), readers=4)
    assert result.repair_bytes == result.duplicates == 0


def test_suppression_prevents_repair_storms() -> None:
    link = Link(delay=5 * MS, jitter=MS, loss=0.1)
    on = run(4, link=link, readers=4)
    off = run(4, link=link, readers=4, writer=UNSUPPRESSED_WRITER, reader=UNSUPPRESSED_READER)
    assert off.repair_bytes > 2 * on.repair_bytes
    assert off.nacks > 2 * on.nacks
    assert on.duplicates < off.duplicates // 10


def test_a_response_delay_prevents_acknack_storms() -> None:
    at_once = run(1, readers=64)
    spread = run(1, readers=64, reader=SPREAD_READER)
    assert at_once.peak_acknacks >= 60, "all answer the same HEARTBEAT"
    assert spread.peak_acknacks <= 16
    assert spread.acknacks <= at_once.acknacks


def test_without_positive_acknowledgements_a_lossless_network_is_silent() -> None:
    writer, reader = (replace(each, disable_positive_acks=True) for each in (WRITER_POLICY, SMALL.reader))
    result = run(readers=4, writer=writer, reader=reader)
    assert result.acknacks == result.nacks == 0


def test_without_positive_acknowledgements_readers_are_known_all_the_same() -> None:
    reader = replace(SMALL.reader, disable_positive_acks=True)
    simulation = Simulation(replace(SMALL, link=Link(loss=0.3), reader=reader), seed=1)
    network, readers = simulation.network, simulation.writer.readers
    for _ in range(30):
        simulation._add_reader(simulation._offered_at)
    assert network.run(
        network.now + 60 * SECOND, lambda: len(readers) == 30 and all(p.is_ready for p in readers.values())
    )
    assert network.run(network.now + 60 * SECOND, lambda: network.silent)


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_late_joiners_get_the_history(loss: float) -> None:
    result = run(link=Link(loss=loss), late_readers=4)
    assert len(result.late_latencies) == 2 * 400 * 4
    assert result.repair_ratio < 4 * 1.5


def test_multicast_sends_once() -> None:
    one, four = (run(readers=readers, multicast=True) for readers in (1, 4))
    assert one.data_bytes == four.data_bytes


def test_the_same_seed_gives_the_same() -> None:
    first, second = (run(1, link=Link(loss=0.2, jitter=MS), readers=4) for _ in range(2))
    assert first.datagrams == second.datagrams
    assert first.latencies.tolist() == second.latencies.tolist()


# --- batches ---------------------------------------------------------------------------------------


def batched(seeds: int = 2, **what: object) -> Result:
    """Samples written one by one, 16 of them to a batch."""
    return run(seeds, **({"burst": 1, "period": 10 * US, "batch": BATCHES} | what))


def test_batches_take_fewer_datagrams() -> None:
    link = Link(loss=0.05)
    each = batched(3, link=link, readers=4, samples=2_000, batch=BATCH_POLICY)
    together = batched(3, link=link, readers=4, samples=2_000)
    assert together.datagrams < each.datagrams // 5
    assert together.ack_bytes < each.ack_bytes


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_batches_are_announced_acknowledged_and_requested_by_number(loss: float) -> None:
    result = batched(link=Link(loss=loss), readers=4)
    assert result.batches >= 2 * 4 * 400 // 16
    assert result.heartbeat_batches == result.heartbeats
    # A reader that does not know yet where batches begin asks for samples.
    assert result.acknack_batches >= 0.9 * (result.acknacks + result.nacks)
    assert result.repair_ratio <= 1.5 * loss / (1 - loss)


def test_a_reader_without_batches_gets_data() -> None:
    plain = batched(link=Link(loss=0.1), readers=2, plain_readers=2)
    assert plain.batches == plain.heartbeat_batches == plain.acknack_batches == 0
    both = batched(link=Link(loss=0.1), readers=2, plain_readers=1)
    assert both.batches and both.heartbeats > both.heartbeat_batches > 0
    assert both.acknacks + both.nacks > both.acknack_batches > 0


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
def test_compressed_batches_are_repaired_too(codec: Compression) -> None:
    large = replace(BATCHES, max_data_bytes=2_400, compression=codec)
    plain, packed = (
        batched(link=Link(loss=0.2), size=256, message_size=4_000, batch=replace(large, compression=each))
        for each in (Compression.NONE, codec)
    )
    assert 0 < packed.data_bytes < plain.data_bytes // 2
    assert packed.repair_bytes > 0


def test_turbo_mode_makes_batches_of_a_stream() -> None:
    result = batched(link=Link(loss=0.05), batch=BatchPolicy(turbo_mode=True))
    assert result.datagrams < batched(link=Link(loss=0.05), batch=BATCH_POLICY).datagrams // 5


# --- bounds: what has once been worse --------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "p99"),
    [
        # What is requested in addition does not put off the repetition of the rest.
        ({"link": Link(loss=0.1), "readers": 4}, 150),
        ({"link": Link(loss=0.1), "readers": 16}, 200),
        # A writer that is heard is asked again as soon as at first.
        ({"link": Link(loss=0.3)}, 1_500),
        ({"link": Link(loss=0.3), "readers": 4}, 1_500),
        ({"link": Link(loss=0.2), "readers": 4, "burst": 1, "period": 10 * US, "batch": BATCHES}, 400),
    ],
)
def test_latency_under_loss(what: dict[str, Any], p99: int) -> None:
    assert run(3, samples=2_000, **what).latency(99) < p99


def test_a_late_joiner_is_sent_its_history_about_once() -> None:
    """What it did not ask for follows a request only when it was not sent yet."""
    result = run(6, samples=2_000, link=Link(loss=0.1), late_readers=1)
    assert result.repair_ratio < 1.3
    assert result.duplicates < result.deliveries // 100


def test_a_network_that_reorders_is_learnt() -> None:
    """A HEARTBEAT asks for nothing that other datagrams have overtaken."""
    result = run(2, samples=2_000, link=Link(delay=10 * MS, jitter=10 * MS), readers=8)
    assert result.repair_ratio < 0.01
    in_order, lossy = (
        run(2, samples=2_000, link=Link(delay=10 * MS, jitter=jitter, loss=0.05), readers=8)
        for jitter in (0, 10 * MS)
    )
    assert lossy.repair_ratio < 1.3 * in_order.repair_ratio


def test_readers_of_a_multicast_do_not_ask_all_at_once() -> None:
    link = Link(loss=0.1)
    at_once = run(1, link=link, readers=64, multicast=True)
    spread = run(1, link=link, readers=64, multicast=True, reader=SPREAD_READER)
    assert spread.peak_acknacks < at_once.peak_acknacks // 3


# --- what random scenarios have found ---------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_random_scenarios(seed: int) -> None:
    it = replace(scenario(seed), samples=30)
    assert Simulation(it, seed, patience=PATIENCE).run().lost == 0


def test_more_large_samples_than_can_be_begun_do_not_stall() -> None:
    """Where an answer holds one fragment only, none is spent on samples of which nothing can be kept."""
    one_by_one = replace(WRITER_POLICY, min_nack_response_delay=2 * MS, max_bytes_per_nack_response=1)
    link = Link(loss=0.3, delay=MS)
    result = run(3, link=link, samples=100, burst=100, size=4_000, writer=one_by_one)
    assert result.latency(100) < 20_000


def test_a_coherent_set_larger_than_the_receive_window_is_lost_and_not_waited_for() -> None:
    window = replace(SMALL.reader, receive_window_size=4)
    with pytest.raises(Wrong, match="was never given 30 samples"):
        run(1, link=Link(loss=0.1), samples=30, coherent=5, size=4_000, reader=window)


def test_the_end_of_a_coherent_set_may_come_first() -> None:
    link = Link(delay=5 * MS, jitter=8 * MS)
    run(3, link=link, samples=10, burst=10, size=4_000, coherent=10)


# --- what it measures with -------------------------------------------------------------------------


def test_a_datagram_takes_its_time_on_the_wire_and_the_delay() -> None:
    size, network = 16 + 400, Network(Link(bandwidth=8_000_000, delay=MS, jitter=0), seed=1)
    assert (size + FRAMING) * US == 482 * US  # a byte takes a microsecond
    arrivals: list[tuple[bytes, int]] = []
    simulation = Simulation(SMALL, 1)
    sender, receiver = (network.add(simulation.writer) for _ in range(2))
    receiver.on_arrival = lambda message: arrivals.append((message, network.now - start))  # type: ignore[has-type]
    start = network.now
    for content in (b"a", b"b"):
        network._send(sender, content * size, (receiver.locator,))
    network.run(start + SECOND)
    assert [at for _, at in arrivals] == [MS + 482 * US, MS + 2 * 482 * US]


def test_loss_is_each_receivers_own() -> None:
    simulation = Simulation(replace(SMALL, link=Link(loss=0.3)), 5)
    network, got = simulation.network, [0, 0]
    hosts = [network.add(simulation.writer) for _ in range(2)]
    for i, host in enumerate(hosts):
        host.on_arrival = lambda message, i=i: got.__setitem__(i, got[i] + 1)
    for _ in range(1_000):
        network._send(simulation.host, bytes(100), tuple(host.locator for host in hosts))
    network.run(network.now + SECOND)
    assert all(650 < count < 750 for count in got)
    assert got[0] != got[1]


def test_a_sample_out_of_order_is_found_out() -> None:
    simulation = Simulation(SMALL, 1)
    simulation._add_reader(simulation._offered_at)
    simulation.sinks[0].wanted = 1
    simulation.network.run(simulation.network.now + SECOND)
    simulation._offer()
    with pytest.raises(Wrong, match="reader 1 of seed 1 wants sample"):
        simulation.network.run(simulation.network.now + SECOND)


def test_a_sample_that_never_comes_is_found_out() -> None:
    with pytest.raises(Wrong, match="seed 1: not done"):
        run(1, link=Link(loss=1.0))


def test_repairs_and_data_differ_by_their_bytes_alone() -> None:
    result = run(4, link=Link(loss=0.2))
    exact = run(4)
    assert result.data_bytes == exact.data_bytes, "first sendings are not counted as repairs, nor the reverse"


# --- the table -------------------------------------------------------------------------------------


def test_every_section_has_its_place_in_the_document() -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text(encoding="utf-8")
    for section in sections():
        assert f"<!-- {section.name} -->\n" in text
        assert f"<!-- /{section.name} -->" in text


def test_a_table_goes_between_its_markers() -> None:
    section = next(each for each in sections() if each.name == "loss")
    section.rows[:] = section.rows[:2]
    results = [run(1), run(1)]
    assert len(cells(section, section.rows[0], results[0])) == len(headings(section))
    document = insert("a\n<!-- loss -->\nold\n<!-- /loss -->\nb", section, results)
    assert document == f"a\n<!-- loss -->\n{markdown(section, results)}\n<!-- /loss -->\nb"
    assert insert(document, section, results) == document


def test_guids_differ_by_seed() -> None:
    assert len({Simulation(SMALL, seed).writer.guid for seed in range(3)}) == 3


def test_a_batch_sent_again_is_a_repair() -> None:
    payloads = Samples.uniform(np.zeros(30 * 8, np.uint8), 30, 8)
    first, second = (
        bytes(frame_batch(payloads, b"\0\0\1\3", batch_sn, 1 + 30 * (batch_sn - 1)).data)
        for batch_sn in (1, 2)
    )
    meter = Meter(on=True)
    header = Header(prefix=bytes(12)).encode()
    for batch in (first, second, first):
        meter.sent(header + batch, 2, now=0)
    assert meter.data_bytes == 2 * (len(first) + len(second))
    assert meter.repair_bytes == 2 * len(first)


def test_an_acknack_batch_that_requests_something_is_a_nack() -> None:
    meter = Meter(on=True)
    header = Header(prefix=bytes(12)).encode()
    for missing in ([], [7]):
        numbers = SequenceNumberSet.from_numbers(5, missing)
        for kind in (AckNack, AckNackBatch):
            meter.sent(header + kind(b"\0\0\2\4", b"\0\0\1\3", numbers, 1).encode(), 1, now=0)
    assert (meter.acknacks, meter.nacks) == (2, 2)
