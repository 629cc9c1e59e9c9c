"""The environment of Python processes which tests start: they can import this checkout and its tests."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def child_environment(**more: str) -> dict[str, str]:
    """This process's environment with this checkout first on PYTHONPATH and ``more`` variables."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **more}
