"""The stream log of a receiver before its first start."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ..log.segment import JSON
from ..log.stream_log import StreamLog
from ..net.node_config import new_guid_prefix
from .config import ReceiverConfig
from .writer_types import HAS_WRITER_TYPES

#: Key in the metadata of a log of several topics: the readers that its receiver has made.
READERS: Final = "readers"


def where_from(config: ReceiverConfig) -> dict[str, JSON]:
    """The writers that a log holds samples of, as its metadata has them; samples of other writers are not its own."""
    return {"domain": config.node.domain, "partition": [*sorted({*config.qos.partition} or {""})]}


def selected_by(config: ReceiverConfig) -> dict[str, JSON]:
    """The selection among their samples, as the log's metadata has it."""
    expression, parameters = config.filter or (None, ())
    return {
        "filter": expression,
        "filter_parameters": [*parameters],
        "slice": None if config.slice is None else str(config.slice),
    }


def create_log(config: ReceiverConfig) -> StreamLog:
    """A new, empty log in the configured directory, with the GUID prefix that its receiver will have.

    Raises LogError.
    """
    several: dict[str, JSON] = {} if config.topics is None else {READERS: []}
    return StreamLog.create(
        Path(config.log_directory),
        max_bytes=config.log_max_bytes,
        segment_bytes=config.log_segment_bytes,
        mode=config.log_mode,
        metadata={
            "topic": config.topic,
            "type": config.type_name,
            "keyed": config.keyed,
            "guid_prefix": new_guid_prefix().hex(),
            HAS_WRITER_TYPES: config.records_writer_types,
            **where_from(config),
            **selected_by(config),
            **several,
        },
    )
