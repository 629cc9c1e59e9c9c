"""Captures of real peers: each sample once and in order, as an independent decoder found them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_rtps.recordings.packets import datagrams
from spark_rtps.transport.errors import OptionError, RecordingError
from tests.recordings.recording_scene import read
from tests.support.pcap import CAPTURES

IDL = (CAPTURES / "README.md").read_text().split("```idl\n")[1].split("```")[0]
#: c19 has no user data.
NAMES = sorted(path.stem for path in CAPTURES.glob("*.pcap") if not path.stem.startswith("c19"))
STATES = ["ALIVE", "NOT_ALIVE_DISPOSED", "NOT_ALIVE_NO_WRITERS", "NOT_ALIVE_DISPOSED"]
COLORS = ["RED", "GREEN", "BLUE"]


@pytest.fixture(scope="module")
def idl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("types") / "lab.idl"
    path.write_text(IDL)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_comes_once_and_in_order(name: str, idl: Path) -> None:
    samples = expected(name)
    type = next(iter(samples.values()))["type"]
    rows = read(
        CAPTURES / f"{name}.pcap", type.replace("::", "_"), type=type, type__file=str(idl), metadata="true"
    ).to_pylist()
    found = [
        (r["_rtps"]["writer"].replace(".", "").replace(":", ""), r["_rtps"]["sequence_number"]) for r in rows
    ]
    by_writer: dict[str, list[int]] = {}
    for writer, sn in found:
        by_writer.setdefault(writer, []).append(sn)
    assert all(numbers == sorted(set(numbers)) for numbers in by_writer.values())
    assert sorted(found) == sorted(samples)
    for key, row in zip(found, rows, strict=True):
        sample, state = samples[key], row.pop("_rtps")["instance_state"]
        assert state == STATES[sample.get("status", 0) & 3]
        if sample["kind"] == "data":
            assert plain(row) == plain(sample["value"])


def expected(name: str) -> dict[tuple[str, int], dict[str, Any]]:
    """The user samples, each once, by writer and sequence number."""
    found = json.loads((CAPTURES / f"{name}.expected.json").read_text())
    return {(s["src"] + s["writer"], s["sn"]): s for s in found}


def plain(value: Any) -> Any:
    """As the expectations have it: points as pairs, octets as lists; of a Blob, whose octets rise, their number."""
    if isinstance(value, dict):
        if value.keys() == {"seq", "data"}:
            seq, data = value.values()
            assert data == bytes(seq + k & 255 for k in range(len(data)))
            return {"seq": seq, "len": len(data)}
        if value.keys() == {"x", "y"}:
            return list(value.values())
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    return COLORS.index(value) if value in COLORS else value


def test_the_topics_of_a_capture_are_named() -> None:
    with pytest.raises(OptionError, match=r"it has 'lab_Rich'; did you mean 'lab_Rich'\?"):
        read(CAPTURES / "c01_py_rich_final_xcdr1.pcap", "lab_rich")
    with pytest.raises(
        OptionError,
        match=r"does not hold the type of the topic \(its writers announce only the name of the type",
    ):
        read(CAPTURES / "f02_rich_notypeinfo.pcap", "lab_Rich")


def test_pcapng_and_other_links(tmp_path: Path, idl: Path) -> None:
    """The same packets in pcapng with nanoseconds, behind a VLAN tag, cooked, and as raw IP."""
    classic = (CAPTURES / "c01_py_rich_final_xcdr1.pcap").read_bytes()
    options = {"type": "lab::Rich", "type__file": str(idl), "metadata": "true"}
    wanted = read(CAPTURES / "c01_py_rich_final_xcdr1.pcap", "lab_Rich", **options)
    packets, at = [], 24
    while at < len(classic):
        seconds, micros, size, _ = struct.unpack_from("<IIII", classic, at)
        packets.append((seconds * 10**9 + micros * 1000, classic[at + 16 : at + 16 + size]))
        at += 16 + size
    tag = b"\x81\x00\x00\x07"
    for link, change in (
        (1, lambda p: p),
        (1, lambda p: p[:12] + tag + p[12:]),
        (113, lambda p: bytes(14) + p[12:]),
        (113, lambda p: bytes(14) + tag + p[12:]),
        (276, lambda p: p[12:14] + bytes(18) + p[14:]),
        (101, lambda p: p[14:]),
    ):
        path = tmp_path / "a.pcapng"
        path.write_bytes(pcapng(link, [(time, change(packet)) for time, packet in packets]))  # type: ignore[no-untyped-call]
        assert read(path, "lab_Rich", **options).equals(wanted)


def pcapng(link: int, packets: list[tuple[int, bytes]]) -> bytes:
    blocks = [block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
    blocks.append(block(1, struct.pack("<HHIHHB3xHH", link, 0, 0, 9, 1, 9, 0, 0)))
    for time, packet in packets:
        head = struct.pack("<IIIII", 0, time >> 32, time & 0xFFFFFFFF, len(packet), len(packet))
        blocks.append(block(6, head + packet + bytes(-len(packet) & 3)))
    return b"".join(blocks)


def block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def test_a_capture_of_several_interfaces_is_read_where_it_can_be(caplog: pytest.LogCaptureFixture) -> None:
    """`dumpcap` captures Bluetooth or USB beside the network if it is asked to."""
    data = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    data += block(1, struct.pack("<HHI", 189, 0, 0)) + block(1, struct.pack("<HHIHHB3x", 201, 0, 0, 9, 1, 3))
    others = data
    data += block(1, struct.pack("<HHIHHB3x", 101, 0, 0, 9, 1, 9)) + block(1, struct.pack("<HHI", 1, 0, 0))
    packets = b"".join(
        block(
            6, struct.pack("<IIIII", i, 0, 5_000, len(packet), len(packet)) + packet + bytes(-len(packet) & 3)
        )
        for i, packet in enumerate(
            [b"usb.", b"bluetooth...", ip(b"one."), bytes(12) + b"\x08\0" + ip(b"four")]
        )
    )
    found = list(datagrams(np.frombuffer(data + packets, np.uint8), "a.pcapng"))
    assert [(each.time, each.payload) for each in found] == [(5_000, b"one."), (5_000_000, b"four")]
    (output,) = caplog.messages
    assert output == "a.pcapng: 2 packets of links of type 189, 201, which are not read, are left out"
    with pytest.raises(RecordingError, match="a link of type 189, which is not read"):
        list(datagrams(np.frombuffer(others, np.uint8), "a.pcapng"))


def test_captures_that_lack_something(tmp_path: Path, idl: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Packets that the capture does not have are counted, and hold nothing back; a last packet may be cut."""
    classic, options = CAPTURES / "c02_c_rich_final_xcdr1.pcap", {"type": "lab::Rich", "type__file": str(idl)}
    wanted = read(classic, "lab_Rich", **options).to_pylist()
    data, records, at = classic.read_bytes(), [], 24
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        records.append(data[at : at + 16 + size])
        at += 16 + size
    samples = [i for i, r in enumerate(records) if (b"RTPS" in r and b"n5\xc3" in r) or b"n4\xc3" in r]
    assert samples
    path = tmp_path / "a.pcap"
    path.write_bytes(data[:24] + b"".join(r for i, r in enumerate(records) if i not in samples))
    rows = read(path, "lab_Rich", **options).to_pylist()
    assert rows == [row for row in wanted if row["id"] is not None and row in rows]
    assert 0 < len(rows) < len(wanted)
    assert f"{len(wanted) - len(rows)} samples of writer" in caplog.text
    path.write_bytes(data[:-7])
    assert read(path, "lab_Rich", **options).to_pylist()[:5] == wanted[:5]
    assert "its last packet is left out" in caplog.text
    path.write_bytes(b"nothing of the kind at all")
    with pytest.raises(RecordingError, match=r"a\.pcap: it is not a capture"):
        read(path, "lab_Rich", **options)
    path.write_bytes(data[:20] + b"\x69\0\0\0" + data[24:])
    with pytest.raises(RecordingError, match="a link of type 105, which is not read"):
        read(path, "lab_Rich", **options)


@pytest.mark.parametrize("left", [1, 15, 16, 17])
def test_a_capture_that_ends_within_a_packet_is_warned_of(
    left: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if it ends behind the header of a packet, of which the data is all that is missing."""
    packet = struct.pack("<IIII", 1, 0, 60, 60) + bytes(60)
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 16, 1) + packet + packet[:left]
    assert list(datagrams(np.frombuffer(data, np.uint8), "a.pcap")) == []
    assert "a.pcap: it is cut short; its last packet is left out" in caplog.text


SECOND = 1_000_000_000


def fragments(ident: int, octet: int, size: int = 2000) -> list[bytes]:
    """A UDP datagram as IP packets with so many bytes of payload, all of them this octet."""
    udp = struct.pack(">HHHH", 7411, 7411, 8 + size, 0) + bytes([octet]) * size
    found = []
    for at in range(0, len(udp), 1480):
        more = 0x2000 if at + 1480 < len(udp) else 0
        body = udp[at : at + 1480]
        addresses = b"\x0a\0\0\1\x0a\0\0\2"
        header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), ident, at // 8 | more, 64, 17, 0)
        found.append(header + addresses + body)
    return found


def assembled(*packets: tuple[float, bytes]) -> list[tuple[int, int]]:
    """The datagrams of raw IP packets at these seconds: which octets each of them has, and how many."""
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)
    for time, packet in packets:
        head = struct.pack("<IIII", int(time), round(time % 1 * 1e6), len(packet), len(packet))
        data += head + packet
    found = [each.payload for each in datagrams(np.frombuffer(data, np.uint8), "x")]
    return [(octet, each.count(octet)) for each in found for octet in sorted(set(each))]


def test_fragments_of_two_datagrams_are_never_one(caplog: pytest.LogCaptureFixture) -> None:
    (a1, a2), (b1, b2) = fragments(7, 0xAA), fragments(7, 0xBB)
    both = [(0xAA, 2000), (0xBB, 2000)]
    assert assembled((1, a1), (1, a2), (1, b1), (1, b2)) == both
    assert assembled((1, a2), (1, a1), (1, b2), (1, b1)) == both
    assert assembled((1, a1), (1, a1), (1, a2)) == both[:1]
    # several queues of a network card are captured side by side
    assert assembled((1.001, a2), (1, a1)) == assembled((1.001, a1), (1, a2)) == both[:1]
    # the capture has each packet at two interfaces, that of another datagram between them or not
    assert assembled((1, a1), (1, a1), (1, a2), (1, a2), (1, b1), (1, b1), (1, b2), (1, b2)) == both
    assert assembled((1, a1), (1, a2), (1, a1), (1, a2)) == both[:1]
    assert not caplog.text
    # the next one with its identification may begin with its last fragment
    assert assembled((1, a1), (1, a2), (1, fragments(7, 0xBB, 2400)[1]), (1, fragments(7, 0xBB, 2400)[0]))[
        1:
    ] == [(0xBB, 2400)]
    assert not caplog.text
    # one fragment of the first datagram is missing, and the identification comes again
    assert assembled((1, a1), (2, b1), (2, b2)) == both[1:]
    assert assembled((1, a2), (3601, b1), (3601, b2)) == both[1:]
    assert assembled((1, a2), (3, b1), (3, b2)) == both[1:]
    assert assembled((1, a1), (3601, b2)) == []
    assert assembled((1, a1), (1, fragments(7, 0xBB, 2400)[1])) == []
    assert caplog.text.count("1 datagrams lack fragments") == 4
    assert caplog.text.count("2 datagrams lack fragments") == 1


def test_a_datagram_of_many_small_fragments_is_put_together() -> None:
    udp = struct.pack(">HHHH", 1, 1, 8 + 8000, 0) + bytes(range(200)) * 40
    packets = []
    for at in range(0, len(udp), 48):
        body, more = udp[at : at + 48], 0x2000 if at + 48 < len(udp) else 0
        header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 1, at // 8 | more, 64, 17, 0)
        packets.append((1.0, header + bytes(8) + body))
    assert assembled(*packets) == [(octet, 40) for octet in range(200)]


def test_gso_buffers_are_split_into_datagrams(tmp_path: Path, idl: Path) -> None:
    """Where a network card divides what a host sends, or puts together what it gets, one packet has many datagrams."""
    options = {"type": "lab::Rich", "type__file": str(idl), "metadata": "true"}
    source = CAPTURES / "c01_py_rich_final_xcdr1.pcap"
    wanted = read(source, "lab_Rich", **options).drop(["_rtps"])
    alone = list(datagrams(np.fromfile(source, np.uint8), "x"))
    gso_buffers: list[list[bytes]] = []
    for each in alone:
        last = gso_buffers[-1] if gso_buffers else []
        size = len(last[0]) if last else 0
        same = last and last[0][:20] == each.payload[:20] and len(last) * size == sum(map(len, last))
        if same and len(each.payload) <= size and sum(map(len, last)) < 60_000:
            last.append(each.payload)
        else:
            gso_buffers.append([each.payload])
    assert max(map(len, gso_buffers)) > 1
    packets = [ip(b"".join(gso_buffer)) for gso_buffer in gso_buffers]
    path = tmp_path / "a.pcapng"
    path.write_bytes(pcapng(101, [(i * 1_000_000, packet) for i, packet in enumerate(packets)]))
    found = [each.payload for each in datagrams(np.fromfile(path, np.uint8), "x")]
    assert found == [each.payload for each in alone]
    assert read(path, "lab_Rich", **options).drop(["_rtps"]).equals(wanted)


@pytest.mark.parametrize("last", [24, 44, 60])
def test_the_last_datagram_of_a_gso_buffer_may_be_shorter(last: int) -> None:
    header = b"RTPS\2\4\1\x7e" + bytes(range(12))
    each = [header + b"\x80\1" + struct.pack("<H", 36) + bytes([i]) * 36 for i in range(64)]
    each.append(each[0][:22] + struct.pack("<H", last - 24) + each[0][24:last])
    (whole,) = datagrams(np.frombuffer(pcapng(101, [(0, ip(each[5]))]), np.uint8), "x")
    assert whole.payload == each[5]
    gso_buffer = pcapng(101, [(0, ip(b"".join(each)))])
    assert [found.payload for found in datagrams(np.frombuffer(gso_buffer, np.uint8), "x")] == each


def test_a_message_within_a_sample_makes_no_gso_buffer() -> None:
    """As if captures themselves were published: what is within is of the same participant."""
    header = b"RTPS\2\4\1\x7e" + bytes(range(12))
    within = header + b"\1\1\4\0ABCD"
    data = header + b"\x15\5" + struct.pack("<H", 20 + 4 * len(within)) + bytes(20) + 4 * within
    for message in (data, data + b"\1\1\0\0", b"other" + 3 * header):
        packet = ip(message)
        (found,) = datagrams(np.frombuffer(pcapng(101, [(0, packet)]), np.uint8), "x")
        assert found.payload == message


def ip(payload: bytes) -> bytes:
    """A UDP datagram as an IP packet."""
    udp = struct.pack(">HHHH", 7411, 7411, 8 + len(payload), 0) + payload
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0)
    return header + b"\x0a\0\0\1\x0a\0\0\2" + udp


def test_the_time_offset_of_an_interface_is_added() -> None:
    packet = fragments(1, 0xAA, 8)[0]
    option = struct.pack("<HHq", 14, 8, 1_700_000_000) + struct.pack("<HH", 0, 0)
    data = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    data += block(1, struct.pack("<HHI", 101, 0, 0) + option)
    data += block(
        6, struct.pack("<IIIII", 0, 0, 5_000_000, len(packet), len(packet)) + packet + bytes(-len(packet) & 3)
    )
    (found,) = datagrams(np.frombuffer(data, np.uint8), "x")
    assert found.time == 1_700_000_005 * SECOND
