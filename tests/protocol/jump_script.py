"""What a scripted reader says and counts of sequence numbers that jump."""

from __future__ import annotations

from spark_rtps.transport.protocol.reading.jumps import JumpKind
from spark_rtps.transport.wire.submessages import AckNack
from tests.protocol.reader_script import MS, Script

FAR = 10**12
SECOND = 1_000 * MS


def kinds(s: Script) -> list[JumpKind]:
    return [each.kind for each in s.reader.take_jumps()]


def bases(s: Script) -> list[int]:
    return [each.missing.base for each in s.said() if isinstance(each, AckNack)]
