"""Whether a file's type reads and writes a topic, as a source or sink with that file does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spark_rtps.columns.compatibility import cannot_read, cannot_write
from spark_rtps.columns.type_sources import TopicType, type_of_file
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct

INNER = "{} struct In {{ octet a; }};"
OUTER = "{} struct T {{ @key long id; sequence<In> more; }};"
TYPES = f"{INNER} {OUTER}"
OPEN = TYPES.format("", "")


def topic(idl: str, name: str = "T") -> TopicType:
    struct = parse_idl(idl)[name]
    assert isinstance(struct, Struct)
    return TopicType(struct.name, struct.is_keyed, struct)


@pytest.fixture
def mine(tmp_path: Path) -> Callable[..., TopicType]:
    def of(idl: str, **more: str) -> TopicType:
        path = tmp_path / "mine.idl"
        path.write_text(idl)
        return type_of_file(str(path), "T", **more)

    return of


@pytest.mark.parametrize("inner", ["@final", "@appendable"])
@pytest.mark.parametrize("outer", ["@final", "@appendable"])
def test_details_open_in_a_file_are_those_of_the_topic(
    mine: Callable[..., TopicType], inner: str, outer: str
) -> None:
    there, here = topic(TYPES.format(inner, outer)), mine(OPEN)
    assert not here.certain
    assert cannot_read(there, here) == cannot_write(there, here) == ()
    # and that is true: the bytes of one are the other's
    batch = pa.RecordBatch.from_pylist([{"id": 7, "more": [{"a": 1}]}], arrow_schema(here.struct))
    read = Codec(there.struct, arrow_schema=arrow_schema(here.struct)).decode_samples(
        Codec(here.struct).encode_batch(batch)
    )
    assert read.malformed is None
    assert read.batch.equals(batch)


def test_annotations_of_a_file_are_compared(mine: Callable[..., TopicType]) -> None:
    there, here = topic(TYPES.format("@final", "@final")), mine(TYPES.format("@appendable", "@appendable"))
    assert here.certain
    assert "is @final, the reader's struct T is @appendable" in cannot_read(there, here)[0]
    assert "is @appendable, the reader's struct T is @final" in cannot_write(there, here)[0]


def test_extensibility_matters_in_xcdr2(mine: Callable[..., TopicType]) -> None:
    idl = "{} struct T {{ long id; @optional long more; }};"
    here = mine(idl.format(""))
    for reported, able in (("@final", False), ("@appendable", True), ("@mutable", False)):
        there = topic(idl.format(reported))
        assert cannot_read(there, here) == ()
        assert (cannot_write(there, here) == ()) is able


def test_columns_are_picked_by_name(mine: Callable[..., TopicType]) -> None:
    there = topic("@final struct T { string s; long id; double x; };")
    assert cannot_read(there, mine("struct T { double x; long id; };")) == ()
    assert cannot_write(there, mine("struct T { double x; long id; };"))
    (reason,) = cannot_read(there, mine("struct T { double x; long nix; };"))
    assert "nix" in reason
    (reason,) = cannot_read(there, mine("struct T { string x; };"))
    assert "x" in reason


def test_names_and_keys_decide_where_no_type_is_announced(mine: Callable[..., TopicType]) -> None:
    there = topic("module m { @final struct T { @key long id; }; };", "m::T")
    here = mine("struct T { long id; };")
    for reasons in (cannot_read(there, here), cannot_write(there, here)):
        assert reasons[0].startswith("TYPE: the topic's is 'm::T', yours 'T'")
        assert reasons[1] == "KEY: the topic's type has a key, yours has none"
    named = mine("struct T { @key long id; };", type_name="m::T")
    assert cannot_read(there, named) == cannot_write(there, named) == ()
    (reason, *_) = cannot_read(topic("struct T { long id; };"), mine("struct T { @key long id; };"))
    assert reason == "KEY: your type has a key, the topic's has none"


def test_a_ros_byte_matches_octet_and_uint8(tmp_path: Path) -> None:
    path = tmp_path / "pkg" / "msg" / "Level.msg"
    path.parent.mkdir(parents=True)
    path.write_text("byte level\nbyte[] more\n")
    here = type_of_file(str(path), None)
    assert (here.type_name, here.certain) == ("pkg::msg::dds_::Level_", False)
    level = "@final struct Level_ { octet level; sequence<octet> more; };"
    idl = f"module pkg {{ module msg {{ module dds_ {{ {level} }}; }}; }};"
    for octet in ("octet", "uint8"):
        there = topic(idl.replace("octet", octet), here.type_name)
        assert cannot_read(there, here) == cannot_write(there, here) == ()


def test_unions_and_maps(mine: Callable[..., TopicType]) -> None:
    idl = (
        "{0} union U switch (long) {{ case 1: long a; case 2: string b; }}; {0} struct V {{ long v; }};"
        "{0} struct T {{ U u; map<string, V> m; V vs[2]; }};"
    )
    here = mine(idl.format(""))
    for reported in ("@final", "@appendable"):
        there = topic(idl.format(reported))
        assert cannot_read(there, here) == cannot_write(there, here) == ()
    there = topic(idl.replace("string b", "long b").format("@final"))
    assert cannot_read(there, here)
    assert cannot_write(there, here)
