"""Types and endpoints for the tests of type lookup."""

from __future__ import annotations

from functools import cache

from spark_rtps.transport.protocol.discovery.endpoint_data import EndpointData
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.types.xtypes.information import TypeInformation
from spark_rtps.transport.types.xtypes.type_objects import TypeObjects, type_objects_of

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)

_IDL = """
module lab {
  enum Color { RED, GREEN };
  @appendable struct Point { double x; double y; };
  @appendable struct Rich { @key long id; string name; Color color; Point pos; sequence<Point> path; };
  @appendable struct Wide { @key long id; string name; Color color; Point pos; sequence<Point> path; long more; };
  @appendable struct Other { @key long id; long name; Color color; Point pos; };
  @final struct Plain { long a; };
  @appendable struct Leaf { long a; };
  @appendable struct Inner { Leaf leaf; };
  @appendable struct Outer { Inner inner; };
};
"""


@cache
def struct(name: str) -> Struct:
    found = parse_idl(_IDL)[f"lab::{name}"]
    assert isinstance(found, Struct)
    return found


@cache
def objects(name: str) -> TypeObjects:
    return type_objects_of(struct(name))


@cache
def large(members: int) -> Struct:
    """A struct of so many structs."""
    inner = "".join(f"@appendable struct Part{i} {{ long a_member_of_part_{i}; }};" for i in range(members))
    outer = "".join(f"Part{i} part{i};" for i in range(members))
    found = parse_idl(f"module lab {{ {inner} @appendable struct Large {{ {outer} }}; }};")["lab::Large"]
    assert isinstance(found, Struct)
    return found


def guid(participant: int, endpoint: int = 1, *, writer: bool = True) -> Guid:
    return Guid(bytes((participant,)) * 12, endpoint.to_bytes(3, "big") + (b"\x02" if writer else b"\x07"))


def endpoint(
    participant: int, information: TypeInformation | None, number: int = 1, name: str = "lab::Rich"
) -> EndpointData:
    """A remote writer."""
    return EndpointData(guid(participant, number), "t", name, RELIABLE, type_information=information)
