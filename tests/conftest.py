"""Tests run in two processes. Those that meet, on the network, on disk or in Spark, stay in one."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

#: Folders whose tests run one after the other: they share a Spark, or domains and ports. The longest lane first.
#: What runs side by side has domains of its own: spark 44, house 71 to 74; interop 1 to 42, net and receiver 61, 62, 64
#: to 68 and 79 to 88; datasource 63; types 91, 92; fastdds 50 to 59, bench 90. Ports of domains from 102 on lie where
#: Linux takes those of sockets that are not bound: anybody may have them.
LANES = (("spark", "house"), ("interop", "receiver", "net"))


class Lanes(LoadScopeScheduling):
    """A lane goes to one process as a whole, then file by file goes to whichever process has nothing to do."""

    def _split_scope(self, nodeid: str) -> str:
        lane = _lane(nodeid)
        return f"lane {lane}" if lane < len(LANES) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Lanes:
    config.option.loadscopereorder = False
    return Lanes(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _lane(item.nodeid))


def _lane(nodeid: str) -> int:
    """``tests/<folder>/…`` is in the lane that has its folder; all others come last."""
    folder = nodeid.split("/")[1]
    return next((lane for lane, folders in enumerate(LANES) if folder in folders), len(LANES))
