"""What ``spark-rtps stat`` sees at one time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..monitoring.stream_counters import Stream


@dataclass(frozen=True, slots=True)
class Look:
    """The streams at one time, and how many samples and bytes a second each had since the look before."""

    directories: list[Path]
    at: int
    streams: list[Stream]
    rates: dict[Path, float] = field(default_factory=dict)
    byte_rates: dict[Path, float] = field(default_factory=dict)

    def shown(self, *, everything: bool) -> list[Stream]:
        """All streams, or those that have not ended."""
        from ..monitoring.stream_counters import State

        return [s for s in self.streams if everything or s.state is not State.ENDED]
