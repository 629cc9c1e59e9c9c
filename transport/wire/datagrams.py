"""The hot path for small datagrams: a drain of one-sample messages becomes runs, without a step per datagram.

Most foreign writers send one sample a datagram: header, INFO_TS, DATA, now and then a HEARTBEAT behind it
(Cyclone DDS; Fast DDS puts a vendor submessage there). :func:`scan_datagrams` asks of all datagrams of a
drain at once whether they look like that, groups those that do by writer, and leaves the others to the
message receiver. Handling the others afterwards is as if the network had delivered them a moment later.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..structure import Guid
from .samples import I64, SAMPLE_INDEX, U8, Run, source_timestamps

_HEADER_WORDS: Final = 5
_INFO_TS_LE: Final = 0x0008_0109
#: DATA, little-endian, with data and without inline QoS: kind and flags as the low half of its first word
_PLAIN_DATA_LE: Final = 0x0515
_OCTETS_TO_INLINE_QOS: Final = 16 << 16
_PAYLOAD_WORD: Final = _HEADER_WORDS + 3 + 6  # header, INFO_TS, DATA header
_MAGIC: Final = int.from_bytes(b"RTPS", "little")
_HEARTBEAT: Final = 0x07
_HEARTBEAT_SIZE: Final = 32
_HEARTBEAT_FINAL: Final = 0x02
_VENDOR_SPECIFIC: Final = 0x80
_COMPRESSED: Final = 0xB0
#: Below this many datagrams the plain way is as quick.
DATAGRAMS_MIN: Final = 8

Words = npt.NDArray[np.uint32]


class DatagramRun(NamedTuple):
    """A run that spans datagrams, and where the HEARTBEAT that counts lies behind one of them (-1: none)."""

    run: Run
    heartbeat_at: int


class DatagramScan(NamedTuple):
    """The runs found, and the positions (in the list of datagrams) of those left to the plain way."""

    runs: list[DatagramRun]
    rest: list[int]


def scan_datagrams(data: U8, starts: I64, stops: I64) -> DatagramScan:
    """Find the runs in datagrams lying at ``data[starts[i]:stops[i]]``; starts are multiples of 4."""
    count = len(starts)
    words = data[: data.nbytes // 4 * 4].view("<u4")
    at = starts // 4
    roomy = stops - starts >= (_PAYLOAD_WORD + 1) * 4
    if not roomy.any():
        return DatagramScan([], list(range(count)))
    if not roomy.all():
        at = np.where(roomy, at, at[int(roomy.argmax())])  # looked at, never used
    head: Words = words[at[:, None] + np.arange(_PAYLOAD_WORD)]
    plain = roomy & (head[:, 0] == _MAGIC) & ((head[:, 1] & 0xFF) == 2) & (head[:, 5] == _INFO_TS_LE)
    plain &= ((head[:, 8] & 0xFFFF) == _PLAIN_DATA_LE) & (head[:, 9] == _OCTETS_TO_INLINE_QOS)
    plain &= (head[:, 11] >> 30) != 3  # built-in writers: who sent it matters, which is not known here
    lengths = (head[:, 8] >> 16).astype(np.int64)
    data_ends = starts + (_HEADER_WORDS + 3 + 1) * 4 + lengths
    # a length of 0 ("to the end") and lengths that are no multiple of 4 go the plain way
    plain &= (lengths >= 24) & (lengths % 4 == 0) & (data_ends <= stops) & (head[:, 12].view(np.int32) >= 0)
    heartbeat = _tails(data, stops, data_ends, plain)
    taken = np.flatnonzero(plain)
    if len(taken) < DATAGRAMS_MIN:
        return DatagramScan([], list(range(count)))
    numbers = (head[:, 12].astype(np.int64) << 32) | head[:, 13]
    stamps = source_timestamps(head[:, 6], head[:, 7])
    # the writer's GUID and the reader id it writes to, as one 20-byte key
    keys = np.ascontiguousarray(head[:, [2, 3, 4, 11, 10]])
    groups = _groups(keys, taken)
    runs = []
    for group in groups:
        breaks = np.flatnonzero(np.diff(numbers[group]) != 1) + 1
        for rows in np.split(group, breaks) if len(breaks) else [group]:
            if numbers[rows[0]] < 1:
                plain[rows] = False
                continue
            key = keys[rows[0]].tobytes()
            index = np.zeros(len(rows), SAMPLE_INDEX)
            offsets = starts[rows] + _PAYLOAD_WORD * 4
            index["length"] = data_ends[rows] - offsets
            index["timestamp"] = stamps[rows]
            body = _body(data, offsets, index, compact=len(groups) > 1)
            run = Run(
                Guid(key[:12], key[12:16]),
                int(numbers[rows[0]]),
                len(rows),
                body,
                index=index,
                reader_id=key[16:],
            )
            runs.append(DatagramRun(run, _heartbeat_at(data, rows, heartbeat, data_ends)))
    return DatagramScan(runs, np.flatnonzero(~plain).tolist())


def _tails(data: U8, stops: I64, data_ends: I64, plain: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Clear ``plain`` where something we must look at follows the DATA; returns who has a HEARTBEAT there."""
    heartbeat = np.zeros(len(stops), np.bool_)
    tailed = np.flatnonzero(plain & (stops > data_ends))
    if len(tailed):
        left = stops[tailed] - data_ends[tailed]
        kinds = data[data_ends[tailed]]
        beats = (kinds == _HEARTBEAT) & (left == _HEARTBEAT_SIZE)
        heartbeat[tailed] = beats
        plain[tailed] = beats | ((kinds >= _VENDOR_SPECIFIC) & (kinds != _COMPRESSED))
    return heartbeat


def _groups(keys: Words, taken: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """The rows of ``taken`` by writer, in order of arrival within each."""
    if (keys[taken] == keys[taken[0]]).all():
        return [taken]
    names = keys.view("V20").reshape(-1)[taken]
    _, inverse = np.unique(names, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    return np.split(taken[order], np.flatnonzero(np.diff(inverse[order])) + 1)


def _body(data: U8, offsets: I64, index: npt.NDArray[Any], *, compact: bool) -> U8:
    """The bytes the run's index points into: a view across the datagrams, or payloads gathered together.

    A view carries the headers between the payloads along, which is cheaper than gathering as long as what
    lies between belongs to the same writer.
    """
    lengths = index["length"].astype(np.int64)
    if not compact:
        low = int(offsets[0])
        index["offset"] = offsets - low
        return data[low : int(offsets[-1] + lengths[-1])]
    words = lengths // 4
    before = np.cumsum(words) - words
    index["offset"] = before * 4
    source = data[: data.nbytes // 4 * 4].view("<u4")
    moved = int(words.sum())
    body: U8 = source[np.arange(moved) + np.repeat(offsets // 4 - before, words)].view(np.uint8)
    return body


def _heartbeat_at(data: U8, rows: npt.NDArray[Any], heartbeat: npt.NDArray[np.bool_], data_ends: I64) -> int:
    """The last HEARTBEAT that asks for an answer, else the last one."""
    with_beat = rows[heartbeat[rows]]
    if not len(with_beat):
        return -1
    at = data_ends[with_beat]
    asking = at[(data[at + 1] & _HEARTBEAT_FINAL) == 0]
    return int(asking[-1] if len(asking) else at[-1])
