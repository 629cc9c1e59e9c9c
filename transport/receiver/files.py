"""The names of a receiver's own files, which lie beside its log."""

from __future__ import annotations

from typing import Final

COUNTERS_FILE: Final = "counters"
#: Why a receiver ended, in words, and on the last line the facts of that error as JSON.
ERROR_FILE: Final = "error"
#: Why no writer matches the reader of a batch read, in words.
UNMATCHED_FILE: Final = "unmatched"
