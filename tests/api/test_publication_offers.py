"""Publications that do not wait: offers and claims, and what they answer."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spark_rtps as rtps
from spark_rtps.api.claim import Claim
from tests.interop import cyclone_types
from tests.interop.cyclone_peer import CyclonePeer
from tests.support.waiting import PATIENCE

Participate = Callable[..., rtps.Participant]

POINT = pa.schema([("id", pa.int32()), ("x", pa.int32())])
KEYED: dict[str, Any] = {"schema": POINT, "type": "Point", "key": "id"}
#: Columns that may hold a null are members like all others.
REQUIRED = {"nullable": "required"}
LOGGED = {"publication.term_length": "64KiB"}


def publication(participant: rtps.Participant, **arguments: Any) -> rtps.Publication:
    options = {**REQUIRED, **LOGGED, **arguments.pop("options", {})}
    return participant.publish("points", **{**KEYED, **arguments}, options=options)


def points(first: int, count: int, instance: int = 1) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "id": pa.array([instance] * count, pa.int32()),
            "x": pa.array(range(first, first + count), pa.int32()),
        }
    )


def serialized(instance: int, x: int) -> bytes:
    return b"\x00\x01\x00\x00" + struct.pack("<ii", instance, x)


def test_an_offer_without_a_reader(participant: rtps.Participant) -> None:
    ours = publication(participant)
    assert ours.offer(points(0, 3)) is rtps.PublicationResult.NOT_CONNECTED
    assert ours.try_claim(12) is rtps.PublicationResult.NOT_CONNECTED
    ours.close()
    assert ours.offer(points(0, 3)) is rtps.PublicationResult.CLOSED
    assert ours.try_claim(12) is rtps.PublicationResult.CLOSED


def test_an_offer_answers_the_position_behind_it(participate: Participate) -> None:
    reading = participate().subscribe("points", **KEYED)
    ours = publication(participate())
    assert ours.wait_for_readers(PATIENCE)
    first = ours.offer(points(0, 3))
    second = ours.offer(pa.Table.from_batches([points(3, 2), points(5, 1)]))
    assert 0 < first < second == ours.positions.pub_pos <= ours.positions.pub_lmt
    assert reading.take(max_rows=6, timeout=PATIENCE)["x"].to_pylist() == list(range(6))
    ours.wait_for_acknowledgments(PATIENCE)
    assert ours.positions.snd_pos == second <= ours.positions.snd_lmt
    assert ours.offer([]) == second


def test_an_offer_is_back_pressured_and_all_or_nothing(
    participate: Participate, cyclone: Callable[..., CyclonePeer]
) -> None:
    peer = cyclone()
    peer.reader("points", cyclone_types.Vehicle)
    schema = pa.schema([("id", pa.int32()), ("note", pa.string()), ("speed", pa.float64())])
    ours = participate().publish(
        "points",
        schema=schema,
        type="interop::Vehicle",
        key="id",
        options={**REQUIRED, **LOGGED, "reliable_writer.send_window_bytes": 20_000},
    )
    assert ours.wait_for_readers(PATIENCE)
    batch = pa.RecordBatch.from_pylist(
        [{"id": n, "note": "", "speed": 0.0} for n in range(50)], schema=schema
    )
    with peer.suspended():
        answers = [ours.offer(batch) for _ in range(40)]
    taken = [answer for answer in answers if answer > 0]
    assert 0 < len(taken) < 40 and taken == sorted(taken)
    assert set(answers) - set(taken) == {rtps.PublicationResult.BACK_PRESSURED}
    assert ours.counters()["written_samples"] == 50 * len(taken)
    ours.wait_for_acknowledgments(PATIENCE)


def test_more_than_ever_fits(participate: Participate) -> None:
    participate().subscribe("points", **KEYED)
    ours = publication(participate())
    assert ours.wait_for_readers(PATIENCE)
    with pytest.raises(rtps.UsageError, match="never fit at once"):
        ours.offer(points(0, 100_000))


def offered(ours: rtps.Publication, batch: pa.RecordBatch, answers: list[int]) -> int:
    """The position behind the rows, once there is room; ``answers`` is what it took."""
    until = time.monotonic() + PATIENCE
    while (answer := ours.offer(batch)) <= 0:
        answers.append(answer)
        assert time.monotonic() < until
        if answer is rtps.PublicationResult.BACK_PRESSURED:
            ours.wait_for_acknowledgments(PATIENCE)
    return answer


def test_an_offer_at_the_end_of_a_term_is_to_be_repeated(participate: Participate) -> None:
    reading = participate().subscribe("points", **KEYED)
    ours = publication(participate())
    assert ours.wait_for_readers(PATIENCE)
    term, rows, offers = 64 << 10, 40, 100
    for number in range(offers):
        before = ours.positions.pub_pos
        answers: list[int] = []
        position = offered(ours, points(number * rows, rows), answers)
        if rtps.PublicationResult.ADMIN_ACTION in answers:
            assert answers[-1] is rtps.PublicationResult.ADMIN_ACTION, "the next one is taken"
            assert before // term + 1 == position // term and before % term > 3 * term // 4
        else:
            assert before // term == (position - 1) // term, "no offer is divided by the end of a term"
    assert position > 2 * term
    assert reading.take(max_rows=rows * offers, timeout=PATIENCE)["x"].to_pylist() == list(
        range(rows * offers)
    )


def test_a_claim_at_the_end_of_a_term_is_to_be_repeated(participate: Participate) -> None:
    reading = participate().subscribe("points", **KEYED)
    ours = publication(participate())
    assert ours.wait_for_readers(PATIENCE)
    answers = []
    for number in range(700):
        while not isinstance(claim := ours.try_claim(12), Claim):
            answers.append(claim)
            if claim is rtps.PublicationResult.BACK_PRESSURED:
                ours.wait_for_acknowledgments(PATIENCE)
        with claim:
            claim.buffer[:] = serialized(1, number)
    assert answers.count(rtps.PublicationResult.ADMIN_ACTION) == ours.positions.pub_pos // (64 << 10) == 1
    assert reading.take(max_rows=700, timeout=PATIENCE)["x"].to_pylist() == list(range(700))


def test_offers_beyond_the_last_position_are_refused(participate: Participate) -> None:
    """Term ids have 31 bits, more than a test can use up: this log is made to end after its first term."""
    reading = participate().subscribe("points", **KEYED)
    ours = publication(participate())
    assert ours.wait_for_readers(PATIENCE)
    ours._writer.writer._unsent.log.max_position = 64 << 10  # type: ignore[misc]
    rows, number = 40, 0
    while (
        answer := ours.offer(points(number * rows, rows))
    ) is not rtps.PublicationResult.MAX_POSITION_EXCEEDED:
        assert answer > 0 or answer is rtps.PublicationResult.BACK_PRESSURED
        number += answer > 0
    assert number > 5 and ours.positions.pub_pos < 64 << 10
    assert ours.offer(points(0, rows)) is rtps.PublicationResult.MAX_POSITION_EXCEEDED, "never again"
    while isinstance(claim := ours.try_claim(12), Claim):  # smaller ones still fit
        claim.buffer[:] = serialized(1, -1)
        claim.commit()
    assert claim is rtps.PublicationResult.MAX_POSITION_EXCEEDED
    found = reading.take(max_rows=number * rows, timeout=PATIENCE)["x"].to_pylist()
    assert found == list(range(number * rows))
    ours.wait_for_acknowledgments(PATIENCE)


def test_offers_into_batches_know_the_end_of_all_positions(participate: Participate) -> None:
    participate().subscribe("points", **KEYED)
    ours = publication(participate(), options={"batch.enable": "true", "batch.max_samples": 10})
    assert ours.wait_for_readers(PATIENCE)
    ours._writer.writer._unsent.log.max_position = 0  # type: ignore[misc]
    assert ours.offer(points(0, 5)) is rtps.PublicationResult.MAX_POSITION_EXCEEDED


def test_a_thread_that_dies_with_a_claim_blocks_nobody_for_long(participate: Participate) -> None:
    reading = participate().subscribe("points", **KEYED)
    ours = publication(participate(), options={"publication.unblock_timeout": "300ms"})
    assert ours.wait_for_readers(PATIENCE)

    def die() -> None:
        claimed(ours).buffer[:4] = b"\x00\x01\x00\x00"

    thread = threading.Thread(target=die)
    thread.start()
    thread.join()
    ours.write(points(7, 1))
    assert reading.take(max_rows=1, timeout=PATIENCE)["x"].to_pylist() == [7]
    assert ours.counters()["unblocked_publications"] == 1


def claimed(ours: rtps.Publication, size: int = 12) -> Claim:
    claim = ours.try_claim(size)
    assert isinstance(claim, Claim)
    return claim


def test_claims_of_a_keyed_topic(participate: Participate) -> None:
    """Key hashes are computed from what is committed, so KEEP_LAST keeps each instance's newest."""
    kept = {"durability": "transient_local", "history_depth": 1}
    reading = participate().subscribe("points", **KEYED)
    ours = publication(participate(), **kept)
    assert ours.wait_for_readers(PATIENCE)
    for x, instance in enumerate((1, 2, 1)):
        with claimed(ours) as claim:
            claim.buffer[:] = serialized(instance, x)
    own = claimed(ours)
    own.buffer[:] = serialized(2, 3)
    assert own.position > claim.position
    assert own.commit(key_hash=struct.pack(">i", 2) + bytes(12))
    assert reading.take(max_rows=4, timeout=PATIENCE)["x"].to_pylist() == [0, 1, 2, 3]
    ours.wait_for_acknowledgments(PATIENCE)
    late = participate().subscribe("points", **KEYED, durability="transient_local")
    assert sorted(late.take(max_rows=2, timeout=PATIENCE)["x"].to_pylist()) == [2, 3]
    time.sleep(0.1)
    assert not late.take().num_rows


def test_claims_that_are_given_up(participate: Participate) -> None:
    reading = participate().subscribe("points", **KEYED)
    ours = publication(participate())
    assert ours.wait_for_readers(PATIENCE)
    claimed(ours).abort()
    with pytest.raises(ZeroDivisionError), claimed(ours):
        raise ZeroDivisionError
    with pytest.raises(rtps.EncodeError, match="does not decode"), claimed(ours, 4) as claim:
        claim.buffer[:] = b"\x00\x01\x00\x00"  # there is no key in it
    with pytest.raises(rtps.UsageError, match="a key hash has 16 bytes, not 2"):
        claimed(ours).commit(key_hash=b"xx")
    with pytest.raises(rtps.UsageError, match="cannot be 3"):
        ours.try_claim(3)
    with claimed(ours) as claim:
        claim.buffer[:] = serialized(1, 5)
    assert reading.take(max_rows=1, timeout=PATIENCE)["x"].to_pylist() == [5]


def test_a_claim_is_padded(participate: Participate) -> None:
    """A sample whose size is no multiple of 4 announces its padding (XTypes 1.3 §7.6.3.1.2)."""
    text = pa.schema([("text", pa.string())])
    reading = participate().subscribe("texts", schema=text, type="Text")
    ours = participate().publish("texts", schema=text, type="Text", options={**REQUIRED, **LOGGED})
    assert ours.wait_for_readers(PATIENCE)
    payload = b"\x00\x01\x00\x00" + struct.pack("<I", 6) + b"hello\0"
    with claimed(ours, len(payload)) as claim:
        claim.buffer[:] = payload
        assert np.frombuffer(claim.buffer, np.uint8).size == len(payload)
    assert reading.take(max_rows=1, timeout=PATIENCE)["text"].to_pylist() == ["hello"]


def test_a_claim_that_is_committed_again_writes_nothing_into_the_room_of_others(
    participate: Participate,
) -> None:
    ours = publication(participate())
    participate().subscribe("points", **KEYED)
    assert ours.wait_for_readers(PATIENCE)
    claim = claimed(ours, 13)
    claim.buffer[:] = serialized(1, 5) + b"\0"
    assert claim.commit()
    room = claim._claim.data
    room[:] = 7  # another sample that has its room by now
    assert not claim.commit()
    assert (room == 7).all()
