"""The pipe that wakes a waiting thread."""

from __future__ import annotations

import select

from spark_rtps.transport.net.wake_pipe import WakePipe


def is_readable(pipe: WakePipe) -> bool:
    return bool(select.select([pipe], [], [], 0)[0])


def test_woken_until_cleared() -> None:
    pipe = WakePipe()
    assert not is_readable(pipe)
    for _ in range(100_000):  # more than a pipe holds: it never blocks
        pipe.wake()
    assert is_readable(pipe)
    pipe.clear()
    assert not is_readable(pipe)
    pipe.close()
    pipe.wake()
