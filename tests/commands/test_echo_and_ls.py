"""What the commands make of what peers send; no network."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from spark_rtps.cli import app, main
from spark_rtps.commands import echo as echo_module
from spark_rtps.commands import ros as ros_module
from spark_rtps.commands.echo import Unannotated, _announced, _lines, _runs, _structs
from spark_rtps.commands.ls import _print_tables
from spark_rtps.monitoring.seen_topics import SeenTopics, name_of
from spark_rtps.transport.errors import UnknownTypeError
from spark_rtps.transport.net.topic_types import AnnouncedType
from spark_rtps.transport.protocol.discovery.participant_data import ParticipantData
from spark_rtps.transport.protocol.participant.participant import RemoteEndpoint
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import (
    Extensibility,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    Struct,
)
from spark_rtps.transport.wire.samples import DISPOSED, UNREGISTERED, Run

WRITER = Guid(bytes(range(12)), b"\0\0\1\2")
DOUBLE = Primitive(PrimitiveKind.FLOAT64)
NOTHING = np.zeros(0, np.uint8)


def echoed(run: Run, codec: Codec | None) -> list[object]:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    return [json.loads(line, parse_constant=refuse) for line in _lines(run, codec)]


def test_ls_shows_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    prefix = WRITER.prefix
    listener = ParticipantData(prefix, name="listener [/usr/bin/x]")
    endpoint = RemoteEndpoint(WRITER, "writer", "[/bold]", "[red]T", Qos(), "", b"\1\x10")
    _print_tables(SeenTopics.describe(0, [listener], [endpoint]), 1.0)
    shown = capsys.readouterr().out
    assert "[/usr/bin/x]" in shown
    assert "[/bold]" in shown
    assert "[red]T" in shown


def test_names_of_ros_stay_on_one_line_where_the_output_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(ros_module, "_listen", lambda *_: [])
    topic = f"rt/{'a_long_namespace/' * 8}image_raw"
    endpoint = RemoteEndpoint(WRITER, "writer", topic, "sensor_msgs::msg::dds_::Image_", Qos(), "", b"\1\x10")
    ros_module.list_graph(SimpleNamespace(domain=0, endpoints=lambda: [endpoint]), 0.0, as_json=False)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "a_long_namespace" in line]
    assert line.split()[:3] == [f"/{topic[3:]}", "sensor_msgs/msg/Image", "publisher"]


def test_a_participant_without_a_name_is_its_process_and_host() -> None:
    output = (("__Hostname", "box"), ("__ProcessName", "talker"))
    assert name_of(ParticipantData(bytes(12), properties=output)) == "talker@box"
    assert name_of(ParticipantData(bytes(12), properties=output, name="n")) == "n"
    assert name_of(ParticipantData(bytes(12))) == ""


@pytest.mark.parametrize("codec", [None, Codec(Struct("T", (Member("x", DOUBLE, 0, key=True),)))])
def test_echo_of_an_end_without_payload(codec: Codec | None, capsys: pytest.CaptureFixture[str]) -> None:
    disposed = Run.single(WRITER, 1, NOTHING, flags=DISPOSED, key_hash=bytes(range(16)))
    assert echoed(disposed, codec) == [{"_instance": "disposed", "_key_hash": bytes(range(16)).hex()}]
    unregistered = Run.single(WRITER, 2, NOTHING, flags=UNREGISTERED)
    assert echoed(unregistered, codec) == [{"_instance": "unregistered"}]
    assert capsys.readouterr().err == ""


def test_echo_of_numbers_json_does_not_know() -> None:
    codec = Codec(Struct("T", (Member("x", DOUBLE, 0), Member("xs", Sequence(DOUBLE), 1))))
    batch = pa.record_batch({"x": [float("nan")], "xs": [[1.5, float("inf"), float("-inf")]]})
    payload = np.frombuffer(codec.encode_batch(batch).payload(0), np.uint8)
    rows = echoed(Run.single(WRITER, 1, payload), codec)
    assert rows == [{"x": "NaN", "xs": [1.5, "Infinity", "-Infinity"]}]


def test_echo_of_maps_is_objects() -> None:
    idl = (
        "@final struct T { map<string, double> m; map<long, sequence<octet> > b; map<boolean, string> f; "
        "sequence<map<string, map<string, long> > > n; map<string, long> e; };"
    )
    struct = parse_idl(idl)["T"]
    assert isinstance(struct, Struct)
    codec = Codec(struct)
    row = {
        "m": [("a", 1.0), ("b", float("nan"))],
        "b": [(1, b"xy")],
        "f": [(True, "t"), (False, "f")],
        "n": [[("k", [("l", 1)])], []],
        "e": [],
    }
    batch = pa.RecordBatch.from_pylist([row], schema=codec.arrow_schema)
    payload = np.frombuffer(codec.encode_batch(batch).payload(0), np.uint8)
    expected = {
        "m": {"a": 1.0, "b": "NaN"},
        "b": {"1": "7879"},
        "f": {"true": "t", "false": "f"},
        "n": [{"k": {"l": 1}}, {}],
        "e": {},
    }
    assert echoed(Run.single(WRITER, 1, payload), codec) == [expected]
    row["e"] = [("k", 1), ("k", 2)]  # nothing keeps a peer from it
    batch = pa.RecordBatch.from_pylist([row], schema=codec.arrow_schema)
    payload = np.frombuffer(codec.encode_batch(batch).payload(0), np.uint8)
    assert echoed(Run.single(WRITER, 1, payload), codec) == [expected | {"e": [["k", 1], ["k", 2]]}]


def test_echo_ends_in_time_while_samples_keep_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    class Busy:
        """Has more whenever it is asked."""

        arrived = SimpleNamespace(count=0, wait=lambda _count, _deadline: True)

        def __init__(self, *_: object, **__: object) -> None: ...
        def join_topic(self, _: object) -> None: ...
        def hold(self, _: int) -> None: ...
        def go_on(self) -> None: ...
        def take_frames(self) -> list[SimpleNamespace]:
            return [SimpleNamespace(run=number) for number in range(100)]

    monkeypatch.setattr("spark_rtps.api.inbox.Inbox", Busy)
    monkeypatch.setattr(echo_module, "time", SimpleNamespace(monotonic=lambda: now))
    writer = SimpleNamespace(topic="Square", type_name="Point", guid=Guid(bytes(12), b"\0\0\1\2"), qos=Qos())
    printed = 0
    for _ in _runs(SimpleNamespace(node=None), writer, 3.0):
        printed += 1
        now += 0.02
        assert printed < 1000
    assert printed == 150


def test_echo_follows_the_structs_option(tmp_path: Path) -> None:
    file = tmp_path / "t.idl"
    file.write_text("struct T { long x; };")
    for reported in Unannotated:
        assert _structs(file, reported)["T"].extensibility is Extensibility(reported.value)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_type_that_cannot_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, as_json: bool
) -> None:
    """Of a file without annotations what a source does counts: it reads the writer's final type."""
    struct = Struct("T", (Member("x", DOUBLE, 0),))
    without_key = Guid(WRITER.prefix, b"\0\0\1\3")
    endpoint = RemoteEndpoint(without_key, "writer", "Topic", "T", Qos(), "publisher", b"\1\x10")
    reported = AnnouncedType(endpoint, struct, None)
    asked = SimpleNamespace(discover_type=lambda topic, *, timeout: reported)
    monkeypatch.setattr("spark_rtps.commands.type.joined", lambda *_, **__: contextlib.nullcontext(asked))
    file = tmp_path / "t.idl"

    def against(idl: str) -> tuple[int, str]:
        file.write_text(idl)
        arguments = ["type", "Topic", "--against", str(file), *(["--json"] if as_json else [])]
        done = CliRunner().invoke(app, arguments)
        return done.exit_code, done.stdout

    status, shown = against("struct T { double x; };")
    assert status == 0
    assert ('"cannot_read_it": []' if as_json else "-- T can read this topic") in shown
    assert ('"cannot_write_it": []' if as_json else "-- T can write this topic") in shown
    status, shown = against("@appendable struct T { double x; };")
    assert status == 1
    assert "the writer's struct T is @final, the reader's struct T is @appendable" in shown
    assert as_json or "-- T cannot read this topic" in shown


def test_names_do_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    listener = ParticipantData(WRITER.prefix, name="listener\x1b[2J\x9b2J\u202e")
    endpoint = RemoteEndpoint(WRITER, "writer", "a\rb\ud800", "T\a", Qos(), "", b"\1\x10")
    _print_tables(SeenTopics.describe(0, [listener], [endpoint]), 1.0)
    shown = capsys.readouterr().out
    assert "listener\ufffd[2J\ufffd2J\ufffd" in shown
    assert "a\ufffdb\ufffd" in shown
    assert all(character.isprintable() for character in shown if character != "\n")


def test_errors_do_not_control_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They quote what peers call their topics and types."""

    def unknown(*_: object, **__: object) -> None:
        raise UnknownTypeError("type 'T\x1b[2J\x9b' is not told")

    writer = RemoteEndpoint(WRITER, "writer", "t", "T", Qos(), "", b"\1\x10")
    assert _announced(SimpleNamespace(discover_type=unknown), writer) is None
    monkeypatch.setattr("spark_rtps.cli.app", unknown)
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == (
        "type 'T\ufffd[2J\ufffd' is not told\nerror: type 'T\ufffd[2J\ufffd' is not told\n"
    )
