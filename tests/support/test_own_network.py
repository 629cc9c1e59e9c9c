from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.child_environment import ROOT, child_environment
from tests.support.own_network import VARIABLE

_SCRIPT = """
import os, socket, sys, tempfile
from pathlib import Path
from tests.support.own_network import OwnNetwork
network = OwnNetwork()
own = network.temporary
assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(own) and own.is_dir()
print(os.environ["PYTEST_DEBUG_TEMPROOT"])
print(" ".join(name for _, name in socket.if_nameindex()))
print(len(os.listdir("/dev/shm")))
group = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
group.bind(("", PORT))
group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("239.255.0.1") + bytes(4))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    sender.sendto(b"lost", ("192.0.2.77", PORT))
except OSError as error:
    print(error.strerror.replace(" ", "-"))
sender.sendto(b"heard", ("239.255.0.1", PORT))
print(group.recv(100).decode())
network.close()
assert not own.exists()
"""


@pytest.fixture
def isolated() -> None:
    if os.environ.get(VARIABLE) != "own":
        pytest.skip("namespaces are not permitted here")


@pytest.mark.usefixtures("isolated")
def test_a_run_meets_nobody_on_the_network_or_in_shared_memory() -> None:
    """Not those who have the same port of the network that it left."""
    marker = Path("/dev/shm/rtps-marker")
    marker.touch()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
            holder.bind(("127.0.0.1", 0))
            environment = child_environment()
            for name in (VARIABLE, "PYTEST_DEBUG_TEMPROOT"):
                environment.pop(name, None)
            script = _SCRIPT.replace("PORT", str(holder.getsockname()[1]))
            done = subprocess.run(
                [sys.executable, "-c", script], env=environment, cwd=ROOT, capture_output=True, text=True
            )
    finally:
        marker.unlink()
    assert done.stdout.split() == [tempfile.gettempdir(), "lo", "0", "Network-is-unreachable", "heard"], (
        done.stderr
    )


@pytest.mark.usefixtures("isolated")
def test_this_run_is_in_such_a_place() -> None:
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
    assert Path(tempfile.gettempdir()).name.startswith("rtps-tests-")
