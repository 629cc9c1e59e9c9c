"""Receiver services on hosts of their own, between a DDS network and the cluster, which has no route to it."""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from spark_rtps.receiver_service.backlog import read_counters
from tests.cluster.loopback import Loopback
from tests.cluster.standalone import Cluster, NoNamespaces, cluster
from tests.support import domains
from tests.support.waiting import wait_until

TOPIC: Final = "Numbers"
#: Of the DDS network, where only writers and receivers are.
DDS_ADDRESS: Final = "10.97.0.1"
Hosts: TypeAlias = Cluster | Loopback
PLANT: Final = "plant"
EDGES: Final = ("left", "right")
_INTERFACE: Final = "dds0"
_PORT: Final = 7431
_ROLES: Final = ("read", "commit", "admin")


class Edge:
    """``spark-rtps receive`` on a host with both networks; ``partition`` is the part of the topic that it receives."""

    def __init__(self, cluster: Hosts, folder: Path, name: str, number: int, options: str) -> None:
        self.cluster = cluster
        self.name = name
        self.address = f"{'10.98.0' if cluster.is_cluster else '127.0.0'}.{20 + number}:{_PORT}"
        interface = _INTERFACE if cluster.is_cluster else "lo"
        self.root = cluster.log_dir / f"{folder.name}-{name}"
        self._file = folder / f"{name}.toml"
        self._file.write_text(
            f'directory = "{self.root}"\nlisten = "{self.address}"\n'
            f'certificate = "{folder}/tls.pem"\nkey = "{folder}/tls.key"\n[tokens]\n'
            + "".join(f'{role} = "{folder}/{role}.token"\n' for role in _ROLES)
            + f'[defaults]\ndomain = {domains.CLUSTER}\ninterface = "{interface}"\nreliability = "reliable"\n'
            'participant.lease_duration = "60s"\nhistory = "keep_all"\nretention = "committed"\n'
            'log.max_bytes = "64MiB"\nlog.segment_bytes = "4MiB"\n'
            f'[subscriptions.numbers]\ntopic = "{TOPIC}"\n{options}'
        )
        self.supervisor = self._start()

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            assert self.supervisor.poll() is None, self.output()
            return "ready: 1 of 1" in self.output()

        wait_until(is_ready, self.output, every=0.05)

    def output(self) -> str:
        return self.cluster.output_of(self.supervisor)

    @property
    def position(self) -> int:
        """Where the log ends."""
        records = json.loads((self.root / "subscriptions.json").read_text())
        return read_counters(self.root / records["numbers"]["log"]).get("log.position", 0)

    def pid(self, module: str) -> int | None:
        """The process that runs ``python -m module``."""
        return next(iter(self.cluster.running(module, self.name)), None)

    def kill_receiver(self) -> bool:
        return self.cluster.kill(self.pid("spark_rtps.transport.receiver"))

    def kill_server(self) -> bool:
        return self.cluster.kill(self.pid("spark_rtps.serving"))

    def kill_supervisor(self) -> bool:
        """Kill it, and start it again, as a service manager does."""
        self.supervisor.kill()
        self.supervisor.wait()
        self.supervisor = self._start()
        return True

    def _start(self) -> subprocess.Popen[bytes]:
        return self.cluster.start(
            sys.executable, "-m", "spark_rtps", "receive", str(self._file), host=self.name
        )


class Plant:
    """A DDS network with writers in ``plant``, and two edges between it and the cluster: ``left`` and ``right``."""

    def __init__(self, cluster: Hosts, folder: Path) -> None:
        """On hosts that are :func:`connected <connect>`."""
        self.cluster = cluster
        self._folder = folder
        make = "openssl req -x509 -newkey ed25519 -nodes -days 2 -subj /CN=rtps -keyout tls.key -out tls.pem"
        subprocess.run(make.split(), check=True, capture_output=True, cwd=folder)
        for role in _ROLES:
            token = folder / f"{role}.token"
            token.write_text(secrets.token_hex(32))
            token.chmod(0o600)
        self.edges = [
            Edge(cluster, folder, name, number, f'partition = "{name}"\n')
            for number, name in enumerate(EDGES, 1)
        ]
        for edge in self.edges:
            edge.wait_until_ready()

    def options(self) -> dict[str, str]:
        """What a query sets to read both edges."""
        return {
            "receivers": ",".join(f"{each.name}={each.address}" for each in self.edges),
            "receiver.token.file": str(self._folder / "commit.token"),
            "receiver.ca": str(self._folder / "tls.pem"),
            "startingOffsets": "earliest",
        }

    def write(self, writers: int, rate: float, parts: Mapping[Path, int]) -> list[subprocess.Popen[bytes]]:
        """Start writers, each of which writes so many samples when a file is there, and then the next ones.

        Every other writer is received by the other edge.
        """
        script = str(Path(__file__).with_name("paced_writer.py"))
        words = [str(word) for flag, count in parts.items() for word in (count, flag)]
        return [
            self.cluster.start(
                *(sys.executable, script, TOPIC, str(domains.CLUSTER), EDGES[which % len(EDGES)]),
                *(str(which), str(rate), *words),
                host=PLANT,
            )
            for which in range(writers)
        ]


def connect(cluster: Hosts) -> None:
    """The hosts of a plant, its edges, and the DDS network of these."""
    cluster.add_host(PLANT)
    for number, name in enumerate(EDGES, 1):
        cluster.add_host(name, f"10.98.0.{20 + number}")
    cluster.add_network(
        _INTERFACE, DDS_ADDRESS, PLANT, {name: f"10.97.0.{20 + n}" for n, name in enumerate(EDGES, 1)}
    )


@contextlib.contextmanager
def hosts(folder: Path) -> Iterator[Hosts]:
    """A cluster; where network namespaces are not permitted that is said, and all hosts are this one."""
    with contextlib.ExitStack() as stack:
        made: Hosts
        try:
            made = stack.enter_context(cluster(folder))
        except NoNamespaces as error:
            print(f"network namespaces are not permitted here: {error}; on loopback instead", file=sys.stderr)
            made = Loopback(folder)
            stack.callback(made.close)
        yield made
