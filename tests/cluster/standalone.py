"""A Spark standalone cluster on one machine, whose hosts are namespaces.

The driver's host has the DDS network, the master, and the log. Each worker has a network, a name and mounts of its own:
it reaches the driver's host by a bridge, and does not see the log's folder. The machine's own network is not touched.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyspark

from spark_rtps.java import find_java_home
from tests.support.child_environment import child_environment

DRIVER_ADDRESS: Final = "10.98.0.1"
#: Of the network that all hosts share.
INTERFACE: Final = "br0"
WORKERS: Final = ("w1", "w2")
_PATH: Final = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"
_SPARK_CLASS: Final = Path(pyspark.__file__).parent / "bin" / "spark-class"
_PORT: Final = 7077
_START_SECONDS: Final = 90.0


class NoNamespaces(Exception):
    """What the machine lacks, or does not let us."""


class Cluster:
    """A master and two workers; ``log_dir`` is a folder that only the driver's host sees."""

    def __init__(self, folder: Path, *, cores: int = 1, mtu: int = 1500) -> None:
        """``cores``: of each worker, as many executors fit there; ``mtu``: of the network of all hosts."""
        self._folder = folder
        self._cores = cores
        self._mtu = mtu
        self.log_dir = folder / "logs"
        self.log_dir.mkdir()
        self._name = f"rtps-{os.getpid()}-{time.monotonic_ns() % 1_000_000}"
        self._host = f"{self._name}-d"
        self._names = [self._host]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: dict[subprocess.Popen[bytes], Path] = {}
        if shutil.which("ip", path=_PATH) is None:
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

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a program on the driver's host; it ends with the cluster."""
        return self._start(f"program-{len(self._processes)}", ["ip", "netns", "exec", self._host, *command])

    def run(self, *command: str, **environment: str) -> int:
        """Run a program on the driver's host, with this one's output; its exit status."""
        return subprocess.run(
            ["ip", "netns", "exec", self._host, *command], env={**self._environment(), **environment}
        ).returncode

    def output_of(self, process: subprocess.Popen[bytes]) -> str:
        """What a program has written so far."""
        return self._logs[process].read_text(errors="replace")

    def running(self, module: str) -> list[int]:
        """The processes on the driver's host that run ``python -m module``."""
        pids = map(int, _run(f"ip netns pids {self._host}").stdout.split())
        return [pid for pid in pids if f"-m\0{module}\0" in _command_line(pid)]

    def close(self) -> None:
        """End everything, by PID, and remove the namespaces."""
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()
        for name in self._names:
            found = _run(f"ip netns pids {name}", check=False).stdout.split()
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
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
            name = f"{self._name}-{worker}"
            _run(f"ip netns add {name}")
            self._names.append(name)
            _run(f"ip -n {name} link set lo up")
            _run(f"ip -n {name} link add {INTERFACE} type veth peer name {worker} netns {host}")
            _run(f"ip -n {name} link set {INTERFACE} mtu {self._mtu}")
            _run(f"ip -n {host} link set {worker} mtu {self._mtu}")
            _run(f"ip -n {name} addr add 10.98.0.{10 + number}/24 dev {INTERFACE}")
            _run(f"ip -n {name} link set {INTERFACE} up")
            _run(f"ip -n {host} link set {worker} master {INTERFACE} up")
        # what a worker has besides
        _run(f"ip netns exec {host} unshare --mount --uts true")

    def _start_spark(self) -> None:
        hosts = self._folder / "hosts"
        hosts.write_text(
            f"127.0.0.1 localhost\n{DRIVER_ADDRESS} {os.uname().nodename}\n"
            + "".join(f"10.98.0.{10 + number} {worker}\n" for number, worker in enumerate(WORKERS, 1))
        )
        kind = "org.apache.spark.deploy"
        master = self._start(
            "master",
            shlex.split(
                f"ip netns exec {self._host} {_SPARK_CLASS} {kind}.master.Master --host {DRIVER_ADDRESS} "
                f"--port {_PORT} --webui-port 0"
            ),
            SPARK_LOCAL_IP=DRIVER_ADDRESS,
        )
        self._await(master, "I have been elected leader")
        for number, worker in enumerate(WORKERS, 1):
            address = f"10.98.0.{10 + number}"
            work = self._folder / worker
            work.mkdir()
            inside = (
                f"hostname {worker} && mount --bind {hosts} /etc/hosts && mount -t tmpfs none {self.log_dir} && "
                f"exec {_SPARK_CLASS} {kind}.worker.Worker --cores {self._cores} --memory {700 * self._cores}m "
                f"--host {address} --webui-port 0 --work-dir {work} {self.master}"
            )
            process = self._start(
                worker,
                [*shlex.split(f"ip netns exec {self._name}-{worker} unshare --mount --uts sh -c"), inside],
                SPARK_LOCAL_IP=address,
                SPARK_LOCAL_DIRS=str(work),
            )
            self._await(process, "Successfully registered with master")

    def _start(self, what: str, command: list[str], **environment: str) -> subprocess.Popen[bytes]:
        given = {**self._environment(), **environment}
        log = self._folder / f"{what}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=given,
                start_new_session=True,
            )
        self._logs[process] = log
        self._processes.append(process)
        return process

    def _environment(self) -> dict[str, str]:
        return {
            **child_environment(),
            "PATH": _PATH,
            "JAVA_HOME": str(find_java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "192m",
        }

    def _await(self, process: subprocess.Popen[bytes], words: str) -> None:
        until = time.monotonic() + _START_SECONDS
        while words not in self.output_of(process):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{words!r} was not said: {self.output_of(process)[-2000:]}")
            time.sleep(0.1)


@contextlib.contextmanager
def cluster(folder: Path, *, cores: int = 1, mtu: int = 1500) -> Iterator[Cluster]:
    """A cluster that ends with the block. Raises NoNamespaces where there can be none."""
    made = Cluster(folder, cores=cores, mtu=mtu)
    try:
        yield made
    finally:
        made.close()


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _run(command: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "PATH": _PATH}
    return subprocess.run(shlex.split(command), check=check, capture_output=True, text=True, env=given)
