"""A Cyclone DDS writer behind a translator of addresses: it seems to speak from an address that it does not know.

Three network namespaces: ours, Cyclone's, and a router between them that masquerades what comes from Cyclone's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.child_environment import child_environment

_ROUTER = """
set -e
ip link set lo up
unshare --net sleep 100 & ours=$!
unshare --net sleep 100 & theirs=$!
trap 'kill $ours $theirs' EXIT
sleep 0.3
ip link add va type veth peer name a0; ip link set a0 netns $ours
ip link add vb type veth peer name b0; ip link set b0 netns $theirs
ip addr add 10.1.0.254/24 dev va; ip link set va up
ip addr add 10.2.0.254/24 dev vb; ip link set vb up
echo 1 > /proc/sys/net/ipv4/ip_forward
nsenter -t $ours -n sh -c 'ip addr add 10.1.0.1/24 dev a0; ip link set a0 up; ip route add default via 10.1.0.254'
nsenter -t $theirs -n sh -c 'ip addr add 10.2.0.2/24 dev b0; ip link set b0 up; ip route add default via 10.2.0.254'
nft add table ip nat
nft 'add chain ip nat post { type nat hook postrouting priority 100; }'
nft add rule ip nat post oifname va masquerade
echo ready >&2
nsenter -t $theirs -n "$PYTHON" -c "$CYCLONE" & cyclone=$!
trap 'kill $cyclone $ours $theirs' EXIT
nsenter -t $ours -n "$PYTHON" -c "$OURS"
"""

_OURS = """
import json, sys, time
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec
from spark_rtps.transport.protocol.trust import Trust
from spark_rtps.transport.qos import Qos, ReliabilityKind

class Count:
    rows = 0
    def room(self): return sys.maxsize
    def deliver(self, reader, runs): self.rows += sum(run.count for run in runs)

count = Count()
node = Node.open(NodeConfig(domain=DOMAIN, interface="a0", peers=("10.2.0.2",), trust=Trust(TRUST))).start()
node.create_reader(ReaderSpec("t", "Number", Qos(reliability=ReliabilityKind.RELIABLE)), count)
end = time.monotonic() + 60
while count.rows < 20 and time.monotonic() < end:
    time.sleep(0.1)
sources = {remote.source_ip for remote in node.participant._spdp.remotes.values()}
print(json.dumps([count.rows >= 20, *sources]), flush=True)
node.close()
"""

_CYCLONE = """
import time
from dataclasses import dataclass
from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import int32
from cyclonedds.pub import DataWriter
from cyclonedds.topic import Topic

@dataclass
class Number(IdlStruct, typename="Number"):
    value: int32

participant = DomainParticipant(DOMAIN)
writer = DataWriter(participant, Topic(participant, "t", Number), qos=Qos(Policy.Reliability.Reliable(10**9)))
for value in range(1_000):
    writer.write(Number(value))
    time.sleep(0.1)
"""

_CONFIG = (
    '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="b0"/></Interfaces></General>'
    '<Discovery><Peers><Peer address="10.1.0.1"/></Peers></Discovery></Domain></CycloneDDS>'
)
_PATH = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"


@pytest.mark.parametrize("trust", ["address", "any"])
def test_a_cyclone_writer_behind_address_translation_is_received(domain: int, trust: str) -> None:
    missing = [each for each in ("ip", "nft", "unshare", "nsenter") if not shutil.which(each, path=_PATH)]
    if missing or os.geteuid() != 0:
        pytest.skip(f"namespaces need root and {', '.join(missing) or 'its rights'}")
    environment = {
        **child_environment(),
        "PATH": _PATH,
        "PYTHON": sys.executable,
        "CYCLONEDDS_URI": _CONFIG,
        "CYCLONE": _CYCLONE.replace("DOMAIN", str(domain)),
        "OURS": _OURS.replace("DOMAIN", str(domain)).replace("TRUST", repr(trust)),
    }
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", _ROUTER],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "ready" not in done.stderr:
        pytest.skip(f"no namespaces, or no masquerading: {done.stderr.strip()}")
    assert done.stdout, done.stderr
    assert json.loads(done.stdout) == [True, "10.1.0.254"]
