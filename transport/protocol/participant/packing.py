"""Packs the submessages of endpoints into RTPS messages with header, INFO_DST and INFO_TS (RTPS 2.5 §8.3.3)."""

from __future__ import annotations

from collections.abc import Iterable

from ...limits import MESSAGE_SIZE_MAX
from ...structure import Locator
from ...wire.info import INFO_DST_SIZE, INFO_TS_SIZE
from ...wire.message import HEADER_SIZE, Header
from ...wire.submessages import InfoDestination, InfoTimestamp
from ..outgoing import SHARED_SIZE_MAX, Buffer, Outgoing, OutgoingDatagrams

_Key = tuple[tuple[Locator, ...], bytes | None]


def pack(
    prefix: bytes, outgoing: Iterable[Outgoing], message_size: int = MESSAGE_SIZE_MAX
) -> list[OutgoingDatagrams]:
    """The messages of the participant ``prefix``, in order for each destination."""
    shared_size_max = min(SHARED_SIZE_MAX, message_size)
    header = Header(prefix=prefix).encode()
    datagrams: list[OutgoingDatagrams] = []
    shared: dict[_Key, tuple[OutgoingDatagrams, int]] = {}
    #: The last INFO_TS: samples written together have the same timestamp.
    stamped: int | None = None
    info_ts = b""
    for each in outgoing:
        if not each.destinations or not each.submessages:
            continue
        if each.segment:
            datagrams.append(
                OutgoingDatagrams([*each.submessages], each.destinations, each.segment, each.group)
            )
            shared.pop((each.destinations, each.dest_prefix), None)
            continue
        key = (each.destinations, each.dest_prefix)
        size = sum(map(len, each.submessages)) + INFO_TS_SIZE
        datagram, filled = shared.get(key, (None, 0)) if each.shareable else (None, 0)
        if datagram is None or filled + size > shared_size_max:
            buffers: list[Buffer] = [header]
            if each.dest_prefix is not None:
                buffers.append(InfoDestination(each.dest_prefix).encode())
            if each.timestamp is not None:
                if each.timestamp != stamped:
                    stamped, info_ts = each.timestamp, InfoTimestamp(each.timestamp).encode()
                buffers.append(info_ts)
            datagram, filled = OutgoingDatagrams(buffers, each.destinations), HEADER_SIZE + INFO_DST_SIZE
            datagrams.append(datagram)
        else:
            # Also without a timestamp: the one of the submessages before is still in force.
            datagram.buffers.append(InfoTimestamp(each.timestamp).encode())
        datagram.buffers.extend(each.submessages)
        if each.shareable:
            shared[key] = (datagram, filled + size)
        else:
            shared.pop(key, None)  # later submessages must stay behind this message
    return datagrams
