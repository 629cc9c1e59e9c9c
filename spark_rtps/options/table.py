"""Every option of the ``rtps`` data source: one table for parsing, for the documents and for the command line.

DDS policies have DDS's own names in snake_case with dots; what Spark users know from other sources has
Spark's names in camelCase. Defaults are written the way a user would write them.
"""

from __future__ import annotations

from typing import Final

from .spec import OptionSpec
from .table_batch import BATCH_OPTIONS
from .table_flow import FLOW_OPTIONS
from .table_process import PROCESS_OPTIONS
from .table_qos import QOS_OPTIONS
from .table_receivers import RECEIVER_OPTIONS
from .table_recordings import RECORDING_OPTIONS
from .table_reliable import RELIABLE_OPTIONS
from .table_ros import ROS_OPTIONS
from .table_topic import TOPIC_OPTIONS
from .table_type import TYPE_OPTIONS

OPTIONS: Final[tuple[OptionSpec, ...]] = (
    *TOPIC_OPTIONS,
    *TYPE_OPTIONS,
    *QOS_OPTIONS,
    *BATCH_OPTIONS,
    *RELIABLE_OPTIONS,
    *FLOW_OPTIONS,
    *PROCESS_OPTIONS,
    *RECEIVER_OPTIONS,
    *RECORDING_OPTIONS,
    *ROS_OPTIONS,
)

BY_KEY: Final[dict[str, OptionSpec]] = {spec.name.lower(): spec for spec in OPTIONS}

#: Options that a participant decides for all its readers and writers.
PARTICIPANT_OPTIONS: Final = (
    "domain",
    "interface",
    "peers",
    "peers.allow",
    "trust",
    "multicast",
    "multicast.receive",
    "multicast.ttl",
    "multicast.interface",
    "participant.name",
    "participant.lease_duration",
    "receive_buffer",
    "send_buffer",
    "mtu",
    "message_size_max",
    "ipc",
    "ros",
    "ros.node",
    "ros.namespace",
    "ros.remap",
)

#: Keys that Spark itself puts among a source's or sink's options.
SPARK_KEYS: Final = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})
