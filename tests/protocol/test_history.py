"""The writer's history: what each HISTORY and DURABILITY keeps, and that it lets go of the rest."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.limits import MESSAGE_SIZE_MAX
from spark_rtps.transport.protocol.policies import BatchPolicy, WriterPolicy
from spark_rtps.transport.protocol.writing.changes import Change, DataContent, addressed_to
from spark_rtps.transport.protocol.writing.publication import WriterHistory
from spark_rtps.transport.protocol.writing.state import WriterState
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import INFINITE, Guid
from spark_rtps.transport.wire.framing import frame
from spark_rtps.transport.wire.runs import scan
from spark_rtps.transport.wire.samples import UNREGISTERED, Samples
from tests.support.campaigns import seeds

VOLATILE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
LASTING = replace(VOLATILE, durability=DurabilityKind.TRANSIENT_LOCAL)
WRITER = b"\0\0\1\2"


def history_of(qos: Qos) -> WriterHistory:
    guid = Guid(bytes(12), WRITER)
    return WriterHistory(WriterState(guid, qos, WriterPolicy(), BatchPolicy(), message_size=MESSAGE_SIZE_MAX))


def add(history: WriterHistory, count: int, size: int = 64, budget: int = 1000) -> None:
    samples = Samples.uniform(np.zeros(count * size, np.uint8), count, size)
    for block in frame(samples, WRITER, history.state.last_sn + 1, budget=budget):
        history.append(Change(block.first_sn, block.last_sn, 5, DataContent(block)))


def held(history: WriterHistory) -> list[int]:
    changes = list(history.changes())
    assert sum(change.nbytes for change in changes) == history.nbytes
    numbers = [sn for change in changes for sn in range(change.first_sn, change.last_sn + 1)]
    assert len(numbers) == history.samples
    assert numbers == sorted(set(numbers))
    assert history.first_sn == (numbers[0] if numbers else history.state.last_sn + 1)
    for change in changes:  # every sample can be sent: the DATA that is cut out is the right one
        assert isinstance(change.content, DataContent)
        block = change.content.block
        for sn in (change.first_sn, change.last_sn):
            data = np.frombuffer(block.slice(sn, sn), np.uint8)
            (run,) = scan(data, 0, len(data), bytes(12), 0).runs
            assert (run.first_sn, run.count) == (sn, 1)
    return numbers


def test_volatile_keeps_what_is_not_acknowledged() -> None:
    history = history_of(VOLATILE)
    add(history, 100)
    assert held(history) == list(range(1, 101))
    history.trim(40)
    assert held(history) == list(range(41, 101))
    history.trim(100)
    assert held(history) == []
    assert history.first_sn == 101
    add(history, 3)
    assert held(history) == [101, 102, 103]


def test_keep_all_keeps_all_for_late_joiners_up_to_max_samples() -> None:
    history = history_of(replace(LASTING, max_samples=150))
    add(history, 100)
    history.trim(100)
    assert held(history) == list(range(1, 101))
    assert history.capacity == 50
    assert history_of(LASTING).capacity == INFINITE


@pytest.mark.parametrize("depth", [1, 3, 20])
def test_keep_last_by_topic(depth: int) -> None:
    history = history_of(replace(LASTING, history=HistoryKind.KEEP_LAST, history_depth=depth))
    for count in (1, 5, 40, 2, 100):
        add(history, count)
        history.trim(history.state.last_sn)
        last = history.state.last_sn
        assert held(history) == list(range(max(1, last - depth + 1), last + 1))


def test_replaced_samples_that_a_reader_lacks_are_kept() -> None:
    history = history_of(replace(LASTING, history=HistoryKind.KEEP_LAST))
    add(history, 50)
    history.trim(30)
    assert held(history) == list(range(31, 51))
    history.trim(50)
    assert held(history) == [50]


@pytest.mark.parametrize("seed", seeds(30))
def test_keep_last_by_instance_against_a_model(seed: int) -> None:
    rng = random.Random(seed)
    depth = rng.choice((1, 2, 5))
    history = history_of(replace(LASTING, history=HistoryKind.KEEP_LAST, history_depth=depth))
    keep_last = history.keep_last
    assert keep_last is not None
    model: dict[int, list[int]] = {}
    acknowledged = 0
    for _ in range(15):
        count, flags = rng.randrange(1, 40), UNREGISTERED if rng.random() < 0.15 else 0
        keys = [rng.randrange(8) for _ in range(count)]
        hashes = np.zeros((count, 16), np.uint8)
        hashes[:, 3] = keys
        first = history.state.last_sn + 1
        add(history, count, size=rng.choice((8, 200)))
        keep_last.note_instances(first, hashes, flags)
        for i, key in enumerate(keys):
            if flags:
                model.pop(key, None)
            else:
                model[key] = [*model.get(key, []), first + i][-depth:]
        acknowledged = rng.randrange(acknowledged, history.state.last_sn + 1)
        history.trim(acknowledged)
        live = {sn for numbers in model.values() for sn in numbers}
        assert held(history) == sorted(live | set(range(acknowledged + 1, history.state.last_sn + 1)))
    history.trim(history.state.last_sn)
    live = {sn for numbers in model.values() for sn in numbers}
    assert held(history) == sorted(live)
    owned = {
        id(c.content): c.content.data.nbytes for c in history.changes() if isinstance(c.content, DataContent)
    }
    assert sum(owned.values()) <= 4 * history.nbytes


def test_keep_last_by_instance_gives_way_at_max_samples() -> None:
    qos = replace(LASTING, history=HistoryKind.KEEP_LAST, max_samples=10)
    history = history_of(qos)
    keep_last = history.keep_last
    assert keep_last is not None
    for i in range(30):
        add(history, 1)
        keep_last.note_instances(i + 1, np.full((1, 16), i, np.uint8), 0)
        history.trim(history.state.last_sn)
    assert held(history) == list(range(21, 31))


def test_find_gives_the_next_higher_where_there_is_a_hole() -> None:
    history = history_of(LASTING)
    add(history, 30, budget=100)
    history._drop(5, 9)
    found = history.find_change(6)
    assert found is not None
    assert found.first_sn == 10
    assert history.find_change(31) is None


@pytest.mark.parametrize("uniform", [True, False])
def test_history_for_one_reader_names_it(uniform: bool) -> None:
    if uniform:
        samples = Samples.uniform(np.arange(80, dtype=np.uint8), 10, 8)
    else:
        lengths = np.array([8, 4, 12, 8, 16, 8, 4, 4, 8, 8])
        samples = Samples.ragged(np.arange(80, dtype=np.uint8), np.cumsum(lengths) - lengths, lengths)
    (block,) = frame(samples, WRITER, 7, budget=4000)
    before = block.data.copy()
    data = addressed_to(b"\0\0\2\7", block, 9, 12)
    pos, runs = 0, []
    while pos < len(data):
        found = scan(data, pos, len(data), bytes(12), 0)
        runs += found.runs
        pos = found.pos
    assert [run.reader_id for run in runs] == [b"\0\0\2\7"] * len(runs)
    payloads = [bytes(run.samples().payload(i)) for run in runs for i in range(run.count)]
    assert payloads == [bytes(samples.payload(i)) for i in range(2, 6)]
    assert np.array_equal(block.data, before), "a block is never changed"
