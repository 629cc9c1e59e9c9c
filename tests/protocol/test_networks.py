"""Lists of networks: participants elsewhere are not heard, readers elsewhere are not served; others notice nothing."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from spark_rtps.transport.errors import DropReason, UsageError
from spark_rtps.transport.limits import ADDRESSES_REMEMBERED_MAX
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.events import IncompatibleQos, ParticipantDiscovered
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.policies import PublicationPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.trust import AdmittedPeers, Networks
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.structure import Locator
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.samples import Samples
from tests.protocol.hostile_scene import EVIL, EVIL_IP, RELIABLE, announcement
from tests.support.virtual_network import SECOND, VirtualNetwork

HERE = "10.0.0.0/28"


def reader_of(participant: RtpsParticipant, now: int) -> StatefulReader:
    return participant.create_reader(ReaderSpec("t", "T", RELIABLE), now=now)


def writer_of(participant: RtpsParticipant, now: int, *allowed: str) -> StatefulWriter:
    policy = PublicationPolicy(readers_allowed=allowed)
    return participant.create_writer(WriterSpec("t", "T", RELIABLE, policy=policy), now=now)


def write(writer: StatefulWriter, now: int) -> None:
    payload = np.frombuffer(b"\0\1\0\0good", np.uint8)
    writer.write_samples(Samples.uniform(payload, 1, 8), timestamp=0, now=now)


def received(reader: StatefulReader) -> int:
    return sum(run.count for run in reader.take_runs())


class TestNetworks:
    def test_networks_contain_their_addresses(self) -> None:
        networks = Networks(["10.1.0.0/16", "192.168.7.9"])
        for address in ("10.1.0.0", "10.1.255.255", "192.168.7.9"):
            assert address in networks and address in networks
        for address in ("10.2.0.0", "192.168.7.8", "", "fe80::1", "10.1.0", "nowhere"):
            assert address not in networks

    def test_all_and_none(self) -> None:
        assert "255.1.2.3" in Networks(["0.0.0.0/0"])
        assert "0.0.0.0" not in Networks([])

    @pytest.mark.parametrize("text", ["10.1.2.3/16", "10.1.0.0/33", "host", "fe80::/10", ""])
    def test_an_invalid_network_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError):
            Networks([text])

    def test_remembered_addresses_are_bounded(self) -> None:
        networks = Networks(["10.0.0.0/8"])
        for i in range(3 * ADDRESSES_REMEMBERED_MAX):
            assert f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}" in networks
        assert len(networks._known) <= ADDRESSES_REMEMBERED_MAX


class TestDrain:
    def drain(self, *senders: tuple[str, bytes]) -> tuple[np.ndarray, list[tuple[int, int, str]]]:
        datagrams = [Header(prefix=prefix).encode() for _, prefix in senders]
        spans = [(24 * i, 24 * i + 20, address) for i, (address, _) in enumerate(senders)]
        return np.frombuffer(b"".join(d + bytes(4) for d in datagrams), np.uint8), spans

    def test_each_address_is_looked_up_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looked: Counter[str] = Counter()
        look = Networks._look
        monkeypatch.setattr(Networks, "_look", lambda self, a: looked.update([a]) or look(self, a))
        drops: Counter[DropReason] = Counter()
        admitted = AdmittedPeers(Networks([HERE]), b"\1" * 12, ["10.0.0.1"], drops)
        data, spans = self.drain(*[("10.0.0.2", b"\2" * 12), (EVIL_IP, EVIL)] * 200)
        for _ in range(5):
            assert admitted.admit(data, spans) == spans[::2]
        assert looked == {"10.0.0.2": 1, EVIL_IP: 1}
        assert drops == {DropReason.PEER_NOT_ADMITTED: 1000}

    def test_without_a_list_the_spans_are_not_looked_at(self) -> None:
        drops: Counter[DropReason] = Counter()
        spans = [(0, 20, EVIL_IP)]
        assert AdmittedPeers(None, bytes(12), [], drops).admit(np.zeros(20, np.uint8), spans) is spans

    def test_a_participant_receives_only_itself_at_its_own_address(self) -> None:
        drops: Counter[DropReason] = Counter()
        admitted = AdmittedPeers(Networks(["10.9.0.0/16"]), b"\1" * 12, ["10.0.0.1"], drops)
        data, spans = self.drain(("10.0.0.1", b"\1" * 12), ("10.0.0.1", b"\2" * 12), ("10.0.0.2", b"\1" * 12))
        assert admitted.admit(data, spans) == spans[:1]
        assert admitted.admit(data, [(0, 19, "10.0.0.1")]) == []


class TestParticipants:
    def test_only_those_from_the_networks_are_found(self) -> None:
        network = VirtualNetwork()
        one = network.add(peers_allowed=("10.0.0.2",))
        two, three = network.add(), network.add()
        reader = reader_of(one, network.now)
        good, other = writer_of(two, network.now), writer_of(three, network.now)
        network.run(3 * SECOND)
        assert set(one.database.participants) == {two.prefix}
        assert list(reader.writers) == [good.guid] and not other.readers
        assert one.drops[DropReason.PEER_NOT_ADMITTED] > 0
        write(good, network.now)
        assert network.run(SECOND, until=lambda: received(reader) == 1)

    def test_a_refused_participant_is_trusted_under_no_guid(self) -> None:
        network = VirtualNetwork()
        one, two = network.add(peers_allowed=(HERE,)), network.add()
        reader, writer = reader_of(one, network.now), writer_of(two, network.now)
        network.run(3 * SECOND)
        before = one.drops.copy()
        for _ in range(1100):
            network.deliver(one, announcement(prefix=EVIL), EVIL_IP)
            network.deliver(one, announcement(prefix=two.prefix), EVIL_IP)
            network.deliver(one, b"no RTPS at all", EVIL_IP)
        assert one.drops - before == {DropReason.PEER_NOT_ADMITTED: 3300}
        write(writer, network.now)
        assert network.run(SECOND, until=lambda: received(reader) == 1)

    def test_readers_and_writers_of_one_participant_match_whatever_the_list(self) -> None:
        network = VirtualNetwork()
        one = network.add(peers_allowed=("10.9.0.0/16",))
        reader, writer = reader_of(one, network.now), writer_of(one, network.now, "10.8.0.0/16")
        network.run(SECOND)
        write(writer, network.now)
        assert network.run(SECOND, until=lambda: received(reader) == 1)

    def test_recalled_participants_outside_the_networks_are_ignored(self) -> None:
        network = VirtualNetwork()
        one, two, three = network.add(), network.add(), network.add()
        network.run(3 * SECOND)
        known = one.discovery.announcements()
        assert {each.prefix for each in known} == {two.prefix, three.prefix}
        again = network.add(peers_allowed=("10.0.0.3",))
        again.discovery.recall(known, now=network.now)
        assert set(again.database.participants) == {three.prefix}


class TestReaders:
    def test_a_reader_elsewhere_does_not_match_and_the_reason_is_known(self) -> None:
        network = VirtualNetwork()
        one, two, three = network.add(), network.add(), network.add()
        writer = writer_of(one, network.now, "10.0.0.2/31")  # 2 and 3
        good, also = reader_of(two, network.now), reader_of(three, network.now)
        elsewhere = reader_of(network.add(), network.now)
        network.run(3 * SECOND)
        assert set(writer.readers) == {good.guid, also.guid}
        (reason,) = one.endpoints.incompatible(writer.guid)[elsewhere.guid]
        assert reason == "ADDRESS: the writer serves 10.0.0.2/31; the reader is at 10.0.0.4"
        reported = [event for event in network.events[one.prefix] if isinstance(event, IncompatibleQos)]
        assert [event.remote for event in reported] == [elsewhere.guid]
        network.sent_bytes.clear()
        write(writer, network.now)
        assert network.run(SECOND, until=lambda: received(good) + received(also) == 2)
        assert received(elsewhere) == 0

    def test_another_writer_serves_everybody(self) -> None:
        network = VirtualNetwork()
        one, two = network.add(), network.add()
        few, all_ = writer_of(one, network.now, "10.0.0.9"), writer_of(one, network.now)
        reader = reader_of(two, network.now)
        network.run(3 * SECOND)
        assert list(all_.readers) == [reader.guid] and not few.readers

    def test_an_allowed_host_cannot_have_data_sent_elsewhere(self) -> None:
        network = VirtualNetwork()
        one = network.add()
        writer = writer_of(one, network.now, "10.0.0.2")
        liar = network.add(default_unicast=(Locator("10.0.0.77", 7410),))
        reader_of(liar, network.now)
        network.run(3 * SECOND)
        for _ in range(100):
            write(writer, network.now)
        network.run(3 * SECOND)
        assert not writer.readers and ("10.0.0.77", 7410) not in network.sent_bytes

    def test_multicast_groups_are_used_only_if_they_are_named(self) -> None:
        group = Locator("239.255.0.9", 7500)
        for allowed, found in ((("10.0.0.2",), ()), (("10.0.0.2", "239.255.0.0/16"), (group,))):
            network = VirtualNetwork()
            one, two = network.add(), network.add(default_multicast=(group,))
            writer = writer_of(one, network.now, *allowed)
            reader = reader_of(two, network.now)
            network.run(3 * SECOND)
            assert writer.readers[reader.guid].info.multicast == found


def test_the_participants_event_comes_for_admitted_ones_only() -> None:
    network = VirtualNetwork()
    one = network.add(peers_allowed=(HERE,))
    network.deliver(one, announcement(), EVIL_IP)
    network.run(SECOND)
    assert not [event for event in network.events[one.prefix] if isinstance(event, ParticipantDiscovered)]
