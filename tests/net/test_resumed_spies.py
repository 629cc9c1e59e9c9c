"""A spy that goes on where its earlier life stopped reads its writer's log again from an older position."""

from __future__ import annotations

import numpy as np
import pytest

from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.net import ipc_reading
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.spy_participant import SpyParticipant
from spark_rtps.transport.protocol.policies import FlowControlPolicy, PublicationPolicy
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.samples import U8, Samples
from tests.support.virtual_network import MILLISECOND as MS
from tests.support.virtual_network import SECOND, VirtualNetwork

QOS = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
SIZE = 200


class Published:
    """A writer with a publication log, and a reader on another host, for which it sends."""

    def __init__(self) -> None:
        self.network = VirtualNetwork()
        self.log = PublicationLog.create(1 << 20, zeroes=False)
        policy = PublicationPolicy(flow_control=FlowControlPolicy(term_length=1 << 20, ipc=True))
        spec = WriterSpec("t", "T", QOS, keyed=False, policy=policy)
        self.writer: StatefulWriter = self.network.add().create_writer(spec, now=0, log=self.log)
        self.other = self.network.add().create_reader(
            ReaderSpec("t", "T", QOS, keyed=False), now=self.network.now
        )
        self.network.run(2 * SECOND)

    def write(self, count: int) -> None:
        network, each = self.network, 50
        for _ in range(count // each):
            data = Samples.uniform(np.zeros(each * SIZE, np.uint8), each, SIZE)
            assert self.writer.write_samples(data, timestamp=network.now, now=network.now) == each
            network.run(10 * MS)
            self.other.take_runs()


class Spies:
    """Spies of one node; each part of a log that they read takes ``pace`` ns."""

    def __init__(self, published: Published, pace: int) -> None:
        self.published, self.pace = published, pace
        self.now = published.network.now
        self.participant = SpyParticipant(b"s" * 12)
        self.logs = ipc_reading.ReadLogs(self._receive, spies=True)
        self.taken: dict[Guid, list[int]] = {}

    def join(self, key: int, last_sn: int) -> Guid:
        writer = self.published.writer.guid
        spec = ReaderSpec("t", "T", QOS, keyed=False, entity_key=key, resume={writer: last_sn})
        reader = self.participant.create_reader(spec)
        self.participant.join(reader, writer, QOS, now=self.now)
        assert self.logs.join(reader, writer, self.published.log, now=self.now)
        self.taken[reader.guid] = []
        return reader.guid

    def read(self) -> None:
        self.logs.read_logs(now=self.now)

    def _receive(self, data: U8, spans: list[tuple[int, int, str]], since: int | None = None) -> None:
        self.now += self.pace
        for reader in self.participant.receive(data, spans, now=self.now if since is None else since):
            for run in reader.take_runs():
                self.taken[reader.guid] += run.sequence_numbers().tolist()


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Published:
    monkeypatch.setattr(ipc_reading, "_READ_BYTES", 20_000)  # many parts, as a long log has
    return Published()


@pytest.mark.parametrize("pace", [0, 10 * MS, 300 * MS])
def test_a_resumed_spy_takes_nothing_again_however_long_it_reads(published: Published, pace: int) -> None:
    published.write(1_000)
    spies = Spies(published, pace)
    spy = spies.join(1, 1_000)
    spies.read()
    assert spies.taken[spy] == []
    published.write(100)
    spies.read()
    assert spies.taken[spy] == list(range(1_001, 1_101))


def test_a_resumed_spy_takes_nothing_again_though_another_one_joins_meanwhile(published: Published) -> None:
    published.write(1_000)
    spies = Spies(published, 300 * MS)
    first = spies.join(1, 1_000)
    reading = next(iter(spies.logs._readings.values()))
    found = reading.image.poll(20_000)
    assert found is not None
    spies._receive(found.data, found.spans, reading.since)
    reading.image.position = found.end
    spies.now += 5 * SECOND
    second = spies.join(2, 500)
    spies.read()
    assert spies.taken == {first: [], second: list(range(501, 1_001))}


def test_a_spy_of_a_writer_that_began_anew_reads_what_it_goes_on_with(published: Published) -> None:
    published.write(1_000)
    spies = Spies(published, MS)
    spy = spies.join(1, 1_000_000)
    spies.read()
    spies.now += 2 * SECOND
    published.write(100)
    spies.read()
    assert spies.taken[spy] == list(range(1_001, 1_101))
