"""The common parts of the built-in endpoints: reliable, transient-local, one sample kept per instance."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...limits import MESSAGE_SIZE_MAX
from ...qos import DurabilityKind, Qos, ReliabilityKind
from ...structure import INFINITE, Guid
from ...wire.samples import NO_TIMESTAMP, Samples
from ..endpoint_info import ReaderInfo, WriterInfo
from ..policies import WriterPolicy
from ..reading.reader import StatefulReader
from ..writing.writer import StatefulWriter
from .remote_participant import RemoteParticipant

#: RTPS 2.5 §8.5.4.2. KEEP_LAST 1 is per instance: late joiners get each endpoint once, in its current state.
BUILTIN_QOS: Final = Qos(reliability=ReliabilityKind.RELIABLE, durability=DurabilityKind.TRANSIENT_LOCAL)

#: Announcements are never held back, and every announcement requests an acknowledgement.
BUILTIN_POLICY: Final = WriterPolicy(send_window_bytes=INFINITE, heartbeats_per_max_samples=INFINITE)
#: Sequence numbers reserved for each incarnation, so that peers which still know us from before a restart under the
#: same GUID accept its announcements as new. There are no more of them, because Fast DDS 2 counts one by one up to a
#: writer's first number.
_SNS_PER_INCARNATION: Final = 1 << 14


def first_sn(incarnation: int) -> int:
    """The first sequence number of a built-in writer."""
    return 1 + incarnation * _SNS_PER_INCARNATION


def builtin_writer(
    prefix: bytes, entity: bytes, *, message_size: int = MESSAGE_SIZE_MAX, incarnation: int = 0
) -> StatefulWriter:
    return StatefulWriter(
        Guid(prefix, entity),
        BUILTIN_QOS,
        policy=BUILTIN_POLICY,
        message_size=message_size,
        first_sn=first_sn(incarnation),
    )


def builtin_reader(prefix: bytes, entity: bytes) -> StatefulReader:
    return StatefulReader(Guid(prefix, entity), BUILTIN_QOS)


def write_one(writer: StatefulWriter, payload: bytes, key_hash: bytes, *, flags: int = 0, now: int) -> None:
    """Write one sample of a built-in topic."""
    samples = Samples.uniform(np.frombuffer(payload, np.uint8), 1, len(payload))
    hashes = np.frombuffer(key_hash, np.uint8).reshape(1, 16)
    writer.write_samples(samples, timestamp=NO_TIMESTAMP, now=now, flags=flags, key_hashes=hashes)


def match_writer(reader: StatefulReader, remote: RemoteParticipant, writer_id: bytes, *, now: int) -> None:
    """Match a built-in reader of ours with its counterpart."""
    guid = Guid(remote.prefix, writer_id)
    info = WriterInfo(
        guid,
        remote.unicast,
        (),
        reliable=True,
        transient_local=True,
        preemptive_base=remote.preemptive_base,
    )
    reader.match_writer(info, now=now)


def match_reader(writer: StatefulWriter, remote: RemoteParticipant, reader_id: bytes, *, now: int) -> None:
    """Match a built-in writer of ours with its counterpart."""
    guid = Guid(remote.prefix, reader_id)
    writer.match_reader(ReaderInfo(guid, remote.unicast, (), reliable=True, transient_local=True), now=now)
