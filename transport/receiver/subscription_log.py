"""The stream log of one subscription: made new, or gone on with."""

from __future__ import annotations

import logging
from pathlib import Path

from ..errors import LogError
from ..log.stream_log import StreamLog
from ..net.node_config import new_guid_prefix
from .config import ReceiverConfig

_log = logging.getLogger("spark_rtps.receiver")


def open_log(config: ReceiverConfig) -> StreamLog:
    """The log in the configured directory; raises LogError if it is another subscription's."""
    directory = Path(config.log_directory)
    if not StreamLog.exists(directory):
        return StreamLog.create(
            directory,
            max_bytes=config.log_max_bytes,
            segment_bytes=config.log_segment_bytes,
            mode=config.log_mode,
            metadata={
                "topic": config.topic,
                "type": config.type_name,
                "keyed": config.keyed,
                "guid_prefix": new_guid_prefix().hex(),
            },
        )
    log = StreamLog.open(directory, max_bytes=config.log_max_bytes, mode=config.log_mode)
    for damage in log.damage:
        _log.error("%s", damage)
    topic, type_name = log.metadata["topic"], log.metadata["type"]
    wanted = config.type_name or (type_name if log.rows else None)
    if topic != config.topic or (log.rows and type_name not in (None, wanted)):
        log.close()
        raise LogError(
            f"the log in {directory} is of topic {topic!r}, type {type_name!r}, not of topic "
            f"{config.topic!r}, type {wanted!r}: start the query with a new checkpoint location"
        )
    if type_name != wanted:  # nothing was received under that name
        try:
            log.amend(type=wanted, keyed=config.keyed)
        except LogError:
            log.close()
            raise
    return log
