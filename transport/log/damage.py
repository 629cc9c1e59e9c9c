"""The parts of a stream log that cannot be read any more."""

from __future__ import annotations

from pathlib import Path

from ..errors import LogDamagedError
from ..structure import Guid
from ..value_classes import value


@value
class Damage:
    """Bytes [position, stop) of the log at ``path`` that are lost, and the known facts about their samples.

    ``rows`` is their number, ``writer`` their writer, ``first_sn`` the first sequence number. None: unknown.
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
        """The error to raise if damage is not skipped."""
        return LogDamagedError(
            str(self),
            path=self.path,
            position=self.position,
            stop=self.stop,
            rows=self.rows,
            writer=self.writer,
            first_sn=self.first_sn,
        )
