"""A bare publication, without RTPS, and the agents that work on it, each with a duty cycle of its own (Aeron's).

Four things happen to a publication, from any threads and in any order: the application offers or claims, the
sender sends, a status message arrives, the conductor moves the publisher's limit, cleans and unblocks. They meet
only in the log's frames and in positions of which each has one writer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.log.publication_log import (
    ADMIN_ACTION,
    BACK_PRESSURED,
    CLOSED,
    MAX_POSITION_EXCEEDED,
    Claim,
    PublicationLog,
    PublicationResult,
)
from spark_rtps.transport.log.term_frames import HEADER_BYTES, Frame
from spark_rtps.transport.protocol.writing.positions import PublicationPositions

__all__ = [
    "Publication",
    "PublicationResult",
    "NOT_CONNECTED",
    "BACK_PRESSURED",
    "ADMIN_ACTION",
    "CLOSED",
    "MAX_POSITION_EXCEEDED",
    "PublicationCounters",
    "Sender",
    "Conductor",
    "Transmit",
    "UNBLOCK_TIMEOUT",
]

NOT_CONNECTED: Final = PublicationResult.NOT_CONNECTED
#: How long a claim may stay uncommitted while the sender waits for it: 15 s.
UNBLOCK_TIMEOUT: Final = 15_000_000_000
#: Sends whole frames, in order. False: not all of them; they will come again.
Transmit: TypeAlias = Callable[[Sequence[Frame]], bool]


@dataclass(slots=True)
class PublicationCounters:
    """What happened to all publications of an agent's process (Aeron's system counters)."""

    short_sends: int = 0
    sender_flow_control_limits: int = 0
    unblocked_publications: int = 0


class Publication:
    """One log with its positions. The writer's threads offer and claim; the agents do the rest."""

    def __init__(
        self,
        log: PublicationLog,
        positions: PublicationPositions | None = None,
        *,
        unblock_timeout: int = UNBLOCK_TIMEOUT,
        counters: PublicationCounters | None = None,
    ) -> None:
        self.log = log
        self.positions = positions = positions or PublicationPositions(log.term_length)
        self.counters = counters or PublicationCounters()
        if positions.term_length != log.term_length:
            raise UsageError(
                f"positions for terms of {positions.term_length} bytes with a log of {log.term_length}"
            )
        #: The longest body that back-pressure can ever let pass.
        self.max_message_length = min(log.max_message_length, positions.term_window - HEADER_BYTES)
        self._unblock_timeout = unblock_timeout
        self._waiting = (-1, 0)  # (snd_pos, when the conductor first saw the sender wait there)
        self._stopped_at = (-1, -1)  # (snd_pos, snd_lmt) of the last back-pressure event

    # --- the application publishes ---------------------------------------------------------------

    def offer(self, data: bytes | bytearray | memoryview, *, first_sn: int = 0, count: int = 0) -> int:
        """Copy a message into the log: the position behind it, or a :class:`PublicationResult`."""
        source = memoryview(data).cast("B")
        claim = self.try_claim(source.nbytes, first_sn=first_sn, count=count)
        if not isinstance(claim, Claim):
            return claim
        claim.data.data[:] = source
        return claim.end if claim.commit() else ADMIN_ACTION

    def try_claim(self, length: int, *, first_sn: int = 0, count: int = 0) -> Claim | PublicationResult:
        """A place for a message of ``length`` bytes, to be filled and committed; or why there is none now."""
        if length > self.max_message_length:
            raise UsageError(
                f"a message of {length} bytes does not fit: the longest has {self.max_message_length} here "
                f"(term length {self.log.term_length}, term window {self.positions.term_window})"
            )
        claim = self.log.claim(length, limit=self.positions.pub_lmt, first_sn=first_sn, count=count)
        if claim is BACK_PRESSURED and not self.positions.is_connected:
            return NOT_CONNECTED
        return claim

    # --- a status message arrives ----------------------------------------------------------------

    def on_limit(self, limit: int) -> None:
        """Flow control made ``limit`` of the receivers' status messages; so there is somebody."""
        self.positions.on_limit(limit)
        self.positions.connect()

    # --- the sender sends ------------------------------------------------------------------------

    def send(self, transmit: Transmit, mtu: int) -> int:
        """Hand on what is committed, allowed and fits ``mtu``; returns the bytes by which snd_pos moved."""
        log, positions = self.log, self.positions
        start, limit = positions.snd_pos, positions.snd_lmt
        frames, end = log.scan(start, limit, mtu)
        if end == start:
            frame = log.frame(start)
            if frame is None:
                return 0
            # A frame beyond the MTU goes as fragments: a window smaller than it would stop it for ever.
            if start >= limit or frame.end - start <= mtu:
                self._back_pressured(start, limit)
                return 0
            frames, end = [frame], frame.end
        if frames and not transmit(frames):
            self.counters.short_sends += 1
            return 0
        positions.sent(end)
        log.record(positions)
        return end - start

    def _back_pressured(self, position: int, limit: int) -> None:
        """Counted once for each limit that is met, not for each look at it."""
        if self._stopped_at != (position, limit):
            self._stopped_at = (position, limit)
            self.positions.back_pressured()
            self.counters.sender_flow_control_limits += 1
            self.log.record(self.positions)

    # --- the conductor updates, cleans and unblocks ----------------------------------------------

    def conduct(self, now: int) -> int:
        """Returns how many things were done: the limit moved, something was cleaned, a claim unblocked."""
        log, positions = self.log, self.positions
        before = positions.pub_pos, positions.pub_lmt
        positions.conduct(log.position)
        work = int((positions.pub_pos, positions.pub_lmt) != before)
        if positions.cleanable > positions.clean_pos:
            positions.cleaned(log.clean(positions.cleanable))
            work += 1
        work += self._unblock(now)
        if work:
            log.record(positions)
        return work

    def _unblock(self, now: int) -> int:
        """Pass a claim for which the sender has been waiting too long."""
        positions = self.positions
        blocked = positions.snd_pos
        if blocked == positions.pub_pos:
            self._waiting = (-1, now)  # for nothing: what is claimed next has all its time
        elif self._waiting[0] != blocked:
            self._waiting = (blocked, now)
        elif now - self._waiting[1] >= self._unblock_timeout and self.log.unblock(blocked):
            self._waiting = (-1, now)
            self.counters.unblocked_publications += 1
            return 1
        return 0


class Sender:
    """The agent that sends, for any number of publications."""

    def __init__(self, mtu: int) -> None:
        """``mtu``: bytes of frames in one turn; what the network takes with one call."""
        self.mtu = mtu
        self._publications: list[tuple[Publication, Transmit]] = []
        self._first = 0

    def add(self, publication: Publication, transmit: Transmit) -> None:
        self._publications.append((publication, transmit))

    def remove(self, publication: Publication) -> None:
        self._publications = [entry for entry in self._publications if entry[0] is not publication]

    def do_work(self, now: int) -> int:
        """One turn for each publication, another one first each time; returns the bytes sent."""
        turns = self._publications
        if not turns:
            return 0
        self._first = (self._first + 1) % len(turns)
        return sum(
            publication.send(transmit, self.mtu)
            for publication, transmit in turns[self._first :] + turns[: self._first]
        )


class Conductor:
    """The agent that keeps limits, cleans and unblocks, for any number of publications."""

    def __init__(self) -> None:
        self._publications: list[Publication] = []

    def add(self, publication: Publication) -> None:
        self._publications.append(publication)

    def remove(self, publication: Publication) -> None:
        self._publications = [one for one in self._publications if one is not publication]

    def do_work(self, now: int) -> int:
        """Returns how many things were done."""
        return sum(publication.conduct(now) for publication in self._publications)
