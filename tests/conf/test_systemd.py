"""The service unit of a standing receiver: systemd takes it, finds little to harden, and it has what it needs."""

from __future__ import annotations

import configparser
import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import domains

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "conf" / "spark-rtps-receiver.service"
#: What costs 0.2 or more and stays: it is there to receive, from addresses that nobody but its operator knows.
OPEN = {"PrivateNetwork=", "IPAddressDeny=", "RestrictAddressFamilies=~AF_(INET|INET6)"}
PR_SET_MDWE = 65
REFUSE_EXEC_GAIN = 1


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


def test_systemd_takes_it(unit: Path) -> None:
    done = analyzed("verify", f"./{unit.name}", cwd=unit.parent)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_cheap_is_left_to_harden(unit: Path) -> None:
    done = analyzed("security", "--offline=true", "--json=short", f"./{unit.name}", cwd=unit.parent)
    rows = json.loads(done.stdout)
    left = {row["name"]: float(row["exposure"]) for row in rows if row["set"] is False and row["exposure"]}
    assert {name for name, exposure in left.items() if exposure >= 0.2} == OPEN
    threshold = analyzed("security", "--offline=true", "--threshold=12", f"./{unit.name}", cwd=unit.parent)
    assert threshold.returncode == 0, threshold.stdout.splitlines()[-1]


def test_it_says_when_it_is_ready_and_is_watched() -> None:
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


def test_the_calls_that_it_needs_are_allowed(unit: Path) -> None:
    """Of the groups that are left: what receives many datagrams, waits, maps files, starts processes, and serves."""
    allowed: set[str] = set()
    for line in settings()["Service"]["SystemCallFilter"]:
        calls = set().union(*(_expanded(name, unit.parent) for name in line.removeprefix("~").split()))
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    needed = {
        "recvmmsg",
        "sendmsg",
        "setsockopt",
        "epoll_wait",
        "poll",
        "mmap",
        "madvise",
        "fallocate",
        "flock",
    }
    assert (
        needed | {"clone3", "execve", "sendfile", "preadv", "futex", "fdatasync", "ioctl", "pidfd_open"}
        <= allowed
    )
    assert not {"mount", "ptrace", "bpf", "init_module", "setrlimit"} & allowed


def _expanded(name: str, cwd: Path) -> set[str]:
    if not name.startswith("@"):
        return {name}
    found: set[str] = set()
    for line in analyzed("syscall-filter", name, cwd=cwd).stdout.splitlines()[1:]:
        entry = line.strip()
        if entry and not entry.startswith("#"):
            found |= _expanded(entry, cwd)
    return found


def test_it_works_without_memory_that_is_writable_and_executable() -> None:
    """As under MemoryDenyWriteExecute: what receives many datagrams calls the system by way of ctypes."""
    script = f"""
import ctypes
assert ctypes.CDLL(None).prctl({PR_SET_MDWE}, {REFUSE_EXEC_GAIN}, 0, 0, 0) == 0
import mmap
try:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    raise SystemExit("it is not denied")
except PermissionError:
    pass
import pyarrow
import spark_rtps as rtps
with rtps.Participant({domains.COMMANDS_EMPTY}, interface="lo") as participant:
    schema = pyarrow.schema([("x", pyarrow.int32())])
    participant.subscribe("t", schema=schema).take(max_rows=1, timeout=0.1)
"""
    if ctypes.CDLL(None).prctl(PR_SET_MDWE + 1, 0, 0, 0, 0) < 0:
        pytest.skip("the kernel is older than 6.3")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_example_finds_the_credentials() -> None:
    """Every secret that receiver.toml names is one that the unit loads."""
    service = settings()["Service"]
    loaded = {line.partition(":")[0] for line in service["LoadCredential"]}
    text = (ROOT / "conf" / "receiver.toml").read_text()
    place = f"/run/credentials/{UNIT.name}/"
    named = {part.partition('"')[0] for part in text.split(place)[1:]}
    assert named == loaded


def test_it_is_of_the_form_of_units() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read(UNIT)
    assert parser.sections() == ["Unit", "Service", "Install"]
