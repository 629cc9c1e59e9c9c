"""One cluster for all tests here, with a plant and its edges beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.edges import Hosts, Plant, connect, hosts
from tests.cluster.standalone import Cluster


@pytest.fixture(scope="package")
def hosts_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("cluster")) as made:
        connect(made)
        yield made


@pytest.fixture
def standalone(hosts_of_all: Hosts) -> Iterator[Cluster]:
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
