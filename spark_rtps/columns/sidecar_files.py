"""What lies beside the frames of a stream log: the types of its writers, and the report of what became no rows."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ..monitoring.decoding_report import update_decoding_report
from ..monitoring.range_tally import RangeTally
from ..transport.receiver.writer_types import AnnouncedTypes, read_writer_types
from ..transport.value_classes import value


class Sidecar(Protocol):
    """Sidecar a log on this host, or on another one."""

    def writer_types(self) -> AnnouncedTypes:
        """What the log's writers told of their types."""

    def report(self, found: RangeTally) -> None:
        """Count what was found in a range; what cannot be counted fails no task."""


@value
class DirectorySidecar:
    """The files beside the log in ``directory``."""

    directory: Path

    def writer_types(self) -> AnnouncedTypes:
        return read_writer_types(self.directory)

    def report(self, found: RangeTally) -> None:
        update_decoding_report(self.directory, found.add_to)
