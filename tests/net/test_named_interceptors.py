"""Interceptors of batches that are named, by an option or the environment, and one for all writers of a process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark_rtps.options.explanations import explained
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.net.plugins import load_interceptor, set_worker_interceptor
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import BatchPolicy, PublicationPolicy
from spark_rtps.transport.protocol.writing.batching import BatchRequest
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_struct
from tests.net.net_scene import RELIABLE, Scene, scene_of
from tests.support import domains
from tests.support.numbered_samples import numbered

OPEN = BatchPolicy(enable=True, max_data_bytes=60_000)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_of(domains.NET_PUBLISHING) as scene:
        yield scene


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no_such_module_here:f", "No module named 'no_such_module_here'"),
        ("json:no_such_function", "no attribute 'no_such_function'"),
        ("json", "attribute"),
        (":f", "Empty module name"),
        ("json:__name__", "is not callable"),
        ("broken_interceptor:f", "ZeroDivisionError"),
    ],
)
def test_an_interceptor_that_cannot_be_had_is_an_option_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    (tmp_path / "broken_interceptor.py").write_text("1 / 0\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(OptionError, match=rf"'batch.interceptor' = '{name}'.*{why}"), explained():
        load_interceptor(name)


def test_an_interceptor_of_the_old_form_is_refused_with_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old_interceptor.py").write_text("def f(size, queued, nbytes, flush): pass\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    why = r"'old_interceptor:f': is not called as interceptor\(request\): missing .* enqueue\(\), hold\(\), drop\(\)"
    with pytest.raises(OptionError, match=why), explained():
        load_interceptor("old_interceptor:f")


SEEING = """
seen = []

def see(request):
    seen.append((request.topic, request.writer, request.size, request.queued_samples, request.queued_bytes))
    if request.queued_samples == 2:
        request.flush()
    request.enqueue()
"""


def test_an_interceptor_by_name_sees_each_sample_and_flushes(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seeing_interceptor.py").write_text(SEEING)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    got = scene.reader(scene.node())
    writer = scene.writer(scene.node(), batch=OPEN, interceptor="seeing_interceptor:see")
    writer.write_samples(numbered(0, 5))
    import seeing_interceptor  # type: ignore[import-not-found]

    queued = [(0, 0), (1, 12), (2, 24), (1, 12), (2, 24)]
    assert seeing_interceptor.seen == [("T", writer.guid, 12, *each) for each in queued]
    scene.wait(lambda: got.numbers == [0, 1, 2, 3])
    writer.flush()
    scene.wait(lambda: got.numbers == [0, 1, 2, 3, 4])


@pytest.fixture
def of_worker() -> Iterator[Callable[..., None]]:
    yield set_worker_interceptor
    set_worker_interceptor(None)


def test_one_interceptor_for_all_writers_of_a_process(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_worker: Callable[..., None]
) -> None:
    topics: list[str] = []

    def see(request: BatchRequest) -> None:
        topics.append(request.topic)
        request.drop()

    of_worker(see)
    (tmp_path / "seeing_interceptor.py").write_text(SEEING)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    node = scene.node()
    one = scene.writer(node, batch=OPEN, topic="one", readers=0)
    other = scene.writer(node, batch=OPEN, topic="other", readers=0)
    own = scene.writer(node, batch=OPEN, topic="own", readers=0, interceptor="seeing_interceptor:see")
    unbatched = scene.writer(node, topic="unbatched", readers=0)
    for writer in (one, other, own, unbatched):
        writer.write_samples(numbered(0, 1))
    assert topics == ["one", "other"]
    assert [each.writer.counters.dropped_by_interceptor for each in (one, other, own)] == [1, 1, 0]
    of_worker(None)
    later = scene.writer(node, batch=OPEN, topic="later", readers=0)
    later.write_samples(numbered(0, 1))
    assert topics == ["one", "other"]


def test_the_environment_names_the_interceptor_of_a_process(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dropping_interceptor.py").write_text("def drop(request):\n    request.drop()\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("SPARK_RTPS_BATCH_INTERCEPTOR", "dropping_interceptor:drop")
    writer = scene.writer(scene.node(), batch=OPEN, readers=0)
    writer.write_samples(numbered(0, 3))
    assert writer.writer.counters.dropped_by_interceptor == 3
    monkeypatch.setenv("SPARK_RTPS_BATCH_INTERCEPTOR", "dropping_interceptor:absent")
    with pytest.raises(OptionError, match="no attribute 'absent'"), explained():
        scene.writer(scene.node(), batch=OPEN, readers=0)


def test_a_callable_of_another_form_is_refused(of_worker: Callable[..., None]) -> None:
    with pytest.raises(OptionError, match=r"interceptor\(request\)"), explained():
        of_worker(lambda: None)


def test_a_request_decodes_its_row_when_it_is_asked_for(scene: Scene, of_worker: Callable[..., None]) -> None:
    rows: list[object] = []

    def see(request: BatchRequest) -> None:
        rows.append(request.row())
        request.enqueue()

    of_worker(see)
    node = scene.node()
    struct = parse_struct("struct Pair { long a; long b; };", "Pair", "a test")
    codec = Codec(struct)
    samples = codec.encode_batch(
        pa.RecordBatch.from_pylist([{"a": 1, "b": 2}, {"a": 3, "b": 4}], arrow_schema(struct))
    )
    policy = PublicationPolicy(batch=OPEN)
    node.create_writer(WriterSpec("pairs", "Pair", RELIABLE, policy=policy, type=struct)).write_samples(
        samples
    )
    assert rows == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    node.create_writer(WriterSpec("unknown", "Pair", RELIABLE, policy=policy)).write_samples(samples)
    assert rows[2:] == [None, None]
