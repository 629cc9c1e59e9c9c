"""What endpoints have to do: a thousand that have nothing are not even looked at."""

from __future__ import annotations

from random import Random

import pytest

from spark_rtps.transport.protocol.agenda import Agenda
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import FlowControlPolicy, PublicationPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid
from tests.support.virtual_network import SECOND, VirtualNetwork

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)


class Fake:
    """An endpoint with a timer that is set from outside."""

    def __init__(self, number: int) -> None:
        self.guid = Guid(bytes(12), number.to_bytes(4, "big"))
        self.touch = lambda: None
        self.has_more_to_say = False
        self.timer: int | None = None
        self.asked = 0
        self.called: list[int] = []

    def get_timer(self) -> int | None:
        self.asked += 1
        return self.timer

    def set(self, timer: int | None) -> None:
        self.timer = timer
        self.touch()  # type: ignore[no-untyped-call]

    def handle_timer(self, now: int) -> None:
        self.called.append(now)
        self.timer = None


def test_timers_as_if_all_were_asked() -> None:
    r = Random(5)
    agenda, fakes = Agenda(), [Fake(i) for i in range(20)]
    for fake in fakes:
        agenda.add_endpoint(fake)
    now = 0
    for _ in range(2_000):
        what = r.randrange(4)
        fake = r.choice(fakes)
        if what == 0:
            fake.set(now + r.randrange(100))
        elif what == 1:
            fake.set(None)
        elif what == 2 and len(fakes) > 5:
            fakes.remove(fake)
            agenda.remove_endpoint(fake.guid)
        else:
            now += r.randrange(30)
            due = {id(f) for f in fakes if f.timer is not None and f.timer <= now}
            before = {id(f): len(f.called) for f in fakes}
            agenda.handle_timer(now)
            assert {id(f) for f in fakes if len(f.called) > before[id(f)]} == due
        assert agenda.get_timer() == min((f.timer for f in fakes if f.timer is not None), default=None)


class Raising(Fake):
    """One whose timer raises."""

    def handle_timer(self, now: int) -> None:
        self.called.append(now)
        raise RuntimeError("a plug-in's own mistake")


def test_a_timer_that_raises_takes_none_of_the_others_with_it() -> None:
    agenda, fakes = Agenda(), [Fake(0), Raising(1), Fake(2), Fake(3)]
    for fake in fakes:
        agenda.add_endpoint(fake)
        fake.set(5)
    with pytest.raises(RuntimeError, match="own mistake"):
        agenda.handle_timer(7)
    assert [fake.called for fake in fakes] == [[7]] * 4
    for i, fake in enumerate(fakes):
        fake.set(10 + i)
    agenda.handle_timer(20)
    assert [fake.called for fake in fakes] == [[7, 20], [7], [7, 20], [7, 20]], "it is left alone for a while"
    with pytest.raises(RuntimeError, match="own mistake"):
        agenda.handle_timer(1_000_000_000)


def test_a_timer_that_cannot_be_asked_for_takes_none_of_the_others_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agenda, bad, good = Agenda(), Fake(0), Fake(1)
    for fake in (bad, good):
        agenda.add_endpoint(fake)
        fake.set(5)
    monkeypatch.setattr(bad, "get_timer", lambda: 1 // 0)
    assert agenda.get_timer() == 5
    with pytest.raises(ZeroDivisionError):
        agenda.handle_timer(7)
    assert good.called == [7]


def test_timers_that_change_far_ahead_leave_nothing_behind() -> None:
    """A LIFESPAN of a day has another timer with every write, while another one ends soon."""
    agenda, soon, far = Agenda(), Fake(0), Fake(1)
    for fake in (soon, far):
        agenda.add_endpoint(fake)
    soon.set(10)
    for i in range(5_000):
        far.set(1_000_000 + i)
        assert agenda.get_timer() == 10
    assert len(agenda._heap) < 100
    agenda.handle_timer(10)
    assert agenda.get_timer() == 1_004_999


def test_an_untouched_endpoint_is_not_asked() -> None:
    agenda, fakes = Agenda(), [Fake(i) for i in range(100)]
    for fake in fakes:
        agenda.add_endpoint(fake)
    agenda.get_timer()
    for _ in range(50):
        fakes[7].set(3)
        agenda.get_timer()
    assert sum(fake.asked for fake in fakes) == 150


def test_an_endpoint_with_more_output_is_asked_again() -> None:
    agenda, fake = Agenda(), Fake(0)
    agenda.add_endpoint(fake)
    fake.has_more_to_say = True
    assert list(agenda.talking(Fake)) == list(agenda.talking(Fake)) == [fake]
    fake.has_more_to_say = False
    assert list(agenda.talking(Fake)) == [fake]
    assert list(agenda.talking(Fake)) == []


def test_a_thousand_matched_streams_that_are_idle_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    policy = PublicationPolicy(flow_control=FlowControlPolicy(strategy="min"))
    for i in range(1_000):
        one.create_writer(WriterSpec(f"t{i}", "T", RELIABLE, policy=policy), now=network.now)
        two.create_reader(ReaderSpec(f"t{i}", "T", RELIABLE), now=network.now)
    network.run(20 * SECOND)
    assert sum(bool(reader.writers) for reader in two.readers) >= 1_000
    # Other participants may live in this process: nodes of other tests that are not closed yet.
    prefixes = {one.prefix, two.prefix}
    before, asked = network.sent, 0

    def count(endpoint: StatefulReader | StatefulWriter, *_: object) -> None:
        nonlocal asked
        asked += endpoint.guid.prefix in prefixes

    for kind in (StatefulWriter, StatefulReader):
        monkeypatch.setattr(kind, "get_timer", count)
        monkeypatch.setattr(kind, "handle_timer", count)
    for _ in range(1_000):
        for participant in (one, two):
            participant.get_timer()
            assert participant.datagrams_to_send(network.now) == []
    assert asked == 0
    monkeypatch.undo()
    network.run(10 * SECOND)
    assert network.sent - before < 100, "announcements of the two participants are all there is"
