"""The answers of a receiver service's server, without a process."""

from __future__ import annotations

import json
from pathlib import Path

from spark_rtps.monitoring.consumer_groups import read_groups
from spark_rtps.serving.server.process import LogServerConfig
from spark_rtps.serving.server.receiver_service_routes import ReceiverServiceRoutes
from spark_rtps.transport.log.stream_log import StreamLog
from tests.serving.receiver_service_scene import DAY, LOG, OTHER_LOG, SEGMENT
from tests.support.stream_logs import RECEPTION, encoded, points, run_of


class Answering:
    """The answers of a server with two logs, which ``retention=bytes`` trims."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.end = 0
        for name in (LOG, OTHER_LOG):
            log = StreamLog.create(
                root / name, max_bytes=4 << 20, segment_bytes=SEGMENT, metadata={"guid_prefix": "00" * 12}
            )
            assert log.append(run_of(encoded(points(0, 500)), 1), reception=RECEPTION)
            self.end = log.position
            log.close()
        config = LogServerConfig(root, "127.0.0.1", 0, "", receiver_service=True, groups_retention=DAY)
        self.answers = ReceiverServiceRoutes(config, lambda _: {})
        self.tell(LOG, OTHER_LOG)

    def tell(self, *logs: str) -> None:
        self.answers.tell([{"name": f"s/{log}", "log": log, "retention": "bytes"} for log in logs])

    def put(self, position: int, *, log: str = LOG, peer: int | None = None) -> None:
        body = json.dumps({"v": 1, "position": position}).encode()
        assert self.answers.answer("PUT", f"/v1/logs/{log}/groups/g", body, peer).status == 204

    def kept(self, log: str = LOG) -> dict[str, int]:
        return {group.name: group.position for group in read_groups(self.root / log)}
