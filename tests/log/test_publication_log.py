"""The publication log: claims, commits, rotation, cleaning and unblocking, as they lie in its memory."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.log import publication_log
from spark_rtps.transport.log.image import CopyBuffer, Image
from spark_rtps.transport.log.publication_log import (  # type: ignore[attr-defined]
    ADMIN_ACTION,
    BACK_PRESSURED,
    CLOSED,
    MAX_POSITION_EXCEEDED,
    FrameClaim,
    PublicationLog,
    PublicationResult,
)
from spark_rtps.transport.log.term_frames import term_id_at
from tests.support.publication_frames import DATA, HEADER_BYTES, PAD, FrameAt, data_frames, frame_at

TERM = 64 << 10
ANY = 1 << 62


def write(log: PublicationLog, body: bytes, *, first_sn: int = 0, count: int = 0) -> int:
    """Claim, fill and commit; returns where the frame begins."""
    claim = claimed(log, len(body), first_sn=first_sn, count=count)
    claim.data[:] = np.frombuffer(body, np.uint8)
    assert claim.commit()
    return claim.start


def claimed(
    log: PublicationLog, length: int, *, limit: int = ANY, first_sn: int = 0, count: int = 0
) -> FrameClaim:
    """A claim, in the next term if it does not fit this one."""
    claim = log.claim(length, limit=limit, first_sn=first_sn, count=count)
    if claim is ADMIN_ACTION:
        claim = log.claim(length, limit=limit, first_sn=first_sn, count=count)
    assert isinstance(claim, FrameClaim), claim
    return claim


def fill_term(log: PublicationLog, left: int = 0) -> None:
    """Committed frames up to ``left`` bytes before the term's end."""
    while room := TERM - log.position % TERM - left:
        write(log, b"." * (min(room, log.max_message_length) - HEADER_BYTES))
        if not log.position % TERM:
            return


def clean_all(log: PublicationLog) -> None:
    while log.clean_position < log.position:
        log.clean(log.position)


def one(log: PublicationLog, position: int) -> FrameAt:
    frame = frame_at(log, position)
    assert frame is not None
    return frame


def bodies(log: PublicationLog, position: int = 0) -> list[bytes]:
    """What a reader of the log gets from ``position`` on."""
    image, found = Image(log, position, CopyBuffer()), []
    while (frames := image.poll(1 << 20)) is not None:
        found += [bytes(frames.data[start:stop]) for start, stop, _ in frames.spans]
        image.position = frames.end
    return found


# --- a frame ---------------------------------------------------------------------------------------


def test_the_codes_are_aerons() -> None:
    codes = PublicationResult.NOT_CONNECTED, BACK_PRESSURED, ADMIN_ACTION, CLOSED, MAX_POSITION_EXCEEDED
    assert codes == (-1, -2, -3, -4, -5)


def test_a_frame_as_it_lies_in_memory() -> None:
    log = PublicationLog.create(TERM, initial_term_id=1005)
    claim = claimed(log, 5, first_sn=7, count=3)
    header = struct.Struct("<iBBHiiqII")
    assert header.unpack(log.data[:32].tobytes()) == (-37, 1, 0, DATA, 0, 1005, 7, 3, 0)
    assert frame_at(log, 0) is None, "not committed"
    claim.data[:] = np.frombuffer(b"hello", np.uint8)
    assert claim.commit()
    assert header.unpack(log.data[:32].tobytes())[0] == 37
    assert log.data[32:37].tobytes() == b"hello"
    frame = one(log, 0)
    assert (frame.start, frame.end, frame.type, frame.first_sn, frame.count) == (0, 64, DATA, 7, 3)
    assert frame.data.tobytes() == b"hello"
    assert np.shares_memory(frame.data, log.data)
    assert log.position == claim.end == 64


def test_an_empty_body() -> None:
    log = PublicationLog.create(TERM)
    assert write(log, b"") == 0
    assert one(log, 0).data.size == 0 and log.position == 32


def test_an_aborted_claim_is_a_pad() -> None:
    log = PublicationLog.create(TERM)
    claimed(log, 100).abort()
    write(log, b"next")
    assert (one(log, 0).type, one(log, 0).end) == (PAD, 160)
    assert bodies(log) == [b"next"]


def test_a_position_within_a_frame_has_no_frame() -> None:
    log = PublicationLog.create(TERM)
    write(log, b"x" * 100)
    assert frame_at(log, 32) is None, "a body"
    assert frame_at(log, 160) is None, "the tail"


def test_a_claim_is_committed_or_aborted_once() -> None:
    log = PublicationLog.create(TERM)
    committed, aborted = claimed(log, 40), claimed(log, 40)
    assert committed.commit() and not committed.commit()
    committed.abort()
    aborted.abort()
    aborted.abort()
    assert not aborted.commit()
    assert (one(log, committed.start).type, one(log, aborted.start).type) == (DATA, PAD)


# --- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("term_length", [0, -1, 32 << 10, (64 << 10) + 1, 96 << 10, 2 << 30])
def test_term_lengths_that_cannot_be(term_length: int) -> None:
    with pytest.raises(UsageError, match="power of two from 64 KiB to 1 GiB"):
        PublicationLog.create(term_length)


@pytest.mark.parametrize(
    ("term_length", "longest"),
    [(64 << 10, 8 << 10), (16 << 20, 2 << 20), (128 << 20, 16 << 20), (1 << 30, 16 << 20)],
)
def test_the_longest_message(term_length: int, longest: int) -> None:
    log = PublicationLog.create(term_length)
    assert log.max_message_length == longest
    assert isinstance(log.claim(longest, limit=ANY), FrameClaim)
    for length in (longest + 1, -1):
        with pytest.raises(UsageError, match=f"the longest message has {longest}"):
            log.claim(length, limit=ANY)


def test_the_largest_log_takes_no_memory_until_it_is_written() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = resident()
    logs = [PublicationLog.create(1 << 30) for _ in range(4)]
    assert resident() - before < 8 << 20
    assert all(log.position == 0 for log in logs)


def test_back_pressure_to_the_byte() -> None:
    log = PublicationLog.create(TERM)
    assert log.claim(32, limit=63) is BACK_PRESSURED
    assert log.position == 0, "nothing was claimed"
    assert isinstance(log.claim(32, limit=64), FrameClaim)
    assert log.claim(0, limit=64) is BACK_PRESSURED


def test_closed() -> None:
    log = PublicationLog.create(TERM)
    claim = claimed(log, 8)
    log.close()
    assert log.claim(8, limit=ANY) is CLOSED
    assert claim.commit(), "what was claimed before may be finished"


def test_the_end_of_all_positions(tmp_path: Path) -> None:
    path = tmp_path / "log"
    PublicationLog.create(TERM, path=path, initial_term_id=5)
    last = (1 << 31) - 1
    with path.open("r+b") as file:
        file.seek(11 * 8)
        file.write(struct.pack("<q", last))
        file.seek((12 + last % 3) * 8)
        file.write(struct.pack("<q", term_id_at(5, last) << 32))
        file.seek(20 * 8)
        file.write(struct.pack("<q", last * TERM))
    log = PublicationLog.open(path)
    assert (log.position, log.max_position) == (last * TERM, TERM << 31)
    fill_term(log, left=64)
    assert log.claim(33, limit=ANY) is MAX_POSITION_EXCEEDED
    assert one(log, write(log, b"x" * 32)).end == log.max_position
    for limit in (0, ANY):
        assert log.claim(0, limit=limit) is MAX_POSITION_EXCEEDED


# --- terms -----------------------------------------------------------------------------------------


def test_rotation_pads_what_is_left() -> None:
    log = PublicationLog.create(TERM, initial_term_id=41)
    fill_term(log, left=96)
    at = log.position
    assert log.claim(96, limit=TERM - 32) is BACK_PRESSURED, "nor may the PAD exceed the limit"
    assert log.claim(96, limit=ANY) is ADMIN_ACTION
    assert log.position == TERM
    assert (one(log, at).type, one(log, at).end) == (PAD, TERM)
    assert write(log, b"first of the next") == TERM
    assert struct.unpack("<ii", log.data[TERM + 8 : TERM + 16].tobytes()) == (0, 42)


def test_a_term_that_is_full_to_the_byte_needs_no_pad() -> None:
    log = PublicationLog.create(TERM)
    fill_term(log)
    assert log.position == TERM
    assert log.claim(0, limit=TERM - 1) is BACK_PRESSURED
    assert log.claim(0, limit=TERM) is ADMIN_ACTION
    assert log.position == TERM
    assert write(log, b"next") == TERM


def test_the_tail_counters() -> None:
    log = PublicationLog.create(TERM, initial_term_id=1005)

    def tails() -> list[int]:
        return list(log.metadata.words[12:15])

    assert tails() == [0x3ED00000000, 0, 0]
    write(log, b"x" * 64)
    assert tails() == [0x3ED00000060, 0, 0]
    fill_term(log)
    write(log, b"x")
    assert tails() == [(1005 << 32) + TERM, (1006 << 32) + 64, 0]
    for _ in range(2):
        fill_term(log)
        clean_all(log)
        write(log, b"x")
    assert tails() == [(1008 << 32) + 64, (1006 << 32) + TERM, (1007 << 32) + TERM]
    assert log.position == 3 * TERM + 64


@pytest.mark.parametrize("initial", [(1 << 31) - 1, -(1 << 31), -1, 0])
def test_term_ids_wrap(initial: int, tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = PublicationLog.create(TERM, path=path, initial_term_id=initial)
    for number in range(5):
        fill_term(log)
        clean_all(log)
        position = write(log, bytes([number]))
        assert position == (number + 1) * TERM
        assert one(PublicationLog.open(path), position).data.tobytes() == bytes([number])
        assert PublicationLog.open(path).position == log.position


def test_initial_term_ids_are_random() -> None:
    logs = [PublicationLog.create(TERM) for _ in range(8)]
    assert len({log.initial_term_id for log in logs}) > 1
    assert len({log.token for log in logs}) == 8


def test_nothing_is_claimed_on_bytes_that_are_not_zeroed() -> None:
    log = PublicationLog.create(TERM)
    for _ in range(3):
        fill_term(log)
        if log.position < 3 * TERM:
            assert log.claim(0, limit=ANY) is ADMIN_ACTION
    assert log.claim(0, limit=ANY) is ADMIN_ACTION
    assert log.claim(0, limit=ANY) is BACK_PRESSURED
    log.clean(32)
    assert isinstance(log.claim(0, limit=ANY), FrameClaim)
    assert log.claim(0, limit=ANY) is BACK_PRESSURED


def test_no_term_is_begun_before_the_one_before_it_is_clean_up_to_its_end() -> None:
    """Its end is a PAD, and behind the PAD a reader would find frames of an earlier term."""
    log = PublicationLog.create(TERM)
    for _ in range(3):
        fill_term(log)
        assert log.claim(0, limit=ANY) is ADMIN_ACTION
    log.clean(TERM - 64)
    fill_term(log, left=128)
    position = log.position
    assert log.claim(200, limit=ANY) is BACK_PRESSURED
    assert log.position == position
    log.clean(TERM)
    assert log.claim(200, limit=ANY) is ADMIN_ACTION


def test_a_frame_of_an_earlier_term_is_none() -> None:
    log = PublicationLog.create(TERM)
    first = write(log, b"first")
    while log.position < 3 * TERM:
        fill_term(log)
        clean_all(log)
        log.claim(0, limit=ANY)
    write(log, b"same place")
    assert one(log, 3 * TERM).data.tobytes() == b"same place"
    assert frame_at(log, first) is None


# --- reading ---------------------------------------------------------------------------------------


def test_reading_stops_at_the_hole() -> None:
    log = PublicationLog.create(TERM)
    for n in range(4):
        write(log, b"%d" % n, first_sn=n)
    claim = claimed(log, 1)
    write(log, b"behind the claim")
    assert bodies(log) == [b"0", b"1", b"2", b"3"]
    assert bodies(log, 128) == [b"2", b"3"]
    assert bodies(log, 256) == []
    claim.commit()
    assert bodies(log, 256) == [b"\0", b"behind the claim"]


def test_reading_goes_on_in_the_next_term() -> None:
    log = PublicationLog.create(TERM)
    fill_term(log, left=64)
    at = log.position
    write(log, b"x" * 64)
    write(log, b"y")
    assert (one(log, at).type, one(log, at).end) == (PAD, TERM)
    assert [frame.start for frame in data_frames(log, at, log.position)] == [TERM, TERM + 96]
    assert bodies(log, at) == [b"x" * 64, b"y"]


# --- cleaning --------------------------------------------------------------------------------------


def test_cleaning_zeroes_in_steps_and_never_beyond_the_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication_log, "CLEAN_BYTES", 100)
    log = PublicationLog.create(TERM)
    for _ in range(4):
        write(log, b"\xff" * 100)
    assert log.clean(150) == 100
    assert not log.data[:100].any() and log.data[100:132].all()
    assert log.clean(150) == 150, "no need to stop between frames"
    assert log.clean(0) == 150
    assert log.position == 640
    for _ in range(10):
        log.clean(ANY)
    assert log.clean_position == log.position == 640
    assert not log.data.any()


def test_cleaning_goes_around() -> None:
    log = PublicationLog.create(TERM)
    for n in range(500):
        write(log, random.Random(n).randbytes(n * 16))
        clean_all(log)
    assert log.position > 20 * TERM
    assert not log.data.any()


# --- unblocking ------------------------------------------------------------------------------------


def test_claims_that_nobody_holds_any_more_are_unblocked() -> None:
    log = PublicationLog.create(TERM)
    write(log, b"before")
    claimed(log, 40)
    write(log, b"between")
    claimed(log, 0)
    after = write(log, b"after")
    assert bodies(log) == [b"before"]
    assert log.unblock(64, after) == 2
    assert (one(log, 64).type, one(log, 64).end) == (PAD, 160)
    assert bodies(log) == [b"before", b"between", b"after"]
    assert log.unblock(64, after) == log.unblock(after, after) == 0


def test_a_late_commit_leaves_what_is_there_now() -> None:
    log = PublicationLog.create(TERM)
    late = claimed(log, 40)
    late.abort()
    while log.position < 3 * TERM:
        fill_term(log)
        clean_all(log)
        log.claim(0, limit=ANY)
    unfinished = claimed(log, 40)
    assert unfinished.start % (3 * TERM) == late.start
    assert not late.commit()
    late.abort()
    assert frame_at(log, unfinished.start) is None, "no torn frame"
    assert unfinished.commit()


def test_a_tail_without_a_header_is_unblocked() -> None:
    """As an exception between the two stores leaves it, or ``kill -9``."""
    log = PublicationLog.create(TERM)
    write(log, b"before")
    log.metadata.words[12] += 128
    write(log, b"after")
    assert frame_at(log, 64) is None
    assert log.unblock(64, 192) == 1
    assert (one(log, 64).type, one(log, 64).end) == (PAD, 192)
    assert one(log, 192).data.tobytes() == b"after"
    log.metadata.words[12] += 96
    assert log.unblock(256, log.position) == 1, "up to the tail where nothing follows"
    assert (one(log, 256).type, one(log, 256).end) == (PAD, 352)


@pytest.mark.parametrize("stored", range(4, HEADER_BYTES, 4))
def test_a_claim_whose_header_is_half_stored_is_unblocked(stored: int) -> None:
    log = PublicationLog.create(TERM, initial_term_id=1005)
    claimed(log, 40, first_sn=1, count=1)
    log.data[stored:HEADER_BYTES] = 0
    assert log.unblock(0, log.position) == 1
    assert (one(log, 0).type, one(log, 0).end) == (PAD, 96)


def test_a_rotation_without_its_pad_is_unblocked(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = PublicationLog.create(TERM, path=path)
    fill_term(log, left=256)
    log.metadata.words[12] += 256  # and then stopped
    again = PublicationLog.open(path)
    assert again.position == TERM
    assert write(again, b"goes on") == TERM
    assert frame_at(again, TERM - 256) is None
    assert again.unblock(TERM - 256, TERM) == 1
    assert (one(again, TERM - 256).type, one(again, TERM - 256).end) == (PAD, TERM)


def test_unblocking_goes_across_terms() -> None:
    log = PublicationLog.create(TERM)
    fill_term(log, left=512)
    start = log.position
    claimed(log, 40)
    claimed(log, 1_000)
    stop = write(log, b"after")
    assert stop > TERM > start
    assert log.unblock(start, stop) == 2
    assert bodies(log, start) == [b"after"]
