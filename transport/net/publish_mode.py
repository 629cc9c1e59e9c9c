"""PUBLISH_MODE of a writer (RTI's QoS policy): which thread sends, and how a call waits for the network."""

from __future__ import annotations

import contextlib
import time
from contextlib import AbstractContextManager
from typing import Final, Protocol

from .duty_cycle import DutyCycle

#: How long a blocked call sleeps at most before it checks again; acknowledgements wake it sooner.
_LOOK_AGAIN_SECONDS: Final = 0.05
#: The same if the node's own thread runs the duty cycle: nothing wakes the caller.
_ASYNCHRONOUS_SECONDS: Final = 0.002


class Network(Protocol):
    """Sends and receives (`net.node.Node`)."""

    @property
    def duty_cycle(self) -> DutyCycle: ...
    def run_once(self, timeout: float) -> int: ...
    def do_work(self) -> int: ...
    def flush(self) -> int: ...
    def wake(self) -> None: ...


class PublishMode(Protocol):
    """Decides which thread sends the samples that a call has written."""

    @property
    def is_asynchronous(self) -> bool: ...

    def flush_writer(self) -> None:
        """Send the writer's datagrams; the caller holds the node's lock."""

    def steering(self, *, lingering: bool = False) -> AbstractContextManager[object]:
        """While the calling thread waits; see `DutyCycle.steering`."""
        ...

    def do_work(self) -> int:
        """Process received datagrams; returns their number."""
        ...

    def wait(self) -> None:
        """Wait a moment for datagrams."""


class Synchronous:
    """The calling thread sends, and runs the duty cycle while it waits."""

    is_asynchronous = False

    def __init__(self, node: Network) -> None:
        self._node = node

    def flush_writer(self) -> None:
        self._node.flush()

    def steering(self, *, lingering: bool = False) -> AbstractContextManager[object]:
        return self._node.duty_cycle.steering(lingering=lingering)

    def do_work(self) -> int:
        return self._node.do_work()

    def wait(self) -> None:
        self._node.run_once(_LOOK_AGAIN_SECONDS)


class Asynchronous:
    """The node's own thread sends, and the calling one sleeps while it waits."""

    is_asynchronous = True

    def __init__(self, node: Network) -> None:
        self._node = node

    def flush_writer(self) -> None:
        self._node.wake()

    def steering(self, *, lingering: bool = False) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def do_work(self) -> int:
        return 0

    def wait(self) -> None:
        time.sleep(_ASYNCHRONOUS_SECONDS)
