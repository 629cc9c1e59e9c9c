"""The bench's type as Cyclone DDS knows it (Cyclone resolves real annotations: no postponed ones here)."""

from dataclasses import dataclass

from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import array, float64, uint32


@dataclass
class Sample64(IdlStruct, typename="bench::Sample64"):
    id: uint32
    seq: uint32
    v: array[float64, 7]
