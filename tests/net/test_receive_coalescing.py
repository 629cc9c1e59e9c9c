"""How long a node naps after datagrams: longer where its naps end late, as others want the processor."""

from __future__ import annotations

import pytest

from spark_rtps.transport.net.receive_coalescing import ReceiveCoalescing
from spark_rtps.transport.net.sockets import CONTENDED_BURST_BYTES

MS = 1_000_000
ROOM = 32 << 20
DATAGRAM = 64_512


def crowded(late: int = 3 * MS) -> ReceiveCoalescing:
    coalescing = ReceiveCoalescing()
    for _ in range(30):
        coalescing.woke(late)
    return coalescing


def nap(
    coalescing: ReceiveCoalescing,
    datagrams: int,
    *,
    took: int = 20 * MS,
    room: int = ROOM,
    size: int = DATAGRAM,
) -> int:
    """After a burst of so many datagrams, ``took`` after the one before."""
    coalescing.after(1, DATAGRAM, room=ROOM, now=MS)
    return coalescing.after(datagrams, datagrams * size, room=room, now=MS + took)


@pytest.mark.parametrize("datagrams", [1, 16, 60])
def test_delays_that_end_late_are_longer_after_any_burst(datagrams: int) -> None:
    assert nap(ReceiveCoalescing(), datagrams) == (400_000 if datagrams == 16 else 0)
    assert nap(crowded(), datagrams) == 14 * MS


def test_delays_are_a_multiple_of_their_lateness() -> None:
    assert nap(crowded(MS), 16) == pytest.approx(8 * MS, abs=10_000)


@pytest.mark.parametrize("room", [8 << 20, 16 << 20, 32 << 20, 1 << 30])
def test_coalescing_gathers_no_more_than_a_burst_takes_or_the_kernel_holds(room: int) -> None:
    fast = nap(crowded(), 64, took=2 * MS, room=room)
    gathered = fast * 64 * DATAGRAM // (2 * MS)
    assert min(room // 4, CONTENDED_BURST_BYTES // 2) < gathered + DATAGRAM
    assert gathered <= min(room // 4, CONTENDED_BURST_BYTES)


def test_coalescing_does_not_wait_beyond_the_kernels_buffer() -> None:
    assert nap(crowded(), 16, room=1 << 20) == 0


def test_small_datagrams_which_take_much_of_the_kernels_memory_do_not_wait_longer() -> None:
    assert nap(crowded(), 16, size=100) == 200_000
    assert nap(crowded(), 1, size=100) == 0


def test_one_late_coalescing_delay_is_soon_forgotten() -> None:
    coalescing = ReceiveCoalescing()
    coalescing.woke(8 * MS)
    assert nap(coalescing, 16) > 400_000
    for _ in range(10):
        coalescing.woke(80_000)
    assert nap(coalescing, 16) == 400_000
