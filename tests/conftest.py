"""Tests run in two processes. Those of one lane stay in one process."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.lanes import lane_of, scope_of

# Timings decide no test: a loaded machine is slow.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


# The Javas of the tests live for seconds: code that is compiled well, and a collector with many threads, cost more than
# they bring.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


class Lanes(LoadScopeScheduling):
    """A lane goes to one process as a whole; then each idle process takes the next file."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Lanes:
    config.option.loadscopereorder = False
    return Lanes(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: lane_of(item.nodeid))
