"""The types that writers told, beside a log: what is recorded, and what a kill leaves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_rtps.transport import limits
from spark_rtps.transport.errors import LogLostError
from spark_rtps.transport.receiver import writer_types
from spark_rtps.transport.receiver.writer_types import WriterTypes, read_writer_types
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.model import Member, Primitive, PrimitiveKind, Struct

LONG = Primitive(PrimitiveKind.INT32)


def writer(number: int) -> Guid:
    return Guid(bytes(12), number.to_bytes(3, "big") + b"\x03")


def struct(*names: str) -> Struct:
    return Struct("a::T", tuple(Member(name, LONG, i) for i, name in enumerate(names)))


TOLD = {writer(1): struct("x"), writer(2): struct("x", "y"), writer(3): struct("x")}
EXPECTED = {**TOLD, writer(4): None}


def noted(directory: Path) -> WriterTypes:
    types = WriterTypes(directory, TOLD.get)
    for guid in (*TOLD, writer(4), writer(1)):
        types.note(guid)
    return types


def test_each_type_is_written_once(tmp_path: Path) -> None:
    noted(tmp_path)
    assert read_writer_types(tmp_path) == EXPECTED
    (file,) = tmp_path.iterdir()
    assert file.read_text().count("struct T") == 2
    noted(tmp_path)  # after a restart
    assert file.read_text().count("\n") == 6


def test_nothing_is_there(tmp_path: Path) -> None:
    assert read_writer_types(tmp_path) == {}


def test_a_line_that_was_cut_off(tmp_path: Path) -> None:
    noted(tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for cut in range(len(whole)):
        file.write_bytes(whole[:cut])
        assert read_writer_types(tmp_path).items() <= EXPECTED.items()
        noted(tmp_path)
        assert read_writer_types(tmp_path) == EXPECTED


@pytest.mark.parametrize(
    "line",
    [
        *(
            "",
            "{",
            "[]",
            "{}",
            "\udcff",
            "[" * 100_000,
            '{"type": "A", "idl": "struct"}',
            '{"idl": "struct A { long x; };"}',
        ),
        *(
            '{"writer": "00", "is": null}',
            f'{{"writer": "{"00" * 16}", "is": 7}}',
            f'{{"writer": "{"00" * 16}", "is": "a"}}',
        ),
    ],
)
def test_a_line_that_is_damaged(tmp_path: Path, line: str) -> None:
    file = tmp_path / "writer_types.jsonl"
    file.write_bytes(line.encode(errors="surrogateescape") + b"\n")
    with pytest.raises(LogLostError, match=f"{re.escape(str(file))} is damaged in line 1"):
        read_writer_types(tmp_path)


def test_what_is_not_told_at_first_never_is(tmp_path: Path) -> None:
    noted(tmp_path)
    later = WriterTypes(tmp_path, lambda _: struct("z"))
    later.note(writer(4))  # ranges that were read before must not change
    assert read_writer_types(tmp_path)[writer(4)] is None


def test_types_that_idl_cannot_say(tmp_path: Path) -> None:
    types = WriterTypes(tmp_path, lambda _: struct("x", "X"))
    types.note(writer(1))
    assert read_writer_types(tmp_path) == {writer(1): None}


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_types, "WRITER_TYPES_MAX", 2)
    monkeypatch.setattr(writer_types, "TYPED_WRITERS_MAX", 4)
    types = WriterTypes(tmp_path, lambda guid: struct(f"m{guid.entity[2]}"))
    for number in range(6):
        types.note(writer(number))
    found = read_writer_types(tmp_path)
    assert [found[writer(n)] is not None for n in range(4)] == [True, True, False, False]
    assert len(found) == 4
    assert limits.WRITER_TYPES_MAX > 2
