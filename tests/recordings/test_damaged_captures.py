"""Captures whose clock was set, that have pauses, or that are not as they were written."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.recordings.recording_scene import read
from tests.recordings.test_captures import IDL
from tests.support.pcap import CAPTURES


@pytest.mark.parametrize(
    ("name", "type"), [("c01_py_rich_final_xcdr1", "Rich"), ("l01_cyc_small_loss15", "Small")]
)
@pytest.mark.parametrize("step", [-3600, 3600, 1_700_000_000])
def test_a_clock_that_is_set_loses_no_sample(
    name: str, type: str, step: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A robot begins to capture before it knows the time; a laptop that sleeps captures nothing for a while."""
    idl = tmp_path / "lab.idl"
    idl.write_text(IDL)
    options = {"type": f"lab::{type}", "type__file": str(idl)}
    data = (CAPTURES / f"{name}.pcap").read_bytes()
    wanted = read(CAPTURES / f"{name}.pcap", f"lab_{type}", **options)
    heads, at = [], 24
    while at < len(data):
        heads.append(at)
        at += 16 + struct.unpack_from("<I", data, at + 8)[0]
    changed = bytearray(data)
    for at in heads[len(heads) // 2 :]:
        (seconds,) = struct.unpack_from("<I", data, at)
        struct.pack_into("<I", changed, at, seconds + step & 0xFFFFFFFF)
    path = tmp_path / "a.pcap"
    path.write_bytes(changed)
    assert read(path, f"lab_{type}", **options).equals(wanted)
    assert "missing" not in caplog.text
