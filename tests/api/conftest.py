"""Fixtures of the API's tests: a domain of its own for each, participants and Cyclone peers that end with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import spark_rtps as rtps
from spark_rtps.api import writer_session
from spark_rtps.transport.log_once import LogOnce
from tests.interop.cyclone_peer import CyclonePeer
from tests.support import domains


@pytest.fixture(autouse=True)
def nothing_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process says once, each test hears."""
    monkeypatch.setattr(writer_session, "_MISMATCHES_LOGGED", LogOnce(64))


_DOMAINS = itertools.cycle(domains.PYTHON_API)


@pytest.fixture
def domain() -> int:
    """A domain that no other test of this folder uses at the time."""
    return next(_DOMAINS)


@pytest.fixture
def participate(domain: int) -> Iterator[Callable[..., rtps.Participant]]:
    """Makes participants on the test's domain."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(rtps.Participant(domain, interface="lo", **options))


@pytest.fixture
def participant(participate: Callable[..., rtps.Participant]) -> rtps.Participant:
    """One participant on the test's domain."""
    return participate()


@pytest.fixture
def cyclone(domain: int) -> Iterator[Callable[..., CyclonePeer]]:
    """Starts Cyclone participants."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(CyclonePeer(domain, **options))
