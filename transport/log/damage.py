"""What of a stream log cannot be read any more, by name."""

from __future__ import annotations

from pathlib import Path

from ..errors import LogDamagedError
from ..structure import Guid
from ..value_classes import value


@value
class Damage:
    """Bytes [position, stop) of the log at ``path`` that are lost, and as much as is known of what they held.

    ``rows`` is how many samples they held, ``writer`` whose they are, ``first_sn`` the first sequence number. None: it
    cannot be told.
    """

    path: Path
    position: int
    stop: int
    rows: int | None = None
    writer: Guid | None = None
    first_sn: int | None = None

    @property
    def nbytes(self) -> int:
        return self.stop - self.position

    def __str__(self) -> str:
        rows = "an unknown number of samples" if self.rows is None else f"{self.rows} samples"
        whose = "" if self.writer is None else f" of writer {self.writer}"
        first = "" if self.first_sn is None else f" from sequence number {self.first_sn} on"
        return (
            f"the log in {self.path} is damaged at position {self.position}: {rows}{whose}{first} are lost, "
            f"{self.nbytes} bytes up to position {self.stop}"
        )

    def error(self) -> LogDamagedError:
        """The error to raise where damage is not gone past."""
        return LogDamagedError(
            str(self),
            path=self.path,
            position=self.position,
            stop=self.stop,
            rows=self.rows,
            writer=self.writer,
            first_sn=self.first_sn,
        )
