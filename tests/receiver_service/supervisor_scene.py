"""A supervisor whose processes are none: they do what a test says, in the test's own time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_rtps.receiver_service.config import ReceiverServiceConfig, read_config
from spark_rtps.receiver_service.keeper import Keeper
from spark_rtps.receiver_service.supervisor import Processes, Supervisor
from spark_rtps.transport.errors import RtpsError, TransportError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.structure import NANOSECONDS

HEAD = (
    'directory = "state"\nlisten = "127.0.0.1:0"\n[defaults]\ninterface = "lo"\nlog.segment_bytes = "4KiB"\n'
)


class InlineExecutor(Executor):
    """Does at once what it is given."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  (as ThreadPoolExecutor does)
            future.set_exception(error)
        return future


class FakeReceiver:
    """A receiver that makes its log and then does nothing."""

    pid = 4_000_000

    def __init__(self, config: ReceiverConfig) -> None:
        self.config = config
        self.died: str | None = None
        self.dispose: bool | None = None
        directory = Path(config.log_directory)
        if not StreamLog.exists(directory):
            StreamLog.create(
                directory,
                max_bytes=config.log_max_bytes,
                segment_bytes=config.log_segment_bytes,
                metadata={"topic": config.topic, "type": config.type_name, "guid_prefix": "00" * 12},
            ).close()

    def counters(self) -> dict[str, int]:
        return {"log.rows": 3, "log.position": 300, "log.base": 100, "reader.matched_writers": 2}

    def check(self) -> None:
        if self.died is not None:
            raise RtpsError(self.died)

    def stop(self, *, dispose: bool = True) -> None:
        self.dispose = dispose


@dataclass
class Asked:
    op: str
    id: int
    options: Mapping[str, str] = field(default_factory=dict)
    name: str = ""


class FakeServer:
    port = 7777

    def __init__(self, config: ReceiverServiceConfig, port: int) -> None:
        self.config, self.asked_port = config, port
        self.reported: list[list[Mapping[str, Any]]] = []
        self.waiting: list[Asked] = []
        self.answers: list[tuple[int, str | None, str | None]] = []
        self.died = False
        self.stopped = False

    def tell(self, subscriptions: Sequence[Mapping[str, Any]]) -> None:
        self.reported.append(list(subscriptions))

    def requests(self) -> Sequence[Asked]:
        waiting, self.waiting = self.waiting, []
        return waiting

    def fileno(self) -> int:
        return -1

    def send_answer(self, number: int, *, name: str | None = None, error: str | None = None) -> None:
        self.answers.append((number, name, error))

    def check(self) -> None:
        if self.died:
            raise RtpsError("the server ended")

    def stop(self) -> None:
        self.stopped = True


class FakeDomain:
    is_closed = False

    def __init__(self, topics: set[str]) -> None:
        self.topics = topics
        self.directory = self

    def written_topics(self) -> set[str]:
        return set(self.topics)

    def close(self) -> None:
        self.is_closed = True


class Scene:
    """One supervisor at a time, in one directory."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path
        self.file = tmp_path / "receiver.toml"
        self.root = tmp_path / "state"
        self.root.mkdir()
        self.now = 1_000 * NANOSECONDS
        self.receivers: list[FakeReceiver] = []
        self.servers: list[FakeServer] = []
        #: Topic -> what starting its receiver raises.
        self.refused: dict[str, Exception] = {}
        self.server_refused = False
        self.topics: set[str] = set()
        self.starts: Executor = InlineExecutor()
        self.supervisor: Supervisor

    def config(self, text: str, *, top: str = "") -> ReceiverServiceConfig:
        """``top``: keys that are in no table."""
        self.file.write_text(top + HEAD + text)
        return read_config(self.file)

    def begin(self, text: str) -> Supervisor:
        """Another supervisor; the one before it is forgotten, as one that was killed."""
        at_once = InlineExecutor()
        processes = Processes(
            self._receiver, self._server, self._join, self.starts, at_once, at_once, at_once
        )
        self.supervisor = Supervisor(self.config(text), processes)
        self.steps()
        return self.supervisor

    def steps(self, count: int = 3, *, seconds: float = 1.0) -> None:
        for _ in range(count):
            self.now += int(seconds * NANOSECONDS)
            self.supervisor.do_work(self.now)

    def keeper(self, name: str) -> Keeper:
        return next(each for each in self.supervisor.keepers if each.wanted.name == name)

    def states(self) -> dict[str, str]:
        return {each.wanted.name: each.state for each in self.supervisor.keepers}

    def ask(self, op: str, **more: Any) -> tuple[str | None, str | None]:
        self.servers[-1].waiting.append(Asked(op, 5, **more))
        self.steps()
        number, name, error = self.servers[-1].answers[-1]
        assert number == 5
        return name, error

    def recorded(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "subscriptions.json").read_text())
        return found

    def committed(self, log: str, **positions: int) -> None:
        self.commit(log, {name: Cursor(at) for name, at in positions.items()})

    def commit(self, log: str, places: Mapping[str, Cursor]) -> None:
        groups = {name: {"position": at, "row": row, "at_ns": 0} for name, (at, row) in places.items()}
        (self.root / log / "groups.json").write_text(json.dumps({"v": 1, "groups": groups}))

    def _receiver(self, config: ReceiverConfig) -> FakeReceiver:
        if config.topic in self.refused:
            raise self.refused[config.topic]
        self.receivers.append(FakeReceiver(config))
        return self.receivers[-1]

    def _server(self, config: ReceiverServiceConfig, port: int) -> FakeServer:
        if self.server_refused:
            raise TransportError("the address is in use")
        self.servers.append(FakeServer(config, port))
        return self.servers[-1]

    def _join(self, config: NodeConfig) -> FakeDomain:
        return FakeDomain(self.topics)
