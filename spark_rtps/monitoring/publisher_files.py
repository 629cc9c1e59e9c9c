"""The names of the files that :mod:`.publisher_counters` describes."""

from __future__ import annotations

from typing import Final

FOLDER: Final = "publishers"
COUNTERS_SUFFIX: Final = ".counters"
METADATA_SUFFIX: Final = ".json"
