"""The stream log of a receiver: made new, or resumed."""

from __future__ import annotations

import logging
from pathlib import Path

from ..errors import LogError, LogLostError
from ..log.segment import JSON
from ..log.stream_log import StreamLog
from .config import ReceiverConfig
from .new_log import READERS, create_log, selected_by, where_from
from .writer_types import HAS_WRITER_TYPES

_log = logging.getLogger("spark_rtps.receiver")


def open_log(config: ReceiverConfig) -> StreamLog:
    """The log in the configured directory.

    Raises LogError if it is another subscription's, LogLostError if it is lost, or if it ends before the position that
    was read and must not be resumed behind that.
    """
    directory = Path(config.log_directory)
    if not StreamLog.exists(directory):
        if config.log_reached:
            raise LogLostError(
                f"there is no stream log {directory}, but it was read up to position {config.log_reached}",
                path=directory,
                position=config.log_reached,
            )
        return create_log(config)
    log = StreamLog.open(
        directory,
        max_bytes=config.log_max_bytes,
        mode=config.log_mode,
        reached=config.log_reached if config.log_goes_on_behind_loss else 0,
    )
    for damage in log.damage:
        _log.error("%s", damage)
    if log.position < config.log_reached:
        log.close()
        raise LogLostError(
            f"the log in {directory} ends at position {log.position}, but was read up to position {config.log_reached}",
            path=directory,
            position=config.log_reached,
        )
    topic, type_name = log.metadata["topic"], log.metadata["type"]
    wanted = config.type_name or (type_name if log.rows else None)
    is_several = READERS in log.metadata
    is_other = is_several is (config.topics is None) or not (is_several or topic == config.topic)
    if is_other or (log.rows and type_name not in (None, wanted)):
        log.close()
        raise LogError(
            f"the log in {directory} is of topic {topic!r}, type {type_name!r}, not of topic "
            f"{config.topic!r}, type {wanted!r}: start the query with a new checkpoint location"
        )
    amended: dict[str, JSON] = {}
    try:
        amended |= _origin(log, config)
    except LogError:
        log.close()
        raise
    if topic != config.topic:  # each row records its topic
        amended["topic"] = config.topic
    if type_name != wanted:  # no sample was received under that name
        amended |= {"type": wanted, "keyed": config.keyed}
    if log.metadata.get(HAS_WRITER_TYPES) and not config.records_writer_types:
        amended[HAS_WRITER_TYPES] = False
    if amended:
        try:
            log.amend(**amended)
        except LogError:
            log.close()
            raise
    return log


def _origin(log: StreamLog, config: ReceiverConfig) -> dict[str, JSON]:
    """The changes that the metadata of a log of other writers, or other samples, needs.

    Raises LogError if it holds samples of writers that this receiver does not receive: a consumer would take them for
    samples of those that it does.
    """
    amended: dict[str, JSON] = {}
    for name, value in where_from(config).items():
        known = log.metadata.get(name)
        if known == value:
            continue
        amended[name] = value
        if name in log.metadata and log.rows:
            raise LogError(
                f"the log in {log.directory} holds samples of {name} {known!r}, not of {name} {value!r}: set {name} as "
                "it was (where sources of a union share a topic: in the order that they had), or start the query with "
                "a new checkpoint location"
            )
    for name, value in selected_by(config).items():
        known = log.metadata.get(name)
        if known == value:
            continue
        amended[name] = value
        if name in log.metadata and log.rows:
            _log.warning(
                "the log in %s: samples up to position %d were received with %s=%r, and those that follow with %r",
                log.directory,
                log.position,
                name,
                known,
                value,
            )
    return amended
