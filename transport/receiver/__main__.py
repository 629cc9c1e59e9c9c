"""``python -m spark_rtps.transport.receiver``: the process that :class:`.process.ReceiverProcess` starts.

The configuration comes on the first line of standard input, and one line answers it. Standard input stays open while
the parent lives: its end means that the parent died (the participant is not disposed, so that a successor can resume),
the line ``stop`` means an orderly end.

A user's plug-in runs in this process, too. Its output goes to standard error, and it has no standard input: both pipes
belong to the parent alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TextIO

from ..errors import LogFullError, RtpsError
from ..log.error_log import ERROR_LOG, log_errors
from ..log.small_file import replace_text
from .config import ERROR_FILE, ReceiverConfig
from .host import Host, StopRequest
from .log_lines import log_lines_to
from .log_retention import start_log_retention

_log = logging.getLogger("spark_rtps.receiver")


def main() -> int:
    """Run one receiver until its parent stops it; returns the exit status."""
    log_lines_to(logging.StreamHandler())
    commands, answers = _own_pipes()
    given = commands.readline()
    if not given:
        return 0  # the process was prepared, and no receiver was needed
    config = ReceiverConfig.from_json(given)
    directory = Path(config.log_directory)
    log_errors(lambda: directory / ERROR_LOG)
    stop = StopRequest()
    signal.signal(signal.SIGTERM, lambda *_: stop.make(dispose=True))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        host = Host.open(config, stop)
    except (RtpsError, OSError) as error:
        _answer(answers, {"error": str(error), "kind": type(error).__name__, "facts": _facts(error)})
        return 1
    signal.signal(signal.SIGTERM, lambda *_: host.stop(dispose=True))
    _answer(answers, {"ready": True})
    answers.close()
    threading.Thread(target=_watch_parent, args=(host, commands), name="rtps-parent", daemon=True).start()
    start_log_retention(config)
    try:
        host.run()
    except Exception as error:
        _log.critical("the receiver ends: %s: %s", type(error).__name__, error)
        # Writers wait for a successor on the log, but not where the receiver ends so that they need not wait.
        host.stop(dispose=isinstance(error, LogFullError))
        try:
            host.close(keep_log=True)  # frees descriptors, which may be short
        except (RtpsError, OSError) as failure:
            _log.critical("closing the receiver failed: %s", failure)
        with contextlib.suppress(OSError):
            replace_text(
                directory / ERROR_FILE, f"{type(error).__name__}: {error}\n{json.dumps(_facts(error))}"
            )
        raise
    host.close()
    return 0


def _own_pipes() -> tuple[TextIO, TextIO]:
    """The pipes from and to the parent, under descriptors that no other code knows."""
    commands, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # standard output is closed
        os.dup2(nothing, 1)
    os.close(nothing)
    return commands, answers


def _answer(answers: TextIO, message: dict[str, object]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _facts(error: Exception) -> dict[str, str | int]:
    return {name: fact for name, fact in vars(error).items() if isinstance(fact, str | int)}


def _watch_parent(host: Host, commands: TextIO) -> None:
    line = commands.readline()
    host.stop(dispose=line.strip() == "stop")


if __name__ == "__main__":
    sys.exit(main())
