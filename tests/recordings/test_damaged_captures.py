"""Captures whose clock was set, that have pauses, or that are not as they were written."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from spark_rtps.recordings.packets import datagrams
from spark_rtps.transport.errors import RecordingError
from tests.recordings.recording_scene import read
from tests.recordings.test_captures import IDL, block, ip
from tests.support.pcap import CAPTURES

SECTION = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
RAW_IP = block(1, struct.pack("<HHI", 101, 0, 0))


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


def payloads(data: bytes, *, is_lenient: bool = False) -> list[bytes]:
    return [each.payload for each in datagrams(np.frombuffer(data, np.uint8), "x", is_lenient=is_lenient)]


def enhanced(packet: bytes, *, interface: int = 0, time: int = 0, more: int = 0) -> bytes:
    size = len(packet)
    head = struct.pack("<IIIII", interface, time >> 32, time & 0xFFFFFFFF, size + more, size)
    return block(6, head + packet + bytes(-size & 3))


def test_the_packet_blocks_of_older_tools_are_read() -> None:
    packet = ip(b"old.")
    old = struct.pack("<HHIIII", 0, 7, 0, 5_000_000, len(packet), len(packet)) + packet
    (found,) = datagrams(np.frombuffer(SECTION + RAW_IP + block(2, old), np.uint8), "x")
    assert found.payload == b"old." and found.time == 5_000_000_000


ONE, TWO = enhanced(ip(b"one.")), enhanced(ip(b"two."))
AT = len(SECTION + RAW_IP + ONE)


@pytest.mark.parametrize(
    ("damaged", "what"),
    [
        (struct.pack("<II", 6, 5) + ONE[8:], "a block of 5 bytes"),
        (struct.pack("<II", 6, 1 << 30) + ONE[8:], "a block of 1073741824 bytes"),
        (ONE[:-4] + bytes(4), f"a block of {len(ONE)} bytes that ends with another length"),
        (enhanced(ip(b"one."), interface=1), "a block of type 6 that cannot be right"),
        (enhanced(ip(b"one."), time=(1 << 64) - 1), "a block of type 6 that cannot be right"),
        (enhanced(ip(b"one."), more=1), "a block of type 6 that cannot be right"),
        (block(6, bytes(8)), "a block of type 6 that cannot be right"),
        (block(0x0A0D0D0A, bytes(16)), "a section without a byte order"),
    ],
)
def test_damage_within_pcapng_is_an_error_that_names_the_missing_bytes(
    damaged: bytes, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = SECTION + RAW_IP + ONE + damaged + TWO
    output = (
        f"x: it is damaged: {what} at byte {AT}; from there on, {len(damaged + TWO)} bytes, it cannot be read"
    )
    with pytest.raises(RecordingError) as error:
        payloads(data)
    assert str(error.value) == f"{output}; failOnDataLoss=false reads what lies before it"
    assert payloads(data, is_lenient=True) == [b"one."]
    assert caplog.messages == [f"{output}; left out because failOnDataLoss=false"]


def test_damage_within_a_classic_capture_is_an_error_too(caplog: pytest.LogCaptureFixture) -> None:
    packet = ip(b"one.")
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 16, 101)
    whole = struct.pack("<IIII", 1, 0, len(packet), len(packet)) + packet
    data = head + whole + struct.pack("<IIII", 1, 0, 1 << 18 | 1, 60) + packet + 9 * whole
    with pytest.raises(
        RecordingError, match=r"a packet of 262145 bytes at byte 72; from there on, 480 bytes, it"
    ):
        payloads(data)
    assert payloads(data, is_lenient=True) == [b"one."]
    assert "480 bytes, it cannot be read; left out because failOnDataLoss=false" in caplog.text
    caplog.clear()
    assert payloads(head + whole + whole[:-1]) == [b"one."]
    assert caplog.messages == ["x: it is cut short; its last packet is left out (47 bytes at its end)"]


def test_damage_reaches_the_query(tmp_path: Path) -> None:
    source, path, idl = CAPTURES / "c01_py_rich_final_xcdr1.pcap", tmp_path / "a.pcap", tmp_path / "lab.idl"
    idl.write_text(IDL)
    options = {"type": "lab::Rich", "type__file": str(idl)}
    path.write_bytes(source.read_bytes() + struct.pack("<IIII", 1, 0, 1 << 30, 1 << 30) + bytes(99))
    with pytest.raises(RecordingError, match=r"a\.pcap: it is damaged: .*; failOnDataLoss=false reads"):
        read(path, "lab_Rich", **options)
    wanted = read(source, "lab_Rich", **options)
    assert read(path, "lab_Rich", failOnDataLoss="false", **options).equals(wanted) and wanted.num_rows
