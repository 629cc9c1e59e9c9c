"""The service unit of a receiver service: systemd takes it, finds little to harden, and it has what it needs."""

from __future__ import annotations

import configparser
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow
import pytest

import spark_rtps as rtps
from spark_rtps.monitoring.stream_counters import read_streams
from tests.conf.confined import allowed_calls, calls_of, lines_of
from tests.support import domains
from tests.support.child_environment import child_environment
from tests.support.waiting import PATIENCE, wait_until

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "conf" / "spark-rtps-receiver.service"
CONFINED = Path(__file__).with_name("confined.py")
SCHEMA = pyarrow.schema([pyarrow.field("x", pyarrow.int32(), nullable=False)])
PR_GET_MDWE = 66
#: What costs 0.2 or more and stays: it is there to receive, from addresses that nobody but its operator knows. Of
#: @resources setpriority alone is left, by which the server gives way to the receivers.
OPEN = {
    "PrivateNetwork=",
    "IPAddressDeny=",
    "RestrictAddressFamilies=~AF_(INET|INET6)",
    "SystemCallFilter=~@resources",
}


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up capabilities")


def analyzed(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], cwd=cwd, capture_output=True, text=True)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with a command that this machine has."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/spark-rtps/bin/spark-rtps", sys.executable))
    return copy


def settings() -> dict[str, dict[str, list[str]]]:
    """The lines of each section, with several of the same name."""
    found: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            section.setdefault(name, []).append(value)
    return found


def test_systemd_accepts_the_unit(unit: Path) -> None:
    done = analyzed("verify", f"./{unit.name}", cwd=unit.parent)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_cheap_is_left_to_harden(unit: Path) -> None:
    done = analyzed("security", "--offline=true", "--json=short", f"./{unit.name}", cwd=unit.parent)
    rows = json.loads(done.stdout)
    left = {row["name"]: float(row["exposure"]) for row in rows if row["set"] is False and row["exposure"]}
    assert {name for name, exposure in left.items() if exposure >= 0.2} == OPEN
    threshold = analyzed("security", "--offline=true", "--threshold=12", f"./{unit.name}", cwd=unit.parent)
    assert threshold.returncode == 0, threshold.stdout.splitlines()[-1]


def test_the_unit_notifies_readiness_and_has_a_watchdog() -> None:
    service = settings()["Service"]
    assert service["Type"] == ["notify"]
    assert int(service["WatchdogSec"][0]) >= 10
    assert service["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert service["Restart"] == ["on-failure"]
    assert service["ExecStart"] == ["/opt/spark-rtps/bin/spark-rtps receive /etc/spark-rtps/receiver.toml"]


def test_dds_and_notifications_still_work() -> None:
    """What hardening would take from it."""
    service = settings()["Service"]
    assert service["RestrictAddressFamilies"] == ["AF_INET AF_NETLINK AF_UNIX"]
    for forbidden in (
        "PrivateNetwork",
        "IPAddressDeny",
        "SocketBindDeny",
        "ProcSubset",
        "RestrictNetworkInterfaces",
    ):
        assert forbidden not in service
    assert service["ProtectSystem"] == ["strict"] and service["StateDirectory"] == ["spark-rtps"]


def test_no_calls_are_left_that_only_a_system_has() -> None:
    calls = allowed_calls(lines_of(UNIT))
    assert {"recvmmsg", "sendfile", "execve"} <= calls
    assert not {"mount", "ptrace", "bpf", "init_module", "setrlimit", "settimeofday"} & calls
    assert calls_of("@resources") & calls == {"setpriority"}


def confined(script: str, *arguments: str) -> list[str]:
    return [sys.executable, str(CONFINED), str(UNIT), sys.executable, "-c", script, *arguments]


@pytest.mark.parametrize(
    "forbidden",
    [
        "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)",
        "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "import os; os.setpriority(os.PRIO_PROCESS, 0, -5)",
        "import os; os.sched_setaffinity(0, os.sched_getaffinity(0))",
        "import os; os.chroot('/')",
    ],
    ids=["writable and executable", "packets", "IPv6", "raw", "priority", "affinity", "chroot"],
)
@needs_root
def test_the_confinement_of_the_tests_confines(forbidden: str) -> None:
    if "mmap" in forbidden and ctypes.CDLL(None).prctl(PR_GET_MDWE, 0, 0, 0, 0) < 0:
        pytest.skip("the kernel is older than 6.3")
    assert subprocess.run([sys.executable, "-c", forbidden], capture_output=True).returncode == 0
    done = subprocess.run(confined(forbidden), capture_output=True, text=True)
    assert "PermissionError" in done.stderr, done


@needs_root
def test_a_process_may_give_way() -> None:
    assert settings()["Service"]["LimitNICE"] == ["0"], "and take nothing"
    done = subprocess.run(
        confined("import os; print(os.nice(5) - os.nice(0))"), capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


@needs_root
def test_a_receiver_works_in_what_the_unit_leaves_it(tmp_path: Path) -> None:
    """A sample comes from the network into its log, its server answers, it reads its file again, and ends."""
    file = tmp_path / "receiver.toml"
    file.write_text(
        f"""
        directory = "state"
        listen = "127.0.0.1:0"
        [defaults]
        domain = {domains.RECEIVER_SERVICE}
        interface = "lo"
        [subscriptions.squares]
        topic = "Confined"
        type.name = "T"
        keyed = false
        """
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        environment = {
            **child_environment(),
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "3000000",
        }
        command = [sys.executable, str(CONFINED), str(UNIT), sys.executable]
        with (tmp_path / "output").open("wb") as output:
            service = subprocess.Popen(
                [*command, "-m", "spark_rtps", "receive", str(file)],
                stdout=output, stderr=output, cwd=ROOT, env=environment,
            )  # fmt: skip

        def reported(field: str) -> None:
            while field not in manager.recv(4096).decode().split("\n"):
                pass

        try:
            reported("READY=1")
            reported("WATCHDOG=1")
            assert _niceness_of_servers(service.pid) == [os.nice(0) + 5], "it gives way to the receivers"
            with rtps.Participant(domains.RECEIVER_SERVICE, interface="lo") as participant:
                publication = participant.publish("Confined", type="T", schema=SCHEMA)
                publication.write([{"x": 1}])
                wait_until(lambda: _rows(tmp_path / "state") == 1, lambda: (tmp_path / "output").read_text())
            service.send_signal(signal.SIGHUP)
            reported("RELOADING=1")
            service.send_signal(signal.SIGTERM)
            reported("STOPPING=1")
            assert service.wait(PATIENCE) == 0
        finally:
            service.kill()
            service.wait()
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "state").rglob("*")} == {0}


def _niceness_of_servers(supervisor: int) -> list[int]:
    """The servers among the children of a supervisor."""
    tasks = Path(f"/proc/{supervisor}/task").iterdir()
    children = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    servers = [pid for pid in children if b"spark_rtps.serving" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return [os.getpriority(os.PRIO_PROCESS, pid) for pid in servers]


def _rows(directory: Path) -> int:
    return sum(stream.samples for stream in read_streams([directory], now=time.monotonic_ns()))


def test_the_example_finds_the_credentials() -> None:
    """Every secret that receiver.toml names is one that the unit loads."""
    service = settings()["Service"]
    loaded = {line.partition(":")[0] for line in service["LoadCredential"]}
    text = (ROOT / "conf" / "receiver.toml").read_text()
    place = f"/run/credentials/{UNIT.name}/"
    named = {part.partition('"')[0] for part in text.split(place)[1:]}
    assert named == loaded


def test_the_unit_is_well_formed() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read(UNIT)
    assert parser.sections() == ["Unit", "Service", "Install"]
