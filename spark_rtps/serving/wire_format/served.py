"""Where ranges of a log are served, in the form that tasks get."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

#: The longest range of one answer; longer ones are refused.
RANGE_BYTES_MAX: Final = 64 << 20
#: The size of the announced types of one log's writers.
WRITER_TYPES_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True)
class Served:
    """A log server: its addresses, and what admits a task.

    ``addresses`` are ``host:port``, the likeliest first; ``ca`` is PEM text of what to trust, None: in the clear.
    ``network`` is the only network that reaches them (:mod:`.loopback`), None: others may as well.
    """

    addresses: tuple[str, ...]
    token: str = field(repr=False)
    ca: str | None = field(default=None, repr=False)
    #: PEM text of the client's own certificate and its key.
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    network: str | None = None
