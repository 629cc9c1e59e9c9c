"""Types of ROS 2 as Cyclone DDS knows them under the names that rmw_cyclonedds gives them.

Cyclone resolves real annotations: no postponed ones in this module.
"""

from dataclasses import dataclass

from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import final
from cyclonedds.idl.types import array, float64, int32, sequence, uint8, uint32


@dataclass
@final
class Gid(IdlStruct, typename="rmw_dds_common::msg::dds_::Gid_"):
    data: array[uint8, 16]


@dataclass
@final
class NodeEntitiesInfo(IdlStruct, typename="rmw_dds_common::msg::dds_::NodeEntitiesInfo_"):
    node_namespace: str
    node_name: str
    reader_gid_seq: sequence[Gid]
    writer_gid_seq: sequence[Gid]


@dataclass
@final
class ParticipantEntitiesInfo(IdlStruct, typename="rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_"):
    gid: Gid
    node_entities_info_seq: sequence[NodeEntitiesInfo]


@dataclass
@final
class LongGid(IdlStruct, typename="humble::Gid_"):
    data: array[uint8, 24]


@dataclass
@final
class NodeEntitiesInfoOfHumble(IdlStruct, typename="humble::NodeEntitiesInfo_"):
    node_namespace: str
    node_name: str
    reader_gid_seq: sequence[LongGid]
    writer_gid_seq: sequence[LongGid]


@dataclass
@final
class ParticipantEntitiesInfoOfHumble(
    IdlStruct, typename="rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_"
):
    gid: LongGid
    node_entities_info_seq: sequence[NodeEntitiesInfoOfHumble]


@dataclass
@final
class Time(IdlStruct, typename="builtin_interfaces::msg::dds_::Time_"):
    sec: int32
    nanosec: uint32


@dataclass
@final
class Header(IdlStruct, typename="std_msgs::msg::dds_::Header_"):
    stamp: Time
    frame_id: str


@dataclass
@final
class Temperature(IdlStruct, typename="sensor_msgs::msg::dds_::Temperature_"):
    header: Header
    temperature: float64
    variance: float64
