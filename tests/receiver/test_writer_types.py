"""The types that writers told, beside a log: what is recorded, and what a kill leaves."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

from spark_rtps.transport import limits
from spark_rtps.transport.errors import LogLostError
from spark_rtps.transport.net.receiving_node import TypeIdentity
from spark_rtps.transport.receiver import writer_types
from spark_rtps.transport.receiver.writer_types import WriterTopic, WriterTypes, read_writer_types
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


def by_writer(directory: Path) -> dict[Guid, Struct | None]:
    found = read_writer_types(directory)
    assert not found.damage
    return dict(found.by_writer)


def test_each_type_is_written_once(tmp_path: Path) -> None:
    noted(tmp_path)
    assert by_writer(tmp_path) == EXPECTED
    (file,) = tmp_path.iterdir()
    assert file.read_text().count("struct T") == 2
    noted(tmp_path)  # after a restart
    assert file.read_text().count("\n") == 6


def test_nothing_is_there(tmp_path: Path) -> None:
    assert by_writer(tmp_path) == {}


def test_a_line_that_was_cut_off(tmp_path: Path) -> None:
    noted(tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for cut in range(len(whole)):
        file.write_bytes(whole[:cut])
        assert by_writer(tmp_path).items() <= EXPECTED.items()
        noted(tmp_path)
        assert by_writer(tmp_path) == EXPECTED


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
    noted(tmp_path)
    file = tmp_path / "writer_types.jsonl"
    raw = line.encode(errors="surrogateescape")
    whole = file.read_bytes()
    for text in (raw, b"%08x %s" % (zlib.crc32(raw), raw)):
        file.write_bytes(text + b"\n" + whole)
        found = read_writer_types(tmp_path)
        assert found.damage.startswith(f"{file} is damaged in line 1 (")
        assert found.by_writer == EXPECTED, "what is whole is read all the same"
        with pytest.raises(LogLostError, match=rf"{re.escape(str(file))} is damaged in line 1 .* be resumed"):
            noted(tmp_path)


def test_any_bit_that_is_damaged(tmp_path: Path) -> None:
    noted(tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for at in range(len(whole)):
        for bit in (0, 5):
            file.unlink()  # else the file is taken for the one that was read
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            found = read_writer_types(tmp_path)
            assert found.by_writer.items() <= EXPECTED.items()
            assert found.damage or found.by_writer == EXPECTED or at == len(whole) - 1


def test_a_disk_that_is_full_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    types = WriterTypes(tmp_path, TOLD.get)
    with monkeypatch.context() as patch:
        patch.setattr(writer_types, "create_file", full)
        types.note(writer(1))
        types.note(writer(1))
    assert len(caplog.records) == 1 and "is not recorded" in caplog.text
    types.note(writer(1))
    assert by_writer(tmp_path) == {writer(1): TOLD[writer(1)]}


def test_what_is_not_told_at_first_never_is(tmp_path: Path) -> None:
    noted(tmp_path)
    later = WriterTypes(tmp_path, lambda _: struct("z"))
    later.note(writer(4))  # ranges that were read before must not change
    assert by_writer(tmp_path)[writer(4)] is None


def test_types_that_idl_cannot_say(tmp_path: Path) -> None:
    types = WriterTypes(tmp_path, lambda _: struct("x", "X"))
    types.note(writer(1))
    assert by_writer(tmp_path) == {writer(1): None}


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_types, "WRITER_TYPES_MAX", 2)
    monkeypatch.setattr(writer_types, "TYPED_WRITERS_MAX", 4)
    types = WriterTypes(tmp_path, lambda guid: struct(f"m{guid.entity[2]}"))
    for number in range(6):
        types.note(writer(number))
    found = by_writer(tmp_path)
    assert [found[writer(n)] is not None for n in range(4)] == [True, True, False, False]
    assert len(found) == 4
    assert limits.WRITER_TYPES_MAX > 2


def test_topics_of_writers(tmp_path: Path) -> None:
    """A GUID that is another topic's writer later is that from the position on at which it was."""
    identities = {writer(1): TypeIdentity("a::T", "ff00"), writer(2): TypeIdentity("a::T", None)}
    types = WriterTypes(tmp_path, TOLD.get, identities.get)
    types.note(writer(1), "one", 0)
    types.note(writer(2), "two", 64)
    types.note(writer(1), "one", 128)
    types.note(writer(4), "four", 160)
    types = WriterTypes(tmp_path, TOLD.get, identities.get)  # after a restart
    types.note(writer(2), "two", 192)
    types.note(writer(1), "three", 256)
    assert [types.topic_of(writer(n)) for n in (1, 2, 4, 5)] == ["three", "two", "four", None]
    (file,) = tmp_path.iterdir()
    assert file.read_text().count("writer") == 4
    found = read_writer_types(tmp_path)
    assert found.by_writer == {writer(n): TOLD.get(writer(n)) for n in (1, 2, 4)}
    assert found.topic_of(writer(1), 255) == WriterTopic("one", "a::T", "ff00")
    assert found.topic_of(writer(1), 256) == WriterTopic("three", "a::T", "ff00", 256)
    assert found.topic_of(writer(2), 1 << 40) == WriterTopic("two", "a::T", None)
    assert found.topic_of(writer(4), 0) == WriterTopic("four")
    assert found.topic_of(writer(5), 0) == WriterTopic()


def test_a_topic_that_is_not_recorded_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    types = WriterTypes(tmp_path, TOLD.get)
    types.note(writer(1), "one", 0)
    with monkeypatch.context() as patch:
        patch.setattr(writer_types, "create_file", full)
        types.note(writer(1), "two", 64)
    assert types.topic_of(writer(1)) == "one"
    types.note(writer(1), "two", 96)
    assert read_writer_types(tmp_path).topic_of(writer(1), 96).topic == "two"
