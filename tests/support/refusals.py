"""A system that refuses: no more file descriptors, or one call in a row of calls that fails."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import mmap
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_DESCRIPTORS = Path("/proc/self/fd")
#: Calls that open something; what an exhausted process refuses.
OPENING = ((os, "open"), (io, "open"), (mmap, "mmap"))
#: Calls that change a disk; what a full or broken one refuses.
WRITING = ((os, "pwrite"), (os, "replace"), (os, "posix_fallocate"), (os, "unlink"), (os, "mkdir"))


def open_descriptors() -> dict[int, str]:
    """The descriptors of this process, and what each is."""
    found = {}
    for name in os.listdir(_DESCRIPTORS):
        with contextlib.suppress(FileNotFoundError):  # that of this listing
            found[int(name)] = os.readlink(_DESCRIPTORS / name)
    return found


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process may open so many more."""
    used = set(open_descriptors())
    free = (number for number in itertools.count() if number not in used)
    limit = next(itertools.islice(free, count, None))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Refusal:
    """The ``number``-th of all calls of these functions fails with ``code``; those before and after it do not."""

    def __init__(self, functions: tuple[tuple[Any, str], ...], number: int, code: int) -> None:
        self._functions = functions
        self._left = number
        self._code = code

    @property
    def came(self) -> bool:
        return self._left <= 0

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module, name in self._functions:
                patch.setattr(module, name, self._refusing(getattr(module, name)))
            yield

    def _refusing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self._left -= 1
            if not self._left:
                raise OSError(self._code, os.strerror(self._code))
            return real(*args, **named)

        return call


REFUSALS = (
    pytest.param(OPENING, errno.EMFILE, id="no descriptors"),
    pytest.param(WRITING, errno.ENOSPC, id="full disk"),
    pytest.param(WRITING, errno.EIO, id="broken disk"),
)
