"""The types that writers told, beside a log: what is recorded, and what a kill leaves."""

from __future__ import annotations

import errno
import os
import re
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_rtps.transport import limits
from spark_rtps.transport.errors import LogFullError, LogLostError
from spark_rtps.transport.net.receiving_node import TypeIdentity
from spark_rtps.transport.receiver import writer_types
from spark_rtps.transport.receiver.writer_types import WriterTopic, WriterTypes, read_writer_types
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.model import Member, Primitive, PrimitiveKind, Struct

LONG = Primitive(PrimitiveKind.INT32)


class Disk:
    """What is left of it: any number of bytes, or all."""

    def __init__(self) -> None:
        self.room: int | None = None

    def write(self, fd: int, data: memoryview) -> int:
        if self.room is None:
            return os.write(fd, data)
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = os.write(fd, data[: self.room])
        self.room -= written
        return written


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk()
    stand_in = SimpleNamespace(**{**vars(os), "write": found.write})
    monkeypatch.setattr(writer_types, "os", stand_in)
    return found


def writer(number: int) -> Guid:
    return Guid(bytes(12), number.to_bytes(3, "big") + b"\x03")


def struct(*names: str) -> Struct:
    return Struct("a::T", tuple(Member(name, LONG, i) for i, name in enumerate(names)))


ANNOUNCED = {writer(1): struct("x"), writer(2): struct("x", "y"), writer(3): struct("x")}
EXPECTED = {**ANNOUNCED, writer(4): None}


def noted(directory: Path) -> WriterTypes:
    types = WriterTypes(directory, ANNOUNCED.get)
    for guid in (*ANNOUNCED, writer(4), writer(1)):
        types.record_writer(guid)
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
            f'{{"writer": "{"00" * 16}", "is": null, "topic": "t", "from": 1e999}}',
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


def test_a_disk_that_is_full_for_a_while(tmp_path: Path, disk: Disk) -> None:
    types = WriterTypes(tmp_path, ANNOUNCED.get)
    disk.room = 0
    for _ in range(2):
        with pytest.raises(LogFullError, match=r"cannot record the type of .*No space left"):
            types.record_writer(writer(1))
    disk.room = None
    assert types.record_writer(writer(1))
    assert by_writer(tmp_path) == {writer(1): ANNOUNCED[writer(1)]}


@pytest.mark.parametrize("room", [1, 20, 100, 150])
def test_half_a_line_that_found_room_on_the_disk_is_cut_off(tmp_path: Path, disk: Disk, room: int) -> None:
    """What is written later would go on behind it."""
    types = WriterTypes(tmp_path, ANNOUNCED.get)
    types.record_writer(writer(1))
    whole = (tmp_path / "writer_types.jsonl").read_bytes()
    disk.room = room
    with pytest.raises(LogFullError):
        types.record_writer(writer(2))
    assert (tmp_path / "writer_types.jsonl").read_bytes() == whole
    disk.room = None
    for guid in (writer(2), writer(3), writer(4)):
        types.record_writer(guid)
    assert by_writer(tmp_path) == EXPECTED
    WriterTypes(tmp_path, ANNOUNCED.get)  # after a restart


def test_a_type_not_announced_at_first_stays_unknown(tmp_path: Path) -> None:
    noted(tmp_path)
    later = WriterTypes(tmp_path, lambda _: struct("z"))
    later.record_writer(writer(4))  # ranges that were read before must not change
    assert by_writer(tmp_path)[writer(4)] is None


def test_types_that_idl_cannot_say(tmp_path: Path) -> None:
    types = WriterTypes(tmp_path, lambda _: struct("x", "X"))
    types.record_writer(writer(1))
    assert by_writer(tmp_path) == {writer(1): None}


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_types, "WRITER_TYPES_MAX", 2)
    monkeypatch.setattr(writer_types, "TYPED_WRITERS_MAX", 4)
    types = WriterTypes(tmp_path, lambda guid: struct(f"m{guid.entity[2]}"))
    assert [types.record_writer(writer(number)) for number in range(6)] == [True] * 4 + [False] * 2
    found = by_writer(tmp_path)
    assert [found[writer(n)] is not None for n in range(4)] == [True, True, False, False]
    assert len(found) == 4
    assert limits.WRITER_TYPES_MAX > 2


def test_topics_of_writers(tmp_path: Path) -> None:
    """A GUID that is another topic's writer later is that from the position on at which it was."""
    identities = {writer(1): TypeIdentity("a::T", "ff00"), writer(2): TypeIdentity("a::T", None)}
    types = WriterTypes(tmp_path, ANNOUNCED.get, identities.get)
    types.record_writer(writer(1), "one", 0)
    types.record_writer(writer(2), "two", 64)
    types.record_writer(writer(1), "one", 128)
    types.record_writer(writer(4), "four", 160)
    types = WriterTypes(tmp_path, ANNOUNCED.get, identities.get)  # after a restart
    types.record_writer(writer(2), "two", 192)
    types.record_writer(writer(1), "three", 256)
    assert [types.topic_of(writer(n)) for n in (1, 2, 4, 5)] == ["three", "two", "four", None]
    (file,) = tmp_path.iterdir()
    assert file.read_text().count("writer") == 4
    found = read_writer_types(tmp_path)
    assert found.by_writer == {writer(n): ANNOUNCED.get(writer(n)) for n in (1, 2, 4)}
    assert found.topic_of(writer(1), 255) == WriterTopic("one", "a::T", "ff00")
    assert found.topic_of(writer(1), 256) == WriterTopic("three", "a::T", "ff00", 256)
    assert found.topic_of(writer(2), 1 << 40) == WriterTopic("two", "a::T", None)
    assert found.topic_of(writer(4), 0) == WriterTopic("four")
    assert found.topic_of(writer(5), 0) == WriterTopic()


def test_a_topic_without_a_name(tmp_path: Path) -> None:
    """A peer may announce one, which .* selects: without a line its samples would pass for damaged ones."""
    types = WriterTypes(tmp_path, ANNOUNCED.get)
    assert (
        types.record_writer(writer(1), "", 64)
        and types.record_writer(writer(1), "", 96)
        and types.record_writer(writer(1), "one", 128)
    )
    found = read_writer_types(tmp_path)
    assert found.by_writer == {writer(1): ANNOUNCED[writer(1)]}
    assert [found.topic_of(writer(1), at).topic for at in (64, 128)] == ["", "one"]


def test_a_topic_that_is_not_recorded_yet(tmp_path: Path, disk: Disk) -> None:
    types = WriterTypes(tmp_path, ANNOUNCED.get)
    types.record_writer(writer(1), "one", 0)
    disk.room = 10
    with pytest.raises(LogFullError):
        types.record_writer(writer(1), "two", 64)
    disk.room = None
    assert types.topic_of(writer(1)) == "one"
    types.record_writer(writer(1), "two", 96)
    assert read_writer_types(tmp_path).topic_of(writer(1), 64).topic == "one"
    assert read_writer_types(tmp_path).topic_of(writer(1), 96).topic == "two"


# --- more writers than have room -----------------------------------------------------------------------------


def test_lines_of_writers_whose_samples_are_trimmed_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_types, "TYPED_WRITERS_MAX", 8)
    reported = {writer(n): struct(f"m{n // 2}") for n in range(20)}
    types = WriterTypes(tmp_path, reported.get)
    base = 0
    for n in range(20):  # a frame of 32 bytes each, of which the log has the last three
        at = 32 * n
        assert types.record_writer(writer(n), f"t{n}", at, base)
        types.appended(writer(n), at + 32)
        base = max(0, at - 32)
        if n == 12:
            types = WriterTypes(tmp_path, reported.get)  # after a restart
        found = read_writer_types(tmp_path)
        assert not found.damage and len(found.by_writer) <= 8
        for m in range(base // 32, n + 1):
            assert found.by_writer[writer(m)] == reported[writer(m)]
            assert found.topic_of(writer(m), 32 * m).topic == f"t{m}"
    text = (tmp_path / "writer_types.jsonl").read_text()
    assert text.count("idl") <= 5, "types that nobody has any more go too"


def test_a_writer_of_many_topics_keeps_those_that_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_types, "TYPED_WRITERS_MAX", 4)
    types = WriterTypes(tmp_path, ANNOUNCED.get)
    for n in range(20):
        at = 32 * n
        assert types.record_writer(writer(1), f"t{n}", at, max(0, at - 64))
        types.appended(writer(1), at + 32)
    found = read_writer_types(tmp_path)
    assert len(found.topics[writer(1)]) <= 4
    assert [found.topic_of(writer(1), 32 * n).topic for n in (17, 18, 19)] == ["t17", "t18", "t19"]


def test_another_writer_needs_a_trim_when_the_table_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_types, "TYPED_WRITERS_MAX", 4)
    types = WriterTypes(tmp_path, ANNOUNCED.get)
    for n in range(4):
        assert types.record_writer(writer(n), "t", 32 * n, 0)
        types.appended(writer(n), 32 * n + 32)
    assert not types.record_writer(writer(4), "t", 128, 0)
    assert types.record_writer(writer(3), "t", 128, 0), "one that has its line"
    assert len(by_writer(tmp_path)) == 4
    assert types.record_writer(writer(4), "t", 128, 32), "the first one's sample is trimmed"
    assert by_writer(tmp_path).keys() == {writer(n) for n in range(1, 5)}


def test_lines_that_cannot_be_rewritten_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(writer_types, "TYPED_WRITERS_MAX", 1)
    types = WriterTypes(tmp_path, ANNOUNCED.get)
    types.record_writer(writer(1), "t", 0, 0)
    types.appended(writer(1), 32)
    with monkeypatch.context() as patch:
        patch.setattr(writer_types, "replace_text", full)
        assert not types.record_writer(writer(2), "t", 32, 32)
    assert by_writer(tmp_path).keys() == {writer(1)}
    assert types.record_writer(writer(2), "t", 64, 64)
