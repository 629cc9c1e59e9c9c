"""Reports of a receiver service on itself: streams, errors, losses, metrics, and the topics on its domain."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...monitoring.metrics import StreamCollector
from ...monitoring.report_json import errors_as_json, losses_as_json, streams_as_json
from ...monitoring.reports import read_error_reports, read_losses
from ...monitoring.seen_topics import SeenTopics
from ...monitoring.stream_counters import read_streams
from ...transport.errors import UsageError
from ...transport.net.node import Node
from ...transport.net.node_config import NodeConfig
from ...transport.receiver.addresses import with_reserved_ports
from ..wire_format.receiver_service import LISTEN_SECONDS_MAX

_LISTENER: Final = "spark-rtps ls"


def streams(directory: Path) -> bytes:
    """All streams in a directory of logs, also those that have ended, as ``spark-rtps stat --json`` shows them."""
    found = read_streams([directory], now=time.monotonic_ns())
    return json.dumps(streams_as_json(found, [directory], time.time_ns())).encode()


def errors(directory: Path) -> bytes:
    """The distinct warnings and errors, as ``spark-rtps errors --json`` shows them."""
    return json.dumps(errors_as_json(read_error_reports([directory]), [directory])).encode()


def losses(directory: Path) -> bytes:
    """The losses, as ``spark-rtps loss --json`` shows them."""
    return json.dumps(losses_as_json(read_losses([directory]), [directory])).encode()


def metrics(directory: Path) -> bytes:
    """All counters for Prometheus. Raises UsageError if its package is not installed."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        raise UsageError(
            "it needs the package prometheus_client: pip install 'spark-rtps[metrics]'"
        ) from None
    registry = CollectorRegistry()
    registry.register(StreamCollector([directory]))
    text: bytes = generate_latest(registry)
    return text


class TopicListener:
    """Joins a domain for a moment, to see its topics; for one caller at a time."""

    def __init__(self, config: NodeConfig, directory: Path) -> None:
        """``directory``: of the logs; a receiver that is down for a moment finds its ports there again."""
        self._directory = directory
        self._config = replace(config, participant_name=_LISTENER, guid_prefix=None, ipc=False)
        self._lock = threading.Lock()

    def topics(self, seconds: float) -> bytes | None:
        """The topics seen within ``seconds``, as ``spark-rtps ls --json`` shows them; None: another caller listens.

        Raises TransportError if the domain cannot be joined.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            node = Node.open(with_reserved_ports(self._config, self._directory)).start()
            try:
                time.sleep(max(0.0, min(seconds, LISTEN_SECONDS_MAX)))
                with node.lock:
                    participants = list(node.participant.database.participants.values())
                    endpoints = list(node.participant.database.endpoints)
            finally:
                node.close()
        finally:
            self._lock.release()
        participants.sort(key=lambda each: each.guid_prefix)
        endpoints.sort(key=lambda each: (each.topic, each.kind != "writer", each.guid))
        return json.dumps(
            SeenTopics.describe(self._config.domain, participants, endpoints).as_json()
        ).encode()
