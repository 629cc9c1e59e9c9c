"""What a process reads of a publication log: whole frames, in order, never what was overwritten."""

from __future__ import annotations

import contextlib
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_rtps.transport.errors import LogError
from spark_rtps.transport.log.image import CopyBuffer, Image
from spark_rtps.transport.log.publication_log import ADMIN_ACTION, FrameClaim, PublicationLog
from spark_rtps.transport.structure import INFINITE

TERM = 64 << 10
#: A body of 32 bytes: with its header it takes 64.
SIZE, PLACE = 32, 64


@pytest.fixture
def log() -> PublicationLog:
    return PublicationLog.create(TERM)


def image_of(log: PublicationLog, position: int = 0) -> Image:
    return Image(log, position, CopyBuffer())


def put(log: PublicationLog, body: bytes) -> FrameClaim:
    """A frame that is not committed yet."""
    while (claim := log.claim(len(body), limit=INFINITE)) is ADMIN_ACTION:
        pass
    assert isinstance(claim, FrameClaim)
    claim.data[:] = np.frombuffer(body, np.uint8)
    return claim


def publish(log: PublicationLog, *numbers: int, size: int = SIZE) -> None:
    for number in numbers:
        if log.position + TERM > log.clean_position + 2 * TERM:
            while log.clean_position < log.position - TERM:
                log.clean(log.position - TERM)
        put(log, number.to_bytes(4, "little") * (size // 4)).commit()


def read(image: Image, max_bytes: int = 1 << 20) -> list[int]:
    """The numbers of the next frames, which are passed."""
    frames = image.poll(max_bytes)
    if frames is None:
        return []
    bodies = [bytes(frames.data[start:stop]) for start, stop, _ in frames.spans]
    assert all(body == body[:4] * (len(body) // 4) for body in bodies), "a torn frame"
    image.position = frames.end
    return [int.from_bytes(body[:4], "little") for body in bodies]


def test_frames_are_read_in_order(log: PublicationLog) -> None:
    image = image_of(log)
    assert read(image) == [] and not image.has_more
    publish(log, 1, 2, 3)
    assert image.has_more and read(image) == [1, 2, 3]
    publish(log, 4)
    assert read(image) == [4] and image.position == log.position


def test_nothing_old_is_read_where_the_tail_has_come_to_what_is_not_cleaned(log: PublicationLog) -> None:
    """The log is cleaned a piece at a time, and large samples overtake that."""
    for number in range(3 * TERM // PLACE):
        put(log, number.to_bytes(4, "little") * (SIZE // 4)).commit()
    image = image_of(log, log.position - 2 * PLACE)
    assert read(image) == [3 * TERM // PLACE - 2, 3 * TERM // PLACE - 1]
    assert not image.has_more and read(image) == [] and image.position == log.position
    log.clean(5 * PLACE)
    for _ in range(5):
        put(log, bytes(SIZE)).commit()
    assert read(image) == [0] * 5, "and not the frame of an earlier term behind them"
    assert not image.has_more and image.position == log.position


def test_no_more_than_is_asked_for_but_one_at_least(log: PublicationLog) -> None:
    image = image_of(log)
    publish(log, *range(5))
    assert read(image, 3 * PLACE) == [0, 1, 2]
    assert read(image, 0) == [3]
    frames = image.poll(0)
    assert frames is not None and frames.nbytes == SIZE


def test_reading_does_not_pass_what_is_read(log: PublicationLog) -> None:
    image = image_of(log)
    publish(log, 1)
    assert image.poll(100) is not None and image.position == 0
    assert read(image) == [1]


def test_an_image_stops_at_a_claim(log: PublicationLog) -> None:
    image = image_of(log)
    publish(log, 1)
    claim = put(log, b"1234" * 8)
    publish(log, 3)
    assert read(image) == [1] and read(image) == [] and not image.has_more
    claim.commit()
    assert read(image) == [int.from_bytes(b"1234", "little"), 3]


def test_padding_and_empty_frames_are_passed(log: PublicationLog) -> None:
    image = image_of(log)
    put(log, b"none").abort()
    assert read(image) == [] and image.position == 64
    put(log, b"").commit()  # of a sample too large for the log
    assert read(image) == [] and image.position == 96
    publish(log, 1)
    assert read(image) == [1]


@pytest.mark.parametrize("nbytes", [96, 100, 32, 8])
def test_each_message_of_a_gso_buffer_is_a_span(log: PublicationLog, nbytes: int) -> None:
    image, body = image_of(log), bytes(range(100))[:nbytes]
    publish(log, 1)
    claim = log.claim(nbytes, limit=INFINITE, first_sn=1, count=3, segment=32)
    assert isinstance(claim, FrameClaim)
    claim.data[:] = np.frombuffer(body, np.uint8)
    claim.commit()
    publish(log, 2)
    frames = image.poll(1 << 20)
    assert frames is not None and frames.end == log.position
    messages = [bytes(frames.data[start:stop]) for start, stop, _ in frames.spans]
    assert messages[1:-1] == [body[at : at + 32] for at in range(0, nbytes, 32)]
    assert [len(message) for message in (messages[0], messages[-1])] == [SIZE, SIZE]
    assert frames.nbytes == nbytes + 2 * SIZE


def test_term_after_term(log: PublicationLog) -> None:
    image, got, sent = image_of(log), [], 0
    for _ in range(200):
        publish(log, *range(sent, sent + 40), size=96)
        sent += 40
        while numbers := read(image, 1_000):
            got += numbers
        if image.has_more:  # padding at the end of a term
            got += read(image)
    while image.position < log.position:
        got += read(image)
    assert log.position > 10 * TERM and got == list(range(sent))


def test_a_copy_outlives_the_frame_but_not_the_next_copy(log: PublicationLog) -> None:
    image = image_of(log)
    publish(log, 1)
    frames = image.poll(1_000)
    assert frames is not None
    log.data[:] = 0
    assert frames.data[frames.spans[0][0]] == 1


def test_a_reader_more_than_a_term_behind_gets_nothing(log: PublicationLog) -> None:
    image = image_of(log)
    publish(log, 1)
    assert image.poll(1_000) is not None
    while log.position <= TERM:
        publish(log, 2)
    assert not image.is_lapped, "it is all there still"
    log.clean(log.position - TERM)
    assert image.is_lapped and image.poll(1_000) is None
    image.rejoin()
    assert not image.is_lapped and read(image) == []
    publish(log, 3)
    assert read(image) == [3]


def test_frames_overwritten_during_a_copy_are_not_delivered(log: PublicationLog) -> None:
    class Slow(CopyBuffer):
        def copy(self, data: Any) -> Any:
            while log.position <= 2 * TERM:
                publish(log, 9)
            assert log.clean_position > 0
            return super().copy(data)

    image = Image(log, 0, Slow())
    publish(log, 1, 2)
    assert image.poll(1_000) is None and image.is_lapped


def test_the_oldest_frames_that_are_surely_there(log: PublicationLog) -> None:
    image = image_of(log)
    while log.position < TERM:
        publish(log, log.position // PLACE)
    image.rewind()
    assert image.position == 0 and read(image, PLACE) == [0]
    publish(log, *(TERM // PLACE + i for i in range(5)))
    assert log.clean_position > 0
    image.rewind()
    assert image.position == TERM and read(image) == [TERM // PLACE + i for i in range(5)]


def test_a_new_reader_begins_where_the_sender_is(log: PublicationLog) -> None:
    publish(log, 1, 2, 3)
    log.metadata.words[17] = 2 * PLACE  # snd_pos
    image = Image.joined(log, CopyBuffer())
    assert log.metadata.positions()["snd_pos"] == image.position and read(image) == [3]


def test_damage_is_an_error(log: PublicationLog) -> None:
    publish(log, 1)
    log.lengths[0] = 7
    with pytest.raises(LogError, match="damaged at position 0"):
        image_of(log).poll(100)
    log.lengths[0] = TERM + 32
    with pytest.raises(LogError, match="damaged at position 0"):
        image_of(log).poll(100)


def test_a_log_damaged_by_its_owner_is_read_within_bounds_or_an_error(tmp_path: Path) -> None:
    """Any numbers in the words of a log that is being read: positions, limits, lengths, types."""
    path, rng = tmp_path / "log", random.Random(5)
    publish(PublicationLog.create(TERM, path=path), *range(400))
    whole = path.read_bytes()
    terms = len(whole) - 3 * TERM
    view = PublicationLog.open(path)
    numbers = (0, -1, 1, 1 << 62, 33, TERM - 32, -(1 << 63))
    with open(path, "r+b", buffering=0) as file:
        for _ in range(2000):
            file.seek(0)
            file.write(whole[: terms + 2048])
            image = Image(view, rng.choice([0, 64, rng.randrange(1 << 20)]), CopyBuffer())
            for _ in range(rng.randrange(1, 6)):
                file.seek(8 * rng.choice([rng.randrange(terms // 8), terms // 8 + rng.randrange(200)]))
                file.write(struct.pack("<q", rng.choice([*numbers, rng.randrange(1 << 20)])))
            for act in rng.choices([image.rejoin, image.rewind, lambda: None], k=3):
                act()  # type: ignore[no-untyped-call]
                with contextlib.suppress(LogError):
                    found = image.poll(rng.choice([100, 1 << 20]))
                    if found is not None:
                        assert all(0 <= start <= stop <= len(found.data) for start, stop, _ in found.spans)
                        assert image.position < found.end <= image.position + TERM
                        image.position = found.end
