"""Small files that are replaced as a whole: a reader finds the old file or the new one, never a part of one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from .permissions import create_file

#: The suffix of files that are not complete.
UNFINISHED: Final = ".new"


def replace_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 to a file beside ``path``, then rename that to ``path``. Raises OSError."""
    unfinished = path.with_name(path.name + UNFINISHED)
    with open(create_file(unfinished, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(unfinished, path)
