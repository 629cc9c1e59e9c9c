"""A network, shared memory and folder for temporary files of a run's own: whole suites side by side do not meet.

A run of pytest leaves the host's network for a namespace that has loopback alone, and gets an empty ``/dev/shm`` of its
own. All that tests start is there too, and all of it is gone with the last process. Root can do that, and other users
where the kernel lets them make user namespaces. Where neither is allowed, a run stays on the host's network, and a host
runs one suite at a time. ``SPARK_RTPS_TEST_NETWORK=host`` asks for that.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import tempfile
from pathlib import Path
from typing import Final

#: Set to ``host`` by whoever wants the host's network, and to ``own`` for the processes of a run that has left it.
VARIABLE: Final = "SPARK_RTPS_TEST_NETWORK"

_CLONE_NEWNS: Final = 0x0002_0000
_CLONE_NEWUSER: Final = 0x1000_0000
_CLONE_NEWNET: Final = 0x4000_0000
_MS_NOSUID_NODEV: Final = 0x6
_MS_PRIVATE_ALL: Final = 0x4_4000
_SIOCADDRT: Final = 0x890B
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP_RUNNING: Final = 0x41
_RTF_UP: Final = 0x1


class _Route(ctypes.Structure):
    """``struct rtentry`` of <linux/route.h>."""

    _fields_ = (
        ("pad1", ctypes.c_ulong),
        ("destination", ctypes.c_char * 16),
        ("gateway", ctypes.c_char * 16),
        ("mask", ctypes.c_char * 16),
        ("flags", ctypes.c_ushort),
        ("pad2", ctypes.c_short),
        ("pad3", ctypes.c_ulong),
        ("pad4", ctypes.c_void_p),
        ("metric", ctypes.c_short),
        ("device", ctypes.c_char_p),
        ("mtu", ctypes.c_ulong),
        ("window", ctypes.c_ulong),
        ("initial_rtt", ctypes.c_ushort),
    )


class OwnNetwork:
    """Where a run of pytest is; ``temporary`` is its folder for temporary files."""

    def __init__(self) -> None:
        self.description = f"this host's ({VARIABLE})"
        self.temporary: Path | None = None
        if VARIABLE in os.environ:
            return
        try:
            _leave_the_host()
        except OSError as error:
            self.description = f"this host's: a namespace is not permitted ({error}); run one suite at a time"
        else:
            self.description = "a namespace of its own"
            os.environ[VARIABLE] = "own"
        # what tests are given by tmp_path stays where people look for it
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        self.temporary = Path(tempfile.mkdtemp(prefix="rtps-tests-"))
        self.temporary.chmod(0o711)  # some tests run processes of other users
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.temporary)

    def close(self) -> None:
        """Remove the folder; the namespace ends with its processes."""
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)


def _leave_the_host() -> None:
    """Raises OSError where it is not permitted, and is on the host's network then."""
    user, group = os.getuid(), os.getgid()
    if user == 0:
        _call("unshare", _CLONE_NEWNET | _CLONE_NEWNS)
        Path("/run/netns").mkdir(exist_ok=True)
    else:
        _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWNS)
        own = Path("/proc/self")
        (own / "setgroups").write_text("deny")
        (own / "uid_map").write_text(f"{user} {user} 1")
        (own / "gid_map").write_text(f"{group} {group} 1")
    _call("mount", None, b"/", None, _MS_PRIVATE_ALL, None)
    # the second one has the names of namespaces that tests make
    for path in ("/dev/shm", "/run/netns"):
        if os.path.isdir(path):
            _call("mount", b"tmpfs", path.encode(), b"tmpfs", _MS_NOSUID_NODEV, b"mode=1777")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP_RUNNING))
        # Multicast goes to loopback; there is no way to other hosts, so that a look-up of a name fails at once.
        route = _Route(flags=_RTF_UP, device=b"lo")
        for field, address in (
            (_Route.destination, "224.0.0.0"),
            (_Route.gateway, "0.0.0.0"),
            (_Route.mask, "240.0.0.0"),
        ):
            sockaddr = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
            ctypes.memmove(ctypes.addressof(route) + field.offset, sockaddr, len(sockaddr))
        fcntl.ioctl(probe, _SIOCADDRT, bytes(route))


def _call(name: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
