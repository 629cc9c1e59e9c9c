"""A publication against a plain list: its four events in any order, several producers, crashes at any moment."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from publication_agents import (
    ADMIN_ACTION,
    BACK_PRESSURED,
    NOT_CONNECTED,
    Conductor,
    Publication,
    PublicationResult,
    Sender,
)

from spark_rtps.transport.log.publication_log import Claim, PublicationLog
from spark_rtps.transport.log.publication_metadata import ACTIVE_TERM_COUNT, TAILS
from spark_rtps.transport.log.term_frames import DATA, PAD, TERMS, Frame, term_id_at
from spark_rtps.transport.protocol.writing.positions import PublicationPositions

TERM = 64 << 10
TIMEOUT = 1000
MTU = 8000

LENGTHS = st.one_of(st.sampled_from([0, 1, 31, 32, 33, 8191, 8192]), st.integers(0, 8192))


@dataclass
class Entry:
    """What the model knows of the bytes from one position to the next."""

    start: int
    end: int
    body: bytes | None  # of a message; None: it is a PAD, or will be
    is_open: bool = False
    has_header: bool = True
    claim: Claim | None = None


class PublicationMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="publication-model-", dir="/dev/shm"))
        self.lives = 0
        self.now = 0
        self.number = 0
        self.entries: list[Entry] = []
        self.lost: list[Claim] = []  # claims that were unblocked
        self.sent: list[bytes] = []
        self.consumption = 0  # the receiver's
        self.limit = 0  # the highest pub_lmt
        self.seen: tuple[int, ...] = (0, 0, 0, 0, 0)

    @initialize(
        initial_term_id=st.sampled_from([0, 1005, -1, (1 << 31) - 2]),
        term_window=st.sampled_from([0, 8192 + 32, 20_000]),
        streamed=st.sampled_from([0, 7, 70]),
        length=st.sampled_from([32, 1000, 8191]),
    )
    def create(self, initial_term_id: int, term_window: int, streamed: int, length: int) -> None:
        log = PublicationLog.create(TERM, path=self.home / "0", initial_term_id=initial_term_id)
        self._work_on(log, PublicationPositions(TERM, term_window))
        if streamed:
            self.status_message(1.0, TERM // 2)
            self._conduct()
            self.stream(streamed, length)

    def _work_on(self, log: PublicationLog, positions: PublicationPositions) -> None:
        self.log, self.positions = log, positions
        self.publication = Publication(log, positions, unblock_timeout=TIMEOUT)
        self.conductor, self.sender = Conductor(), Sender(MTU)
        self.conductor.add(self.publication)
        self.sender.add(self.publication, self._transmit)
        self.is_short = False

    def _transmit(self, frames: Sequence[Frame]) -> bool:
        if self.is_short:
            return False
        is_fragmented = frames[-1].end - frames[0].start > MTU
        assert len(frames) == 1 or not is_fragmented
        assert (frames[0].start if is_fragmented else frames[-1].end) <= self.positions.snd_lmt
        self.sent += [frame.data.tobytes() for frame in frames]
        return True

    # --- the application -------------------------------------------------------------------------

    @rule(length=LENGTHS)
    def offer(self, length: int) -> None:
        self._offer(length)

    def _offer(self, length: int) -> None:
        body, before = self._body(length), self.log.position
        answer = self.publication.offer(body)
        if isinstance(answer, PublicationResult):
            self._refused(answer, before, length)
        else:
            assert answer == self.log.position
            self.entries.append(Entry(before, answer, body))

    @rule(length=LENGTHS)
    def claim(self, length: int) -> None:
        before = self.log.position
        claim = self.publication.try_claim(length)
        if isinstance(claim, PublicationResult):
            self._refused(claim, before, length)
            return
        assert (claim.start, claim.end, claim.data.size) == (before, self.log.position, length)
        assert not claim.data.any(), "it begins with zeros"
        self.entries.append(Entry(claim.start, claim.end, self._body(length), is_open=True, claim=claim))

    def _body(self, length: int) -> bytes:
        self.number += 1
        return random.Random(self.number).randbytes(length)

    def _refused(self, answer: PublicationResult, before: int, length: int) -> None:
        tail = self.log.position
        room = 32 + (length + 31 & -32)
        if answer is ADMIN_ACTION:
            assert tail % TERM == 0 and tail - before < room
            if tail > before:
                self.entries.append(Entry(before, tail, None))
            return
        assert answer is (BACK_PRESSURED if self.positions.is_connected else NOT_CONNECTED)
        assert tail == before
        to_end = TERM - before % TERM if before % TERM or self._is_term_full() else TERM
        needed = before + (room if room <= to_end else to_end)
        if self._is_term_full():
            needed = before
        assert needed > min(self.positions.pub_lmt, self.log.clean_position + 3 * TERM)

    def _is_term_full(self) -> bool:
        return self.log.position // TERM > self.log.metadata.words[ACTIVE_TERM_COUNT]

    @precondition(lambda self: any(entry.claim for entry in self.entries))
    @rule(data=st.data(), abort=st.booleans())
    def finish(self, data: st.DataObject, abort: bool) -> None:
        entry = data.draw(st.sampled_from([entry for entry in self.entries if entry.claim]))
        claim, entry.claim, entry.is_open = entry.claim, None, False
        assert claim is not None and entry.body is not None
        if abort:
            entry.body = None
            claim.abort()
        else:
            claim.data[:] = np.frombuffer(entry.body, np.uint8)
            assert claim.commit()

    @invariant()
    def too_late_to_finish(self) -> None:
        """Whatever lies there by now, the other invariants must hold behind this."""
        for claim in self.lost:
            assert not claim.commit()
            claim.abort()

    # --- the sender ------------------------------------------------------------------------------

    @rule(is_short=st.booleans())
    def send(self, is_short: bool) -> None:
        self.is_short = is_short
        before = self.positions.snd_pos
        assert self.sender.do_work(self.now) == self.positions.snd_pos - before
        self.is_short = False

    @rule(consumed=st.sampled_from([0, 0.5, 1]), window=st.sampled_from([0, 100, 5000, TERM // 2]))
    def status_message(self, consumed: float, window: int) -> None:
        self.consumption += int((self.positions.snd_pos - self.consumption) * consumed)
        self.publication.on_limit(self.consumption + window)

    @rule()
    def everybody_leaves(self) -> None:
        self.positions.disconnect()

    # --- the conductor ---------------------------------------------------------------------------

    @rule(later=st.sampled_from([0, 1, TIMEOUT // 2, TIMEOUT, 5 * TIMEOUT]))
    def conduct(self, later: int) -> None:
        self.now += later
        self._conduct()

    def _conduct(self) -> None:
        before = self.log.metadata.unblocked
        self.conductor.do_work(self.now)
        if self.log.metadata.unblocked == before:
            return
        assert self.log.metadata.unblocked == before + 1
        blocked = next(entry for entry in self.entries if entry.start == self.positions.snd_pos)
        assert blocked.is_open
        if blocked.claim:
            self.lost.append(blocked.claim)
        blocked.body, blocked.claim, blocked.is_open = None, None, False

    # --- all at once -----------------------------------------------------------------------------

    @rule(count=st.integers(1, 40), length=LENGTHS)
    def stream(self, count: int, length: int) -> None:
        """Much at full speed, so that terms go around."""
        for _ in range(count):
            self._offer(length)
            self.send(is_short=False)
            self.status_message(1.0, TERM // 2)
            self._conduct()

    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        """What lies up to a term behind the sender can be read."""
        held = [entry for entry in self.entries if entry.start >= self.log.clean_position]
        if held:
            self._check_frame(data.draw(st.sampled_from(held)))

    # --- crashes ---------------------------------------------------------------------------------

    @rule(torn=st.sampled_from(["", "", "tail", "tail to the end"]))
    def crash(self, torn: str) -> None:
        """The file as ``kill -9`` leaves it, between claims or within one; another process goes on with it."""
        self.lives += 1
        path = self.home / str(self.lives)
        shutil.copy(self.log.path, path)  # type: ignore[arg-type]
        if torn:
            log = PublicationLog.open(path)
            left = self._term_left()
            stolen = min(left, 160) if torn == "tail" else left if left <= 8192 else 0
            if stolen and log.position + stolen <= log.clean_position + 3 * TERM:
                log.metadata.words[TAILS + log.metadata.words[ACTIVE_TERM_COUNT] % TERMS] += stolen
                self._hole(log.position - stolen, log.position)
                self.limit = max(self.limit, log.position)
        for entry in self.entries:
            if entry.claim:
                self.lost.append(entry.claim)  # of the mapping that is no more; it must not matter
                entry.claim, entry.body = None, None
        self.lost.clear()
        log = PublicationLog.open(path)
        log.adopt()
        told = log.metadata.positions()
        positions = PublicationPositions(TERM, self.positions.term_window)
        for name in ("pub_pos", "pub_lmt", "snd_pos", "snd_lmt", "snd_bpe", "clean_pos"):
            setattr(positions, name, told[name])
        positions.is_connected = bool(told["is_connected"])
        self._work_on(log, positions)

    def _hole(self, start: int, end: int) -> None:
        last = self.entries[-1] if self.entries else None
        if last and last.is_open and not last.has_header and start % TERM:
            last.end = end  # nobody can tell them apart
        else:
            self.entries.append(Entry(start, end, None, is_open=True, has_header=False))

    def _term_left(self) -> int:
        return 0 if self._is_term_full() else TERM - self.log.position % TERM

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def positions_hold(self) -> None:
        if not hasattr(self, "log"):
            return
        p, log = self.positions, self.log
        tail = log.position
        now = (tail, p.pub_pos, p.snd_pos, p.snd_lmt, log.clean_position)
        if self.lives == getattr(self, "_life", 0):
            assert all(new >= old for new, old in zip(now, self.seen, strict=True)), "none falls"
        self._life, self.seen = self.lives, now
        assert p.snd_pos <= tail and p.pub_pos <= tail
        assert p.pub_lmt <= p.snd_pos + p.term_window
        assert log.clean_position <= max(p.snd_pos - TERM, 0)
        self.limit = max(self.limit, p.pub_lmt)
        assert tail <= self.limit
        assert tail <= log.clean_position + 3 * TERM
        assert all(position % 32 == 0 for position in (tail, p.pub_pos, p.snd_pos))
        told = log.metadata.positions()
        assert told["clean_pos"] == log.clean_position == p.clean_pos
        assert (told["snd_pos"], told["snd_bpe"]) == (p.snd_pos, p.snd_bpe)

    @invariant()
    def terms_hold(self) -> None:
        if not hasattr(self, "log"):
            return
        words = self.log.metadata.words
        active = words[ACTIVE_TERM_COUNT]
        for term in range(max(active - 2, 0), active + 1):
            tail = words[TAILS + term % TERMS]
            assert tail >> 32 == term_id_at(self.log.initial_term_id, term)
            assert (tail & 0xFFFFFFFF) == TERM or term == active

    @invariant()
    def frames_are_whole_and_nothing_else_is_there(self) -> None:
        if not hasattr(self, "log"):
            return
        log, position = self.log, 0
        for entry in self.entries:
            if entry.start >= log.clean_position:
                self._check_frame(entry)
            position = entry.end
        assert position == log.position, "no hole"
        start, stop = position % (3 * TERM), (log.clean_position + 3 * TERM) % (3 * TERM)
        if position - log.clean_position < 3 * TERM:
            zeros = [log.data[start:stop]] if start < stop else [log.data[start:], log.data[:stop]]
            assert not any(part.any() for part in zeros)

    def _check_frame(self, entry: Entry) -> None:
        frame = self.log.frame(entry.start)
        if entry.is_open:
            assert frame is None
            return
        assert frame is not None and frame.end == entry.end
        assert frame.type == (PAD if entry.body is None else DATA)
        assert entry.body is None or frame.data.tobytes() == entry.body

    @invariant()
    def what_is_sent_is_what_was_committed(self) -> None:
        """Each message once, in order, whole."""
        if not hasattr(self, "log"):
            return
        passed = [entry for entry in self.entries if entry.end <= self.positions.snd_pos]
        assert not any(entry.is_open for entry in passed)
        assert self.sent == [entry.body for entry in passed if entry.body is not None]

    def teardown(self) -> None:
        shutil.rmtree(self.home)


PublicationMachine.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestPublicationModel = PublicationMachine.TestCase
