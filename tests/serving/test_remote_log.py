"""A log that is fetched reads as the one in the directory: the same frames, runs, damage and errors."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_rtps.serving.client import prefetch
from spark_rtps.serving.client.remote_log import RemoteLog
from spark_rtps.transport.errors import RtpsError
from spark_rtps.transport.log import checkpoint
from spark_rtps.transport.log.frame import Cursor, Frame
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.segment import PAGE
from spark_rtps.transport.log.stream_log import StreamLog
from tests.log.make_runs import all_samples, guid, indexed, single, uniform
from tests.log.test_damage import Scene, plain
from tests.serving.log_server_scene import LOG, SceneServer

W1, W2 = guid(1), guid(2)


@dataclass
class Both:
    """A log, and the server of it."""

    scene: Scene
    server: SceneServer

    def outcomes(self, start: Cursor, end: Cursor, how: str) -> tuple[list[object], list[object]]:
        """What is read from the directory, and what is fetched."""
        here = outcome(LogView(self.scene.directory), start, end, how)
        files = RemoteLog(self.server.served, LOG, self.scene.directory, patience=5)
        try:
            return here, outcome(LogView.over(files), start, end, how)
        finally:
            files.close()


def outcome(view: LogView, start: Cursor, end: Cursor, how: str) -> list[object]:
    """Everything that is to be seen of a range, in order."""
    seen: list[object] = []
    try:
        match how:
            case "frames":
                seen += map(plain, view.frames(start, end))
            case "with damage":
                for frame in view.frames(start, end, seen.append):
                    seen.append(plain(frame))
            case "items" | "headers":
                for item in view.items(start, end, bodies=how == "items"):
                    seen.append(plain(item) if isinstance(item, Frame) else item)
            case "planned":
                tail = end.position
                seen += [view.base, view.end, view.metadata, view.split(start, end, 3)]
                seen += [
                    view.advance(start, max_rows=5, tail=tail),
                    view.advance(start, max_bytes=900, tail=tail),
                ]
                seen += [view.is_frame(start.position), view.next_frame(start.position)]
    except RtpsError as error:
        seen.append((type(error), str(error), vars(error)))
    return seen


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    scene = Scene(tmp_path_factory.mktemp("fetched"))
    with SceneServer(scene.directory) as server:
        yield Both(scene, server)


@pytest.fixture(params=["at once", "by a thread"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small parts are fetched as large ones are."""
    monkeypatch.setattr(prefetch, "_DEMANDED_BYTES", 64)
    monkeypatch.setattr(prefetch.FetchedFrames, "searched_bytes", 96)
    if request.param == "by a thread":
        monkeypatch.setattr(prefetch, "_AT_ONCE_BYTES", 0)


HOW = ["frames", "with damage", "items", "headers", "planned"]


def cursors(scene: Scene) -> st.SearchStrategy[Cursor]:
    known = st.builds(Cursor, st.sampled_from([0, *scene.starts]), st.sampled_from([0, 0, 1, 2, 9]))
    return known | st.builds(Cursor, st.integers(0, scene.end // 32 + 40).map(lambda n: n * 32))


@pytest.mark.usefixtures("way")
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_range_of_any_damaged_log(both: Both, data: st.DataObject) -> None:
    scene = both.scene
    scene.restore(*scene.files)
    for _ in range(data.draw(st.integers(0, 4), "damaged places")):
        name = data.draw(st.sampled_from([*scene.segments, *scene.segments, checkpoint.WRITERS]))
        raw = scene.files[name]
        at = data.draw(st.integers(0, (len(raw) if name in scene.segments else 100) - 1))
        size = data.draw(st.sampled_from([1, 1, 8, 100, 2000, PAGE]))
        path = scene.directory / name
        match data.draw(st.sampled_from(["bytes", "bytes", "zeros", "cut", "gone"])):
            case "bytes":
                write(path, at, bytes(255 - b for b in raw[at : at + size]))
            case "zeros":
                write(path, at, bytes(min(size, len(raw) - at)))
            case "cut" if name in scene.segments and path.exists():
                os.truncate(path, at)
            case "gone" if name in scene.segments:
                path.unlink(missing_ok=True)
    if data.draw(st.booleans(), "recovered"):  # which leaves HOLEs
        try:
            StreamLog.open(scene.directory).close()
        except RtpsError:
            pass
    start, end = data.draw(cursors(scene)), data.draw(cursors(scene))
    here, fetched = both.outcomes(min(start, end), max(start, end), data.draw(st.sampled_from(HOW)))
    assert fetched == here


def write(path: Path, at: int, raw: bytes) -> None:
    if path.exists():
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(raw)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("how", HOW)
def test_every_range_between_frames(both: Both, how: str) -> None:
    scene = both.scene
    scene.restore(*scene.files)
    places = [Cursor(0), *map(Cursor, scene.starts)][:: 1 if how == "frames" else 7]
    for low in places[::5]:
        for high in places:
            if low <= high:
                here, fetched = both.outcomes(low, high, how)
                assert fetched == here


def test_only_what_is_wanted_is_fetched(both: Both) -> None:
    scene, server = both.scene, both.server
    scene.restore(*scene.files)
    server.fetched.clear()
    low, high = scene.starts[2], scene.starts[-3]
    both.outcomes(Cursor(low), Cursor(high), "frames")
    assert server.fetched == [(low, PAGE), (PAGE, 2 * PAGE), (2 * PAGE, high)]
    server.fetched.clear()
    both.outcomes(Cursor(low, 1), Cursor(low, 2), "frames")
    assert server.fetched[0][0] == low
    assert server.fetched[-1][1] <= low + prefetch._DEMANDED_BYTES + PAGE


def test_large_frames_are_seen_before_the_last_has_come(tmp_path: Path) -> None:
    """And a large range is fetched while it is read."""
    directory = tmp_path / "log"
    with StreamLog.create(directory, max_bytes=64 << 20, segment_bytes=4 << 20, metadata={}) as log:
        for sn in range(1, 400, 10):
            run = indexed(W1, sn, 10, 20_000) if sn % 20 == 1 else uniform(W2, sn, 10, 20_000)
            assert log.append(run, reception=sn)
        assert log.append(single(W1, 1000, 5 << 20), reception=5)
        end = Cursor(log.position)
    go = threading.Event()
    with SceneServer(directory) as server:
        server.pause = lambda: (  # type: ignore[assignment]
            go.wait(20) if len(seen) < 1 and sent.append(0) is None and len(sent) > 12 else None
        )
        sent: list[int] = []
        seen: list[object] = []
        files = RemoteLog(server.served, LOG, directory, patience=10)
        for frame in LogView.over(files).frames(Cursor(0), end):
            seen.append(plain(frame))
            if len(seen) == 1:
                assert not go.is_set()
                go.set()
        files.close()
        assert seen == [plain(frame) for frame in LogView(directory).frames(Cursor(0), end)]
        assert all(stop - start <= 64 << 20 for start, stop in server.fetched)


def test_a_view_follows_a_log_that_grows_and_is_trimmed(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    created = StreamLog.create(directory, max_bytes=16 * PAGE, segment_bytes=PAGE, metadata={"a": 1})
    with created as log, SceneServer(directory) as server:
        files = RemoteLog(server.served, LOG, directory, patience=5)
        view, at = LogView.over(files), Cursor(0)
        for sn in range(1, 701):
            while not log.append(uniform(W1, sn, 1), reception=0):
                log.trim(at.position)
            if sn % 7 == 0:
                end = Cursor(log.position)
                assert view.end == end.position
                got = all_samples(view.frames(at, end))
                assert [sample.sn for sample in got] == list(range(sn - 6, sn + 1))
                at = end
        assert view.base == log.base > 0
        assert view.metadata == {"a": 1}
        files.close()
