"""Whether a writer is where a message says it is: sequence numbers that jump far ahead, and jumps that are taken back.

A message says that its writer has used a number: the last one of a HEARTBEAT or a HEARTBEAT_BATCH, those of DATA,
DATA_FRAG and DATA_BATCH, the end of a GAP, the number of a HEARTBEAT_FRAG. What lies within ``REACH`` of the highest
number that the writer is known to have used (``announced``) is believed at once. What lies beyond is a *rumour*:
nothing of it is delivered, passed, acknowledged or requested until a second message confirms it. So one forged message
moves a reader by ``REACH`` at most.

States of what is ahead (``rumour``): QUIET, no message speaks of a number beyond reach; RUMOUR, one did.

======  =============================================  ========================================================  ======
state   event                                          action                                                    next
======  =============================================  ========================================================  ======
QUIET   a message beyond reach                         it is kept back; the writer is asked for a HEARTBEAT      RUMOUR
RUMOUR  a HEARTBEAT within reach                       what was kept back is dropped: the jump is refuted        QUIET
RUMOUR  a message beyond reach; ``announced`` has      the same, and the message is the rumour                   RUMOUR
        moved, as samples went on at the old place
RUMOUR  a message beyond reach, elsewhere              the same                                                  RUMOUR
RUMOUR  a message at the same place, before ``DELAY``  it is kept back with the rest                             RUMOUR
RUMOUR  a later HEARTBEAT, or a later sample, at the   the jump is confirmed: what was kept back comes in, and   QUIET
        same place, after ``DELAY``                    what it passes is counted, once
======  =============================================  ========================================================  ======

GAPs and HEARTBEAT_FRAGs beyond reach are never kept back and confirm nothing: a HEARTBEAT has to come first.

Why ``REACH`` is what it is. In reach are 4 MiB, a send window, of the smallest samples; a best-effort writer at
5 M samples/s of which nothing arrives for 13 ms; the losses of a KEEP_LAST writer at 1 kHz of whose datagrams none
arrived for a minute. A GAP of a content filter reaches no further than the HEARTBEAT before it, but where more than
``REACH`` samples in a row are filtered out: there the next HEARTBEAT goes ahead, after a second one. A writer whose
reader was away longer, or a writer of more than ``REACH`` samples that is new to the reader, is confirmed by its next
message after ``DELAY``. With data that is soon: a writer that was ``REACH`` samples ahead after T sends the next one
after about T / REACH, a second for a day. Without data it is its HEARTBEAT: ours and Cyclone's answer the reader's
ACKNACK, those of RTI Connext and Fast DDS come every three seconds at the latest. Built-in readers believe the first
message of a writer, since they begin anew with each lower HEARTBEAT.

What was passed, because a HEARTBEAT or a GAP said that it will never come, or because a best-effort writer was ahead,
or because the reader began behind it, is remembered (``passes``), and may be taken back:

* a HEARTBEAT whose last number lies below the end of a pass refutes it, and what else was said to be gone with it:
  what was never used cannot be gone. The reader goes back to the beginning of the lowest pass refuted; what it had
  counted as lost or irrelevant no longer is. Where it began wrongly, it begins anew. A HEARTBEAT may also have been
  overtaken by samples that came another way, by multicast or through a publication log: then the reader requests
  again what it had passed, and nothing is lost.
* a best-effort writer has no HEARTBEATs: two samples, rising and ``DELAY`` apart, in a pass of ``PASS_LEAST`` or more,
  while nothing comes at the new place, refute it (``back`` is a rumour, too).
* a number that an earlier life of the reader took (``resumed``) is refuted by two HEARTBEATs below it, ``DELAY`` apart,
  before anything at or above it is heard. Nobody knows then what was taken below: the reader begins behind the
  HEARTBEAT, so that nothing comes twice.
* numbers held beyond a HEARTBEAT's last one for ``BEYOND`` are dropped (``beyond``), and requested if they turn up
  again.

What is delivered stays delivered. Where forged samples within reach were, the writer's own samples at their numbers
count as duplicates, but for those that the writer is found not to have used yet by two HEARTBEATs ``BEYOND`` apart.

What a forger can still do who speaks for a matched writer: with one message, insert samples, and make the reader pass
``REACH`` numbers, which are lost if the writer uses the last of them before its next HEARTBEAT; with two messages
``DELAY`` apart, make it jump, if the writer, asked for a HEARTBEAT, is silent in between. Its next HEARTBEAT undoes
that.

Invariants:
* nothing beyond reach is in ``announced``;
* a pass holds numbers of which none was delivered; passes do not overlap, and there are at most ``PASSES_MAX``: the
  smallest is forgotten first;
* what is kept back is at most ``RUMOUR_RUNS_MAX`` runs and ``RUMOUR_BYTES_MAX`` bytes, and counts in the budget of the
  reorder buffers; what finds no room is lost, or requested later.
"""

from __future__ import annotations

import enum
from typing import Final

from ....limits import RUMOUR_BYTES_MAX, RUMOUR_RUNS_MAX
from ....slotted import frozen
from ....wire.samples import Run
from ....wire.submessages import Heartbeat, HeartbeatBatch
from .reorder_buffer import ReorderBudget

#: Numbers.
REACH: Final = 1 << 16
PASS_LEAST: Final = 1 << 10
#: Nanoseconds.
DELAY: Final = 20_000_000
BEYOND: Final = 100_000_000
PASSES_MAX: Final = 16


class PassKind(enum.Enum):
    """As what the numbers of a pass were counted."""

    NOTHING = enum.auto()
    #: They came before the first number that was heard of the writer.
    BEGINNING = enum.auto()
    LOST = enum.auto()
    #: Lost, too.
    MISSED = enum.auto()
    IRRELEVANT = enum.auto()


@frozen
class Pass:
    """Numbers first..last that were passed; ``claimed``: the last one that was said to be gone with them."""

    first: int
    last: int
    kind: PassKind
    claimed: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1


class Rumour:
    """A place where a writer may be, and what came from there."""

    __slots__ = (
        "_budget",
        "_nbytes",
        "announced",
        "first",
        "heartbeat",
        "last",
        "runs",
        "runs_before",
        "since",
    )

    def __init__(self, budget: ReorderBudget, first: int, last: int, announced: int, now: int) -> None:
        self.first, self.last = first, last
        #: What the writer was known to have used when the rumour came up.
        self.announced = announced
        self.since = now
        self.runs: list[Run] = []
        #: The first HEARTBEAT from there, and how many of the runs came before it.
        self.heartbeat: Heartbeat | HeartbeatBatch | None = None
        self.runs_before = 0
        self._budget = budget
        self._nbytes = 0

    def is_near(self, number: int) -> bool:
        return self.first - REACH <= number <= self.last + REACH

    def note(self, heartbeat: Heartbeat | HeartbeatBatch) -> None:
        if self.heartbeat is None:
            self.heartbeat, self.runs_before = heartbeat, len(self.runs)

    def keep(self, run: Run) -> None:
        """Keep a copy of a run: the receive buffer is reused."""
        nbytes = run.nbytes
        fits = self._nbytes + nbytes <= RUMOUR_BYTES_MAX and self._budget.has_room(nbytes)
        if fits and len(self.runs) < RUMOUR_RUNS_MAX:
            self.runs.append(run.copy())
            self._nbytes += nbytes
            self._budget.nbytes += nbytes

    def end(self) -> None:
        """It is true or false: its memory is another one's."""
        self._budget.nbytes -= self._nbytes
        self._nbytes = 0


class SequenceJumps:
    """The jumps of one writer."""

    __slots__ = (
        "_budget",
        "back",
        "beyond",
        "oversized",
        "passes",
        "resumed",
        "resumed_since",
        "rumour",
        "was_back",
    )

    def __init__(self, budget: ReorderBudget, *, resumed: int = 0) -> None:
        self.rumour: Rumour | None = None
        self.back: Rumour | None = None
        #: Ascending.
        self.passes: list[Pass] = []
        #: The last PASSES_MAX samples that were counted as too large: they come again where the reader goes back.
        self.oversized: tuple[int, ...] = ()
        #: The reader went back once: among what it holds are numbers that it delivered.
        self.was_back = False
        #: What is expected, if only an earlier life of the reader vouches for it; 0 otherwise.
        self.resumed = resumed
        #: Since when HEARTBEATs below it come; -1: none did.
        self.resumed_since = -1
        #: The highest number held, above the last HEARTBEAT, and since when; (0, 0): there is none.
        self.beyond = (0, 0)
        self._budget = budget

    @property
    def is_waiting(self) -> bool:
        """Whether a HEARTBEAT may confirm or refute something."""
        return self.rumour is not None or self.resumed_since >= 0

    # --- ahead -----------------------------------------------------------------------------------

    def hears(self, first: int, last: int, announced: int, now: int, *, is_heartbeat: bool = False) -> bool:
        """A message beyond reach came: whether it confirms the rumour. Else there is one now."""
        rumour = self.rumour
        if rumour is not None and rumour.announced == announced and rumour.is_near(last):
            is_later = is_heartbeat or last > rumour.last
            rumour.first, rumour.last = min(rumour.first, first), max(rumour.last, last)
            return is_later and now - rumour.since >= DELAY
        self.drop()
        self.rumour = Rumour(self._budget, first, last, announced, now)
        return False

    def drop(self) -> None:
        """The rumour is false, or its writer is gone."""
        if self.rumour is not None:
            self.rumour.end()
            self.rumour = None

    def forget(self) -> None:
        """The writer is gone."""
        self.drop()
        self.drop_back()

    # --- back ------------------------------------------------------------------------------------

    def goes_back(self, run: Run, expected: int, now: int) -> bool:
        """A best-effort run came from before ``expected``: whether it confirms that the writer is there."""
        back = self.back
        if back is not None and back.announced == expected and back.last < run.first_sn <= back.last + REACH:
            back.last = run.last_sn
            back.keep(run)
            return now - back.since >= DELAY
        self.drop_back()
        for each in self.passes:
            if each.first <= run.first_sn and run.last_sn <= each.last and each.count >= PASS_LEAST:
                self.back = Rumour(self._budget, run.first_sn, run.last_sn, expected, now)
                self.back.keep(run)
        return False

    def drop_back(self) -> None:
        if self.back is not None:
            self.back.end()
            self.back = None

    # --- what was passed -------------------------------------------------------------------------

    def passed(self, first: int, last: int, kind: PassKind, claimed: int = 0) -> None:
        """first..last, which lie above all that was delivered or passed, will never come."""
        passes, claimed = self.passes, max(claimed, last)
        if passes and passes[-1].last + 1 == first and passes[-1].kind is kind:
            passes[-1] = Pass(passes[-1].first, last, kind, max(passes[-1].claimed, claimed))
            return
        if len(passes) >= PASSES_MAX:
            passes.remove(min(passes, key=lambda each: each.count))
        passes.append(Pass(first, last, kind, claimed))

    def counts_oversized(self, sn: int) -> bool:
        """A sample that is too large came: whether it is the first time."""
        if sn in self.oversized:
            return False
        self.oversized = (*self.oversized, sn)[-PASSES_MAX:]
        return True

    def take_refuted(self, last_sn: int) -> list[Pass]:
        """The writer has used no number above ``last_sn``: the passes which that refutes, and which are undone."""
        refuted = [each for each in self.passes if each.claimed > last_sn]
        if refuted:
            self.passes = [each for each in self.passes if each.first < refuted[0].first]
        return refuted

    def doubts_resumed(self, expected: int, now: int) -> bool:
        """A HEARTBEAT lies below what is expected: whether the number that was resumed is refuted."""
        if not self.resumed or self.resumed != expected:
            self.resumed, self.resumed_since = 0, -1
            return False
        if self.resumed_since < 0:
            self.resumed_since = now
        return now - self.resumed_since >= DELAY

    def doubts_held(self, highest: int, last_sn: int, now: int) -> bool:
        """A HEARTBEAT's last number: whether what is held above it is refuted; ``highest`` of it."""
        if highest <= last_sn:
            self.beyond = (0, 0)
            return False
        number, since = self.beyond
        if number <= last_sn or number > highest:
            self.beyond = (highest, now)
            return False
        return now - since >= BEYOND
