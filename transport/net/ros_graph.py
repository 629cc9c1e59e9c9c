"""A participant's entry in a ROS graph: which of its readers and writers belong to which node.

ROS 2's middleware reads it from the topic ``ros_discovery_info`` (rmw_dds_common/msg/ParticipantEntitiesInfo), which is
reliable, TRANSIENT_LOCAL, and keeps the last sample of each participant.
"""

from __future__ import annotations

import struct
import time
from typing import Final

import numpy as np

from ..protocol.participant.endpoint_specs import WriterSpec
from ..protocol.participant.participant import RtpsParticipant
from ..protocol.writing.writer import StatefulWriter
from ..qos import DataRepresentation, DurabilityKind, Qos, ReliabilityKind
from ..structure import ENTITYID_PARTICIPANT, Guid
from ..wire.samples import Samples
from .node_config import NodeConfig, RosNode

GRAPH_TOPIC: Final = "ros_discovery_info"
GRAPH_TYPE: Final = "rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_"
GRAPH_QOS: Final = Qos(
    reliability=ReliabilityKind.RELIABLE,
    durability=DurabilityKind.TRANSIENT_LOCAL,
    data_representation=(DataRepresentation.XCDR1,),
)

#: Entity keys of the graph's writer: another one after each restart under the same GUID, because it numbers its samples
#: from 1 on.
_FIRST_KEY: Final = 0xF00000
_KEYS: Final = 0x0FFFFF
_CDR_LE: Final = b"\x00\x01\x00\x00"
_U32: Final = struct.Struct("<I")


def user_data_of(node: RosNode) -> bytes:
    """USER_DATA of the participant."""
    return f"enclave={node.enclave};".encode()


def join_graph(config: NodeConfig, participant: RtpsParticipant, now: int) -> RosGraph | None:
    """Become a node of a ROS graph; None: the configuration has no node."""
    if config.ros is None:
        return None
    key = _FIRST_KEY + (config.incarnation & _KEYS)
    spec = WriterSpec(GRAPH_TOPIC, GRAPH_TYPE, GRAPH_QOS, entity_key=key)
    graph = RosGraph(config.ros, participant.prefix, participant.create_writer(spec, now=now))
    graph.publish(now)
    return graph


class RosGraph:
    """One node of the graph, and its readers and writers; all calls under the node's lock."""

    def __init__(self, node: RosNode, prefix: bytes, writer: StatefulWriter) -> None:
        self.guid = writer.guid
        self._node = node
        self._participant = Guid(prefix, ENTITYID_PARTICIPANT)
        self._writer = writer
        self._readers: dict[Guid, None] = {}
        self._writers: dict[Guid, None] = {}
        self._is_current = False

    def add_endpoint(self, guid: Guid, *, writes: bool) -> None:
        """Add a reader or writer to the node."""
        (self._writers if writes else self._readers)[guid] = None
        self._is_current = False

    def remove_endpoint(self, guid: Guid) -> None:
        """Remove a reader or writer from the node."""
        self._writers.pop(guid, None)
        self._readers.pop(guid, None)
        self._is_current = False

    def publish(self, now: int) -> None:
        """Write the changes, or retry a write that was refused."""
        if self._is_current:
            return
        sample = np.frombuffer(self.sample(), np.uint8)
        samples = Samples(sample, 1, stride=len(sample), size=len(sample))
        taken, batches = self._writer.queue(samples, timestamp=time.time_ns(), now=now)
        self._writer.send(batches, now=now)
        self._is_current = taken == 1

    def sample(self) -> bytes:
        """The sample that describes the node, with its encapsulation header."""
        node = self._node
        body = b"".join(
            (
                self._gid(self._participant),
                _U32.pack(1),
                _string(node.namespace),
                _string(node.name),
                *(
                    _U32.pack(len(guids)) + b"".join(map(self._gid, guids))
                    for guids in (self._readers, self._writers)
                ),
            )
        )
        return _CDR_LE + body

    def _gid(self, guid: Guid) -> bytes:
        return (guid.prefix + guid.entity).ljust(self._node.gid_bytes, b"\0")


def _string(text: str) -> bytes:
    """A CDR string with the padding that a number after it needs."""
    octets = text.encode() + b"\0"
    return _U32.pack(len(octets)) + octets + bytes(-len(octets) % 4)
