"""The DDS domains of the tests: every test on real sockets takes its domain from here, by name.

No two names share a domain, so tests that run side by side do not meet. The ports of domains from 102 on lie where
Linux takes the ports of unbound sockets (its ephemeral range starts at 32768), so another process may hold them.
Domain 0 is DDS's default, and stays with whatever else runs on the machine.
"""

from __future__ import annotations

import os

#: The first domain with ports in Linux's ephemeral range.
FIRST_EPHEMERAL = 102

#: One for each test of ``tests/interop`` in turn, or for each file whose tests keep apart by topics.
INTEROP = range(1, 29)
#: Settings that no socket is opened for.
SETTINGS = 33
#: The same for a receiver, whose log has one of two domains.
RECEIVER_SETTINGS = 58
RECEIVER_SETTINGS_OTHER = 59
#: `spark-rtps log publication`, whose writer is a process of its own.
LOG_PUBLICATION = 35
INTEROP_TYPES = 41
INTEROP_NAMING = 42

MONITORING = 43
#: The topics that a server of receiver services sees.
SERVING_TOPICS = 38

#: One for each process that runs tests of ``tests/spark``, which keep apart by topics.
SPARK = range(29, 33)

COMMANDS = 45
#: Nobody is there.
COMMANDS_EMPTY = 46
#: What the commands ask of a receiver that runs.
COMMANDS_RECEIVER = 37

DEMO = 47
DEMO_EXAMPLE = 48

TYPES_ORACLE = 49
TYPES_ASSIGNABILITY = 92

#: One for each file of ``tests/fastdds`` in turn.
FASTDDS = range(50, 58)

NET_SOCKETS = 60
NET_PUBLISHING = 61
NET_OFFLOAD = 62
NET_FLOW_CONTROL = 63
NET_MTU = 64
NET_ON_HOST = 65
NET_ON_HOST_RECEIVER = 66
NET_OFFER = 67
NET_SHAPED_LINK = 68
NET_FLUSH_THREADS = 69
NET_MULTICAST = 34

RECEIVER_PROCESS = 70
RECEIVER_OBSERVED = 71
RECEIVER_KILL = 72
RECEIVER_NAMING = 73
RECEIVER_MOVED = 36
RECEIVER_KILL_AT = 100
RECEIVER_NO_DESCRIPTORS = 101
RECEIVER_SPY = 74
#: Where the spy does not look.
RECEIVER_SPY_ELSEWHERE = 75

#: One or more for each figure of ``tests/bench``.
BENCH = range(76, 91)

#: In a network of their own.
RECEIVER_SERVICE = 91


#: The public Python API.
PYTHON_API = range(93, 99)
#: A program in an environment without Spark.
PACKAGING = 99

#: A writer, a source and a sink, walked through.
DOCS_WALKS = 44

#: An honest pair and those who mean ill.
HOSTILE = 40

#: In a network of its own.
CLUSTER = 39


def of_this_process(some: range) -> int:
    """One of these domains: each worker of pytest, with the processes that it starts, has another one."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return some[int(worker.removeprefix("gw")) % len(some)]
