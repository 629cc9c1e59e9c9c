"""What Cyclone DDS and Fast DDS really send: all of it is understood, and would be sent the same by us."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.transport.errors import DecodeError, DropReason
from spark_rtps.transport.structure import Guid, is_builtin
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire.message import Header, header_at, iter_submessages
from spark_rtps.transport.wire.submessages import Data, DataFrag, Submessage, decode_submessage
from tests.support.pcap import captures, read_pcap

EACH_CAPTURE = pytest.mark.parametrize("path", captures(), ids=lambda path: path.stem)

#: Where our bytes differ from the peer's, (capture, frame): Cyclone left bits set past the end of a bitmap.
MASKED = {("l02_cyc_blob_nackfrag_loss10", 50)}
#: Fast DDS ends its messages with one of these.
FAST_DDS_SUBMESSAGE = 0x80
ENCAPSULATIONS = {
    "CDR_LE": "0001",
    "CDR2_LE": "0007",
    "D_CDR2_LE": "0009",
    "PL_CDR2_LE": "000b",
}


def messages(path: Path) -> Iterator[tuple[int, Header, memoryview]]:
    """(frame, header, message) of each RTPS message; Cyclone also sends 16-byte probes that are none."""
    for datagram in read_pcap(path):
        data = memoryview(datagram.payload)
        if len(data) == 16:
            with pytest.raises(DecodeError, match=DropReason.SHORT_MESSAGE.value):
                header_at(data, 0, 16)
        else:
            minor, vendor, prefix = header_at(data, 0, len(data))
            yield datagram.frame, Header((2, minor), vendor, prefix), data


def submessages(path: Path) -> Iterator[tuple[int, Header, int, bytes, Submessage | None]]:
    for frame, header, data in messages(path):
        for kind, flags, start, stop in iter_submessages(data):
            raw = bytes(data[start - 4 : stop])
            yield frame, header, kind, raw, decode_submessage(kind, flags, data[start:stop])


@EACH_CAPTURE
def test_every_submessage_again(path: Path) -> None:
    seen = 0
    for frame, _, kind, raw, message in submessages(path):
        seen += 1
        if message is None:
            assert kind == FAST_DDS_SUBMESSAGE
            continue
        encoded = message.encode(bool(raw[1] & 1))
        if (path.stem, frame) in MASKED and encoded != raw:
            assert decode_submessage(raw[0], raw[1], memoryview(encoded)[4:]) == message
        else:
            assert encoded.hex(" ", 4) == raw.hex(" ", 4), (frame, message)
    assert seen > 20


@EACH_CAPTURE
def test_every_header_again(path: Path) -> None:
    for _, header, data in messages(path):
        assert header.encode() == bytes(data[:20])


@EACH_CAPTURE
def test_discovery_again(path: Path) -> None:
    """Parameter lists of SPDP and SEDP, and the values in them that every endpoint has."""
    names = set()
    for _, _, _, _, message in submessages(path):
        if not (isinstance(message, Data) and is_builtin(message.writer_id) and message.payload):
            continue
        if bytes(message.payload[:2]) != p.PL_CDR_LE:
            continue  # liveliness and type lookup
        found = p.decode_parameter_payload(memoryview(message.payload))
        order = found.little_endian
        if len(message.payload) == 4 + len(found.encode()):
            assert p.encode_parameter_payload(list(found), order) == bytes(message.payload)
        for pid, value in found:
            if pid == p.PID_TOPIC_NAME:
                names.add(p.decode_string(value, order))
            elif pid in (p.PID_PARTICIPANT_GUID, p.PID_ENDPOINT_GUID):
                assert p.encode_guid(p.decode_guid(value)) == value
            elif pid == p.PID_PARTICIPANT_LEASE_DURATION:
                assert p.decode_duration(value, order) in (10 * 10**9, 20 * 10**9)
            elif pid == p.PID_DEFAULT_UNICAST_LOCATOR:
                locator = p.decode_locator(value, order)
                assert locator is not None
                assert p.encode_locator(locator) == value
            elif pid == p.PID_PROPERTY_LIST:
                properties = p.decode_properties(value, order)
                assert value.startswith(p.encode_properties(properties))  # Cyclone: and no binary ones
            elif pid == p.PID_ENTITY_NAME:
                assert p.decode_string(value, order).isprintable()
    assert any(name.startswith("lab_") for name in names)


@EACH_CAPTURE
def test_user_samples(path: Path) -> None:
    """Every user sample of a capture where, as, and from whom an independent decoder found it."""
    expected = json.loads(path.with_suffix("").with_suffix(".expected.json").read_text())
    assert list(user_samples(path)) == [shape(each) for each in expected]


def shape(expected: dict[str, Any]) -> dict[str, Any]:
    """The part of an expected sample that is visible without knowing its type."""
    seen = {key: expected[key] for key in ("frame", "src", "writer", "sn", "kind")}
    seen["status"] = expected.get("status", 0)
    seen["keyhash"] = expected.get("keyhash")
    if "enc" in expected:
        seen["encapsulation"] = ENCAPSULATIONS[expected["enc"]] + f"{expected['opt']:04x}"
    if expected.get("type") == "lab::Blob":
        seen["blob"] = (expected["value"]["seq"], expected["value"]["len"])
    return seen


def user_samples(path: Path) -> Iterator[dict[str, Any]]:
    parts: dict[tuple[Guid, int], tuple[bytearray, set[int]]] = {}
    for frame, header, _, _, message in submessages(path):
        if not isinstance(message, Data | DataFrag) or is_builtin(message.writer_id):
            continue
        qos = message.inline_qos or p.ParameterList()
        seen = {
            "frame": frame,
            "src": header.prefix.hex(),
            "writer": message.writer_id.hex(),
            "sn": message.sn,
            "kind": "none" if message.payload is None else "key" if message.key else "data",
            "status": qos.status_info,
            "keyhash": qos.key_hash.hex() if qos.key_hash else None,
        }
        payload = message.payload
        if isinstance(message, DataFrag):
            at = (Guid(header.prefix, message.writer_id), message.sn)
            sample, fragments = parts.setdefault(at, (bytearray(message.sample_size), set()))
            sample[message.offset : message.offset + len(message.payload)] = message.payload
            fragments.update(range(message.first_fragment, message.first_fragment + message.fragments))
            if fragments != set(range(1, -(-message.sample_size // message.fragment_size) + 1)):
                continue
            del parts[at]
            payload = bytes(sample)
            seq, length = (int.from_bytes(payload[i : i + 4], "little") for i in (4, 8))
            assert payload[12 : 12 + length] == bytes((seq + k) & 255 for k in range(length))
            seen["blob"] = (seq, length)
        if payload is not None:
            seen["encapsulation"] = bytes(payload[:4]).hex()
        yield seen
