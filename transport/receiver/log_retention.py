"""Removal of old logs by a receiver: the ended logs beside its own, at its start and from time to time.

A new query has removed old logs already. A query that a schedule restarts on its checkpoint, for minutes each time, has
them removed only here.
time, has its logs removed here alone.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

from ..log.host_clocks import Clocks
from ..log.log_retention import remove_given_up
from .config import ReceiverConfig

_log = logging.getLogger("spark_rtps.receiver")

PERIOD_SECONDS: Final = 600.0


def start_log_retention(config: ReceiverConfig, *, period: float = PERIOD_SECONDS) -> threading.Event | None:
    """Remove old logs now and every ``period`` seconds, in a thread: removing gigabytes takes longer than a receiver
    may pause.

    Nothing is removed, and None returned, without ``config.ended_logs_period_ns``. The thread ends when the event is
    set, or with the process.
    """
    if config.ended_logs_period_ns is None:
        return None
    end = threading.Event()
    threading.Thread(target=_clean, args=(config, period, end), name="rtps-cleaning", daemon=True).start()
    return end


def _clean(config: ReceiverConfig, period: float, end: threading.Event) -> None:
    assert config.ended_logs_period_ns is not None
    while not end.is_set():
        for removed in remove_given_up(
            Path(config.log_directory).parent,
            now=Clocks.read_now(),
            period=config.ended_logs_period_ns,
            nbytes=config.ended_logs_bytes,
        ):
            _log.info("removed the ended log %s", removed)
        end.wait(period)
