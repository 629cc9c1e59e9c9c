"""Fixtures of the interop tests: a domain of its own for each, Cyclone peers, receivers and nodes that end with it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.outgoing import OutgoingDatagrams
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.subscription import Subscription
from tests.support import domains

_DOMAINS = itertools.cycle(domains.INTEROP)


@pytest.fixture
def domain() -> int:
    """A domain that no other test of this module's folder uses at the time."""
    return next(_DOMAINS)


@pytest.fixture(scope="module")
def shared_domain() -> int:
    """For modules whose tests keep apart by topics: they make it their ``domain``, and may share a peer."""
    return next(_DOMAINS)


@pytest.fixture(scope="module")
def shared_peer(shared_domain: int) -> Iterator[CyclonePeer]:
    """One Cyclone participant for all tests of a module."""
    with CyclonePeer(shared_domain) as peer:
        yield peer


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that no other test uses."""
    return re.sub(r"\W", "_", request.node.name)


@pytest.fixture
def cyclone(domain: int) -> Iterator[Callable[..., CyclonePeer]]:
    """Starts Cyclone participants."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(CyclonePeer(domain, **options))


@pytest.fixture
def subscribe(domain: int, tmp_path: Path) -> Iterator[Callable[..., Subscription]]:
    """Starts receivers of ours: ``subscribe(topic, type, ...)``."""
    numbers = itertools.count()
    with ExitStack() as stack:

        def start(topic: str, kind: str, **options: Any) -> Subscription:
            directory = tmp_path / f"log{next(numbers)}"
            return stack.enter_context(Subscription(directory, domain, topic, kind, **options))

        yield start


@pytest.fixture
def participate(domain: int) -> Iterator[Callable[..., Node]]:
    """Starts participants of ours."""
    with ExitStack() as stack:

        def start(**options: Any) -> Node:
            config = replace(NodeConfig(domain=domain, interface="lo"), **options)
            return stack.enter_context(closing(Node.open(config).start()))

        yield start


@pytest.fixture
def lossy(participate: Callable[..., Node], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Node]:
    """Starts participants of ours that lose some of what they send: ``lossy(per_mille)``."""

    def start(per_mille: int, **options: Any) -> Node:
        node, random = participate(**options), Random(per_mille)
        send = node.sockets.send

        def send_most(datagrams: Iterable[OutgoingDatagrams]) -> int:
            each_alone = chain.from_iterable(each.apart() for each in datagrams)
            return send([each for each in each_alone if random.random() * 1000 >= per_mille])

        monkeypatch.setattr(node.sockets, "send", send_most)
        return node

    return start
