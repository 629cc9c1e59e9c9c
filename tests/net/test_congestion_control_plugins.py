"""Congestion controls by name, and what is said of those that are none."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import pytest

from spark_rtps.options.explanations import explained
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.net.plugins import load_congestion_control
from spark_rtps.transport.protocol.endpoint_info import StreamInfo, WriterInfo
from spark_rtps.transport.protocol.policies import CongestionControlPolicy
from spark_rtps.transport.protocol.reading.flow.congestion_control import Cubic, StaticWindow, WindowOutcome
from spark_rtps.transport.structure import Guid

SOURCE = """
class Half:
    def __init__(self, policy, stream):
        self.window = policy.max_window // 2
        self.stream = stream

    def on_track_rebuild(self, *, now, consumption, received, datagram, loss):
        return self.window, False

    def on_rtt_measurement(self, rtt, *, now):
        pass

class Outer:
    Half = Half

def broken(policy, stream):
    raise RuntimeError("not today")

def nothing(policy, stream):
    return None

def old(policy):
    return Half(policy, None)

number = 7
"""
WRITER = WriterInfo(Guid(b"w" * 12, b"\0\0\1\3"), (), (), True, False, term_window=512 << 10)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_congestion.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_congestion", raising=False)


@pytest.mark.parametrize(("kind", "made"), [("static", StaticWindow), ("cubic", Cubic)])
def test_built_in_congestion_controls_have_names(kind: str, made: type) -> None:
    assert isinstance(load_congestion_control(kind)(CongestionControlPolicy(kind), WRITER), made)


@pytest.mark.parametrize("name", ["Half", "Outer.Half"])
@pytest.mark.usefixtures("mine")
def test_a_congestion_control_of_the_user(name: str) -> None:
    make = load_congestion_control(f"own_congestion:{name}", "Square")
    control = make(CongestionControlPolicy(max_window=8_000), WRITER)
    assert control.stream == StreamInfo("Square", WRITER.guid, "unicast", 1 << 20)  # type: ignore[attr-defined]
    assert control.stream.session == zlib.crc32(WRITER.guid.to_bytes())  # type: ignore[attr-defined]
    outcome = control.on_track_rebuild(now=0, consumption=0, received=0, datagram=1_408, loss=False)
    assert outcome == WindowOutcome(4_000, False)


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("vegas", "static, cubic"),
        ("no_such_module:x", "ModuleNotFoundError"),
        ("own_congestion:missing", "AttributeError"),
        ("own_congestion:number", "not callable"),
        ("own_congestion:broken", "not today"),
        ("own_congestion:nothing", "on_track_rebuild"),
        ("own_congestion:old", r"called with \(policy, stream\)"),
    ],
)
@pytest.mark.usefixtures("mine")
def test_invalid_congestion_controls_are_refused(kind: str, output: str) -> None:
    with pytest.raises(OptionError, match=output) as caught, explained():
        load_congestion_control(kind)
    assert caught.value.option == "congestion_control"
