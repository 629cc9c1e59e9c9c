"""The nodes of a ROS graph, as participants publish them on ``ros_discovery_info``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

from ..transport.structure import GUID_BYTES, Guid
from ..transport.types.cdr.codec import Codec
from ..transport.types.ros import parse_msg
from ..transport.value_classes import value
from ..transport.wire.samples import Samples

#: Up to ROS 2 Humble.
_LONG_GID_BYTES: Final = 24
_HEADER_BYTES: Final = 4
_RULE: Final = "=" * 80
_DEFINITION: Final = """Gid gid
NodeEntitiesInfo[] node_entities_info_seq
{rule}
MSG: rmw_dds_common/Gid
uint8[{size}] data
{rule}
MSG: rmw_dds_common/NodeEntitiesInfo
string node_namespace
string node_name
Gid[] reader_gid_seq
Gid[] writer_gid_seq
"""


@value
class RosNodeSeen:
    """A node, and its readers and writers."""

    name: str
    endpoints: frozenset[Guid]


def nodes_of(samples: Samples) -> Iterator[tuple[bytes, list[RosNodeSeen]]]:
    """For each sample the GUID prefix of its participant and the nodes there; undecodable samples are skipped."""
    for i in (samples.all_lengths() > _HEADER_BYTES).nonzero()[0].tolist():
        payload = bytes(samples.payload(i))
        decoded = _codec(_gid_bytes(payload)).decode_samples(samples.take_range(i, i + 1))
        if decoded.malformed is not None and decoded.malformed.any():
            continue
        (row,) = decoded.batch.to_pylist()
        nodes = [RosNodeSeen(_name(each), frozenset(_guids(each))) for each in row["node_entities_info_seq"]]
        yield row["gid"]["data"][:12], nodes


def _name(node: dict[str, Any]) -> str:
    return f"{node['node_namespace'].rstrip('/')}/{node['node_name']}"


def _guids(node: dict[str, Any]) -> Iterable[Guid]:
    for gid in (*node["reader_gid_seq"], *node["writer_gid_seq"]):
        octets = gid["data"][:GUID_BYTES]
        yield Guid(octets[:12], octets[12:])


def _gid_bytes(payload: bytes) -> int:
    """The size of a GID. Both forms have one type name. A long one ends with eight zeros, and more follows the
    participant's; in the short form, a sample without nodes ends with their number."""
    body = payload[_HEADER_BYTES:]
    is_long = len(body) > _LONG_GID_BYTES and not any(body[GUID_BYTES:_LONG_GID_BYTES])
    return _LONG_GID_BYTES if is_long else GUID_BYTES


@cache
def _codec(gid_bytes: int) -> Codec:
    text = _DEFINITION.format(rule=_RULE, size=gid_bytes)
    return Codec(parse_msg(text, "rmw_dds_common/msg/ParticipantEntitiesInfo"))
