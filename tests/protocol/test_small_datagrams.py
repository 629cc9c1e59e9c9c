"""Bursts of small datagrams: it comes to the same as if each datagram had come by itself."""

from __future__ import annotations

from random import Random

import pytest

from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.submessages import Data, Heartbeat, InfoDestination, InfoTimestamp
from tests.protocol.burst_scene import ENTITY, SECOND, WRITERS, End
from tests.support.campaigns import seeds

ANY, HOST = bytes(4), "10.0.0.2"


def message(writer: Guid, *submessages: bytes) -> tuple[bytes, str]:
    return Header(prefix=writer.prefix).encode() + b"".join(submessages), HOST


def sample(sn: int) -> bytes:
    stamped = InfoTimestamp(sn * SECOND).encode()
    return stamped + Data(ANY, ENTITY, sn, b"\0\1\0\0" + sn.to_bytes(4, "little")).encode()


class Forgetful:
    """A reliable writer that keeps few samples, and what it sends; every sample that gets lost is sent again."""

    def __init__(self, guid: Guid, rng: Random) -> None:
        self.guid, self._rng = guid, rng
        self._last, self._first, self._count = 0, 1, 0
        self._lost: list[int] = []

    def datagrams(self, count: int) -> list[tuple[bytes, str]]:
        found: list[tuple[bytes, str]] = []
        while len(found) < count:
            self._last += 1
            if self._rng.random() < 0.2:
                self._lost.append(self._last)
            else:
                tail = self._heartbeat() if self._rng.random() < 0.7 else b""
                found.append(message(self.guid, sample(self._last), tail))
            if self._lost and self._rng.random() < 0.2:
                again = b"".join(map(sample, self._lost))
                found.append(message(self.guid, InfoDestination(b"r" * 12).encode(), again))
                # from now on it may have forgotten them
                self._lost, self._first = [], self._last
        return found

    def _heartbeat(self) -> bytes:
        self._count += 1
        return Heartbeat(ANY, ENTITY, self._first, self._last, self._count).encode()


@pytest.mark.parametrize("seed", seeds(30))
def test_samples_repaired_just_before_removal_are_delivered(seed: int) -> None:
    rng = Random(seed)
    whole, apart = End(), End()
    writers = [Forgetful(guid, rng) for guid in WRITERS[:2]]
    for now in range(2 * SECOND, 12 * SECOND, SECOND):
        bursts = [writer.datagrams(rng.randint(8, 40)) for writer in writers]
        turns = sorted((i, number) for number, each in enumerate(bursts) for i in range(len(each)))
        datagrams = [bursts[number][i] for i, number in turns]
        whole.take_in(datagrams, now=now)
        for each in datagrams:
            apart.take_in([each], now=now)
    assert whole.delivered == apart.delivered
    for end in (whole, apart):
        assert not any(reader.counters.lost_samples for reader in end.readers)
