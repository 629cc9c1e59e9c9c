"""A Spark standalone cluster on one machine, whose hosts are namespaces.

The driver's host has the DDS network, the master, and the log. Each worker has a network, a name and mounts of its own:
it reaches the driver's host by a bridge, and does not see the log's folder. The machine's own network is not touched.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyspark

from tests.cluster.programs import PATH, Programs, command_line

DRIVER_ADDRESS: Final = "10.98.0.1"
#: Of the network that all hosts share.
INTERFACE: Final = "br0"
WORKERS: Final = ("w1", "w2")
_SPARK_CLASS: Final = Path(pyspark.__file__).parent / "bin" / "spark-class"
_PORT: Final = 7077


class NoNamespaces(Exception):
    """What the machine lacks, or does not let us."""


class Cluster(Programs):
    """A master and two workers, which do not see ``log_dir``."""

    driver_address = DRIVER_ADDRESS
    is_cluster = True

    def __init__(self, folder: Path, *, cores: int = 1, mtu: int = 1500) -> None:
        """``cores``: of each worker, as many executors fit there; ``mtu``: of the network of all hosts."""
        super().__init__(folder)
        self._cores = cores
        self._mtu = mtu
        self._name = f"rtps-{os.getpid()}-{time.monotonic_ns() % 1_000_000}"
        self._host = f"{self._name}-d"
        self._names = [self._host]
        if shutil.which("ip", path=PATH) is None:
            raise RuntimeError("ip is needed for a cluster of namespaces: apt-get install iproute2")
        try:
            self._connect()
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise NoNamespaces(f"{error} {getattr(error, 'stderr', '')}".strip()) from error
        try:
            self._start_spark()
        except BaseException:
            self.close()
            raise

    @property
    def master(self) -> str:
        return f"spark://{DRIVER_ADDRESS}:{_PORT}"

    def add_host(self, name: str, address: str | None = None) -> None:
        """One more host; with an address it is on the network of all."""
        namespace = self._namespace(name)
        _run(f"ip netns add {namespace}")
        self._names.append(namespace)
        _run(f"ip -n {namespace} link set lo up")
        if address is not None:
            self._link(namespace, name, self._host, INTERFACE)
            _run(f"ip -n {namespace} addr add {address}/24 dev {INTERFACE}")
            _run(f"ip -n {namespace} link set {INTERFACE} up")

    def add_network(self, interface: str, address: str, owner: str, hosts: Mapping[str, str]) -> None:
        """One more network, ``interface`` on each host: a bridge on ``owner``, and the addresses of the others."""
        there = self._namespace(owner)
        _run(f"ip -n {there} link add {interface} type bridge")
        _run(f"ip -n {there} addr add {address}/24 dev {interface}")
        _run(f"ip -n {there} link set {interface} up")
        for name, its in hosts.items():
            namespace = self._namespace(name)
            self._link(namespace, name, there, interface)
            _run(f"ip -n {namespace} addr add {its}/24 dev {interface}")
            _run(f"ip -n {namespace} link set {interface} up")

    def start(self, *command: str, host: str = "driver", **environment: str) -> subprocess.Popen[bytes]:
        """Start a program on a host, by default the driver's; it ends with the cluster."""
        inside = ["ip", "netns", "exec", self._namespace(host), *command]
        return self.spawn(f"program-{self.count}", inside, **environment)

    def reaches(self, host: str, address: str) -> bool:
        """Whether a host has a route to an address."""
        return not _run(f"ip -n {self._namespace(host)} route get {address}", check=False).returncode

    def run(self, *command: str, **environment: str) -> int:
        """Run a program on the driver's host, with this one's output; its exit status."""
        return subprocess.run(
            ["ip", "netns", "exec", self._host, *command], env={**self.environment(), **environment}
        ).returncode

    def running(self, module: str, host: str = "driver") -> list[int]:
        """The processes on a host, by default the driver's, that run ``python -m module``."""
        return self.with_words(f"-m\0{module}\0", host)

    def with_words(self, words: str, host: str = "driver") -> list[int]:
        """The processes on a host whose command line has these words, with a null character after each."""
        pids = map(int, _run(f"ip netns pids {self._namespace(host)}").stdout.split())
        return [pid for pid in pids if words in command_line(pid)]

    def close(self) -> None:
        """End everything, by PID, and remove the namespaces."""
        super().close()
        for name in self._names:
            found = _run(f"ip netns pids {name}", check=False).stdout.split()
            for pid in found:
                self.kill(int(pid))
            _run(f"ip netns del {name}", check=False)

    # --- inside ------------------------------------------------------------------------------------

    def _connect(self) -> None:
        host = self._host
        _run(f"ip netns add {host}")
        _run(f"ip -n {host} link set lo up multicast on")
        _run(f"ip -n {host} link add {INTERFACE} mtu {self._mtu} type bridge")
        _run(f"ip -n {host} addr add {DRIVER_ADDRESS}/24 dev {INTERFACE}")
        _run(f"ip -n {host} link set {INTERFACE} up")
        for number, worker in enumerate(WORKERS, 1):
            self.add_host(worker, f"10.98.0.{10 + number}")
        # what a worker has besides
        _run(f"ip netns exec {host} unshare --mount --uts true")

    def _link(self, namespace: str, name: str, there: str, interface: str) -> None:
        """A cable between a host and the bridge of a network, where its end has the host's name."""
        _run(f"ip -n {namespace} link add {interface} type veth peer name {name} netns {there}")
        _run(f"ip -n {namespace} link set {interface} mtu {self._mtu}")
        _run(f"ip -n {there} link set {name} mtu {self._mtu}")
        _run(f"ip -n {there} link set {name} master {interface} up")

    def _namespace(self, host: str) -> str:
        return self._host if host == "driver" else f"{self._name}-{host}"

    def _start_spark(self) -> None:
        hosts = self._folder / "hosts"
        hosts.write_text(
            f"127.0.0.1 localhost\n{DRIVER_ADDRESS} {os.uname().nodename}\n"
            + "".join(f"10.98.0.{10 + number} {worker}\n" for number, worker in enumerate(WORKERS, 1))
        )
        kind = "org.apache.spark.deploy"
        master = self.spawn(
            "master",
            shlex.split(
                f"ip netns exec {self._host} {_SPARK_CLASS} {kind}.master.Master --host {DRIVER_ADDRESS} "
                f"--port {_PORT} --webui-port 0"
            ),
            SPARK_LOCAL_IP=DRIVER_ADDRESS,
        )
        self.await_words(master, "I have been elected leader")
        workers = []
        for number, worker in enumerate(WORKERS, 1):
            address = f"10.98.0.{10 + number}"
            work = self._folder / worker
            work.mkdir()
            inside = (
                f"hostname {worker} && mount --bind {hosts} /etc/hosts && mount -t tmpfs none {self.log_dir} && "
                f"exec {_SPARK_CLASS} {kind}.worker.Worker --cores {self._cores} --memory {700 * self._cores}m "
                f"--host {address} --webui-port 0 --work-dir {work} {self.master}"
            )
            command = [
                *shlex.split(f"ip netns exec {self._namespace(worker)} unshare --mount --uts sh -c"),
                inside,
            ]
            workers.append(self.spawn(worker, command, SPARK_LOCAL_IP=address, SPARK_LOCAL_DIRS=str(work)))
        for process in workers:
            self.await_words(process, "Successfully registered with master")


@contextlib.contextmanager
def cluster(folder: Path, *, cores: int = 1, mtu: int = 1500) -> Iterator[Cluster]:
    """A cluster that ends with the block. Raises NoNamespaces where there can be none."""
    made = Cluster(folder, cores=cores, mtu=mtu)
    try:
        yield made
    finally:
        made.close()


def _run(command: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "PATH": PATH}
    return subprocess.run(shlex.split(command), check=check, capture_output=True, text=True, env=given)
