"""How much a writer has in flight, parameter by parameter."""

from __future__ import annotations

import pytest

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.protocol.policies import WriterPolicy
from spark_rtps.transport.protocol.writing.readers.send_window import SendWindow
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.submessages import Heartbeat
from tests.protocol.writer_script import LASTING, MS, Script, reader_guid, sns

SECOND = 1_000 * MS


def window(low: int, high: int, **options: int) -> Script:
    policy = WriterPolicy(min_send_window_size=low, max_send_window_size=high, **options)
    s = Script(policy=policy)
    s.acknack(1).output()
    return s


def fill(s: Script) -> int:
    """Write as much as goes, and have it acknowledged; returns how much."""
    count = s.write(100_000)
    assert s.writer.window.samples == count
    s.acknack(s.writer.last_sn + 1)
    assert s.writer.window.samples == 0
    s.output()
    return count


def test_max_send_window_size() -> None:
    s = window(10, 10)
    assert s.write(25) == 10
    assert s.writer.state.blocked_by == "send window"
    assert s.write(15) == 0
    s.acknack(4)
    assert s.write(15) == 3, "as many as are acknowledged, of the middle of a block too"
    assert s.writer.window.samples == 10
    s.acknack(14)
    assert s.write(12) == 10
    s.acknack(24)
    assert s.write(2) == 2
    assert s.writer.state.blocked_by == ""


def test_full_reached() -> None:
    s = window(10, 10)
    counters = s.writer.counters
    assert s.write(9) == 9
    assert counters.full_reached == 0
    assert s.write(1) == 1
    assert counters.full_reached == 1
    assert s.write(1) == 0
    assert counters.full_reached == 1, "still"
    s.acknack(11)
    assert s.write(10) == 10
    assert counters.full_reached == 2
    assert counters.unacknowledged_samples_peak == 10


def test_the_slowest_reader_fills_the_window() -> None:
    s = window(10, 10)
    s.match(2).acknack(1, i=2)
    s.write(10)
    s.acknack(11, i=1).acknack(3, i=2)
    assert s.writer.window.samples == 8
    s.writer.unmatch_reader(reader_guid(2))
    assert s.writer.window.samples == 0


def test_a_late_joiners_history_is_not_in_the_window() -> None:
    s = Script(LASTING, readers=0, policy=WriterPolicy(min_send_window_size=10, max_send_window_size=10))
    assert s.write(1_000) == 1_000
    s.match(1, transient_local=True)
    assert s.write(20) == 10
    s.acknack(1_001)
    assert s.write(10) == 0, "history is not what is in flight"
    s.acknack(1_006)
    assert s.write(10) == 5


def test_min_send_window_size_is_where_it_starts() -> None:
    assert fill(window(8, 100)) == 8
    assert fill(window(8, INFINITE)) == 8
    assert fill(window(INFINITE, 100)) == 100, "without a minimum there is one size"


def test_send_window_size_unlimited_leaves_it_to_send_window_bytes() -> None:
    s = window(INFINITE, INFINITE, send_window_bytes=4_000)
    assert s.writer.window.size is None
    assert s.write(1_000) == 100
    assert s.writer.state.blocked_by == "send window"
    assert s.writer.counters.full_reached == 1
    s = window(1_000, 1_000, send_window_bytes=4_000)
    assert s.write(1_000) == 100, "whichever is reached first"
    assert s.writer.state.blocked_by == "send window"


def test_send_window_update_period() -> None:
    s = window(100, 1_000, send_window_update_period=SECOND, send_window_increase_factor=110)
    assert fill(s) == 100
    s.sleep(SECOND - 1)
    assert fill(s) == 100
    s.sleep(1)
    assert [fill(s), fill(s)] == [110, 110]
    s.sleep(500 * MS)
    s.write(1)
    s.acknack(s.writer.last_sn, s.writer.last_sn)  # something is lost: the period begins anew
    s.acknack(s.writer.last_sn + 1)
    size = s.writer.window.size
    s.sleep(600 * MS)
    assert fill(s) == size
    s.sleep(400 * MS)
    assert fill(s) > (size or 0)


def test_send_window_increase_factor() -> None:
    s = window(10, 20, send_window_update_period=SECOND, send_window_increase_factor=130)
    sizes = []
    for _ in range(5):
        sizes.append(fill(s))
        s.sleep(SECOND)
    assert sizes == [10, 13, 16, 20, 20], "up to the maximum"
    s = window(2, 5, send_window_update_period=SECOND, send_window_increase_factor=105)
    fill(s)
    s.sleep(SECOND)
    assert fill(s) == 3, "by one at least"
    s.sleep(100 * SECOND)
    assert fill(s) == 4, "not for the time nobody wrote"


def test_send_window_decrease_factor() -> None:
    policy = {"send_window_increase_factor": 1_000, "send_window_decrease_factor": 70}
    s = window(30, 100, **policy)
    fill(s)
    s.sleep(3 * SECOND)
    assert fill(s) == 100
    s.write(50)
    first = s.writer.last_sn - 49
    s.acknack(first, first)
    assert s.writer.window.size == 70
    s.acknack(first, first, first + 7)
    assert s.writer.window.size == 70, "one loss, whoever tells of it and how often"
    s.acknack(s.writer.last_sn + 1)
    for size in (49, 34, 30, 30):
        s.write(5)
        s.acknack(s.writer.last_sn - 1, s.writer.last_sn)
        s.acknack(s.writer.last_sn + 1)
        assert s.writer.window.size == size
    assert fill(s) == 30, "down to the minimum"


def test_send_window_decrease_factor_knows_fragments() -> None:
    s = window(10, 100, send_window_increase_factor=1_000)
    fill(s)
    s.sleep(3 * SECOND)
    fill(s)
    s.write(1, 200_000)
    s.nack_frag(s.writer.last_sn, 2)
    assert s.writer.window.size == 70


def test_history_that_is_requested_is_no_loss() -> None:
    policy = WriterPolicy(
        min_send_window_size=10, max_send_window_size=100, send_window_increase_factor=1_000
    )
    s = Script(LASTING, policy=policy)
    s.acknack(1)
    fill(s)
    s.sleep(3 * SECOND)
    fill(s)
    s.match(2, transient_local=True).acknack(1, 1, 2, 3, i=2)
    assert s.writer.window.size == 100


def test_a_window_below_its_size_takes_no_samples_until_it_empties() -> None:
    s = window(10, 100, send_window_increase_factor=1_000)
    fill(s)
    s.sleep(3 * SECOND)
    assert s.write(100) == 100
    first = s.writer.last_sn - 99
    s.acknack(first, first)
    assert s.write(10) == 0
    s.acknack(first + 40)
    assert s.write(20) == 10, "seventy in flight"


def test_the_samples_in_flight_are_exact() -> None:
    s = window(INFINITE, INFINITE)
    s.write(10)
    s.write(10)
    acked = 0
    for step in (1, 2, 7, 3, 6, 1):
        acked += step
        s.acknack(acked + 1)
        assert s.writer.window.samples == s.writer.counters.unacknowledged_samples == 20 - acked
    assert isinstance(s.writer.window, SendWindow)
    assert s.writer.unacknowledged_bytes == 0


def test_the_last_word_of_a_full_window_asks_for_acknowledgements() -> None:
    s = window(10, 10, heartbeats_per_max_samples=1)
    s.write(7)
    assert s.write(7) == 3
    output = s.output()
    assert sns(output) == list(range(1, 11))
    assert isinstance(output[-1], Heartbeat)


def in_flight(s: Script) -> int:
    """How many bytes go before the writer waits."""
    while s.write(64, 1 << 16):
        s.writer.outgoing()
    return s.writer.window.nbytes


def test_readers_that_announce_a_window_allow_half_a_term_in_flight() -> None:
    s = Script(readers=0)
    s.match(1, status_messages=True).acknack(1).status(0, 64 << 20)
    assert 15 << 20 < in_flight(s) <= s.writer.positions.term_window == 16 << 20


def test_a_reader_without_status_messages_reduces_the_window() -> None:
    s = Script(readers=0)
    s.match(1, status_messages=True).acknack(1).status(0, 64 << 20)
    s.match(2).acknack(1, i=2)
    assert 3 << 20 < in_flight(s) <= 4 << 20
    s.writer.unmatch_reader(reader_guid(2))
    assert 15 << 20 < in_flight(s) <= 16 << 20


def test_send_window_bytes_holds_for_all_readers() -> None:
    s = Script(readers=0, policy=WriterPolicy(send_window_bytes=1 << 20))
    s.match(1, status_messages=True).acknack(1).status(0, 64 << 20)
    assert in_flight(s) <= 1 << 20


def test_a_write_as_large_as_the_window_fits() -> None:
    s = Script(readers=0)
    s.match(1, status_messages=True).acknack(1).status(0, 64 << 20)
    s.writer.admission.check_fits(s.samples(100, 1 << 16))
    s.match(2).acknack(1, i=2)
    with pytest.raises(UsageError, match="4194304 bytes may be in flight"):
        s.writer.admission.check_fits(s.samples(100, 1 << 16))
