"""Hints what a user can do about a warning: facts are found here, their hints come from the parent.

The receiver does not know the names that settings have in the interface which started it. That interface sends a
sentence for each of the kinds below, and for each kind of mismatch (the word before the colon of a reason).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ..protocol.policies import LossCause

#: Samples were dropped because their source timestamps lie too far ahead of their reception.
FAR_AHEAD: Final = "FAR_AHEAD"
#: Samples were dropped because their LIFESPAN was over when they were received.
EXPIRED: Final = "EXPIRED"
#: A writer repeats its HEARTBEATs faster than its reader answers them.
SUPPRESSED_HEARTBEATS: Final = "SUPPRESSED_HEARTBEATS"
#: A reliable writer may have been restarted under the same GUID; its reader cannot tell.
DOUBTED: Final = "DOUBTED"
#: A spy finds no publication log of its topic.
NO_PUBLICATION_LOG: Final = "NO_PUBLICATION_LOG"
#: The log can never take what was received; the hint may use ``{needed}``.
LOG_FULL: Final = "LOG_FULL"
#: The log is nearly full, or full.
LOG_FILLS: Final = "LOG_FILLS"
#: Samples were dropped because the log was full.
LOG_DROPPED: Final = "LOG_DROPPED"
#: The disk of the log is full.
DISK_FULL: Final = "DISK_FULL"


def lost_for(cause: LossCause) -> str:
    """The kind of hint for samples that were lost for this cause."""
    return f"LOST_{cause.name}"


def with_hints(text: str, kinds: Iterable[str], hints: Mapping[str, str], **facts: object) -> str:
    """``text``, and in brackets the hints for these kinds."""
    found = [hints[kind].format(**facts) for kind in kinds if kind in hints]
    return f"{text} ({', '.join(found)})" if found else text


def reasons_with_hints(reasons: Sequence[str], hints: Mapping[str, str]) -> str:
    """The reasons of a mismatch as one sentence, with hints for them."""
    return with_hints("; ".join(reasons), (reason.partition(":")[0] for reason in reasons), hints)
