"""Where ranges of a log are served, in the form that travels to the tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

#: One answer holds no more of a log: longer ranges are refused.
RANGE_BYTES_MAX: Final = 64 << 20
#: The types that the writers of one log announce, as they are served.
WRITER_TYPES_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True)
class Served:
    """A log server: where it may be reached, and what lets a task in.

    ``addresses`` are ``host:port``, the likeliest first; ``ca`` is PEM text of what to trust, None: in the clear.
    ``network`` is the only one that reaches them (:mod:`.loopback`), None: others may as well.
    """

    addresses: tuple[str, ...]
    token: str = field(repr=False)
    ca: str | None = field(default=None, repr=False)
    #: PEM text of what the client shows of itself: a certificate and its key.
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    network: str | None = None
