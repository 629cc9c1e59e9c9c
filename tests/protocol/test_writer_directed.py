"""Samples for one reader alone: the others are sent nothing, miss nothing, and nobody waits for them."""

from __future__ import annotations

import pytest

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.structure import Locator
from spark_rtps.transport.wire.submessages import Gap, Heartbeat
from tests.protocol.writer_script import MS, Script, reader_guid, sns, submessages, where


class Scene(Script):
    """Readers that have acknowledged all there was, each with an address of its own."""

    def __init__(self, readers: int) -> None:
        super().__init__(readers=readers)
        for i in range(1, readers + 1):
            self.acknack(1, i=i)
        self.output()

    def write_to(self, i: int) -> None:
        assert self.writer.write_to(reader_guid(i), self.samples(1), timestamp=self.now, now=self.now) == 1

    def messages_to(self) -> dict[Locator, list[object]]:
        """What was said where."""
        found: dict[Locator, list[object]] = {}
        for out in self.writer.outgoing():
            for locator in out.destinations:
                found.setdefault(locator, []).extend(submessages(out))
        return found


def test_a_directed_sample_goes_to_one_reader() -> None:
    scene = Scene(3)
    scene.write_to(2)
    output = scene.messages_to()
    assert list(output) == [where(2)]
    assert sns(output[where(2)]) == [1]
    assert scene.writer.unacknowledged() == {reader_guid(2): 0}
    scene.acknack(2, i=2)
    assert scene.writer.unacknowledged() == {}
    assert scene.writer.unacknowledged_bytes == 0
    assert scene.sleep(1_000 * MS) == []


def test_the_next_reader_gets_its_first_number() -> None:
    scene = Scene(2)
    for sn in range(1, 4):
        scene.write_to(1)
        scene.acknack(sn + 1, i=1)
    scene.output()
    scene.write_to(2)
    first, *rest = scene.messages_to()[where(2)]
    assert isinstance(first, Heartbeat)
    assert (first.first_sn, first.last_sn) == (4, 3)
    assert sns(rest) == [4]


def test_a_reader_that_requests_samples_for_others_gets_a_gap() -> None:
    scene = Scene(2)
    scene.write_to(1)
    scene.write_to(1)
    scene.output()
    scene.acknack(1, 1, 2, i=2)
    output = [each for _, each in scene.sleep(50 * MS)]
    gaps = [each for each in output if isinstance(each, Gap)]
    assert [(each.start_sn, each.irrelevant.base) for each in gaps] == [(1, 3)]
    assert sns(output) == []


def test_a_reader_that_lacks_a_sample_of_its_own_is_served() -> None:
    scene = Scene(2)
    scene.write_to(1)
    scene.write_to(2)
    scene.output()
    assert scene.writer.unacknowledged() == {reader_guid(1): 0, reader_guid(2): 1}
    scene.acknack(1, 1, i=1)
    assert sns([each for _, each in scene.sleep(50 * MS)]) == [1]
    scene.acknack(3, i=1)
    scene.acknack(3, i=2)
    assert scene.writer.unacknowledged() == {}


def test_all_readers_are_written_to_again_afterwards() -> None:
    scene = Scene(2)
    scene.write_to(1)
    scene.acknack(2, i=1)
    scene.output()
    scene.write(1)
    output = scene.messages_to()
    assert {locator: sns(each) for locator, each in output.items()} == {where(1): [2], where(2): [2]}


def test_best_effort_readers() -> None:
    scene = Scene(1)
    scene.match(2, reliable=False).match(3, reliable=False)
    scene.output()
    scene.write_to(3)
    output = scene.messages_to()
    assert list(output) == [where(3)]
    assert sns(output[where(3)]) == [1]


def test_a_write_that_is_refused_leaves_the_next_one_to_all() -> None:
    scene = Scene(2)
    with pytest.raises(UsageError):
        scene.writer.write_to(reader_guid(2), scene.samples(1, 15), timestamp=scene.now, now=scene.now)
    scene.output()
    scene.write(1)
    assert set(scene.messages_to()) == {where(1), where(2)}
