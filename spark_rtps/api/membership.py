"""A participant's membership of its domain: its node, its conductor, and its subscriptions and publications."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from dataclasses import replace

from ..options import AppliesTo, Settings, default_log_dir
from ..options.participants import node_config
from ..transport.errors import OptionError, UsageError
from ..transport.net.forked import disowned_by_children
from ..transport.net.node import Node
from ..transport.receiver.addresses import with_reserved_ports
from .conductor import Conductor, Endpoint
from .flushing import FLUSHERS, Flushable, flush_each


class Membership:
    """The state that a participant shares with its endpoints, which keep it alive: the domain is left when the program
    has
    released all of them, and when the program ends."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        #: Guards everything below.
        self._lock = threading.Lock()
        self._node: Node | None = None
        #: When it joined the domain, monotonic, ns.
        self.joined_at = 0
        self._conductor: Conductor | None = None
        #: Whether :meth:`close` was called.
        self.is_closed = False
        self.endpoints: list[Endpoint] = []
        self._leaving: weakref.finalize[[Node, Conductor], Membership] | None = None
        disowned_by_children(self)

    def disown(self) -> None:
        """In a forked child: close it if the parent has joined the domain with it."""
        self._lock = threading.Lock()  # a thread of the parent may have held it
        self.is_closed = self.is_closed or self._node is not None

    @property
    def node(self) -> Node:
        """The transport's participant, which joins the domain at the first use.

        Raises UsageError after :meth:`close`, TransportError if the domain cannot be joined.
        """
        with self._lock:
            if self.is_closed:
                raise UsageError("the participant is closed")
            if self._node is None:
                config = replace(node_config(self._settings), resolve_types=True)
                config = with_reserved_ports(config, default_log_dir())
                self._node = Node.open(config).start()
                self.joined_at = time.monotonic_ns()
                self._conductor = Conductor(self._node)
                FLUSHERS.add_flushable(self)
                self._leaving = weakref.finalize(self, _leave, self._node, self._conductor)
            return self._node

    def close(self) -> None:
        """Close all endpoints, and leave the domain. A second call does nothing."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            endpoints = list(self.endpoints)
        if self._node is not None and self._node.is_disowned:
            return
        with contextlib.ExitStack() as closing:  # an endpoint that cannot be closed does not keep others open
            closing.callback(self._leave_domain)
            for endpoint in reversed(endpoints):
                closing.callback(endpoint.close)

    def _leave_domain(self) -> None:
        if self._leaving is not None:
            self._leaving()

    def adopt(self, endpoint: Endpoint) -> None:
        """Serve an endpoint with events, and close it with the participant."""
        serving = self._serving()
        with self._lock:
            if self.is_closed:
                raise UsageError("the participant is closed")
            self.endpoints.append(endpoint)
        serving.add_endpoint(endpoint)

    def release(self, endpoint: Endpoint) -> None:
        """Do not serve a closed endpoint any more."""
        with self._lock:
            self.endpoints = [each for each in self.endpoints if each is not endpoint]
        if self._conductor is not None:
            self._conductor.remove_endpoint(endpoint)

    def serve(self) -> None:
        """Hand out the pending events now, so that statuses are up to date."""
        self._serving().serve()

    def _serving(self) -> Conductor:
        _ = self.node
        assert self._conductor is not None
        return self._conductor

    def flush(self, *, ignore_errors: bool = False) -> None:
        """Send the waiting batches of all publications; see `flush_each`."""
        with self._lock:
            publications = [each for each in self.endpoints if isinstance(each, Flushable)]
        flush_each(publications, ignore_errors=ignore_errors)

    def check_is_first_of_group(self, role: AppliesTo) -> None:
        """OptionError for a second topic of a group: each endpoint is a DDS publisher or subscriber of its own."""
        with self._lock:
            endpoints = list(self.endpoints)
        if any(each.role is role and each.is_of_group for each in endpoints):
            kind = "publication" if role is AppliesTo.WRITE else "subscription"
            fix = f"has no effect beyond one topic: each {kind} of a participant is a group of its own; use topic"
            raise OptionError("presentation.access_scope", "group", fix)


def _leave(node: Node, conductor: Conductor) -> None:
    if node.duty_cycle.runs_in_this_thread:
        # The last reference was released in a duty cycle: the conductor may wait for what this thread holds.
        threading.Thread(target=_leave, args=(node, conductor), name="rtps-leave", daemon=True).start()
    elif not node.is_disowned:
        with contextlib.closing(node):
            conductor.stop()
