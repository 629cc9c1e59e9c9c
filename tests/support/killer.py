"""Processes that kill themselves at a place in the code.

At some line of some call of a function, lines of ours counted from its first one and through whatever it calls; at its
return, if it has less. No product code knows of it: the trace function of the interpreter finds the place.

``python -m tests.support.killer MODULE QUALNAME CALL LINE`` runs the ``main()`` of a module so. Processes that others
start read ``QUALNAME CALL LINE`` from the file that ``KILL_AT`` names, where :func:`customization` is on their path.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

OURS = f"{Path(__file__).resolve().parents[2]}/"


class Killer:
    """The trace function; what is not inside the call is only looked at when it is called."""

    def __init__(self, qualname: str, call: int, line: int) -> None:
        self._qualname = qualname
        self._calls_left = call
        self._lines_left = line
        self._frame: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Any:
        code = frame.f_code
        if self._frame is not None:
            return self._inside if code.co_filename.startswith(OURS) else None
        if code.co_qualname == self._qualname and code.co_filename.startswith(OURS):
            self._calls_left -= 1
            if not self._calls_left:
                self._frame = frame
                return self._inside
        return None

    def _inside(self, frame: FrameType, event: str, _argument: object) -> Any:
        self._lines_left -= event == "line"
        if not self._lines_left or (event == "return" and frame is self._frame):
            os.kill(os.getpid(), signal.SIGKILL)
        return self._inside


def arm(qualname: str, call: str, line: str) -> None:
    """From now on, in this thread."""
    sys.settrace(Killer(qualname, int(call), int(line)))


def arm_from_file() -> None:
    place = Path(os.environ["KILL_AT"])
    if place.exists() and (words := place.read_text().split()):
        arm(*words)


def customization(directory: Path) -> Path:
    """A folder for PYTHONPATH: Python processes that start with it kill themselves."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(
        "from tests.support.killer import arm_from_file\n\narm_from_file()\n"
    )
    return directory


if __name__ == "__main__":
    module = importlib.import_module(sys.argv[1])
    arm(*sys.argv[2:])
    sys.exit(module.main())
