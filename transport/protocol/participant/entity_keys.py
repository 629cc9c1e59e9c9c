"""The entity keys of a participant's endpoints: 24 bits of a GUID (RTPS 2.5 §9.3.1.2)."""

from __future__ import annotations

from itertools import chain
from typing import Final

from ...errors import UsageError
from ...structure import Guid

_KEY_MAX: Final = (1 << 24) - 1


class EntityKeys:
    """The keys in use, and the last one that was chosen automatically."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._keys: set[int] = set()
        self._last = 0

    def guid_of(self, key: int, kind: int) -> Guid:
        return Guid(self._prefix, key.to_bytes(3, "big") + bytes((kind,)))

    def new_guid(self, kind: int, key: int | None) -> Guid:
        """A GUID of this key; None: of any key that is free. Raises UsageError."""
        if key is None:
            # A key that was given back is reused last: peers may still know its previous endpoint.
            keys = chain(range(self._last + 1, _KEY_MAX + 1), range(1, self._last + 1))
            key = self._last = next((k for k in keys if k not in self._keys), 0)
        if not 0 < key <= _KEY_MAX or key in self._keys:
            raise UsageError(f"entity key {key} is in use, or not in 1..{_KEY_MAX}: choose another one")
        return self.guid_of(key, kind)

    def take(self, guid: Guid) -> None:
        self._keys.add(_key_of(guid))

    def give_back(self, guid: Guid) -> None:
        self._keys.discard(_key_of(guid))


def _key_of(guid: Guid) -> int:
    return int.from_bytes(guid.entity[:3], "big")
