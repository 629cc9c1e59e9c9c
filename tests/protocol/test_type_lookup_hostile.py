"""What a participant that means ill can do with type lookup: nothing that raises, lasts or piles up."""

from __future__ import annotations

import random
import time
import tracemalloc

import pytest

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.limits import TYPE_LOOKUP_REPLY_BYTES_MAX, TYPE_LOOKUP_REQUEST_BYTES_MAX
from spark_rtps.transport.protocol.discovery.endpoint_data import EndpointData, encode_endpoint
from spark_rtps.transport.protocol.discovery.type_lookup import AGAIN, TIMEOUT
from spark_rtps.transport.structure import (
    ENTITYID_TYPE_LOOKUP_REPLY_WRITER,
    ENTITYID_TYPE_LOOKUP_REQUEST_WRITER,
    ENTITYID_UNKNOWN,
    Guid,
)
from spark_rtps.transport.types.model import Extensibility, Member, Struct
from spark_rtps.transport.types.xtypes.information import Dependencies, SizedIdentifier, TypeInformation
from spark_rtps.transport.types.xtypes.lookup_messages import (
    GetTypes,
    Reply,
    RequestId,
    TypeLookupRequest,
    Types,
    encode_reply,
    encode_request,
)
from spark_rtps.transport.types.xtypes.type_objects import identifier_of, type_objects_of
from spark_rtps.transport.wire.submessages import Data, Heartbeat
from tests.protocol.hostile_scene import EVIL, RELIABLE, Scene
from tests.protocol.type_scene import objects, struct
from tests.support.virtual_network import MILLISECOND, SECOND


class EvilTypes(Scene):
    """It announces types, and asks and answers as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.sns = {ENTITYID_TYPE_LOOKUP_REPLY_WRITER: 0, ENTITYID_TYPE_LOOKUP_REQUEST_WRITER: 0}

    def announce_type(self, number: int, information: TypeInformation) -> Guid:
        guid = Guid(EVIL, number.to_bytes(3, "big") + b"\x03")
        data = EndpointData(guid, "t", "T", RELIABLE, type_information=information)
        self.announce(guid, "t", encode_endpoint(data))
        return guid

    def say(self, writer: bytes, payload: bytes) -> None:
        """One sample of a built-in writer."""
        self.sns[writer] += 1
        sn = self.sns[writer]
        heartbeat = Heartbeat(ENTITYID_UNKNOWN, writer, 1, sn, sn)
        self.attack(self.to_us(heartbeat.encode(), Data(ENTITYID_UNKNOWN, writer, sn, payload).encode()))

    def reply(self, payload: bytes) -> None:
        self.say(ENTITYID_TYPE_LOOKUP_REPLY_WRITER, payload)

    @property
    def asks(self) -> RequestId:
        return RequestId(self.one.discovery.types.request_writer.guid.to_bytes(), 1)


@pytest.fixture
def scene() -> EvilTypes:
    return EvilTypes()


def test_the_hostile_peer_can_answer(scene: EvilTypes) -> None:
    rich = objects("Rich")
    guid = scene.announce_type(9, rich.information)
    scene.reply(encode_reply(Reply(scene.asks, Types(tuple(rich.objects.items())))))
    assert scene.one.database.type_of(guid) == struct("Rich")


def test_replies_that_are_none(scene: EvilTypes) -> None:
    rich, noise = objects("Rich"), random.Random(1)
    guid = scene.announce_type(9, rich.information)
    good = encode_reply(Reply(scene.asks, Types(tuple(rich.objects.items()))))
    for _ in range(300):
        broken = bytearray(good)
        for _ in range(noise.randint(1, 4)):
            broken[noise.randrange(4, len(broken))] = noise.randrange(256)
        scene.reply(bytes(broken[: 4 * noise.randint(1, len(broken) // 4)]))
        scene.reply(noise.randbytes(4 * noise.randint(1, 100)))
    scene.network.run(TIMEOUT + MILLISECOND)
    assert scene.one.database.type_failure(guid) or scene.one.database.type_of(guid) == struct("Rich")
    scene.assert_honest_work_goes_on()


def test_unrequested_replies_are_dropped(scene: EvilTypes) -> None:
    information = objects("Wide").information
    guid = scene.announce_type(9, information)
    for _ in range(50):
        scene.reply(
            encode_reply(Reply(RequestId(bytes(16), 1), Types(tuple(objects("Wide").objects.items()))))
        )
    assert scene.one.database.type_of(guid) is None
    scene.reply(encode_reply(Reply(scene.asks, Types(tuple(objects("Plain").objects.items())))))
    assert len(scene.one._library) == 0
    assert scene.dropped() == {}


def test_requests_of_every_kind_of_wrong(scene: EvilTypes) -> None:
    noise = random.Random(2)
    good = encode_request(
        TypeLookupRequest(scene.asks, "dds.builtin.TOS.0", GetTypes(tuple(objects("Rich").objects)))
    )
    for _ in range(500):
        broken = bytearray(good)
        broken[noise.randrange(len(broken))] = noise.randrange(256)
        scene.say(
            ENTITYID_TYPE_LOOKUP_REQUEST_WRITER, bytes(broken[: 4 * noise.randint(1, len(broken) // 4)])
        )
    assert scene.dropped()
    scene.assert_honest_work_goes_on()


def test_samples_without_end(scene: EvilTypes) -> None:
    """Larger ones than are ever needed are passed over."""
    for writer, most in (
        (ENTITYID_TYPE_LOOKUP_REQUEST_WRITER, TYPE_LOOKUP_REQUEST_BYTES_MAX),
        (ENTITYID_TYPE_LOOKUP_REPLY_WRITER, TYPE_LOOKUP_REPLY_BYTES_MAX),
    ):
        reader = {
            ENTITYID_TYPE_LOOKUP_REQUEST_WRITER: scene.one.discovery.types.request_reader,
            ENTITYID_TYPE_LOOKUP_REPLY_WRITER: scene.one.discovery.types.reply_reader,
        }[writer]
        assert reader.delivery.sample_size_max == most


def test_types_without_end(scene: EvilTypes) -> None:
    """Hundreds of types that it never tells: little memory, few questions, and all is over in time."""
    tracemalloc.start()
    for number in range(400):
        root = SizedIdentifier(b"\xf2" + number.to_bytes(14, "big"), 1_000)
        scene.announce_type(100 + number, TypeInformation(None, Dependencies(root, -1, ())))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 10 << 20
    scene.network.run(TIMEOUT + MILLISECOND)
    # 64 are asked for as they come, one by one; then all of these again, a few times.
    assert scene.one.discovery.types.request_writer.counters.written_samples < 64 + 8
    timer = scene.one.discovery.lookup.get_timer()
    assert timer is not None and timer > scene.network.now + AGAIN - SECOND, "it asks again, later"
    scene.assert_honest_work_goes_on()


def explosion(levels: int) -> tuple[bytes, dict[bytes, bytes]]:
    """A struct of two structs of two structs...: its identifier, and few and small type objects."""
    leaf = type_objects_of(struct("Plain"))
    pair = Struct(
        "lab::Pair", (Member("a", struct("Plain"), 0), Member("b", struct("Plain"), 1)), Extensibility.FINAL
    )
    template = type_objects_of(pair)
    assert leaf.information.complete is not None and template.information.complete is not None
    below = leaf.information.complete.type.id
    data = template.objects[template.information.complete.type.id]
    found = {below: leaf.objects[below]}
    for _ in range(levels):
        identifier = identifier_of(data)
        found[identifier] = data
        data, below = data.replace(below, identifier), identifier
    return below, found


def test_a_type_that_explodes(scene: EvilTypes) -> None:
    root, types = explosion(60)
    assert sum(len(data) for data in types.values()) < 10_000
    guid = scene.announce_type(9, TypeInformation(None, Dependencies(SizedIdentifier(root, 100), -1, ())))
    before = time.process_time()
    for _ in range(70):
        scene.reply(encode_reply(Reply(scene.asks, Types(tuple(types.items())))))
    assert scene.one.database.type_failure(guid) is not None
    assert time.process_time() - before < 20
    scene.assert_honest_work_goes_on()


def test_a_peer_that_vanishes_after_a_request(scene: EvilTypes) -> None:
    guid = scene.announce_type(9, objects("Rich").information)
    assert scene.one.discovery.lookup.known(guid) is None
    scene.network.run(20 * SECOND)  # its lease is endless, but it is not heard of any more
    assert scene.one.database.type_failure(guid) is not None
    writer = scene.one.discovery.types.request_writer
    assert writer.unacknowledged_bytes < 1 << 20
    scene.assert_honest_work_goes_on()


def test_forged_objects_are_found_out_by_their_hash(scene: EvilTypes) -> None:
    rich = objects("Rich")
    guid = scene.announce_type(9, rich.information)
    forged = {identifier: data[:-1] + b"\xff" for identifier, data in rich.objects.items()}
    scene.reply(encode_reply(Reply(scene.asks, Types(tuple(forged.items())))))
    assert scene.one.database.type_of(guid) is None
    assert scene.dropped()[DropReason.BAD_PARAMETER] >= 1
