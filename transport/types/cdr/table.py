"""Records side by side in a buffer: values at constant offsets are read and written one column at a time."""

from __future__ import annotations

import numpy as np

from .cursors import U8, Mask, Values


class Table:
    """Records at a constant stride in some buffer; columns are read, or written, through strided views."""

    __slots__ = ("data", "order", "owned", "rows", "start", "stride", "wrong")

    def __init__(
        self, data: U8, rows: int, start: int, stride: int, order: str, *, owned: bool = False
    ) -> None:
        self.data = data
        self.rows = rows
        self.start = start
        self.stride = stride
        self.order = order
        self.owned = owned  # whether arrays may keep the buffer
        self.wrong: list[tuple[Mask, str]] = []  # records with values that do not exist

    def column(self, code: str, offset: int, repeats: tuple[tuple[int, int], ...] = ()) -> Values:
        """A (rows, *lengths) view; ``repeats`` has length and stride of each array around the value."""
        shape = (self.rows, *(length for length, _ in repeats))
        strides = (self.stride, *(stride for _, stride in repeats))
        if 0 in shape:
            return np.empty(shape, self.order + code)
        return np.ndarray(shape, self.order + code, self.data, self.start + offset, strides)

    def mark(self, bad_values: Mask, reason: str) -> None:
        self.wrong.append((np.logical_or.reduce(bad_values.reshape(self.rows, -1), axis=1), reason))
