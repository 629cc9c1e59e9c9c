"""The windows of a reader's writers share the receive buffer of the kernel."""

from __future__ import annotations

from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from tests.support.virtual_network import SECOND, VirtualNetwork

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
MIB = 1 << 20


def windows(receive_buffer: int, writers: int) -> list[int]:
    """What the readers of one participant, two of them, offer to so many writers each; one more has left."""
    network = VirtualNetwork()
    one, two = network.add(receive_buffer=receive_buffer), network.add()
    found = []
    for topic in ("a", "b"):
        one.create_reader(ReaderSpec(topic, "T", RELIABLE), now=network.now)
        found += [
            two.create_writer(WriterSpec(topic, "T", RELIABLE), now=network.now) for _ in range(writers)
        ]
    gone = two.create_writer(WriterSpec("a", "T", RELIABLE), now=network.now)
    network.run(3 * SECOND)
    two.delete_endpoint(gone.guid, network.now)
    network.run(3 * SECOND)
    return [proxy.receiver.window for writer in found for proxy in writer.readers.values()]


def test_a_single_writer_has_half_of_the_receive_buffer_up_to_the_policys_window() -> None:
    assert windows(24 * MIB, 1)[-1] == 6 * MIB  # of two topics
    assert windows(256 * MIB, 1) == [16 * MIB, 16 * MIB]


def test_many_writers_share_the_buffer_down_to_four_mebibytes() -> None:
    found = windows(32 * MIB, 4)
    assert found[-1] == min(found) == 4 * MIB  # what was offered when there were fewer is not taken back
    assert set(windows(0, 2)) == {4 * MIB}
