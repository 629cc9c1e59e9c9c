"""A sample that a program serializes in its place in the publication log."""

from __future__ import annotations

from types import TracebackType

import numpy as np

from ..columns.key_columns import KeyColumns
from ..transport.errors import TransportError, UsageError
from ..transport.net.buffer_claim import BufferClaim
from ..transport.structure import KEY_HASH_BYTES
from ..transport.wire.samples import OPTIONS_LOW_BYTE

_HEADER_SIZE = 4


class Claim:
    """Space for one serialized sample, made by :meth:`Publication.try_claim`.

    Fill ``buffer``, then :meth:`commit` or :meth:`abort`. As a context manager it commits at the end, and aborts if
    there was an exception; it raises TransportError if the claim was given up before. Until then, samples written
    behind
    it are not sent; a forgotten claim is given up after the option ``unblock_timeout``.
    """

    def __init__(self, claim: BufferClaim, size: int, keys: KeyColumns | None) -> None:
        self._claim = claim
        self._size = size
        self._keys = keys
        #: It was committed, or aborted.
        self._is_done = False

    @property
    def buffer(self) -> memoryview:
        """The sample's bytes, writable: the encapsulation header of 4 bytes, and what follows it."""
        return memoryview(self._claim.data)[: self._size]

    @property
    def position(self) -> int:
        """The position behind the sample, in bytes of the publication log."""
        return self._claim.position

    def commit(self, key_hash: bytes | None = None) -> bool:
        """Declare the sample complete, so that it is sent.

        Args:
            key_hash: 16 bytes, for a topic with a key; default: computed from the sample.

        Returns:
            False if it was given up, because it took too long or the publication was closed, or was committed before.

        Raises:
            EncodeError: the sample's key does not decode. The claim is still open.
            UsageError: the key hash has not 16 bytes.
        """
        if self._is_done:
            return False  # its space may hold another sample by now
        data = self._claim.data
        padding = len(data) - self._size
        data[self._size :] = 0
        data[OPTIONS_LOW_BYTE] |= padding
        if key_hash is not None:
            if len(key_hash) != KEY_HASH_BYTES:
                raise UsageError(f"a key hash has {KEY_HASH_BYTES} bytes, not {len(key_hash)}")
            self._claim.key_hash = np.frombuffer(key_hash, np.uint8)
        elif self._keys is not None:
            self._claim.key_hash = self._keys.hash_of(data)
        self._is_done = True
        return self._claim.commit()

    def abort(self) -> None:
        """Give up the sample: readers learn that it will never come."""
        self._is_done = True
        self._claim.abort()

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_done:
            return
        if kind is not None:
            self.abort()
            return
        try:
            if not self.commit():
                raise TransportError(f"a claim of {self._size} bytes was given up: it was committed too late")
        except BaseException:
            self.abort()
            raise
