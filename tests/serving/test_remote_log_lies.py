"""Servers that lie or are no log servers at all: the right frames or an error by name."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_rtps.serving.client import retry_policy
from spark_rtps.serving.client.remote_log import About
from spark_rtps.transport.errors import LogError, RangeServerError, RtpsError
from tests.serving.log_server_scene import SceneServer
from tests.serving.remote_log_scene import Raw, Scene

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("faults") / "log")


# --- lies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", [-32, -1, 1, 32, 1 << 40])
def test_a_length_that_is_not_what_was_asked_for(scene: Scene, server: SceneServer, lie: int) -> None:
    server.length_lie = lie
    with pytest.raises(RangeServerError, match=f"{server.address} sends .* bytes for a range of"):
        scene.fetch(server.served)


@pytest.mark.parametrize(
    "server",
    [
        Raw(b"HTTP/1.1 200 OK\r\n\r\n{}"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{}"),
        Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}"),
        Raw(b"HTTP/1.1 100 Continue\r\n\r\n", endless=True),
        Raw(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 100_000, endless=True),
        Raw(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", endless=True),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x", pause=0.02, endless=True),
        Raw(b"H", pause=0.02, endless=True),
        Raw(b"", pause=5),
        Raw(b"SSH-2.0-OpenSSH\r\n"),
        Raw(b"\x15\x03\x01\x00\x02\x02\x16"),
    ],
    ids=lambda server: ascii(b"".join(server.parts)[:60]),
)
def test_a_server_that_is_no_log_server_is_refused(
    scene: Scene, server: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    with server, pytest.raises(RangeServerError):
        scene.fetch(server.served, patience=0.4)
    assert time.monotonic() - began < 5


def test_a_server_that_is_slow_but_useful(
    scene: Scene, server: SceneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patience counts from block to block, not for all of a range."""
    monkeypatch.setattr(retry_policy, "_BLOCK_BYTES", 2000)
    times = iter(range(100))
    server.pause = lambda: time.sleep(0.1 if next(times) else 0)
    assert scene.fetch(server.served, patience=0.5) == scene.frames


WRONG: list[Any] = [
    None,
    True,
    -1,
    1.5,
    1 << 63,
    1 << 200,
    "7",
    [],
    {},
    [[]],
    [[1]],
    [[0, 1, 2]],
    [["0", 32]],
    float("nan"),
]
PATHS = [
    ("v",),
    ("metadata",),
    ("metadata", "max_bytes"),
    ("metadata", "segment_bytes"),
    ("metadata", "seed"),
    ("metadata", "given"),
    ("base",),
    ("tail",),
    ("tail", "position"),
    ("tail", "rows"),
    ("tail", "most"),
    ("segments",),
    ("segments", 0),
    ("segments", 0, 0),
    ("segments", 1, 1),
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_lies_in_the_description_of_a_log(scene: Scene, server: SceneServer, path: tuple[Any, ...]) -> None:
    for wrong in WRONG:

        def change(reported: dict[str, Any], wrong: Any = wrong) -> dict[str, Any]:
            at: Any = reported
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = wrong
            return reported

        server.change_about = change
        with suppress(RtpsError):
            assert scene.fetch(server.served, patience=0.2) == scene.frames


@pytest.mark.parametrize(
    "raw",
    [b"", b"[", b"[" * 100_000, b'{"v":1,"segments":' + b"[" * 50_000, b"9" * 5000, b"\x00", b"null", b"NaN"],
    ids=lambda raw: ascii(raw[:20]),
)
def test_invalid_json_of_a_log_is_refused(scene: Scene, server: SceneServer, raw: bytes) -> None:
    server.change_about = lambda _: raw
    with pytest.raises(RangeServerError, match="sent invalid data"):
        scene.fetch(server.served)


@pytest.mark.parametrize(
    "segments",
    [
        [[0, 1 << 61]],
        [[0, 64], [32, 64]],
        [[64, 64], [0, 64]],
        [[i * 32, 32] for i in range(70_000)],
        [[7, 64], [100, 100]],
        [],
    ],
    ids=["huge", "overlapping", "unordered", "many", "odd", "none"],
)
def test_segments_that_cannot_be(scene: Scene, server: SceneServer, segments: list[Any]) -> None:
    server.change_about = lambda reported: {**reported, "segments": segments}
    with pytest.raises((RangeServerError, LogError)):
        scene.fetch(server.served)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    raw=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["v", "metadata", "base", "tail", "segments"]) | st.text(), inner
            )
        ),
    )
)
def test_no_json_is_worse_than_a_value_error(raw: Any) -> None:
    import json

    with pytest.raises(ValueError):
        About.parse(json.dumps(raw).encode())
