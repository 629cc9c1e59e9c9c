"""The partitions of a micro-batch: ranges of logs, and where tasks on other hosts fetch them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from ..options import Settings
from ..transport.errors import LogError
from ..transport.log.frame import Cursor
from ..transport.log.log_view import LogView
from ..transport.log.segment import list_segments
from .offset_checks import describe_cursor
from .range_calculator import LogPartition, plan_partitions
from .range_serving import RangeServing

_log = logging.getLogger("spark_rtps.datasource")


class PartitionPlanner:
    """Plans ranges of the logs of one query, which are served to tasks as long as the query runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.serving = RangeServing(settings)

    def plan_range(self, directory: Path, begin: Cursor, end: Cursor) -> list[LogPartition]:
        """The partitions of [begin, end) of the log in ``directory``."""
        return plan_partitions(
            directory,
            begin,
            end,
            min_partitions=self._settings.min_partitions,
            host=os.uname().nodename,
            served=self.serving.served(directory.name),
        )

    def plan_lost(self, log: str, begin: Cursor, end: Cursor | None = None) -> list[LogPartition]:
        """The part of [begin, end) that is still readable in a lost log; without ``end`` all from ``begin`` on.

        No receiver appends to it any more, so that this does not change.
        """
        directory = self._settings.log_dir / log
        try:
            view, held = LogView(directory), list_segments(directory)
            last = Cursor(view.end) if end is None else min(end, Cursor(view.end))
            begin = max(begin, Cursor(held[0].base)) if held else last
            if begin < last and not view.is_frame(begin.position):
                begin = Cursor(view.next_frame(begin.position))
            found = self.plan_range(directory, begin, last)
        except (LogError, OSError) as error:
            _log.info("%s: no part of the log can be read: %s", directory, error)
            return []
        if found:
            _log.warning(
                "reading the rest of the lost log, from %s to %s: %s",
                describe_cursor(begin),
                describe_cursor(last),
                log,
            )
        return found
