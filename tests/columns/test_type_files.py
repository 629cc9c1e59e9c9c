"""Types out of files and by name: IDL with includes, ROS 2 definitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_rtps.columns.type_files import struct_of_file
from spark_rtps.columns.type_sources import given_type
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.transport.errors import OptionError, TypeDefinitionError
from spark_rtps.transport.types.model import Extensibility, Struct


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def struct(path: Path, wanted: str | None = None) -> Struct:
    return struct_of_file(str(path), wanted, Extensibility.APPENDABLE)


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "marked"])
def test_files_may_begin_with_a_byte_order_mark(tmp_path: Path, mark: str) -> None:
    """Editors of Windows write one."""
    write(tmp_path / "b.idl", f"{mark}struct B {{ long x; }};")
    assert struct(write(tmp_path / "a.idl", f'{mark}#include "b.idl"\nstruct A {{ B b; }};'), "A").name == "A"
    path = write(tmp_path / "my" / "msg" / "Point.msg", f"{mark}int32 x\n")
    assert [member.name for member in struct(path).members] == ["x"]


class TestIdl:
    def test_an_include_is_found_in_the_same_directory(self, tmp_path: Path) -> None:
        write(tmp_path / "parts" / "point.idl", "@nested struct Point { long x; };")
        path = write(
            tmp_path / "main.idl", '#include "parts/point.idl"\nstruct Path { sequence<Point> points; };'
        )
        found = struct(path)
        assert (found.name, found.members[0].name) == ("Path", "points")

    def test_includes_as_ros_has_them(self, tmp_path: Path) -> None:
        write(
            tmp_path / "a_msgs" / "msg" / "Inner.idl",
            "module a_msgs { module msg { struct Inner { long x; }; }; };",
        )
        text = '#include "a_msgs/msg/Inner.idl"\nmodule b { struct Outer { a_msgs::msg::Inner inner; }; };'
        path = write(tmp_path / "b_msgs" / "msg" / "Outer.idl", text)
        with pytest.raises(
            TypeDefinitionError, match=r"there is no such file .*type\.include_path adds folders"
        ):
            struct(path, "b::Outer")
        given = {"topic": "T", "type.file": str(path), "type": "Outer", "type.include_path": str(tmp_path)}
        found = given_type(parse_options(given, AppliesTo.READ))
        assert found is not None and found.type_name == "b::Outer"

    @pytest.mark.parametrize(
        "name",
        ["../other.idl", "{above}/other.idl", "link.idl", "parts/link.idl", "to/other.idl", "disguised.idl"],
    )
    def test_no_other_file_is_read(self, tmp_path: Path, name: str) -> None:
        """Neither by ``..`` nor by a link, and nobody learns whether there is one."""
        home = tmp_path / "home"
        (home / "parts").mkdir(parents=True)
        write(tmp_path / "other.idl", "struct Other { long x; };")
        write(home / "passwords", "root:secret")
        (home / "link.idl").symlink_to(tmp_path / "other.idl")
        (home / "parts" / "link.idl").symlink_to("../../other.idl")
        (home / "to").symlink_to(tmp_path)
        (home / "disguised.idl").symlink_to("passwords")
        path = write(home / "main.idl", f'#include "{name.format(above=tmp_path)}"\nstruct S {{ Other x; }};')
        with pytest.raises(TypeDefinitionError) as there:
            struct(path)
        (tmp_path / "other.idl").unlink()
        (home / "passwords").unlink()
        with pytest.raises(TypeDefinitionError) as gone:
            struct(path)
        assert str(there.value) == str(gone.value)
        assert "there is no such file" in str(gone.value)

    def test_links_within_the_folder(self, tmp_path: Path) -> None:
        """As Kubernetes mounts files."""
        write(tmp_path / "..2026" / "part.idl", "@nested struct Part { long x; };")
        (tmp_path / "..data").symlink_to("..2026")
        (tmp_path / "part.idl").symlink_to("..data/part.idl")
        path = write(tmp_path / "main.idl", '#include "part.idl"\nstruct S { Part x; };')
        assert struct(path).name == "S"
        (tmp_path / "elsewhere").symlink_to(tmp_path)
        assert struct(tmp_path / "elsewhere" / "main.idl").name == "S"

    @pytest.mark.parametrize(
        "text", [b"root:secret:0:0\n", b"secret secret;", b"#error secret", b"\xffsecret"]
    )
    def test_a_file_without_idl_is_not_quoted(self, tmp_path: Path, text: bytes) -> None:
        (tmp_path / "passwords").write_bytes(text)
        path = write(tmp_path / "main.idl", '#include "passwords"\nstruct S { long x; };')
        with pytest.raises(TypeDefinitionError, match=r"^(passwords|.*main\.idl):1:\d+: ") as raised:
            struct(path)
        assert "secret" not in str(raised.value)
        (tmp_path / "passwords").unlink()
        write(tmp_path / "part.idl", "secret secret;")
        with pytest.raises(TypeDefinitionError, match=r"^part\.idl:1:1: unexpected 'secret'"):
            struct(write(tmp_path / "main.idl", '#include "part.idl"'))

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        path = write(tmp_path / "main.idl", '\n#include "none.idl"\nstruct S { long a; };')
        with pytest.raises(
            TypeDefinitionError, match=r"main.idl:2:\d+: none.idl cannot be included: there is no such"
        ):
            struct(path)

    def test_nested_types_are_not_topics(self, tmp_path: Path) -> None:
        path = write(tmp_path / "main.idl", "@nested struct Part { long x; }; struct Whole { Part p; };")
        assert struct(path).name == "Whole"
        assert struct(path, "Part").name == "Part"


class TestRos:
    def test_a_message_and_what_it_uses(self, tmp_path: Path) -> None:
        write(tmp_path / "a_msgs" / "msg" / "Part.msg", "float64 weight\n")
        path = write(
            tmp_path / "b_msgs" / "msg" / "Whole.msg", "a_msgs/Part[] parts\nuint8 COUNT=3\nstring<=8 name\n"
        )
        found = struct(path)
        assert found.name == "b_msgs::msg::dds_::Whole_"
        assert [member.name for member in found.members] == ["parts", "name"]

    def test_a_part_of_a_service(self, tmp_path: Path) -> None:
        path = write(tmp_path / "b_msgs" / "srv" / "Add.srv", "int64 a\nint64 b\n---\nint64 sum\n")
        assert [m.name for m in struct(path, "Add_Response").members] == ["sum"]
        with pytest.raises(TypeDefinitionError, match="Add_Request, Add_Response"):
            struct(path)

    @pytest.mark.parametrize(
        "name", ["sensor_msgs/msg/Imu", "sensor_msgs/Imu", "sensor_msgs::msg::dds_::Imu_"]
    )
    def test_by_name(self, name: str) -> None:
        found = given_type(parse_options({"topic": "rt/imu", "type": name}, AppliesTo.READ))
        assert found is not None
        assert (found.type_name, found.keyed, found.certain) == ("sensor_msgs::msg::dds_::Imu_", False, True)

    def test_bytes_are_octets_to_some(self) -> None:
        found = given_type(
            parse_options({"topic": "T", "type": "diagnostic_msgs/DiagnosticArray"}, AppliesTo.READ)
        )
        assert found is not None
        assert not found.certain

    def test_a_name_that_is_none(self) -> None:
        with pytest.raises(TypeDefinitionError, match="did you mean sensor_msgs/msg/Imu"):
            given_type(parse_options({"topic": "T", "type": "sensor_msgs/msg/Imus"}, AppliesTo.READ))

    def test_files_of_an_older_distribution(self) -> None:
        options = {"topic": "T", "type": "std_msgs/msg/String", "type.ros_distribution": "foxy"}
        assert given_type(parse_options(options, AppliesTo.READ)) is not None


class TestCertainty:
    @pytest.mark.parametrize(
        ("text", "options", "certain"),
        [
            ("struct S { long a; };", {}, False),
            ("struct S { long a; };", {"type.extensibility": "final"}, True),
            ("@appendable struct S { long a; };", {}, True),
            ("struct P { long x; }; @final struct S { P p; };", {}, False),
        ],
    )
    def test_types_with_an_explicit_extensibility(
        self, tmp_path: Path, text: str, options: dict[str, str], certain: bool
    ) -> None:
        path = write(tmp_path / "s.idl", text)
        given = {"topic": "T", "type": "S", "type.file": str(path), **options}
        found = given_type(parse_options(given, AppliesTo.READ))
        assert found is not None
        assert found.certain is certain


def test_no_such_file() -> None:
    with pytest.raises(OptionError, match=r"option 'type.file' = '/none.msg': cannot be read"):
        struct(Path("/none.msg"))
