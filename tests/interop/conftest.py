"""Fixtures of the interop tests: a domain of its own for each, Cyclone peers, receivers and nodes that end with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from interop.cyclone_peer import CyclonePeer
from interop.subscription import Subscription

from spark_rtps.transport.net.node import Node, NodeConfig

_DOMAINS = itertools.cycle(range(100, 140))


@pytest.fixture
def domain() -> int:
    """A domain that no other test of this module's folder uses at the time."""
    return next(_DOMAINS)


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
            return stack.enter_context(closing(Node(config).start()))

        yield start
