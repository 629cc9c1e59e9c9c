"""The server of a receiver service: its answers, and the lines between it and its supervisor."""

from __future__ import annotations

import itertools
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ...transport.errors import TransportError
from ...transport.log.host_clocks import Clocks
from ..wire_format.receiver_service import too_open
from .http_messages import SOON, Refusal
from .log_server import LogServer
from .receiver_service_routes import ReceiverServiceRoutes
from .server_config import LogServerConfig

_log = logging.getLogger("spark_rtps.serving")

#: Longest wait of a client for the supervisor, and how many clients wait at once.
_ASK_SECONDS: Final = 8.0
_ASKED_MAX: Final = 16
#: Pause between two turns of keeping consumer groups.
_KEEP_SECONDS: Final = 1.0


class ReceiverServiceServer:
    """Listens as soon as it is made. ``say`` sends a line to the supervisor; :meth:`hear` takes its lines."""

    def __init__(self, config: LogServerConfig, say: Callable[[dict[str, object]], None]) -> None:
        """Raises TransportError if it cannot listen there, may not, or cannot use its certificates."""
        has_access = bool(config.tokens) or config.client_ca is not None
        why = too_open(config.address, has_tls=config.certificate is not None, has_access=has_access)
        if why is not None:
            raise TransportError(f"the server cannot listen: {why}")
        self._say = say
        self._asked: dict[int, _Asked] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self.answers = ReceiverServiceRoutes(config, self._ask)
        self._server = LogServer(config, self.answers)
        self.port = self._server.port

    def run(self) -> None:
        """Serve until another thread closes it."""
        threading.Thread(target=self._keep_house, name="groups", daemon=True).start()
        self._server.run()

    def hear(self, lines: Iterable[str]) -> None:
        """Take the supervisor's lines until one says stop, or they end: a killed supervisor may leave half a line."""
        for line in lines:
            try:
                parsed = json.loads(line)
            except ValueError:
                return
            match parsed:
                case {"op": "state", "subscriptions": list(subscriptions)}:
                    self.answers.tell(subscriptions)
                case {"op": "answer", "id": int(number), **answer}:
                    with self._lock:
                        asked = self._asked.get(number)
                    if asked is not None:
                        asked.answered({str(key): value for key, value in answer.items()})
                case {"op": "stop"}:
                    return

    def close(self) -> None:
        """Answer all waiting requests, end all connections and stop listening."""
        self._closed.set()
        self.answers.close()
        self._server.close()
        self._keep_groups()

    def _keep_house(self) -> None:
        while not self._closed.wait(_KEEP_SECONDS):
            self._keep_groups()

    def _keep_groups(self) -> None:
        try:
            self.answers.groups.keep(Clocks.read_now())
        except Exception:  # noqa: BLE001  (the next turn tries again, and the rest keeps working)
            _log.exception("consumer groups could not be kept; trying again")

    def _ask(self, what: dict[str, object]) -> Mapping[str, object]:
        asked = _Asked()
        with self._lock:
            if len(self._asked) >= _ASKED_MAX:
                raise Refusal(503, "too many requests for subscriptions at once", SOON)
            number = next(self._numbers)
            self._asked[number] = asked
        try:
            self._say({**what, "id": number})
            answer = asked.wait()
        finally:
            with self._lock:
                del self._asked[number]
        if answer is None:
            raise Refusal(503, "the supervisor of the receiver does not answer now", SOON)
        return answer


class _Asked:
    """A question that the supervisor has not answered yet."""

    def __init__(self) -> None:
        self._there = threading.Event()
        self._answer: Mapping[str, object] | None = None

    def answered(self, answer: Mapping[str, object]) -> None:
        self._answer = answer
        self._there.set()

    def wait(self) -> Mapping[str, object] | None:
        self._there.wait(_ASK_SECONDS)
        return self._answer
