"""What came too early to be believed is looked at again when its sender is proven, and for nobody else."""

from __future__ import annotations

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.wire.submessages import InfoDestination
from tests.protocol.hostile_scene import EVIL, EVIL_IP, announcement, message
from tests.support.virtual_network import VirtualNetwork

#: Whoever speaks next.
NEXT, NEXT_IP = b"\x42" * 12, "10.0.0.77"


def test_an_announcement_that_was_held_does_not_count_as_the_next_datagrams() -> None:
    network = VirtualNetwork()
    one = network.add()
    network.deliver(one, announcement(), EVIL_IP)
    network.deliver(one, announcement(), EVIL_IP)  # held, since its sender has not proven its address yet
    network.deliver(one, message(InfoDestination(one.prefix).encode()), EVIL_IP)
    network.deliver(one, announcement(NEXT), NEXT_IP)
    assert set(one.database.participants) == {EVIL, NEXT}
    assert DropReason.OVER_LIMIT not in one.drops
