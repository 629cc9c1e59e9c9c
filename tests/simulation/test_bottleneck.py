"""What flow control and congestion control do at a bottleneck, shown in virtual time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from spark_rtps.transport.protocol.policies import READER_POLICY, WRITER_POLICY
from spark_rtps.transport.structure import INFINITE, Locator
from tests.simulation.bottleneck import Bottleneck, BottleneckNetwork, Queue
from tests.simulation.bottleneck_plots import FLOW_FIGURES
from tests.simulation.bottleneck_sections import SITUATIONS, STATIC_56, bottleneck_sections
from tests.simulation.flow import (
    CUBIC,
    SIZE,
    STATIC,
    WIRE_SIZE,
    FlowResult,
    FlowScenario,
    FlowSimulation,
    flow,
    jain,
)
from tests.simulation.network import FRAMING, GROUP, MS, SECOND, US
from tests.simulation.plots import plot
from tests.simulation.table import cells, headings, markdown

#: Of the bottleneck, and of the bytes sent: what congestion control has to keep.
ENOUGH: Final = 0.85
FEW: Final = 0.01
ONE: Final = FlowScenario(strategy="unicast", control=CUBIC)
GROUP_OF_FOUR: Final = FlowScenario(readers=4, control=CUBIC, warm_up=4 * SECOND, duration=12 * SECOND)
SLOW: Final = replace(GROUP_OF_FOUR, slow=1, slow_rate=50_000)
VANISHING: Final = replace(GROUP_OF_FOUR, vanish_at=6 * SECOND)
MANY: Final = replace(SITUATIONS["64 readers"], control=CUBIC)
#: What a slow reader takes of the link, with the bytes around its samples.
SLOW_SHARE: Final = 50_000 / (SIZE + 24) * WIRE_SIZE * 8 / 10_000_000


@cache
def run(scenario: FlowScenario, seed: int = 1) -> FlowResult:
    """Whatever happens, memory stays bounded: a term is kept for who is behind, the send window for who is not."""
    result = flow(scenario, seed)
    kept = max(scenario.term_length, WRITER_POLICY.window_bytes)
    assert result.writer_bytes <= kept + scenario.term_length
    window = scenario.control.max_window
    assert result.reader_bytes <= max(window, scenario.slow_buffer) + window // 2
    assert result.queue_peak <= scenario.link.queue
    return result


# --- a window for the link -------------------------------------------------------------------------


def test_a_static_window_overruns_the_queue_of_a_slow_link() -> None:
    assert STATIC.max_window == 4 << 20
    result = run(replace(ONE, control=STATIC, term_length=8 << 20))  # a window is half a term at most
    assert result.overrun_share > 0.4
    assert result.retransmission > 0.5, "most of what is sent is repairs"
    assert result.throughput < 0.5
    assert result.utilization < 0.7, "what is repaired again and again has a price (`repeated_repairs`)"
    assert result.missed == [0], "and yet nothing is lost"


def test_a_static_window_that_fits_needs_to_know_the_link() -> None:
    result = run(replace(ONE, control=STATIC_56))
    assert result.overruns == 0
    assert result.throughput > ENOUGH


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cubic_fills_the_link_and_hardly_repeats_anything(seed: int) -> None:
    result = run(ONE, seed)
    assert result.throughput >= ENOUGH
    assert result.retransmission < FEW
    assert result.missed == [0]


def test_cubic_without_measuring_fills_a_link_whose_round_trip_is_min_rtt() -> None:
    control = replace(CUBIC, measure_rtt=False, min_rtt=40 * MS)
    result = run(replace(ONE, control=control))
    assert result.throughput >= ENOUGH
    assert result.retransmission < FEW
    near = Bottleneck(delay=50 * US)
    result = run(replace(ONE, link=near, control=replace(CUBIC, measure_rtt=False)))
    assert result.throughput >= ENOUGH
    assert result.retransmission < FEW


def test_losses_that_are_no_congestion_cost_throughput_and_no_samples() -> None:
    result = run(replace(ONE, link=Bottleneck(loss=0.01)))
    assert result.missed == [0]
    assert result.overruns == 0
    assert 0.05 < result.throughput < 0.5, "to CUBIC every loss is congestion"
    assert result.retransmission < 0.03


def test_a_burst_after_a_quiet_time_does_not_overrun_the_queue() -> None:
    """16 KiB every 100 ms are an eighth of the link; after a minute of them come 4 MiB at once."""
    quiet = replace(ONE, burst=16 << 10, period=100 * MS, warm_up=59 * SECOND, duration=64 * SECOND)
    simulation = FlowSimulation(quiet)
    source = simulation.sources[0]

    def burst() -> None:
        source.offered += (4 << 20) // SIZE
        simulation.network.wake(source.host)

    simulation.network.at(simulation.network.now + 61 * SECOND, burst)
    result = simulation.run()
    assert result.missed == [0]
    assert result.overrun_share < 0.05, "slow start's first overshoot, not a window of 4 MiB"
    assert result.retransmission < 0.05


# --- flow control ----------------------------------------------------------------------------------


def test_min_is_paced_by_the_slowest() -> None:
    result = run(SLOW)
    assert result.shares == pytest.approx([SLOW_SHARE] * 4, rel=0.05)
    assert result.missed == [0] * 4
    assert result.dropped_readers == result.overruns == 0
    assert result.reader_bytes <= SLOW.slow_buffer + (64 << 10)


@pytest.mark.parametrize("strategy", ["max", "tagged"])
def test_max_and_tagged_drop_slow_readers(strategy: str) -> None:
    result = run(replace(SLOW, strategy=strategy))
    *fast, slow = result.shares
    assert result.missed[:3] == [0, 0, 0], "the fast ones get everything"
    assert min(fast) > 2 * slow
    assert slow == pytest.approx(SLOW_SHARE, rel=0.1), "as much as it can take"
    assert result.dropped_readers >= 1
    assert result.missed[3] > 0
    samples_in_a_term = SLOW.term_length // SIZE
    assert result.rejoined_behind <= 1.25 * samples_in_a_term, "at the newest when it was dropped"


def test_tagged_waits_for_a_slow_reader_that_is_tagged() -> None:
    result = run(replace(SLOW, strategy="tagged", slow_is_tagged=True))
    assert result.shares == pytest.approx([SLOW_SHARE] * 4, rel=0.05)
    assert result.missed == [0] * 4


def test_min_waits_for_a_vanished_reader_until_the_receiver_timeout() -> None:
    result = run(VANISHING)
    assert VANISHING.receiver_timeout == SECOND
    assert 0.8 * SECOND < result.stall < 1.5 * SECOND
    assert result.missed[:3] == [0, 0, 0]


def test_other_readers_resume_full_speed_after_the_receiver_timeout() -> None:
    result = run(VANISHING)
    for rates in result.rates[:3]:  # a quarter of the link still goes to where nobody is
        tail = rates[-len(rates) // 4 :]
        assert sum(tail) / len(tail) > ENOUGH / 4


def test_without_a_receiver_timeout_it_waits_for_ever() -> None:
    simulation = FlowSimulation(replace(VANISHING, receiver_timeout=INFINITE))
    network, source = simulation.network, simulation.sources[0]
    network.run(network.now + SECOND)
    source.start()
    network.run(network.now + 2 * SECOND)
    network.vanish(simulation.consumers[-1].host)
    network.run(network.now + 2 * SECOND)
    stopped_at = source.writer.positions.snd_pos
    network.run(network.now + 20 * SECOND)
    assert source.writer.positions.snd_pos == stopped_at
    assert source.writer.history.nbytes <= WRITER_POLICY.window_bytes


@pytest.mark.parametrize("strategy", ["max", "tagged"])
def test_max_and_tagged_do_not_wait_for_a_vanished_reader(strategy: str) -> None:
    result = run(replace(VANISHING, strategy=strategy))
    assert result.stall < 0.5 * SECOND
    assert result.missed[:3] == [0, 0, 0]


def test_sixty_four_readers_get_everything_and_do_not_drown_the_writer() -> None:
    result = run(MANY)
    assert result.missed == [0] * 64
    assert result.fairness > 0.98
    assert result.answers < 1, "less than one for each datagram to a reader"
    assert result.acknacks < 1 and result.status_messages < 1 and result.heartbeats < 1


def test_sixty_four_readers_are_hardly_sent_anything_twice() -> None:
    assert run(MANY).retransmission < FEW


# --- fairness --------------------------------------------------------------------------------------


def test_two_writers_with_cubic_share_a_bottleneck() -> None:
    both = FlowScenario(readers=2, writers=2, control=CUBIC, warm_up=10 * SECOND, duration=25 * SECOND)
    result = run(both)
    assert result.throughput >= ENOUGH
    assert result.fairness > 0.9
    assert result.retransmission < FEW
    assert result.missed == [0, 0]


# --- what it measures with -------------------------------------------------------------------------


def test_a_queue_drops_datagrams_beyond_its_bytes() -> None:
    queue = Queue(Bottleneck(rate=8_000_000, queue=2_500), on=True)  # a byte takes a microsecond
    assert [queue.enter(1_000, 0) for _ in range(3)] == [1_000 * US, 2_000 * US, None]
    assert queue.length(500 * US) == 1_500
    assert queue.enter(1_000, 500 * US) == 3_000 * US
    assert queue.length(5 * SECOND) == 0
    assert queue.enter(1_000, SECOND) == SECOND + 1_000 * US
    assert (queue.arrived, queue.dropped, queue.passed, queue.peak) == (5, 1, 4_000, 2_500)
    # 1,000 bytes waited 1 ms, 2 ms, 2.5 ms and 1 ms: over 6.5 ms that is a mean of 1,000 bytes
    assert queue.waited / (6_500 * US) == 1_000


def test_a_multicast_takes_room_once_and_the_way_back_has_no_queue() -> None:
    simulation = FlowSimulation(FlowScenario(readers=3))
    network = BottleneckNetwork(Bottleneck(rate=8_000_000, delay=MS), seed=1)
    before, *behind = (network.add(simulation.sources[0].writer) for _ in range(4))
    arrivals: list[tuple[Locator, int]] = []
    start, message = network.now, b"a" * 434
    for host in (before, *behind):
        host.on_arrival = lambda message, host=host: arrivals.append((host.locator, network.now - start))
    for host in behind:
        network.put_behind(host)
        network.join(host)
    network.queue.on = True
    network._send(before, message, (GROUP,))
    assert network.queue.passed == 434 + FRAMING
    assert network.queue.length(network.now) == 434 + FRAMING
    network._send(before, message, tuple(host.locator for host in behind))
    assert network.queue.passed == 4 * (434 + FRAMING)
    network._send(behind[0], message, (before.locator,))
    network.vanish(behind[2])
    network._send(before, message, (GROUP,))
    network.run(start + SECOND)
    assert network.queue.passed == 5 * (434 + FRAMING)
    assert sum(where == behind[0].locator for where, _ in arrivals) == 3
    assert network.copies == 3 + 3 + 2 and network.copies_lost == 0
    [back] = [at for where, at in arrivals if where == before.locator]
    assert MS < back < MS + 60 * US


def test_jains_index() -> None:
    assert jain([1, 1, 1, 1]) == 1
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([0, 0]) == 1


def test_the_same_seed_gives_the_same() -> None:
    short = replace(ONE, link=Bottleneck(loss=0.01), warm_up=SECOND, duration=3 * SECOND)
    assert flow(short, 5) == flow(short, 5)
    assert flow(short, 5).rates != flow(short, 6).rates


def test_rates_add_up_to_what_was_delivered() -> None:
    result = run(ONE)
    slots = result.rates[0][len(result.rates[0]) // 3 :]
    assert sum(slots) / len(slots) == pytest.approx(result.throughput, rel=0.01)
    assert len(result.queue) == len(result.rates[0])


# --- the tables and figures ------------------------------------------------------------------------


def test_every_section_has_its_place_in_the_document() -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text(encoding="utf-8")
    for section in bottleneck_sections():
        assert f"<!-- {section.name} -->\n" in text
        assert f"<!-- /{section.name} -->" in text


def test_tables_and_figures_are_made_of_results(tmp_path: Path) -> None:
    result = run(replace(ONE, warm_up=SECOND, duration=2 * SECOND, reader=READER_POLICY))
    for section in bottleneck_sections():
        results = [result] * len(section.rows)
        assert len(cells(section, section.rows[0], result)) == len(headings(section))
        assert len(markdown(section, results).splitlines()) == len(section.rows) + 2
        plot(section.name, section.rows, results, tmp_path, FLOW_FIGURES)
        assert (tmp_path / f"simulation-{section.name}.svg").stat().st_size > 10_000
