"""Wireshark's command line, which judges what we send."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_OPTIONS = (
    *("-n", "-o", "rtps.max_batch_samples_dissected:10000"),
    # RTPS has no port of its own: 9901, the default group's port of domain 10, is another protocol's to Wireshark.
    *("-o", "udp.try_heuristic_first:TRUE"),
)


def tshark(capture: bytes | Path, *arguments: str) -> str:
    """What tshark prints of a capture."""
    program = shutil.which("tshark")
    if program is None:
        pytest.fail("tshark is needed to judge what we send: install Wireshark's command line (apt: tshark)")
    content = capture if isinstance(capture, bytes) else capture.read_bytes()
    command = [program, *_OPTIONS, "-r", "-", *arguments]
    done = subprocess.run(command, input=content, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
