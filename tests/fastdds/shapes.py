"""Types that the dynamic types of Fast DDS 2 can do, and values of each: no int8, no wide strings, nothing optional."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct

IDL: Final = """
module shapes {
  enum Color { RED, GREEN, BLUE };
  @bit_bound(16) bitmask Flags { @position(0) ready, @position(3) armed, @position(15) broken };
  @final struct Point { double x; double y; };
  typedef double Meters;
  union Choice switch (long) { case 0: long number; case 1: case 2: string text; default: double rest; };

  @final struct Number { @key unsigned long id; unsigned long seq; string name; };
  @final struct Part { @key string plant; @key long number; double weight; };
  @final struct Blob { unsigned long id; string<400000> data; };

  @final struct Primitives {
    boolean b; octet o; short i16; unsigned short u16; long i32; unsigned long u32; long long i64;
    unsigned long long u64; float f; double d; char c;
  };
  @final struct Strings { octet before; string s; string<8> bounded; sequence<string> many; string pair[2]; };
  @final struct Sequences {
    sequence<octet> raw; sequence<boolean> b; sequence<short> i16; sequence<long, 7> few; sequence<double> d;
    sequence<sequence<long> > deep;
  };
  @final struct Arrays { octet before; double v[3]; long m[2][3]; octet raw[5]; char word[4]; };
  @final struct Maps { map<long, double> by_number; map<string, string, 4> by_name; octet after; };
  @final struct Typedefs { octet before; Meters height; sequence<Meters> heights; };
  @final struct Enums { octet before; Color c; sequence<Color> many; Color pair[2]; };
  @final struct Bitmasks { octet before; Flags f; };
  @final struct Nested { octet before; Point p; sequence<Point> path; Point box[2]; };
  @final struct Unions { octet before; Choice c; sequence<Choice> many; };
};
"""

_ORIGIN: Final = {"x": 0.0, "y": -0.0}
_FAR: Final = {"x": 1e300, "y": -2.5}


def _choice(discriminator: int, **taken: Any) -> dict[str, Any]:
    return {"discriminator": discriminator, "number": None, "text": None, "rest": None} | taken


ROWS: Final[dict[str, list[dict[str, Any]]]] = {
    "Primitives": [
        {"b": False, "o": 0, "i16": -(1 << 15), "u16": 0, "i32": -(1 << 31), "u32": 0, "i64": -(1 << 63)}
        | {"u64": 0, "f": -3.4028234663852886e38, "d": 5e-324, "c": "a"},
        {"b": True, "o": 255, "i16": (1 << 15) - 1, "u16": (1 << 16) - 1, "i32": 7, "u32": (1 << 32) - 1}
        | {"i64": (1 << 63) - 1, "u64": (1 << 64) - 1, "f": 0.5, "d": float("inf"), "c": "~"},
    ],
    "Strings": [
        {"before": 1, "s": "", "bounded": "", "many": [], "pair": ["", "z"]},
        {
            "before": 2,
            "s": "Grüße, 世界",
            "bounded": "exactly8",
            "many": ["", "a", "abc"],
            "pair": ["é", "yy"],
        },
    ],
    "Sequences": [
        {"raw": b"", "b": [], "i16": [], "few": [], "d": [], "deep": []},
        {"raw": bytes(range(99)), "b": [True, False], "i16": [-1, 2, 3], "few": [7] * 7, "d": [1e-300, 0.5]}
        | {"deep": [[], [1], [2, 3]]},
    ],
    "Arrays": [
        {
            "before": 1,
            "v": [0.25, -1.0, 1e-9],
            "m": [[1, 2, 3], [-4, -5, -6]],
            "raw": bytes((0, 1, 2, 254, 255)),
        }
        | {"word": list("ab~ ")},
    ],
    "Maps": [
        {"by_number": [], "by_name": [], "after": 1},
        {"by_number": [(-3, 0.5), (8, -1.0)], "by_name": [("", "x"), ("key", "value")], "after": 2},
    ],
    "Typedefs": [{"before": 1, "height": 1.5, "heights": [0.5, -0.5]}],
    "Enums": [
        {"before": 1, "c": "RED", "many": [], "pair": ["GREEN", "BLUE"]},
        {"before": 2, "c": "BLUE", "many": ["RED", "BLUE", "GREEN"], "pair": ["RED", "RED"]},
    ],
    "Bitmasks": [{"before": 1, "f": []}, {"before": 2, "f": ["ready", "broken"]}],
    "Nested": [
        {"before": 1, "p": _ORIGIN, "path": [], "box": [_FAR, _ORIGIN]},
        {"before": 2, "p": _FAR, "path": [_FAR, _ORIGIN, _FAR], "box": [_ORIGIN, _FAR]},
    ],
    "Unions": [
        {"before": 1, "c": _choice(0, number=-7), "many": []},
        {"before": 2, "c": _choice(1, text="one"), "many": [_choice(-1, rest=0.5), _choice(0, number=3)]},
    ],
}


#: Fast DDS 2.9.1 ends when it makes type objects of these: sequences of what is not primitive, bitmasks, unions.
NOT_ANNOUNCED: Final = ("Typedefs", "Enums", "Bitmasks", "Nested", "Unions")


@cache
def struct(name: str) -> Struct:
    found = parse_idl(IDL)[f"shapes::{name}"]
    assert isinstance(found, Struct)
    return found
