"""The hosts of a cluster where network namespaces are not permitted: all of them are this one, on loopback.

Spark runs in local mode, so that it has no executors of its own to kill.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.cluster.programs import Programs, command_line

#: Names, in the environment of a program and of what it starts, the host on which it is meant to run.
_HOST: Final = "SPARK_RTPS_TEST_HOST"
_CYCLONE: Final = (
    '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo"/></Interfaces></General>'
    "</Domain></CycloneDDS>"
)


class Loopback(Programs):
    """What :class:`tests.cluster.standalone.Cluster` is, on one host."""

    master = "local[2,4]"
    driver_address = "127.0.0.1"
    is_cluster = False

    def add_host(self, name: str, address: str | None = None) -> None:
        """It is this one."""

    def add_network(self, interface: str, address: str, owner: str, hosts: Mapping[str, str]) -> None:
        """It is loopback."""

    def start(self, *command: str, host: str = "driver", **environment: str) -> subprocess.Popen[bytes]:
        """Start a program."""
        given = {_HOST: host, "CYCLONEDDS_URI": _CYCLONE, **environment}
        return self.spawn(f"program-{self.count}", list(command), **given)

    def running(self, module: str, host: str = "driver") -> list[int]:
        """The processes that run ``python -m module`` for a host."""
        return self.with_words(f"-m\0{module}\0", host)

    def with_words(self, words: str, host: str = "driver") -> list[int]:
        """The processes for a host whose command line has these words, with a null character after each."""
        pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())
        found = (pid for pid in pids if words in command_line(pid))
        return [pid for pid in found if f"{_HOST}={host}\0" in _environment_of(pid)]


def _environment_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""
