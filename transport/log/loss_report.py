"""The loss report of a receiver: the losses of each writer's stream, with their count and times (as Aeron's).

The file is one of :mod:`.observations`. The content of an entry is a writer's GUID and its topic, and behind a zero
byte the cause (:class:`..protocol.policies.LossCause`) unless it is NOT_RECEIVED; its amounts are samples and bytes.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from ..errors import RtpsError
from ..protocol.policies import LossCause
from ..structure import GUID_BYTES, Guid
from ..value_classes import value
from .observations import Observations, read_observations

_log = logging.getLogger("spark_rtps.receiver")

#: The name of the loss report in a stream log's directory.
LOSS_REPORT: Final = "loss_report"
_MAGIC: Final = b"rtpslos1"
#: Bytes of the file, enough for some thousand writers: peers can invent any number of them.
_SIZE: Final = 256 << 10
_TOPIC_MAX: Final = 256


@value
class Loss:
    """The losses of one writer's stream; times in ns since 1970.

    The size of a lost sample is unknown: ``nbytes`` is computed from the average sample of the stream. For losses by a
    damaged log ``writer`` is None, and ``unknown`` counts the observations without a number of samples.
    """

    writer: Guid | None
    topic: str
    observations: int
    samples: int
    nbytes: int
    first_ns: int
    last_ns: int
    cause: str = LossCause.NOT_RECEIVED
    unknown: int = 0


class LossReport:
    """The loss report at ``path``, made at the first loss. A failure to write it is logged, not raised."""

    def __init__(self, path: Path, *, size: int = _SIZE) -> None:
        self.path = path
        self._size = size
        self._file: Observations | None = None
        self._given_up = False

    def observe(
        self,
        writer: Guid,
        topic: str,
        samples: int,
        *,
        now: int,
        sample_bytes: int = 0,
        cause: LossCause = LossCause.NOT_RECEIVED,
    ) -> None:
        """Count ``samples`` lost samples of about ``sample_bytes`` each; ``now`` in ns since 1970."""
        if samples <= 0 or self._given_up:
            return
        try:
            if self._file is None:
                self._file = Observations.open(self.path, magic=_MAGIC, size=self._size)
        except (RtpsError, OSError) as error:
            self._given_up = True
            _log.warning("%s; losses of topic %r are not reported", error, topic)
            return
        content = writer.to_bytes() + topic.encode("utf-8", "replace")[:_TOPIC_MAX]
        if cause is not LossCause.NOT_RECEIVED:
            content += b"\0" + cause.encode()
        self._file.observe(content, now=now, amounts=(samples, samples * sample_bytes))


def read_loss_report(path: Path) -> tuple[list[Loss], int]:
    """The losses, oldest first, and the number of observations that did not fit; LogError if there is no report."""
    entries, overflow = read_observations(path, magic=_MAGIC)
    losses = []
    for e in entries:
        writer, named = Guid.from_bytes(e.content), e.content[GUID_BYTES:].decode("utf-8", "replace")
        topic, _, cause = named.partition("\0")
        cause = cause or LossCause.NOT_RECEIVED
        losses.append(Loss(writer, topic, e.observations, *e.amounts, e.first, e.last, cause))
    return losses, overflow
