"""Options about the topic's type: where it comes from, which columns it makes, and which samples become rows."""

from __future__ import annotations

from typing import Final

from ...transport.limits import STRING_MAX
from .spec import AppliesTo, Kind, OptionSpec

#: Bytes of a name; a string on the wire ends with NUL.
_NAME_MAX: Final = STRING_MAX - 1
#: Parameters of a filter, %0 to %99 (DDS 1.4 annex B).
_PARAMETERS_MAX: Final = 100

_READ, _WRITE = AppliesTo.READ, AppliesTo.WRITE

TYPE_OPTIONS: Final[tuple[OptionSpec, ...]] = (
    # --- where it comes from --------------------------------------------------------------------------
    OptionSpec(
        "type",
        Kind.TEXT,
        None,
        "The topic's type: a struct of `type.file`, by its qualified name or the end of it; or a ROS 2 message "
        "(`sensor_msgs/msg/Imu`; `pip install 'spark-rtps[ros]'`). Of columns without either: the name of the type "
        "they make; default is the topic's name in a sink, and in a source, as with `payload=binary`, the first "
        "writer's, whenever that comes. A source without columns asks the topic's peers for the type.",
        maximum=_NAME_MAX,
    ),
    OptionSpec(
        "type.file",
        Kind.TEXT,
        None,
        "File that defines the type, on the driver: IDL (`#include` is read from beside it), or a ROS 2 `.msg` or "
        "`.srv`.",
    ),
    OptionSpec(
        "type.name",
        Kind.TEXT,
        None,
        "Type name announced to peers where it differs from the type's own. That of a ROS 2 message is known: "
        "`sensor_msgs::msg::dds_::Imu_`.",
        maximum=_NAME_MAX,
    ),
    OptionSpec(
        "type.extensibility",
        Kind.WORD,
        "auto",
        "What types of an IDL file without an annotation are: `appendable` is XTypes' default, and RTI's; Cyclone's "
        "idlc takes `final`. They differ in XCDR2, and do not match. `auto`: as a writer tells it, else `appendable`; "
        "peers are told the type only if it says itself what it is.",
        choices=("auto", "appendable", "final"),
    ),
    OptionSpec(
        "type.ros_distribution",
        Kind.WORD,
        "jazzy",
        "Whose definition of a ROS 2 message `type` means.",
        choices=("dashing", "eloquent", "foxy", "galactic", "humble", "iron", "jazzy", "kilted", "lyrical"),
    ),
    OptionSpec(
        "type.discovery_timeout",
        Kind.DURATION,
        "10s",
        "How long to wait for a peer on the topic that tells its type.",
    ),
    OptionSpec(
        "key",
        Kind.LIST,
        None,
        "Columns that are the key (`@key`) of a type made from columns (`payload=cdr`). Otherwise the type says it; "
        "of a source without `type` the first writer.",
    ),
    OptionSpec(
        "keyed",
        Kind.BOOLEAN,
        None,
        "Whether the topic's type has a key, where nothing else tells: `payload=binary` with no more than its name. "
        "Default false.",
    ),
    OptionSpec(
        "nullable",
        Kind.WORD,
        "optional",
        "What nullable columns become in a type made from columns: `optional` members (`@optional`), or `required` "
        "ones, which a null cannot be written to, and which every DDS has.",
        _WRITE,
        choices=("optional", "required"),
    ),
    # --- how it lies on the wire, and whose may differ --------------------------------------------------
    OptionSpec(
        "data_representation",
        Kind.WORD,
        "auto",
        "DATA_REPRESENTATION of what is written. `auto`: `xcdr2` for types with `@mutable` or `@optional`, whose older "
        "form differs between vendors, else `xcdr1`. Readers take both.",
        _WRITE,
        choices=("auto", "xcdr1", "xcdr2"),
    ),
    OptionSpec(
        "type_consistency.kind",
        Kind.WORD,
        "allow_type_coercion",
        "TYPE_CONSISTENCY_ENFORCEMENT: whether a writer's type may be another that is assignable to the reader's, or "
        "must be the same.",
        _READ,
        choices=("allow_type_coercion", "disallow_type_coercion"),
    ),
    OptionSpec(
        "type_consistency.ignore_sequence_bounds",
        Kind.BOOLEAN,
        "true",
        "Whether a writer's sequences may be longer than the reader's.",
        _READ,
    ),
    OptionSpec(
        "type_consistency.ignore_string_bounds",
        Kind.BOOLEAN,
        "true",
        "Whether a writer's strings may be longer than the reader's.",
        _READ,
    ),
    OptionSpec(
        "type_consistency.ignore_member_names",
        Kind.BOOLEAN,
        "false",
        "Whether members with the same id may have different names.",
        _READ,
    ),
    OptionSpec(
        "type_consistency.prevent_type_widening",
        Kind.BOOLEAN,
        "false",
        "Whether a writer's type must not lack members of the reader's.",
        _READ,
    ),
    OptionSpec(
        "type_consistency.force_type_validation",
        Kind.BOOLEAN,
        "false",
        "Whether a writer that does not tell its type is no match; else types are then compared by name.",
        _READ,
    ),
    # --- as columns -------------------------------------------------------------------------------------
    OptionSpec(
        "columns",
        Kind.LIST,
        None,
        "Members to read, as `a,b.c`; the others are not decoded. Default: all.",
        _READ,
    ),
    OptionSpec(
        "uint64",
        Kind.WORD,
        "decimal",
        "Columns of `unsigned long long`: DECIMAL(20,0), or LONG, for which greater values are malformed.",
        _READ,
        choices=("decimal", "long"),
    ),
    OptionSpec(
        "enum",
        Kind.WORD,
        "string",
        "Columns of enums: the literal's name, or its value.",
        _READ,
        choices=("string", "int"),
    ),
    OptionSpec(
        "bitmask",
        Kind.WORD,
        "array",
        "Columns of bitmasks: the names of the bits that are set, or the number.",
        _READ,
        choices=("array", "long"),
    ),
    OptionSpec(
        "time",
        Kind.WORD,
        "struct",
        "Columns of ROS 2's `builtin_interfaces` Time and Duration: structs of `sec` and `nanosec`, or TIMESTAMP and "
        "INTERVAL DAY TO SECOND, to the microsecond.",
        _READ,
        choices=("struct", "timestamp"),
    ),
    # --- which samples become rows --------------------------------------------------------------------------
    OptionSpec(
        "filter",
        Kind.TEXT,
        None,
        "Content filter in DDS's SQL: `temperature > 80 AND name LIKE 'cpu%'`. Writers that filter are told, and do "
        "not send the rest.",
        _READ,
        maximum=_NAME_MAX,
    ),
    OptionSpec(
        "filter.parameters",
        Kind.LIST,
        None,
        "What `%0`, `%1`, ... of `filter` stand for.",
        _READ,
        maximum=_PARAMETERS_MAX,
    ),
    OptionSpec(
        "mode",
        Kind.WORD,
        "dropmalformed",
        "Samples that do not decode: `dropmalformed` leaves them out, `permissive` makes rows of nulls with the "
        "payload in `columnNameOfCorruptRecord`, `failfast` fails the query. All are counted and warned of.",
        _READ,
        choices=("dropmalformed", "permissive", "failfast"),
    ),
    OptionSpec(
        "columnNameOfCorruptRecord",
        Kind.TEXT,
        "_corrupt_record",
        "Column that `mode=permissive` adds, BINARY: the serialized payload of a sample that does not decode, null in "
        "other rows. Declared in `.schema(...)` as STRING it has the reason.",
        _READ,
    ),
)
