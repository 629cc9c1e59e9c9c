"""What an ACKNACK reports, whether it counts in samples or in batches."""

from __future__ import annotations

from typing import Protocol


class Missing(Protocol):
    """All samples below ``base`` are acknowledged, those of ``ranges()`` are requested."""

    @property
    def base(self) -> int: ...
    @property
    def is_empty(self) -> bool: ...
    def ranges(self) -> list[tuple[int, int]]: ...
