"""Removes logs that no longer belong to a subscription of a receiver service, by age and by size.

The log of a subscription that left the file stays, in case the subscription comes back, and a log that could not be
resumed stays as it is. Without a bound they would fill the disk of the other logs.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Final

from ..transport.log.host_clocks import Clocks
from ..transport.log.log_retention import remove_given_up
from ..transport.receiver.log_retention import PERIOD_SECONDS
from ..transport.structure import NANOSECONDS
from .config import ReceiverServiceConfig

_log = logging.getLogger("spark_rtps.receiver_service")

_PERIOD_NS: Final = int(PERIOD_SECONDS * NANOSECONDS)


class Cleaning:
    """Cleans one directory from time to time, in a pool of threads: removing gigabytes takes long."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._due = 0
        self._removing: Future[list[Path]] | None = None

    def do_work(self, config: ReceiverServiceConfig, *, in_use: Collection[str], now: int) -> list[str]:
        """Do what is due. Returns the names of the logs removed since; none of them was ``in_use``."""
        if self._removing is None:
            if now >= self._due:
                self._due = now + _PERIOD_NS
                self._removing = self._pool.submit(
                    remove_given_up,
                    config.directory,
                    now=Clocks.read_now(),
                    period=config.ended_logs_retention,
                    nbytes=config.ended_logs_bytes,
                    in_use=in_use,
                )
            return []
        if not self._removing.done():
            return []
        future, self._removing = self._removing, None
        removed = future.result()
        for directory in removed:
            _log.info("removed %s, a log without a subscription", directory)
        return [directory.name for directory in removed]
