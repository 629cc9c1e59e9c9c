"""The sidecar files of a stream log: the types of its writers, and the report of samples that became no rows."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ..monitoring.decoding_report import update_decoding_report
from ..monitoring.range_tally import RangeTally
from ..transport.receiver.writer_types import AnnouncedTypes, read_writer_types
from ..transport.value_classes import value


class Sidecar(Protocol):
    """The sidecar files of a log on this host or on another one."""

    def writer_types(self) -> AnnouncedTypes:
        """The types that the log's writers announced."""

    def report(self, found: RangeTally) -> None:
        """Add the counts of a range to the report. A failure to do so fails no task."""


@value
class DirectorySidecar:
    """The sidecar files in the log's ``directory``."""

    directory: Path

    def writer_types(self) -> AnnouncedTypes:
        return read_writer_types(self.directory)

    def report(self, found: RangeTally) -> None:
        update_decoding_report(self.directory, found.add_to)
