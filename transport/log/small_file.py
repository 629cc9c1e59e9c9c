"""Small files that are replaced as a whole: a reader finds the old one or the new one, never a part."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

#: Ends the names of files that are not complete.
UNFINISHED: Final = ".new"


def replace_text(path: Path, text: str) -> None:
    """Write UTF-8 beside ``path``, then put it there. Raises OSError."""
    unfinished = path.with_name(path.name + UNFINISHED)
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)
