"""``python confined.py UNIT COMMAND…`` runs a command in what a service unit leaves it, as far as no systemd is needed.

That is: the system calls of SystemCallFilter, the families of RestrictAddressFamilies, no capabilities, no new
privileges, no memory that is writable and executable, the file mode mask. It needs root and libseccomp.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EPERM
_EQUAL = 4
_CAP_DROP, _SET_MDWE, _REFUSE_EXEC_GAIN = 24, 65, 1


class _Compared(ctypes.Structure):
    """scmp_arg_cmp(3): an argument of a system call, and what it has to be."""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


def lines_of(unit: Path) -> dict[str, list[str]]:
    """The settings of a unit; one that comes several times has several values."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def calls_of(name: str) -> set[str]:
    """The system calls of a group, as this machine's systemd knows it."""
    if not name.startswith("@"):
        return {name}
    listed = subprocess.run(
        ["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True
    )
    entries = (line.strip() for line in listed.stdout.splitlines()[1:])
    return set().union(*(calls_of(entry) for entry in entries if entry and not entry.startswith("#")))


def allowed_calls(settings: dict[str, list[str]]) -> set[str]:
    """What SystemCallFilter leaves, line by line."""
    allowed: set[str] = set()
    for line in settings["SystemCallFilter"]:
        calls = set().union(*map(calls_of, line.removeprefix("~").split()))
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    return allowed


def confine(settings: dict[str, list[str]]) -> None:
    """Give up all that the unit does not leave. There is no way back."""
    calls = allowed_calls(settings)  # before it cannot be asked any more
    os.umask(int(settings["UMask"][0], 8))
    libc = ctypes.CDLL(None, use_errno=True)
    assert settings["CapabilityBoundingSet"] == [""]
    for capability in range(64):
        libc.prctl(_CAP_DROP, capability, 0, 0, 0)
    assert settings["MemoryDenyWriteExecute"] == ["yes"]
    libc.prctl(_SET_MDWE, _REFUSE_EXEC_GAIN, 0, 0, 0)  # refused before Linux 6.3
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(_REFUSE)))
    families = settings["RestrictAddressFamilies"][0].split()
    for call in calls:
        number = seccomp.seccomp_syscall_resolve_name(call.encode())
        if number < 0:
            continue  # of another machine's
        rules: list[list[_Compared]] = [[]]
        if call == "socket":
            rules = [[_Compared(0, _EQUAL, getattr(socket, family), 0)] for family in families]
        for rule in rules:
            array = (_Compared * max(1, len(rule)))(*rule)
            done = seccomp.seccomp_rule_add_array(context, ctypes.c_uint32(_ALLOW), number, len(rule), array)
            assert done == 0, (call, done)
    assert seccomp.seccomp_load(context) == 0


if __name__ == "__main__":
    confine(lines_of(Path(sys.argv[1])))
    os.execv(sys.argv[2], sys.argv[2:])
