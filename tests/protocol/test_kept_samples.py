"""KEEP_LAST of many instances: what is kept for late joiners, in how much memory, and at what cost."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from types import FrameType

import numpy as np
import pytest

from spark_rtps.transport.limits import MESSAGE_SIZE_MAX
from spark_rtps.transport.protocol.policies import BatchPolicy, WriterPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.changes import (
    Change,
    DataContent,
    GsoMessageContent,
    LargeContent,
    LargeSample,
)
from spark_rtps.transport.protocol.writing.publication import WriterHistory, kept_samples
from spark_rtps.transport.protocol.writing.publication.keep_last import KeepLast
from spark_rtps.transport.protocol.writing.state import WriterState
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.framing import DataBlock, frame, frame_messages, message_shape
from spark_rtps.transport.wire.runs import scan
from spark_rtps.transport.wire.samples import I64, U8, UNREGISTERED
from tests.protocol.lossy_link import SECOND, LossyLink
from tests.protocol.test_reliability import LASTING, READER, WRITER, numbered, ragged, received

KEEP_LAST = Qos(
    reliability=ReliabilityKind.RELIABLE,
    history=HistoryKind.KEEP_LAST,
    durability=DurabilityKind.TRANSIENT_LOCAL,
)


def history_of(qos: Qos) -> WriterHistory:
    guid = Guid(bytes(12), WRITER)
    return WriterHistory(WriterState(guid, qos, WriterPolicy(), BatchPolicy(), message_size=MESSAGE_SIZE_MAX))


def add(history: WriterHistory, count: int, rng: random.Random) -> int:
    """The next samples, in one of the shapes in which writers keep them; returns their source timestamp."""
    first_sn, timestamp = history.state.last_sn + 1, rng.randrange(5, 8)
    shape = rng.choice(("blocks", "messages", "ragged", "large"))
    if shape == "messages":
        of = message_shape(16, 1_000, 20, flags=0, with_key_hash=False, coherent_set=0)
        out = np.empty(of.nbytes(count), np.uint8)
        samples = numbered(first_sn, count)
        gso_buffer = frame_messages(out, of, bytes(20), samples, WRITER, first_sn, flags=0, key_hashes=None)
        history.append(Change(first_sn, gso_buffer.last_sn, timestamp, GsoMessageContent(gso_buffer)))
        return timestamp
    if shape == "large":
        (block,) = frame(numbered(first_sn, 1), WRITER, first_sn, budget=100)
        large = LargeContent(LargeSample.of_block(block, first_sn, 64))
        history.append(Change(first_sn, first_sn, timestamp, large))
        count -= 1
        first_sn += 1
    if count:
        samples = ragged(first_sn, count, rng, 80) if shape == "ragged" else numbered(first_sn, count)
        for block in frame(samples, WRITER, first_sn, budget=rng.choice((200, 4_000))):
            history.append(Change(block.first_sn, block.last_sn, timestamp, DataContent(block)))
    return timestamp


def held(history: WriterHistory) -> list[int]:
    """The numbers held; checks that each is found, and is the sample that was written."""
    changes = list(history.changes())
    numbers = [sn for change in changes for sn in range(change.first_sn, change.last_sn + 1)]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == history.samples
    assert sum(change.nbytes for change in changes) == history.nbytes
    assert history.first_sn == (numbers[0] if numbers else history.state.last_sn + 1)
    for change in changes:
        if isinstance(change.content, DataContent):
            payloads(change.content.block, change.first_sn, change.last_sn)
    return numbers


def payloads(block: DataBlock, first: int, last: int) -> None:
    """Every DATA of these has its number on the wire and in its payload."""
    data, pos, sn = np.frombuffer(block.slice(first, last), np.uint8), 0, first
    while pos < len(data):
        found = scan(data, pos, len(data), bytes(12), 0)
        for run in found.runs:
            assert run.first_sn == sn
            for i in range(run.count):
                assert int.from_bytes(bytes(run.samples().payload(i))[4:8], "little") == sn + i
            sn += run.count
        pos = found.pos
    assert sn == last + 1


def owned(history: WriterHistory) -> int:
    """Bytes of the arrays that small samples which are held lie in."""
    owners: dict[int, U8] = {}
    for change in history.changes():
        if isinstance(change.content, LargeContent):
            continue
        data = change.content.data
        owner = data if data.base is None else data.base
        assert isinstance(owner, np.ndarray)
        owners[id(owner)] = owner
    return sum(owner.nbytes for owner in owners.values())


@pytest.mark.parametrize("seed", range(12))
def test_many_instances_against_a_model(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(kept_samples, "_SAMPLES", rng.choice((60, 400)))  # so that there are many parts
    depth, instances = rng.choice((1, 1, 3)), rng.choice((50, 400, 3_000))
    history = history_of(replace(KEEP_LAST, history_depth=depth))
    keep_last = history.keep_last
    assert keep_last is not None
    model: dict[int, list[int]] = {}
    stamps: dict[int, int] = {}
    acknowledged = 0
    for _ in range(40):
        count, flags = rng.choice((1, 7, 300, 900)), UNREGISTERED if rng.random() < 0.1 else 0
        keys = [rng.randrange(instances) for _ in range(count)]
        hashes = np.zeros((count, 16), np.uint8)
        hashes[:, 2:4] = np.array(keys, ">u2").view(np.uint8).reshape(count, 2)
        first = history.state.last_sn + 1
        stamp = add(history, count, rng)
        stamps |= dict.fromkeys(range(first, first + count), stamp)
        keep_last.note_instances(first, hashes, flags)
        for i, key in enumerate(keys):
            if flags:
                model.pop(key, None)
            else:
                model[key] = [*model.get(key, []), first + i][-depth:]
        last = history.state.last_sn
        acknowledged = rng.choice((acknowledged, rng.randrange(acknowledged, last + 1), last))
        history.trim(acknowledged)
        live = {sn for numbers in model.values() for sn in numbers}
        expected = sorted(live | set(range(acknowledged + 1, last + 1)))
        assert held(history) == expected
        for change in history.changes():
            assert {stamps[sn] for sn in range(change.first_sn, change.last_sn + 1)} == {change.timestamp}
        for sn in rng.sample(range(1, last + 2), min(50, last)):
            found, following = history.find_change(sn), [each for each in expected if each >= sn]
            assert (found is None) == (not following)
            if found is not None:
                assert max(found.first_sn, sn) == following[0]
    history.trim(history.state.last_sn)
    live = {sn for numbers in model.values() for sn in numbers}
    assert held(history) == sorted(live)
    assert owned(history) <= 4 * history.nbytes


def hashes_of(*keys: int) -> U8:
    return np.array([[key] * 16 for key in keys], np.uint8)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_claim_that_is_committed_late_replaces_nothing_newer(depth: int) -> None:
    keep_last = KeepLast(history_of(KEEP_LAST).state, depth)
    keep_last.note_instances(11, hashes_of(1, 2, 2, 2), 0)
    keep_last.note_instances(1, hashes_of(1, 1, 2, 3), 0)  # claimed before, committed behind them
    ranges = [range(first, last + 1) for first, last in zip(*keep_last.take_replaced(20), strict=True)]
    replaced = {1: {1, 2, 3, 12, 13}, 2: {1, 3, 12}}[depth]
    assert {int(sn) for each in ranges for sn in each} == replaced
    keep_last.note_instances(21, hashes_of(1), 0)
    assert keep_last.take_replaced(30)[0].tolist() == [{1: 11, 2: 2}[depth]]


@pytest.mark.parametrize("depth", [1, 2])
def test_nothing_is_left_of_forgotten_instances(depth: int) -> None:
    keep_last = KeepLast(history_of(KEEP_LAST).state, depth)
    keep_last.note_instances(1, hashes_of(1, 2), 0)
    keep_last.note_instances(3, hashes_of(1, 2), UNREGISTERED)
    firsts, lasts = keep_last.take_replaced(4)
    assert (lasts - firsts + 1).sum() == 4
    keep_last.note_instances(5, hashes_of(*[1] * depth), 0)
    assert not len(keep_last.take_replaced(6)[0])


def test_the_oldest_instances_give_way_at_max_samples() -> None:
    history, rng = history_of(replace(KEEP_LAST, max_samples=1_000)), random.Random(1)
    keep_last = history.keep_last
    assert keep_last is not None
    for i in range(0, 6_000, 300):
        hashes = np.zeros((300, 16), np.uint8)
        hashes[:, :2] = np.arange(i // 2, i // 2 + 300, dtype=">u2").view(np.uint8).reshape(300, 2)
        first = history.state.last_sn + 1
        add(history, 300, rng)
        keep_last.note_instances(first, hashes, 0)
        history.trim(history.state.last_sn)
    # the newer half of each 300 instances is written again 300 samples later
    last = history.state.last_sn
    model = [sn for sn in range(1, last + 1) if (sn - 1) % 300 < 150 or sn > last - 300]
    assert held(history) == model[-1_000:]


class _Written:
    """A writer of many instances, and the function calls that its writing takes."""

    def __init__(self, instances: int) -> None:
        self.writer = StatefulWriter(Guid(bytes(12), WRITER), KEEP_LAST, message_size=60_000)
        self._random = np.random.default_rng(1)
        self._instances = instances
        self.write(np.arange(instances))

    def write(self, keys: I64 | None = None) -> int:
        """Write a sample of each of these, or 4,000 of any; returns the calls."""
        if keys is None:
            keys = self._random.integers(0, self._instances, 4_000)
        hashes = np.zeros((len(keys), 16), np.uint8)
        hashes[:, :4] = keys.astype(">u4").view(np.uint8).reshape(len(keys), 4)
        first, calls = self.writer.state.last_sn, 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            taken = 0
            while taken < len(keys):
                part = numbered(first + taken, len(keys) - taken, 64)
                taken += self.writer.write_samples(part, timestamp=1, now=1, key_hashes=hashes[taken:])
                self.writer.outgoing()
        finally:
            sys.setprofile(None)
        return calls


def test_neither_calls_nor_memory_grow_faster_than_the_instances() -> None:
    few, many = _Written(4_000), _Written(64_000)
    calls = []
    for each in (few, many):
        for _ in range(20):
            each.write()
        calls.append(each.write())
        assert owned(each.writer.history) <= 4 * each.writer.history.nbytes
    assert many.writer.history.samples == 64_000
    assert calls[1] < 2 * calls[0]


def test_a_late_joiner_of_many_instances() -> None:
    link = LossyLink(5, loss=0.1)
    a, b = link.node(), link.node()
    writer = StatefulWriter(Guid(a.prefix, WRITER), KEEP_LAST)
    reader = StatefulReader(Guid(b.prefix, READER), LASTING)
    a.writers.append(writer)
    b.readers.append(reader)
    keys = np.random.default_rng(3).integers(0, 600, 6_000)
    hashes = np.zeros((len(keys), 16), np.uint8)
    hashes[:, :4] = keys.astype(">u4").view(np.uint8).reshape(len(keys), 4)
    for at in range(0, len(keys), 500):
        part = hashes[at : at + 500]
        assert writer.write_samples(numbered(at, 500), timestamp=1, now=link.now, key_hashes=part) == 500
    newest = {int(key): number for number, key in enumerate(keys)}
    link.match(writer, reader)
    link.run(30 * SECOND)
    assert received(b, reader) == sorted(newest.values())
    assert reader.counters.lost_samples == 0
