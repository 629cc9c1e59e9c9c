"""One cluster for all tests here, with a driver, and a plant and its edges beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.driver import Driver
from tests.cluster.edges import Hosts, Plant, connect, hosts
from tests.cluster.standalone import Cluster


@pytest.fixture(scope="package")
def hosts_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("cluster")) as made:
        connect(made)
        yield made


@pytest.fixture(scope="package")
def driver_of_all(hosts_of_all: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(hosts_of_all, tmp_path_factory.mktemp("driver"))


@pytest.fixture
def driver(driver_of_all: Driver) -> Driver:
    """The one of all tests, which outlives them unless a query of theirs does not end."""
    driver_of_all.make_ready()
    return driver_of_all


@pytest.fixture
def free_cores(driver_of_all: Driver) -> None:
    """For a driver of a test's own: the other one has ended."""
    driver_of_all.kill()


@pytest.fixture
def standalone(hosts_of_all: Hosts, driver: Driver) -> Iterator[Cluster]:
    """A cluster of namespaces. What a test starts there ends with the test."""
    if not isinstance(hosts_of_all, Cluster):
        pytest.skip("network namespaces are not permitted here")
    with hosts_of_all.ending():
        yield hosts_of_all


@pytest.fixture
def plant(hosts_of_all: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    """Receiver services at the edges of a plant; on loopback where there are no namespaces.

    They end with the test, and so does what it starts beside them.
    """
    with hosts_of_all.ending():
        yield Plant(hosts_of_all, tmp_path_factory.mktemp("plant"))
