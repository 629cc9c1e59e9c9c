"""A log that is fetched from servers that misbehave."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from spark_rtps.serving.client.remote_log import RemoteLog
from spark_rtps.serving.wire_format.served import Served
from spark_rtps.transport.log.frame import Cursor, Frame
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.segment import PAGE
from spark_rtps.transport.log.stream_log import StreamLog
from tests.log.make_runs import guid, indexed, uniform
from tests.log.test_damage import plain
from tests.serving.log_server_scene import LOG, TOKEN

W1, W2 = guid(1), guid(2)


class Scene:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        sn = 1
        with StreamLog.create(directory, max_bytes=1 << 20, segment_bytes=4 * PAGE, metadata={"a": 1}) as log:
            while log.position < 9 * PAGE:
                assert log.append((uniform, indexed)[sn // 5 % 2](W1, sn, 5, 60), reception=sn)
                sn += 5
            self.end = Cursor(log.position)
        self.frames = [plain(frame) for frame in LogView(directory).frames(Cursor(0), self.end)]

    def fetch(
        self, served: Served, *, patience: float = 5, seen: Callable[[Frame], object] = id
    ) -> list[object]:
        files = RemoteLog(served, LOG, self.directory, patience=patience)
        try:
            got: list[object] = []
            for frame in LogView.over(files).frames(Cursor(0), self.end):
                got.append(plain(frame))
                seen(frame)
            return got
        finally:
            files.close()


class Raw:
    """A server that answers every request with the same bytes, or goes on sending."""

    def __init__(self, *parts: bytes, pause: float = 0.0, endless: bool = False) -> None:
        self.parts, self.pause, self.endless = parts, pause, endless
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.served = Served((f"127.0.0.1:{self.listening.getsockname()[1]}",), TOKEN, None)

    def __enter__(self) -> Raw:
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listening.close()

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self.listening.accept()
            except OSError:
                return
            with sock:
                try:
                    sock.recv(4096)
                    for part in self.parts:
                        sock.sendall(part)
                        time.sleep(self.pause)
                    while self.endless:
                        sock.sendall(self.parts[-1])
                        time.sleep(self.pause)
                except OSError:
                    pass
