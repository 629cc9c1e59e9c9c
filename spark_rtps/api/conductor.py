"""A participant's work in addition to its node's duty cycle: handing events to endpoints, and their periodic work.

Aeron calls such an agent a conductor. It never holds the node's lock while it calls an endpoint, so a listener may
call anything.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Final, Protocol

from ..options import AppliesTo
from ..transport.net.forked import disowned_by_children
from ..transport.net.node import Node
from ..transport.protocol.participant.events import Event

_log = logging.getLogger("spark_rtps.api")

_PERIOD_SECONDS: Final = 0.02
#: How long a call waits for another thread's listener.
_LISTENER_SECONDS: Final = 0.1


class Endpoint(Protocol):
    """A subscription or a publication, as its participant sees it."""

    @property
    def role(self) -> AppliesTo:
        """Whether it reads or writes."""
        ...

    @property
    def is_of_group(self) -> bool:
        """Whether its samples are ordered, or become visible, together with those of other topics."""
        ...

    def on_event(self, event: Event) -> None:
        """Something happened on the domain; not only to this endpoint. Called by one thread at a time."""

    def do_work(self, now: int) -> None:
        """Do what is due; ``now`` is monotonic, ns. Called some 50 times a second, by one thread at a time."""

    def close(self) -> None:
        """Leave the domain."""


class Conductor:
    """The endpoints of one participant, and the thread that serves them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        #: Weak references: the participant, and the program, keep endpoints alive. Replaced, never changed in place.
        self._endpoints: list[weakref.ref[Endpoint]] = []
        #: Guards the endpoints and all below; never held while an endpoint is called.
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        #: Rounds of service that have begun, and that have ended.
        self._begun = 0
        self._ended = 0
        self._asked = False
        self._stopped = False
        disowned_by_children(self)

    def disown(self) -> None:
        """In a forked child, which does not have the thread."""
        self._changed = threading.Condition()  # a thread of the parent may have held it
        self._thread, self._stopped, self._endpoints = None, True, []

    def add_endpoint(self, endpoint: Endpoint) -> None:
        """Serve this endpoint from now on. Events before that are not handed to it."""
        with self._changed:
            self._endpoints = [*self._endpoints, weakref.ref(endpoint)]
            if self._thread is None:
                self._node.events()  # no endpoint was there for them
                name = f"rtps-conductor-{self._node.config.domain}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def remove_endpoint(self, endpoint: Endpoint) -> None:
        """Do not serve it any more; a call that is under way continues."""
        with self._changed:
            self._endpoints = [each for each in self._endpoints if each() not in (None, endpoint)]

    def serve(self) -> None:
        """Hand out the pending events, and do the due work, before this returns.

        If a listener takes long, this does not wait for it; in a listener it does nothing.
        """
        if threading.current_thread() is self._thread:
            return
        with self._changed:
            if self._thread is None:
                return
            wanted = self._begun + 1
            self._asked = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended >= wanted or self._stopped, _LISTENER_SECONDS)

    def stop(self) -> None:
        """End the thread. No endpoint is served afterwards."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked or self._stopped, _PERIOD_SECONDS)
                if self._stopped:
                    return
                self._asked = False
                self._begun += 1
            # In this order: an endpoint that is added between the two has no event among these, and misses none.
            events = self._node.events()
            for known in self._endpoints:
                if (endpoint := known()) is not None:
                    for event in events:
                        self._guarded(endpoint, event)
                    self._guarded(endpoint, None)
                del endpoint
            with self._changed:
                self._ended = self._begun
                self._changed.notify_all()

    def _guarded(self, endpoint: Endpoint, event: Event | None) -> None:
        try:
            if event is None:
                endpoint.do_work(time.monotonic_ns())
            else:
                endpoint.on_event(event)
        except Exception:  # noqa: BLE001  (one endpoint must not end the service of the others)
            _log.exception("%r failed on %r", endpoint, event)
