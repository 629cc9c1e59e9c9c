"""Option strings to frozen settings: they are parsed and checked here, and nowhere else."""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from ..transport.errors import OptionError
from ..transport.net.node_config import RosNode
from ..transport.protocol.discovery.topic_selection import TopicSelection
from ..transport.protocol.participant.slices import Slice
from ..transport.protocol.policies import (
    BatchPolicy,
    FlowControllerPolicy,
    FlowControlPolicy,
    ReaderPolicy,
    WriterPolicy,
)
from ..transport.protocol.trust import Trust
from ..transport.qos import DataRepresentation, Qos
from ..transport.structure import INFINITE
from ..transport.types.mapping import Mapping as TypeMapping
from ..transport.types.model import Extensibility
from ..transport.value_classes import value
from .advice import advice
from .log_dir import default_log_dir
from .policies import (
    batch_policy,
    flow_control_policy,
    flow_controller_policy,
    left_to_writers,
    qos,
    reader_policy,
    representation,
    writer_policy,
)
from .qos_profiles import NO_PROFILE, Profile, find_profile
from .receivers import asked_of_receivers, check_receivers, receiver_addresses, timestamp
from .recordings import check_recordings
from .ros import ros_node, translated
from .rules import check_log_full, check_options, check_retention, check_statuses, writers_slice
from .spec import AppliesTo
from .table import BY_KEY, OPTIONS
from .texts import path_of
from .topics import SEVERAL, topic_selection
from .values import Offsets, Values, given_options, parse_value


class Payload(enum.Enum):
    CDR = "cdr"
    BINARY = "binary"
    ARROW = "arrow"


class Mode(enum.Enum):
    """What happens to samples that do not decode."""

    DROPMALFORMED = "dropmalformed"
    PERMISSIVE = "permissive"
    FAILFAST = "failfast"


class OnNoReader(enum.Enum):
    WAIT = "wait"
    DROP = "drop"


@value
class Settings:
    """All options of one reader or writer. Durations in nanoseconds, sizes in bytes."""

    #: Name of the topic; empty: the rows of a sink name their topics.
    topic: str
    #: The topics that are read together; ``topic`` is then only a name for messages. None: ``topic`` alone.
    topics: TopicSelection | None
    domain: int
    #: The writers to read; None: all.
    slice: Slice | None
    type: str | None
    type_file: str | None
    #: Folders in which an IDL file's includes are looked for, besides its own.
    type_include_path: tuple[str, ...]
    type_name: str | None
    #: Extensibility of IDL types that declare none; None: unknown.
    type_extensibility: Extensibility | None
    #: Whether a type that is certain is announced to peers; else only its name is.
    announces_type: bool
    ros_distribution: str
    type_discovery_timeout: int
    key: tuple[str, ...]
    keyed: bool
    nullable_is_optional: bool
    #: Dotted paths of the members to read; empty: all.
    column_paths: tuple[str, ...]
    mapping: TypeMapping
    #: Path of the member that the column ``event_time`` is derived from; empty: there is no such column.
    event_time: tuple[str, ...]
    filter: str | None
    filter_parameters: tuple[str, ...]
    mode: Mode
    corrupt_record: str
    payload: Payload
    metadata: bool
    #: Rows are changes of communication statuses, of all topics if ``topic`` is empty.
    statuses: bool
    qos: Qos
    #: Policies of a reader that follow from what the topic's writers offer: ``reliability``, ``durability``.
    left_to_writers: tuple[str, ...]
    #: None: the representation that the type needs.
    representation: DataRepresentation | None
    # network
    interface: str | None
    peers: tuple[str, ...]
    #: Networks of the participants to listen to; empty: all.
    peers_allowed: tuple[str, ...]
    trust: Trust
    multicast: bool
    #: ``auto``, ``off``, or a group.
    multicast_receive: str
    multicast_ttl: int
    multicast_interface: str | None
    participant_name: str
    participant_lease_duration: int
    #: The node of the ROS graph that the participant represents; None: it takes no part in a ROS graph.
    ros: RosNode | None
    ros_remaps: tuple[str, ...]
    #: Whether a stopped query disposes its reader; else writers expect it back within its lease.
    leave_on_stop: bool
    receive_buffer: int
    send_buffer: int
    #: Maximum bytes of an IP packet; None: as many as the interfaces carry unfragmented.
    mtu: int | None
    message_size_max: int
    # reading
    max_rows_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_partitions: int
    fail_on_data_loss: bool
    read_max_rows: int | None
    read_timeout: int
    log_dir: Path
    #: Mode bits of the folder of a log.
    log_mode: int
    log_max_bytes: int
    log_segment_bytes: int
    #: What happens to samples for which the log has no space: ``hold``, ``drop`` or ``fail``.
    on_log_full: str
    log_retention: int
    #: Maximum bytes of all logs of ended queries together; None: no limit.
    log_retention_bytes: int | None
    #: Which samples a receiver service keeps: ``bytes``, ``time`` (for ``retention_time`` ns) or ``committed``.
    retention: str
    retention_time: int
    #: Address at which the log is served to tasks on other hosts; None: chosen automatically; "none": not served.
    serve_address: str | None
    serve_port: int
    #: PEM files; None: connections are not encrypted.
    serve_certificate: str | None
    serve_key: str | None
    #: Receiver services, name and address of each; empty: the query has a receiver of its own.
    receivers: tuple[tuple[str, str], ...]
    receiver_subscription: str | None
    #: Options of the subscription that the query requests from the receiver services; None: it reads an existing one.
    receiver_subscribes: Mapping[str, str] | None
    receiver_group: str | None
    receiver_timeout: int
    receiver_token: str | None = field(repr=False)
    receiver_token_file: str | None
    receiver_ca: str | None
    receiver_certificate: str | None
    receiver_key: str | None
    #: ``earliest`` or ``latest``; or one of them or a position for each receiver by name; or None: the default, which
    #: differs between streams and batches.
    starting: Offsets | None
    ending: Offsets | None
    #: Nanoseconds since 1970.
    starting_time: int | None
    ending_time: int | None
    #: Files, patterns and folders of a recording; empty: the topic is live.
    recording: tuple[str, ...]
    #: Log times, in nanoseconds since 1970.
    recording_since: int | None
    recording_until: int | None
    log_time: bool
    reader_policy: ReaderPolicy
    #: When data counts as consumed: as soon as it is ``logged``, or when Spark has ``committed`` it.
    consumption: str
    spy: bool
    accept_writer_removed_batch_samples: bool
    # writing
    on_no_reader: OnNoReader
    connect_timeout: int
    acknowledgment_timeout: int
    #: Nanoseconds that a write waits without progress before it fails.
    offer_timeout: int
    writer_policy: WriterPolicy
    batch: BatchPolicy
    #: ``module:callable``, for the worker to import.
    interceptor: str | None
    coalescing: bool
    #: None: synchronous publishing.
    flow_controller: FlowControllerPolicy | None
    transport_priority: int
    flow_control: FlowControlPolicy
    #: Networks of the readers that match; empty: all.
    readers_allowed: tuple[str, ...]
    multicast_send: bool
    # both
    ipc: bool
    #: TCP port; 0: no metrics are served.
    metrics_port: int
    metrics_address: str
    #: Sentences about options that are probably not intended; to be logged once.
    warnings: tuple[str, ...]


def parse_options(options: Mapping[str, str], role: AppliesTo, *, receiver_service: bool = False) -> Settings:
    """Settings for reading (``AppliesTo.READ``) or writing (``AppliesTo.WRITE``).

    With ``AppliesTo.BOTH`` keys and values are checked, but not whether they suit a reader or a writer, and no
    file is read. ``receiver_service``: the options are those of a subscription of a receiver service.

    Raises:
        OptionError: an unknown key, an invalid value, or two options that contradict each other.
    """
    given = translated(given_options(options, role), os.environ)
    unread = role is AppliesTo.BOTH and "qos.file" in given
    profile = NO_PROFILE if unread else _profile(given, role)
    values = Values(given, role, profile)
    topics = topic_selection(values)
    topic = values.text("topic") if topics is None else str(topics)
    if values.boolean("statuses"):
        check_statuses(values)
        topic = topic or ""
    elif topic is None and role is not AppliesTo.READ:
        topic = ""
    if topic is None:
        one = 'name the topic: .option("topic", "Square") or .load("Square")'
        raise OptionError("topic", None, f"{one}; or several: {SEVERAL}")
    if not unread:  # an option may contradict a default but agree with the value in the file
        check_options(values, role)
        check_retention(values, receiver_service=receiver_service)
        check_recordings(values)
        check_log_full(values, receiver_service=receiver_service)
        check_receivers(values)
    return _settings(
        topic, topics, values, role, (*profile.warnings, *values.warnings, *advice(values, role))
    )


def _profile(given: Mapping[str, str], role: AppliesTo) -> Profile:
    name, file = (
        cast(str, parse_value(BY_KEY[key], given[key])) if key in given else None
        for key in ("qos.profile", "qos.file")
    )
    return find_profile(name, file, writes=role is AppliesTo.WRITE)


def _settings(
    topic: str,
    topics: TopicSelection | None,
    values: Values,
    role: AppliesTo,
    warnings: tuple[str, ...],
) -> Settings:
    of_one_option: dict[str, Any] = {  # tests check their types
        name: _CONVERSIONS[name](value) if name in _CONVERSIONS else value
        for name, value in ((name, values.value(option)) for name, option in FIELDS.items())
    }
    return Settings(
        **of_one_option,
        topic=topic,
        topics=topics,
        slice=writers_slice(values),
        announces_type=_announces_type(values),
        mapping=TypeMapping(
            uint64=values.word("uint64"),
            enums=values.word("enum"),
            bitmasks=values.word("bitmask"),
            times=values.word("time"),
        ),
        qos=qos(values, role),
        left_to_writers=left_to_writers(values, role),
        ros=ros_node(values),
        receiver_subscribes=asked_of_receivers(values),
        reader_policy=reader_policy(values),
        offer_timeout=_offer_timeout(values),
        writer_policy=writer_policy(values),
        batch=batch_policy(values),
        flow_controller=flow_controller_policy(values),
        flow_control=flow_control_policy(values),
        warnings=warnings,
    )


def _announces_type(values: Values) -> bool:
    word = values.word("type.announce")
    return not values.boolean("ros") if word == "auto" else word == "true"


def _offer_timeout(values: Values) -> int:
    given = values.integer_or_none("offer_timeout")
    return values.integer("max_blocking_time") if given is None else given


def _file(option: str, given: str | None) -> str | None:
    return None if given is None else str(path_of(option, given))


def _log_dir(given: str | None) -> Path:
    return default_log_dir() if given is None else path_of("log.dir", given).absolute()


#: Fields that have the value of an option with another name.
_RENAMED: Final = {
    "ros_distribution": "type.ros_distribution",
    "nullable_is_optional": "nullable",
    "column_paths": "columns",
    "corrupt_record": "columnNameOfCorruptRecord",
    "representation": "data_representation",
    "peers_allowed": "peers.allow",
    "ros_remaps": "ros.remap",
    "starting": "startingOffsets",
    "ending": "endingOffsets",
    "starting_time": "startingTimestamp",
    "ending_time": "endingTimestamp",
    "recording_since": "startingTime",
    "recording_until": "endingTime",
    "consumption": "flow_control.consumption",
    "interceptor": "batch.interceptor",
    "readers_allowed": "readers.allow",
}
#: Fields with an option's name whose values also depend on other options.
_OF_SEVERAL: Final = frozenset({"topic", "slice", "ros", "offer_timeout"})
#: Each option by the name of its field, such as ``max_rows_per_trigger`` for ``maxRowsPerTrigger``.
_BY_FIELD: Final = {
    re.sub("(?=[A-Z])", "_", spec.name).replace(".", "_").lower(): spec.name for spec in OPTIONS
}
#: The option of each field that has the value of one option.
FIELDS: Final[Mapping[str, str]] = {
    field.name: option
    for field in fields(Settings)
    if field.name not in _OF_SEVERAL and (option := _RENAMED.get(field.name) or _BY_FIELD.get(field.name))
}
_FILES: Final = (
    "serve_certificate",
    "serve_key",
    "receiver_token_file",
    "receiver_ca",
    "receiver_certificate",
    "receiver_key",
)
_TIMES: Final = ("starting_time", "ending_time", "recording_since", "recording_until")
#: Conversions of parsed option values to the values of fields.
_CONVERSIONS: Final[Mapping[str, Callable[[Any], object]]] = {
    "type_extensibility": lambda word: None if word == "auto" else Extensibility(word),
    "nullable_is_optional": lambda word: word == "optional",
    "event_time": lambda path: tuple(filter(None, (path or "").split("."))),
    "mode": Mode,
    "payload": Payload,
    "representation": representation,
    "trust": Trust,
    "multicast_receive": lambda group: group or "auto",
    "participant_name": lambda name: name or "",
    "log_dir": _log_dir,
    "log_mode": lambda digits: int(digits, 8),
    "log_retention_bytes": lambda limit: None if limit == INFINITE else limit,
    "retention_time": lambda duration: duration or 0,
    "receivers": receiver_addresses,
    "on_no_reader": OnNoReader,
    "multicast_send": lambda word: word == "auto",
    **{name: partial(_file, FIELDS[name]) for name in _FILES},
    **{name: partial(timestamp, FIELDS[name]) for name in _TIMES},
}
