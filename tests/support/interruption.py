"""An exception in place of any line of the product, as KeyboardInterrupt comes."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from types import FrameType


class Interrupted(BaseException):
    """As KeyboardInterrupt, which comes anywhere."""


class Interruption:
    """Raises :class:`Interrupted` once, in place of the ``line``-th line that runs in the ``files``: parts of their
    paths, but for those with one of ``but``."""

    def __init__(self, line: int, files: tuple[str, ...], *, but: tuple[str, ...] = ()) -> None:
        self._left = line
        self._files = files
        self._but = but

    @property
    def is_due(self) -> bool:
        """Whether nothing was raised yet."""
        return self._left > 0

    def run(self, step: Callable[[], object]) -> None:
        """Take a step, which may be stopped."""
        sys.settrace(self._trace if self.is_due else None)
        try:
            step()
        except Interrupted:
            pass
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _argument: object) -> object:
        name = frame.f_code.co_filename
        if not any(each in name for each in self._files) or any(each in name for each in self._but):
            return None
        # The interpreter lets no signal in between the body of a `with` and its end.
        if event == "line" and not linecache.getline(name, frame.f_lineno).lstrip().startswith("with "):
            self._left -= 1
            if not self._left:
                raise Interrupted
        return self._trace
