"""Fixtures of the Fast DDS tests: the peer's program, compiled once, and domains of their own."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from tests.fastdds.fast_peer import FastPeer
from tests.support import domains

HERE = Path(__file__).parent
_DOMAINS = itertools.cycle(domains.FASTDDS)


@pytest.fixture(scope="session")
def program() -> Path:
    """The peer, out of a cache of the machine's where it is there already."""
    sources = [HERE / "dynamic.hpp", HERE / "peer.cpp"]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    # not in this run's own folder for temporary files: the next run takes it from there
    machine = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir())
    made = machine / f"spark-rtps-fastdds-{os.getuid()}" / digest
    if not made.exists():
        compiler = shutil.which("g++")
        assert compiler is not None, "no C++ compiler: make test-fastdds"
        made.parent.mkdir(mode=0o700, exist_ok=True)
        part = made.with_suffix(f".{os.getpid()}")
        command = [compiler, "-std=c++17", "-O1", "-o", str(part), str(sources[-1])]
        subprocess.run([*command, "-lfastrtps", "-lfastcdr", "-pthread"], check=True)
        part.replace(made)
    return made


@pytest.fixture(scope="module")
def domain() -> int:
    return next(_DOMAINS)


@pytest.fixture(scope="module")
def peer(program: Path, domain: int) -> Iterator[FastPeer]:
    """One Fast DDS participant for all tests of a module: they keep apart by topics."""
    with FastPeer(program, domain) as peer:
        yield peer


@pytest.fixture(scope="module")
def node(domain: int) -> Iterator[Node]:
    """One participant of ours likewise."""
    config = NodeConfig(domain=domain, interface="lo", resolve_types=True)
    with closing(Node.open(config).start()) as node:
        yield node


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that no other test uses."""
    return re.sub(r"\W", "_", request.node.name)
