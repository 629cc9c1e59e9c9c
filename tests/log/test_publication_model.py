"""A writer and its publication log against a plain list, in any order of what happens to them.

The application writes, claims, commits, aborts and is interrupted; the writer sends, is acknowledged, cleans, gives up
claims and is killed; readers come and go, and a reader of the log follows in its own time.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_rtps.transport.log.image import CopyBuffer, Image
from spark_rtps.transport.log.publication_log import FrameClaim, PublicationLog
from spark_rtps.transport.log.publication_log_metadata import ACTIVE_TERM_COUNT, TAILS
from spark_rtps.transport.log.term_frames import Terms, term_id_at
from spark_rtps.transport.protocol.policies import FlowControlPolicy
from spark_rtps.transport.protocol.writing.flow import FlowControl
from spark_rtps.transport.protocol.writing.intake import SampleClaim
from spark_rtps.transport.wire.submessages import Data, DataFrag
from tests.log.publishing_scene import data_in, read_all
from tests.protocol.writer_script import MS, Script, reader_guid
from tests.support.publication_frames import DATA, PAD, FrameAt, frame_at, length_at, scan_frames

TERM = 64 << 10
TIMEOUT = 1_000 * MS
#: The longest frame: an eighth of a term behind its header.
FRAME_MAX = TERM // 8 + 32

SIZES = st.one_of(
    st.sampled_from([4, 16, 28, 32, 36, 1_000, 8_000]), st.integers(1, 2_000).map(lambda n: 4 * n)
)


class Interrupted(BaseException):
    """As KeyboardInterrupt, which comes anywhere."""


@dataclass
class Place:
    """What the model knows of the bytes from one position to the next."""

    start: int
    end: int
    #: Sequence numbers of a frame; empty: it is padding.
    sns: range
    #: The sample is too large for a frame, and lies beside the log.
    is_beside: bool = False
    #: The claim that is still to be filled.
    claim: SampleClaim | None = None


class PublicationMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="publication-model-", dir="/dev/shm"))
        self.crashes = 0
        self.bodies: dict[int, bytes] = {}  # by sequence number
        self.places: list[Place] = []
        self.overdue: list[SampleClaim] = []
        self.unblocked = 0
        self.interrupted: set[int] = set()  # where claims lie that nobody will commit
        self.output: list[int] = []
        self.missed: set[int] = set()  # what was sent while nobody was there
        self.read: list[int] = []
        self.seen: tuple[int, ...] = (0, 0, 0, 0)

    @initialize(
        initial_term_id=st.sampled_from([0, 1005, -1, (1 << 31) - 2]),
        term_window=st.sampled_from([0, 20_000]),
        spies=st.booleans(),
        streamed=st.sampled_from([0, 7, 70]),
        size=st.sampled_from([32, 1_000, 8_000]),
    )
    def create(self, initial_term_id: int, term_window: int, spies: bool, streamed: int, size: int) -> None:
        self.log = PublicationLog.create(TERM, path=self.home / "log", initial_term_id=initial_term_id)
        policy = FlowControlPolicy(
            strategy="max", term_window=term_window, unblock_timeout=TIMEOUT, spies_simulate_connection=spies
        )
        self.script = Script(readers=0, flow_control=FlowControl(policy), log=self.log)
        self.writer, self.positions = self.script.writer, self.script.writer.positions
        self.image = Image(self.log, 0, CopyBuffer())
        self.is_spied = spies
        self._tell_position()
        self.somebody_comes()
        if streamed:
            self.stream(streamed, size)

    # --- the application -------------------------------------------------------------------------

    @rule(count=st.sampled_from([1, 1, 2, 5, 40]), size=SIZES)
    def write(self, count: int, size: int) -> None:
        with self._noted():
            before = self.writer.last_sn
            payloads = [self._body(before + 1 + i, size) for i in range(count)]
            samples = self.script.samples(count, size)
            samples.data[:] = np.frombuffer(b"".join(payloads), np.uint8)
            taken = self.writer.write_samples(samples, timestamp=self.script.now, now=self.script.now)
            assert self.writer.last_sn == before + taken
            samples.data[:] = 0  # the caller's memory is the caller's

    @rule(size=SIZES)
    def claim(self, size: int) -> None:
        if size > 7_000:
            return  # it has to fit a message
        with self._noted():
            before = self.log.position
            claim = self.writer.claims.make(size, timestamp=self.script.now, now=self.script.now)
            if claim is None:
                assert self.writer.state.blocked_by and self.log.position == before, "nothing was claimed"
                return
            assert claim.data.size == size and not claim.data.any(), "it begins with zeros"
            self._body(claim.sn, size)
        self.places[-1].claim, self.places[-1].sns = claim, range(claim.sn, claim.sn + 1)

    def _body(self, sn: int, size: int) -> bytes:
        self.bodies[sn] = random.Random(sn * 10_000 + size).randbytes(size)
        return self.bodies[sn]

    @precondition(lambda self: any(place.claim for place in self.places))
    @rule(data=st.data(), abort=st.booleans())
    def finish(self, data: st.DataObject, abort: bool) -> None:
        place = data.draw(st.sampled_from([place for place in self.places if place.claim]))
        claim, place.claim = place.claim, None
        assert claim is not None
        with self._noted():
            if abort:
                place.sns = range(0)
                self.writer.claims.abort(claim, now=self.script.now)
            else:
                claim.data[:] = np.frombuffer(self.bodies[claim.sn], np.uint8)
                assert self.writer.claims.commit_claim(claim, now=self.script.now)

    @rule(where=st.sampled_from(["before the header", "before the commit", "in the rotation"]), size=SIZES)
    def interrupted_write(self, where: str, size: int) -> None:
        """An exception stops the writing thread; nothing waits for that for longer than until the next write."""
        target = {
            "before the header": (Terms, "claim"),
            "before the commit": (FrameClaim, "commit"),
            "in the rotation": (Terms, "pad"),
        }[where]
        with self._noted(), mock.patch.object(*target, side_effect=Interrupted):
            before = self.writer.last_sn
            for i in range(3):
                self._body(before + 1 + i, size)
            samples = self.script.samples(3, size)
            samples.data[:] = np.frombuffer(b"".join(self.bodies[before + 1 + i] for i in range(3)), np.uint8)
            try:
                self.writer.write_samples(samples, timestamp=self.script.now, now=self.script.now)
            except Interrupted:
                self.writer.outgoing()

    @invariant()
    def too_late_to_finish(self) -> None:
        """Whatever lies there by now, the other invariants must hold behind this."""
        for claim in self.overdue:
            assert not self.writer.claims.commit_claim(claim, now=self.script.now)
            assert not claim.claim.commit()
            self.writer.claims.abort(claim, now=self.script.now)

    # --- the network -----------------------------------------------------------------------------

    @rule(consumed=st.sampled_from([0, 0.5, 1]), window=st.sampled_from([0, 100, 5_000, TERM // 2]))
    def status_message(self, consumed: float, window: int) -> None:
        if self._is_matched:
            with self._noted():
                last = self.output[-1] if self.output else 0
                self.script.acknack(last + 1)
                self.script.status(int(last * consumed), window)

    @property
    def _is_matched(self) -> bool:
        return reader_guid(1) in self.writer.readers

    @rule()
    def everybody_leaves(self) -> None:
        if self._is_matched:
            with self._noted(is_received=False):
                self.writer.unmatch_reader(reader_guid(1))

    @rule()
    def somebody_comes(self) -> None:
        if not self._is_matched:
            with self._noted(is_received=False):
                self.script.match(1, status_messages=True)
                self.script.acknack(self.writer.last_sn + 1).status(self.writer.last_sn, TERM // 2)

    # --- time ------------------------------------------------------------------------------------

    @rule(later=st.sampled_from([1, TIMEOUT // 2, TIMEOUT, 5 * TIMEOUT]))
    def sleep(self, later: int) -> None:
        now = self.script.now + later
        for place in self.places:
            if place.claim and place.claim.at + TIMEOUT <= now:
                self.overdue.append(place.claim)
                place.claim, place.sns = None, range(0)
                self.unblocked += 1
        with self._noted():
            self._hear([each for _, each in self.script.sleep(later)])
        assert self.writer.counters.unblocked_publications == self.unblocked

    # --- a reader of the log ---------------------------------------------------------------------

    @rule(max_bytes=st.sampled_from([0, 500, 20_000, 1 << 20]))
    def read_the_log(self, max_bytes: int) -> None:
        image = self.image
        if image.is_lapped:
            assert not self.is_spied and image.position < self.positions.snd_pos - TERM, "a term is kept"
            image.rewind()
        places = [place for place in self.places if place.start >= image.position]
        found = image.poll(max_bytes)
        if found is None:
            assert not places or places[0].claim
            return
        bodies = [data_in(bytes(found.data[start:stop])) for start, stop, _ in found.spans]
        passed = [place for place in places if place.start < found.end]
        end = passed[-1].end if passed else self.positions.pub_pos
        if end != found.end:  # an interrupted write had begun the next term, or unblocked earlier ones
            assert end == self.positions.pub_pos
            padding = list(scan_frames(self.log, end, found.end))
            assert all(isinstance(each, FrameAt) and each.type == PAD for each in padding)
        assert not passed or passed[0].start == image.position
        self._check([each for body in bodies for each in body], passed)
        image.position = found.end
        self._tell_position()

    def _tell_position(self) -> None:
        if self.is_spied:
            with self._noted():
                self.writer.feedback.on_log_positions({}, [self.image.position], now=self.script.now)

    def _check(self, found: list[tuple[int, bytes]], places: list[Place]) -> None:
        """What is found is what lies in those places, whole and in order."""
        assert not any(place.claim for place in places)
        expected = [sn for place in places for sn in place.sns if not place.is_beside]
        assert [sn for sn, _ in found] == expected
        assert all(data == self.bodies[sn] for sn, data in found)

    def _is_term_full(self) -> bool:
        return self.log.position // TERM > self.log.metadata.words[ACTIVE_TERM_COUNT]

    # --- all at once -----------------------------------------------------------------------------

    @rule(count=st.integers(1, 40), size=SIZES)
    def stream(self, count: int, size: int) -> None:
        """Much at full speed, so that terms go around."""
        for _ in range(count):
            self.write(1, size)
            self.status_message(1.0, TERM // 2)
            self.read_the_log(1 << 20)

    # --- crashes ---------------------------------------------------------------------------------

    @rule(torn=st.sampled_from(["", "", "tail", "tail to the end"]))
    def crash(self, torn: str) -> None:
        """The file as ``kill -9`` leaves it, between claims or within one: readers get all up to the first claim."""
        self.crashes += 1
        path = self.home / str(self.crashes)
        shutil.copy(self.log.path, path)
        log = PublicationLog.open(path)
        if torn:
            words = log.metadata.words
            left = 0 if self._is_term_full() else TERM - log.position % TERM
            words[TAILS + words[ACTIVE_TERM_COUNT] % 3] += min(left, 160) if torn == "tail" else left
        whole = [place for place in self.places if place.start >= self.log.cleaning_position]
        if not whole:
            return
        image = Image(log, whole[0].start, CopyBuffer())
        found = list(read_all(image))
        first = next((i for i, place in enumerate(whole) if place.claim), len(whole))
        self._check(found, whole[:first])
        if first < len(whole):
            assert image.position == whole[first].start
        left_open = [each for each in scan_frames(log, whole[0].start, log.position) if isinstance(each, int)]
        claims = [place.start for place in whole if place.claim]
        assert left_open[: len(claims)] == claims
        assert all(each >= self.positions.pub_pos for each in left_open[len(claims) :])
        assert log.unblock(whole[0].start, log.position) == len(left_open)
        assert all(isinstance(each, FrameAt) for each in scan_frames(log, whole[0].start, log.position))

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def positions_hold(self) -> None:
        if not hasattr(self, "log"):
            return
        p, log = self.positions, self.log
        tail = log.position
        now = (tail, p.pub_pos, p.snd_pos, log.clean_position)
        assert all(new >= old for new, old in zip(now, self.seen, strict=True)), "none falls"
        self.seen = now
        assert p.snd_pos <= p.pub_pos <= tail
        assert p.pub_lmt <= p.snd_pos + p.term_window
        assert log.clean_position == p.clean_pos <= max(p.snd_pos - TERM, 0)
        assert tail <= log.clean_position + 3 * TERM
        # Padding, and what interrupted writes leave, are not asked for.
        ahead = [place for place in self.places if place.start >= p.snd_pos and (place.sns or place.claim)]
        assert sum(place.end - place.start for place in ahead) <= p.term_window + FRAME_MAX
        assert all(position % 32 == 0 for position in now[:3])
        log.record(p, unblocked=self.writer.counters.unblocked_publications)
        reported = log.metadata.positions()
        assert reported["clean_pos"] == log.clean_position
        assert (reported["snd_pos"], reported["snd_bpe"]) == (p.snd_pos, p.snd_bpe)
        assert reported["unblocked"] == self.unblocked

    @invariant()
    def terms_hold(self) -> None:
        if not hasattr(self, "log"):
            return
        words = self.log.metadata.words
        active = words[ACTIVE_TERM_COUNT]
        for term in range(max(active - 2, 0), active + 1):
            tail = words[TAILS + term % 3]
            assert tail >> 32 == term_id_at(self.log.initial_term_id, term)
            assert (tail & 0xFFFFFFFF) == TERM or term == active

    @invariant()
    def frames_are_whole_and_nothing_else_is_there(self) -> None:
        if not hasattr(self, "log"):
            return
        log, position = self.log, 0
        for place in self.places:
            assert place.start == position, "no hole"
            position = place.end
            if place.start >= log.clean_position:
                self._check_place(place)
        assert position == self.positions.pub_pos
        left = list(scan_frames(log, position, log.position))
        assert not any(isinstance(each, FrameAt) and each.type == DATA for each in left), "interrupted"
        start, stop = log.position % (3 * TERM), (log.clean_position + 3 * TERM) % (3 * TERM)
        if log.position - log.clean_position < 3 * TERM:
            zeros = [log.data[start:stop]] if start < stop else [log.data[start:], log.data[:stop]]
            assert not any(part.any() for part in zeros)

    def _check_place(self, place: Place) -> None:
        frame = frame_at(self.log, place.start)
        if place.claim:
            assert frame is None
            return
        assert frame is not None and frame.end == place.end
        assert frame.type == (DATA if place.sns else PAD)
        if place.sns:
            assert (frame.first_sn, frame.count) == (place.sns[0], len(place.sns))
            if not place.is_beside:
                # readers on this host, and repairs, find it there
                found = data_in(frame.data.tobytes())
                assert found == [(sn, self.bodies[sn]) for sn in place.sns]

    @invariant()
    def what_is_sent_is_what_was_committed(self) -> None:
        """Each sample once, in order, whole, to those who were there."""
        if not hasattr(self, "log"):
            return
        passed = [place for place in self.places if place.end <= self.positions.snd_pos]
        assert not any(place.claim for place in passed)
        assert self.output == [sn for place in passed for sn in place.sns if sn not in self.missed]

    @contextmanager
    def _noted(self, *, is_received: bool = True) -> Iterator[None]:
        """Note what becomes of the log in what is done: places of it, and what is sent."""
        is_received = is_received and self._is_matched
        yield
        self._note_places()
        self._hear(self.script.output())
        self._note_places()
        if not is_received:
            passed = {sn for place in self.places if place.end <= self.positions.snd_pos for sn in place.sns}
            self.missed |= passed - set(self.output)

    def _note_places(self) -> None:
        end = self.places[-1].end if self.places else 0
        for each in scan_frames(self.log, end, self.positions.pub_pos):
            if isinstance(each, int):
                length = -length_at(self.log, each)
                self.places.append(Place(each, each + (length + 31 & -32), range(0)))
                continue
            sns = range(each.first_sn, each.first_sn + each.count) if each.type == DATA else range(0)
            is_beside = each.type == DATA and not each.data.size
            self.places.append(Place(each.start, each.end, sns, is_beside))
        left = {
            each
            for each in scan_frames(self.log, self.positions.pub_pos, self.log.position)
            if isinstance(each, int)
        }
        self.unblocked += len(self.interrupted - left)
        self.interrupted = left

    def _hear(self, output: list[object]) -> None:
        for each in output:
            if isinstance(each, Data):
                assert bytes(each.payload or b"") == self.bodies[each.sn]
                self.output.append(each.sn)
            elif isinstance(each, DataFrag) and each.sn not in self.output[-1:]:
                self.output.append(each.sn)

    def teardown(self) -> None:
        shutil.rmtree(self.home)


PublicationMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestPublicationModel = PublicationMachine.TestCase
