"""What found no room in the log waits with memory of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from spark_rtps.transport.receiver.log_appender import LogAppender
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.runs import scan
from spark_rtps.transport.wire.samples import Run
from tests.wire.plain_data import data

PREFIX = b"\1" * 12


class Log:
    """A stream log with room, or without."""

    max_bytes, base, position, free_bytes = 1 << 20, 0, 0, 1 << 20

    def __init__(self) -> None:
        self.has_room = False
        self.payloads: list[bytes] = []

    def append(self, run: Run, *, reception: int) -> bool:
        if self.has_room:
            samples = run.samples()
            self.payloads += [bytes(samples.payload(i)) for i in range(run.count)]
        return self.has_room


@pytest.mark.parametrize("words", [(2,), (2, 3)], ids=["equal", "unequal"])
def test_what_waits_for_room_is_not_what_is_received_next(words: tuple[int, ...]) -> None:
    payloads = [b"\0\1\0\0" + bytes((i,)) * 4 * words[i % len(words)] for i in range(1, 21)]
    buffer = np.frombuffer(
        b"".join(data(True, i, each) for i, each in enumerate(payloads, 1)), np.uint8
    ).copy()
    (run,) = scan(buffer, 0, len(buffer), PREFIX, 0).runs
    assert run.writer == Guid(PREFIX, b"\0\0\1\2") and np.shares_memory(run.data, buffer)
    log = Log()
    everything = SimpleNamespace(accept=lambda run, *, reception, now: run)
    shown = SimpleNamespace(show_log=lambda log: None)
    appender = LogAppender(cast(Any, log), cast(Any, everything), cast(Any, shown), None, None, remedies={})
    reader = cast(Any, SimpleNamespace(hold_acknowledgments=False))
    appender.deliver(reader, [run])
    assert reader.hold_acknowledgments and not appender.room() and not log.payloads
    buffer[:] = 0xEE  # the next drain
    log.has_room = True
    appender.deliver(reader, [])
    assert log.payloads == payloads and not reader.hold_acknowledgments
