"""RIHS01 hashes, with rosbags as the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from rosbags.typesys.store import Typestore

from spark_rtps.transport.errors import TypeDefinitionError
from spark_rtps.transport.types.model import Array, Member, Primitive, PrimitiveKind, Struct
from spark_rtps.transport.types.ros import parse_msg, ros_type
from spark_rtps.transport.types.ros_hash import hash_in, type_hash, user_data_of
from tests.support.ros_oracle import typestore

#: Of ROS 2 Iron and later, where rosbags differs: ROS 2 makes an uint8 of char before it hashes.
CHAR = "RIHS01_3ad2d04dd29ba19d04b16659afa3ccaedd691914b02a64e82e252f2fa6a586a9"


def has_char(name: str, store: Typestore) -> bool:
    def kinds(field: Any) -> set[object]:
        node, value = field
        if node == 2:
            return {kind for _, inner in store.fielddefs[value][1] for kind in kinds(inner)}
        return kinds(value[0]) if node in (3, 4) else {value[0]}

    return any("char" in kinds(field) for _, field in store.fielddefs[name][1])


@pytest.mark.parametrize("distribution", ["humble", "jazzy"])
def test_every_message(distribution: str) -> None:
    store = typestore(distribution)
    names = [name for name in store.fielddefs if not has_char(name, store)]
    assert len(names) > 100
    differ = [n for n in names if type_hash(ros_type(n, distribution)) != store.hash_rihs01(n)]
    assert differ == []


def test_char() -> None:
    assert type_hash(ros_type("std_msgs/msg/Char")) == CHAR


def test_bounds_and_text_of_ones_own() -> None:
    text = "string<=5 s\nuint8[<=3] few\nfloat64[9] m\nstring[] names\nwstring w\n"
    store = typestore()
    fields = {name: store.fielddefs[name] for name in ("std_msgs/msg/String",)}
    assert fields
    struct = parse_msg(text, "my_msgs/msg/Own")
    assert type_hash(struct) == type_hash(parse_msg(f"# a comment\n{text}", "my_msgs/Own"))
    assert type_hash(struct) != type_hash(parse_msg(text.replace("<=5", "<=6"), "my_msgs/msg/Own"))
    assert type_hash(struct) != type_hash(parse_msg(text, "my_msgs/msg/Other"))


def test_user_data() -> None:
    struct = ros_type("std_msgs/msg/Char")
    assert user_data_of(struct) == f"typehash={CHAR};".encode()
    assert hash_in(user_data_of(struct)) == CHAR
    assert hash_in(b"a=b;" + user_data_of(struct)) == CHAR
    for other in (b"", b"typehash=RIHS01_12;", b"xtypehash=" + CHAR.encode() + b";", b"\xff\0"):
        assert hash_in(other) is None


@pytest.mark.parametrize(
    "struct",
    [
        Struct("Plain", ()),
        Struct("a::msg::dds_::B_", (Member("m", Array(Primitive(PrimitiveKind.FLOAT64), (3, 4)), 0),)),
    ],
)
def test_a_type_that_is_no_message_has_no_hash(struct: Struct) -> None:
    with pytest.raises(TypeDefinitionError):
        type_hash(struct)
    assert user_data_of(struct) == b""
