"""Tests run in several processes. Those of one lane stay in one process."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support import quick_spark
from tests.support.campaigns import COMMIT, LONG
from tests.support.own_network import OwnNetwork
from tests.support.worker_lane import lane_of, scope_of

# Timings decide no test: a loaded machine is slow.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


NETWORK = pytest.StashKey[OwnNetwork]()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker is where the run is that started it
        os.environ["SPARK_RTPS_TEST_COMMIT"] = COMMIT  # whatever is committed meanwhile
        config.stash[NETWORK] = OwnNetwork()
        for name, value in quick_spark.environment().items():
            os.environ.setdefault(name, value)


def pytest_report_header(config: pytest.Config) -> list[str]:
    if NETWORK not in config.stash:
        return []  # a worker's, which nobody sees
    return [
        f"network: {config.stash[NETWORK].description}",
        f"campaigns: {'whole' if LONG else 'a quarter'}, fresh seeds of commit {COMMIT} (SPARK_RTPS_TEST_COMMIT)",
    ]


def pytest_unconfigure(config: pytest.Config) -> None:
    if NETWORK in config.stash:
        config.stash[NETWORK].close()


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """A lane goes to one process as a whole; then each idle process takes the next file."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Lanes:
    config.option.loadscopereorder = False
    return Lanes(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: lane_of(item.nodeid))
