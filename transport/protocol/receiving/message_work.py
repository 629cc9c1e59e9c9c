"""The processing cost of the parts of a message (:mod:`.message_receiver`), in units of about a microsecond."""

from __future__ import annotations

from typing import Final

from ...wire.batch import DATA_BATCH
from ...wire.compressed import COMPRESSED
from ...wire.status_messages import RttMeasurement, StatusMessage
from ...wire.submessages import (
    AckNack,
    AckNackBatch,
    Data,
    DataFrag,
    Gap,
    Heartbeat,
    HeartbeatBatch,
    HeartbeatFrag,
    NackFrag,
)

#: A submessage of each kind; kinds that are not listed: 1.
WORK: Final = {
    Data.KIND: 24,
    DATA_BATCH: 40,
    COMPRESSED: 20,
    DataFrag.KIND: 40,
    Heartbeat.KIND: 10,
    HeartbeatBatch.KIND: 10,
    HeartbeatFrag.KIND: 8,
    Gap.KIND: 10,
    AckNack.KIND: 12,
    AckNackBatch.KIND: 12,
    NackFrag.KIND: 8,
    StatusMessage.KIND: 10,
    RttMeasurement.KIND: 8,
}
#: A sample of a built-in writer.
WORK_ENDPOINT: Final = 200
#: A participant's announcement.
WORK_PARTICIPANT: Final = 1_000
#: A DATA_FRAG of several that are processed together.
WORK_FRAGMENTS: Final = 20
#: A range of a number set.
WORK_RANGE: Final = 2
#: A batch that skips numbers, in addition to its submessage.
WORK_PIECES: Final = 160
#: A run of fewer than ``SHORT`` samples: comparing their shapes costs more.
WORK_SHORT: Final = 60
SHORT: Final = 8
#: Bytes per unit of cost where the kernel allocates memory; for other bytes see `wire.batch_scan`.
BYTES_PER_WORK_CLEARED: Final = 16_384
#: Work after which the burst receiver gives way to other work, between runs that span datagrams.
RUNS_WORK: Final = 2_000
