"""OWNERSHIP EXCLUSIVE: which writer may change an instance (DDS 1.4 §2.2.3.9.2).

The owner is the strongest live writer of the instance; among equally strong ones, the writer with the lowest GUID.
It is determined as writers write. An owner that is gone, unregistered the instance or missed its deadline loses it to
the next writer that writes, and gets it back by writing if it is stronger.

Where OWNERSHIP is SHARED, the "owner" is the writer that wrote last; nothing is refused.

Invariant: ``owner`` of a row is NOBODY or the number of a writer in ``_numbers``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from ....qos import Qos
from ....structure import Guid
from ....wire.samples import I64
from ...instances import Bools, InstanceTable

NOBODY: Final = -1


class Ownership:
    """The owner of each row of an instance table; the rows have the fields ``owner`` and ``lapsed``."""

    def __init__(
        self, instances: InstanceTable, writer_qos: Callable[[Guid], Qos | None], *, exclusive: bool
    ) -> None:
        self.exclusive = exclusive
        self._instances = instances
        self._writer_qos = writer_qos
        self._numbers: dict[Guid, int] = {}
        self._guids: dict[int, Guid] = {}
        self._free: list[int] = []

    def admits(self, writer: Guid, rows: I64) -> Bools:
        """Mask of the instances that the writer owns, or can own now."""
        admitted = np.ones(len(rows), np.bool_)
        if not self.exclusive:
            return admitted
        state = self._instances.rows[rows]
        rivals = np.where(state["lapsed"], NOBODY, state["owner"])
        mine = self._numbers.get(writer, NOBODY)
        for rival in np.unique(rivals).tolist():
            if rival not in (NOBODY, mine) and not self._outranks(writer, self._guids[rival]):
                admitted &= rivals != rival
        return admitted

    def take_over(self, writer: Guid, rows: I64) -> None:
        """The writer owns these instances from now on."""
        if not len(rows):
            return
        number = self._numbers.get(writer)
        if number is None:
            number = self._numbers[writer] = self._free.pop() if self._free else len(self._numbers)
            self._guids[number] = writer
        table = self._instances.rows
        table["owner"][rows] = number
        table["lapsed"][rows] = False

    def is_owner(self, writer: Guid, rows: I64) -> Bools:
        """Mask of the instances that belong to the writer or to no writer."""
        owners = self._instances.rows["owner"][rows]
        return np.isin(owners, (NOBODY, self._numbers.get(writer, NOBODY)))

    def give_up(self, rows: I64) -> None:
        """The owner unregistered these instances."""
        self._instances.rows["owner"][rows] = NOBODY

    def lapse(self, rows: I64) -> None:
        """The owner missed its deadline for these instances: the next writer that writes gets them."""
        self._instances.rows["lapsed"][rows] = True

    def lose(self, writer: Guid) -> I64:
        """The writer is gone; returns the rows it owned."""
        number = self._numbers.pop(writer, None)
        if number is None:
            return np.zeros(0, np.int64)
        del self._guids[number]
        self._free.append(number)
        rows = np.flatnonzero(self._instances.used["owner"] == number)
        self.give_up(rows)
        return rows

    def _outranks(self, writer: Guid, other: Guid) -> bool:
        theirs = self._writer_qos(other)
        if theirs is None:  # no longer matched
            return True
        own = self._writer_qos(writer)
        strength = 0 if own is None else own.ownership_strength
        if strength != theirs.ownership_strength:
            return strength > theirs.ownership_strength
        return writer < other
