"""Options about the topic's type: its source, the columns it becomes, and the samples that become rows."""

from __future__ import annotations

from typing import Final

from ..transport.limits import STRING_MAX
from .spec import AppliesTo, OptionKind, OptionSpec

#: Bytes of a name; a string on the wire ends with NUL.
_NAME_MAX: Final = STRING_MAX - 1
#: Parameters of a filter, %0 to %99 (DDS 1.4 annex B).
_PARAMETERS_MAX: Final = 100

_READ, _WRITE = AppliesTo.READ, AppliesTo.WRITE

TYPE_OPTIONS: Final[tuple[OptionSpec, ...]] = (
    # --- where it comes from --------------------------------------------------------------------------
    OptionSpec(
        "type",
        OptionKind.TEXT,
        None,
        "The topic's type: a struct in `type.file`, by its qualified name or the end of it, or a ROS 2 "
        "message such as `sensor_msgs/msg/Imu` (requires `pip install 'spark-rtps[ros]'`). When the type "
        "is derived from columns, or with `payload=binary`: its name. Default: the topic's name (sink), "
        "the first writer's type name (source). A source without columns and without a type asks the "
        "topic's peers.",
        maximum=_NAME_MAX,
    ),
    OptionSpec(
        "type.file",
        OptionKind.TEXT,
        None,
        "File on the driver that defines the type: IDL, or a ROS 2 `.msg`, `.srv` or `.action` definition. "
        "An IDL file can `#include` files of its own folder and of the folders below that; "
        "`type.include_path` adds folders.",
    ),
    OptionSpec(
        "type.include_path",
        OptionKind.LIST,
        None,
        "Further folders in which `#include` in an IDL file finds files, with the folders below them. No "
        "other file is read, whatever `..` and symbolic links say. For IDL of ROS 2, which includes "
        "`<package>/msg/<Name>.idl`, name the folder that holds the packages.",
    ),
    OptionSpec(
        "type.name",
        OptionKind.TEXT,
        None,
        "Type name announced to peers, if it differs from the type's own name. The names of ROS 2 "
        "messages are translated automatically: `sensor_msgs/msg/Imu` is announced as "
        "`sensor_msgs::msg::dds_::Imu_`.",
        maximum=_NAME_MAX,
    ),
    OptionSpec(
        "type.extensibility",
        OptionKind.WORD,
        "auto",
        "Extensibility of those structs in an IDL file that have no annotation. XTypes and RTI take them as "
        "`appendable`, Cyclone DDS's idlc takes them as `final`; in XCDR2 the two have different encodings and do not "
        "match. `auto`: the extensibility that a writer announces, else `appendable`; the type is then announced to "
        "peers only if every struct is annotated.",
        choices=("auto", "appendable", "final"),
    ),
    OptionSpec(
        "type.announce",
        OptionKind.WORD,
        "auto",
        "Whether a type of which every annotation is known is announced to peers (XTypes), which then compare it with "
        "their own and can request it. `false`: only its name is announced, by which peers match. `auto`: `false` "
        "with `ros=true`, since ROS 2 announces names and hashes, else `true`. Cyclone DDS 0.9 and 0.10 crash on "
        "announced types with `int8` or `uint8` members (TINYINT columns): a warning names such a peer, and `false` "
        "avoids the crash.",
        choices=("auto", "true", "false"),
    ),
    OptionSpec(
        "type.ros_distribution",
        OptionKind.WORD,
        "jazzy",
        "ROS 2 distribution whose message definitions `type` refers to. With `recording`, it applies to types that "
        "the files do not define; a bag that defines none was recorded with Humble or older, so that `humble` applies "
        "to it unless an older distribution is given.",
        choices=("dashing", "eloquent", "foxy", "galactic", "humble", "iron", "jazzy", "kilted", "lyrical"),
    ),
    OptionSpec(
        "type.discovery_timeout",
        OptionKind.DURATION,
        "10s",
        "How long to wait for a peer on the topic which announces its type.",
    ),
    OptionSpec(
        "key",
        OptionKind.LIST,
        None,
        "Columns that form the key (`@key`) of a type derived from columns; requires `payload=cdr`. If "
        "the type comes from elsewhere, it defines its key itself; a source without `type` takes the key "
        "from its first writer.",
    ),
    OptionSpec(
        "keyed",
        OptionKind.BOOLEAN,
        None,
        "Whether the topic's type has a key, for `payload=binary` when nothing but the type's name is "
        "known. Default: false.",
    ),
    OptionSpec(
        "nullable",
        OptionKind.WORD,
        "optional",
        "How nullable columns are mapped in a type derived from columns: to `optional` members (`@optional`), or to "
        "`required` members, which every DDS supports but which cannot hold a null.",
        _WRITE,
        choices=("optional", "required"),
    ),
    # --- how it lies on the wire, and whose may differ --------------------------------------------------
    OptionSpec(
        "data_representation",
        OptionKind.WORD,
        "auto",
        "DATA_REPRESENTATION in which samples are written. `auto`: `xcdr2` for types with `@mutable` or "
        "`@optional`, whose XCDR1 encoding differs between vendors, and `xcdr1` for all others. Sources "
        "read both.",
        _WRITE,
        choices=("auto", "xcdr1", "xcdr2"),
    ),
    OptionSpec(
        "type_consistency.kind",
        OptionKind.WORD,
        "allow_type_coercion",
        "TYPE_CONSISTENCY_ENFORCEMENT kind: whether a writer's type may differ from the reader's type as "
        "long as it is assignable to it, or must be the same.",
        _READ,
        choices=("allow_type_coercion", "disallow_type_coercion"),
    ),
    OptionSpec(
        "type_consistency.ignore_sequence_bounds",
        OptionKind.BOOLEAN,
        "true",
        "Whether a writer matches even if its sequences may be longer than the reader's.",
        _READ,
    ),
    OptionSpec(
        "type_consistency.ignore_string_bounds",
        OptionKind.BOOLEAN,
        "true",
        "Whether a writer matches even if its strings may be longer than the reader's.",
        _READ,
    ),
    OptionSpec(
        "type_consistency.ignore_member_names",
        OptionKind.BOOLEAN,
        "false",
        "Whether a writer matches even if members with the same id have different names.",
        _READ,
    ),
    OptionSpec(
        "type_consistency.prevent_type_widening",
        OptionKind.BOOLEAN,
        "false",
        "Whether a writer is refused if its type lacks members of the reader's type.",
        _READ,
    ),
    OptionSpec(
        "type_consistency.force_type_validation",
        OptionKind.BOOLEAN,
        "false",
        "Whether a writer that does not announce its type is refused. If false, such writers are matched "
        "by the name of their type.",
        _READ,
    ),
    # --- as columns -------------------------------------------------------------------------------------
    OptionSpec(
        "columns",
        OptionKind.LIST,
        None,
        "Members to read, for example `a,b.c`; all others are not decoded. Default: all members.",
        _READ,
    ),
    OptionSpec(
        "uint64",
        OptionKind.WORD,
        "decimal",
        "Column type for `unsigned long long`: DECIMAL(20,0), or LONG. With LONG, a sample with a value "
        "above 2^63 - 1 counts as malformed.",
        _READ,
        choices=("decimal", "long"),
    ),
    OptionSpec(
        "enum",
        OptionKind.WORD,
        "string",
        "Column type for enums: the literal's name as STRING, or its value as INT.",
        _READ,
        choices=("string", "int"),
    ),
    OptionSpec(
        "bitmask",
        OptionKind.WORD,
        "array",
        "Column type for bitmasks: an ARRAY with the names of the bits that are set, or the number as LONG.",
        _READ,
        choices=("array", "long"),
    ),
    OptionSpec(
        "event_time",
        OptionKind.TEXT,
        None,
        "Dotted path of a ROS 2 time, such as `header.stamp`, from which a TIMESTAMP column `event_time` is derived, "
        "for `withWatermark`. With `columns` or `.schema(...)` the member must be among the columns, and a schema "
        "declares `event_time TIMESTAMP` too.",
        _READ,
    ),
    OptionSpec(
        "time",
        OptionKind.WORD,
        "struct",
        "Column type for `builtin_interfaces` Time and Duration of ROS 2: structs of `sec` and `nanosec`, "
        "or TIMESTAMP and INTERVAL DAY TO SECOND, with a precision of microseconds.",
        _READ,
        choices=("struct", "timestamp"),
    ),
    # --- which samples become rows --------------------------------------------------------------------------
    OptionSpec(
        "filter",
        OptionKind.TEXT,
        None,
        "Content filter in the SQL of DDS, for example `temperature > 80 AND name LIKE 'cpu%'`. It is announced to "
        "writers; those that support content filters do not send other samples, and other samples that arrive "
        "nevertheless are left out.",
        _READ,
        maximum=_NAME_MAX,
    ),
    OptionSpec(
        "filter.parameters",
        OptionKind.LIST,
        None,
        "Values for the parameters `%0`, `%1`, ... of `filter`; commas between single quotes do not separate values.",
        _READ,
        maximum=_PARAMETERS_MAX,
        is_quoted=True,
    ),
    OptionSpec(
        "mode",
        OptionKind.WORD,
        "dropmalformed",
        "What happens to samples that do not decode. `dropmalformed`: they are left out. `permissive`: "
        "they become rows of nulls with the payload in the column that `columnNameOfCorruptRecord` names. "
        "`failfast`: the query fails. In every mode they are counted and logged.",
        _READ,
        choices=("dropmalformed", "permissive", "failfast"),
    ),
    OptionSpec(
        "columnNameOfCorruptRecord",
        OptionKind.TEXT,
        "_corrupt_record",
        "Name of the column that `mode=permissive` adds. It is BINARY and holds the payload of a sample "
        "that does not decode; in other rows it is null. If `.schema(...)` declares it as STRING, it "
        "holds the reason instead.",
        _READ,
    ),
)
