"""Why samples are lost, in the words of the loss report."""

from __future__ import annotations

import enum


class LossCause(enum.StrEnum):
    """Each lost sample has one of these; where several are possible, the one that is listed first."""

    #: Their writer sent them when it knew only the address at which the receiver had been.
    MOVED = "receiver moved"
    #: Their writer sent them while there was no receiver, and did not keep them.
    STOPPED = "receiver stopped"
    #: Their writer sent them while it was not matched, and did not keep them.
    OUT_OF_REACH = "writer out of reach"
    #: A reliable writer no longer had them in its history.
    HISTORY = "writer's history"
    #: A reliable writer left, or was silent for longer than its lease, before they were sent again; or a best-effort
    #: one in the middle of them.
    WRITER_GONE = "writer gone"
    #: Another sample of their coherent set is lost, or the set is too large.
    COHERENT_SET = "coherent set"
    #: The reader was too slow, and untethered: it let the writer go.
    UNTETHERED = "untethered"
    #: A best-effort writer's, and meanwhile the kernel dropped datagrams because a receive buffer was full.
    RECEIVE_BUFFER = "receive buffer full"
    #: A best-effort writer's that were lost before they reached a receive buffer.
    NOT_RECEIVED = "not received"
    #: They came while the log was full, and the user wants them dropped rather than their writer held back.
    LOG_FULL = "log full"
