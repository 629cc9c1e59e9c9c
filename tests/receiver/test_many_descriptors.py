"""A process that has very many files open, such as the supervisor of a thousand receivers, starts one more."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
from types import SimpleNamespace
from typing import cast

import pytest

from spark_rtps.transport.receiver.process import _answer_of


def test_the_answer_of_a_receiver_is_read_whatever_the_number_of_its_pipe() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this host allows no descriptor above 1023")
    here, there = os.pipe()
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    try:
        high = fcntl.fcntl(here, fcntl.F_DUPFD_CLOEXEC, 1100)
    finally:
        os.close(here)
    os.write(there, b'{"ready": true}\n')
    os.close(there)
    try:
        with os.fdopen(high, "rb", buffering=0) as pipe:
            child = cast("subprocess.Popen[bytes]", SimpleNamespace(stdout=pipe))
            assert pipe.fileno() > 1023 and _answer_of(child) == {"ready": True}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
