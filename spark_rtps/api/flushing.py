"""Flushes of several publications, and asynchronous flushes (Ice's ``flushBatchRequests``)."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final, Protocol, runtime_checkable

from ..options.explanations import explained
from ..transport.errors import TransportError, UsageError

_log = logging.getLogger("spark_rtps.api")

#: Flushes that may wait for their turn in a process.
FLUSHES_MAX: Final = 1_024
_TOPICS_NAMED_MAX: Final = 8

Sent = Callable[[], object]
Failed = Callable[[Exception], object]


@runtime_checkable
class Flushable(Protocol):
    """An object with batches in progress: a publication, a participant, the writers of a worker."""

    def flush(self) -> None:
        """Send the waiting batches. Raises TransportError if best-effort samples could not be sent."""


def flush_each(parts: Iterable[Flushable], *, ignore_errors: bool = False) -> None:
    """Flush all parts, even if one fails; then raise TransportError with the failures."""
    errors: list[TransportError] = []
    for part in parts:
        try:
            part.flush()
        except TransportError as error:
            errors.append(error)
        except UsageError as error:  # it was closed meanwhile, and has sent its batch
            _log.debug("%s", error)
    if ignore_errors or not errors:
        return
    if len(errors) == 1:
        raise errors[0]
    announced = "; ".join(map(str, errors[:_TOPICS_NAMED_MAX]))
    raise TransportError(f"{len(errors)} flushes failed: {announced}")


class Flushers:
    """All flushable objects of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: weakref.WeakSet[Flushable] = weakref.WeakSet()

    def add_flushable(self, member: Flushable) -> None:
        """Flush it with all others as long as it exists."""
        with self._lock:
            self._members.add(member)

    def flush(self) -> None:
        """Flush each of them; see :func:`flush_each`."""
        with self._lock:
            members = list(self._members)
        flush_each(members)


class FlushQueue:
    """Asynchronous flushes of one process, in the order of their requests, in their own thread."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Callable[[], None], Sent | None, Failed | None, Future[None]]] = deque()
        self._thread: threading.Thread | None = None

    def put(self, flush: Callable[[], None], sent: Sent | None, failed: Failed | None) -> Future[None]:
        """Queue a flush. ``sent``, or ``failed`` with the error, is called afterwards, in the thread that did it."""
        if self._pid != os.getpid():
            self.__init__()  # type: ignore[misc]  # forked: the thread is the parent's
        done: Future[None] = Future()
        with self._changed:
            if len(self._waiting) >= FLUSHES_MAX:
                raise UsageError(f"{FLUSHES_MAX} flushes wait already; wait for one of them")
            self._waiting.append((flush, sent, failed, done))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rtps-flush", daemon=True)
                self._thread.start()
            self._changed.notify()
        return done

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                flush, sent, failed, done = self._waiting.popleft()
            if not done.set_running_or_notify_cancel():
                continue
            try:
                with explained():
                    flush()
            except Exception as error:  # noqa: BLE001  (the requester of the flush gets it)
                done.set_exception(error)
                _call(failed, error)
            else:
                done.set_result(None)
                _call(sent)
            del flush, sent, failed, done  # they keep publications alive


def _call(callback: Callable[..., object] | None, *arguments: object) -> None:
    if callback is None:
        return
    try:
        callback(*arguments)
    except Exception:  # noqa: BLE001  (the later flushes continue)
        _log.exception("%r, which was to be called behind a flush, failed", callback)


#: Of this process.
FLUSHERS: Final = Flushers()
FLUSH_QUEUE: Final = FlushQueue()


@explained()
def flush(*, ignore_errors: bool = False) -> None:
    """Send what waits in the batches of all participants of this process, and of the sinks of a Spark worker.

    It returns when all of it is handed to the network, or to flow controllers (``publish_mode=asynchronous``).

    Args:
        ignore_errors: True: samples that cannot be sent are lost silently, as with Ice's ``Communicator``.

    Raises:
        TransportError: best-effort samples could not be sent; all others were.
    """
    flush_each([FLUSHERS], ignore_errors=ignore_errors)


def flush_async(*, sent: Sent | None = None, failed: Failed | None = None) -> Future[None]:
    """:func:`flush` without waiting for it.

    Args:
        sent: called without arguments when all was sent, in a thread of this library.
        failed: called with the error instead, if there was one.

    Returns:
        A future with the same outcome.

    Raises:
        UsageError: too many flushes wait already.
    """
    return FLUSH_QUEUE.put(FLUSHERS.flush, sent, failed)
