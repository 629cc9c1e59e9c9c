"""Delivery targets of a node's readers.

Each reader of a node has one recipient. After each burst the node delivers the readers' runs, and sets the window of
each reader that had some to the space which its recipient has left. Readers that received nothing are skipped: their
recipients announce more space by ``Node.offer_room``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ..protocol.agenda import Failures
from ..protocol.reading.reader import StatefulReader
from ..structure import INFINITE, Guid
from ..wire.samples import Run


class Recipient(Protocol):
    """Takes the runs of one reader. The node calls it under its lock."""

    def room(self) -> int:
        """How many bytes of runs it can take now."""
        ...

    def deliver(self, reader: StatefulReader, runs: list[Run]) -> None:
        """Take runs, which are in order for each writer. Their memory is valid during the call only.

        The reader acknowledges the runs afterwards, unless the recipient sets its ``hold_acknowledgments``. The node
        sets it if the recipient raises.
        """
        ...


class Discard:
    """A recipient that takes everything and keeps nothing."""

    def room(self) -> int:
        return INFINITE

    def deliver(self, reader: StatefulReader, runs: list[Run]) -> None:
        pass


class Recipients:
    """The recipients of one node's readers."""

    def __init__(self) -> None:
        self._recipients: dict[Guid, Recipient] = {}

    def add_recipient(self, reader: StatefulReader, recipient: Recipient) -> None:
        self._recipients[reader.guid] = recipient
        reader.window = recipient.room()

    def remove_recipient(self, reader: Guid) -> None:
        self._recipients.pop(reader, None)

    def offer_room(self, reader: StatefulReader) -> None:
        """Set the window of a reader anew, and deliver the runs that the reader held for want of space."""
        if (recipient := self._recipients.get(reader.guid)) is not None:
            reader.window = recipient.room()
            _deliver(reader, recipient)

    def deliver(self, readers: Iterable[StatefulReader]) -> None:
        """Deliver the readers' runs. A recipient that fails does not affect the others."""
        failures = Failures()
        for reader in readers:
            if (recipient := self._recipients.get(reader.guid)) is None:
                continue
            try:
                _deliver(reader, recipient)
            except Exception as error:  # noqa: BLE001  (it is raised below)
                failures.add_failure(error)
        failures.raise_first()


def _deliver(reader: StatefulReader, recipient: Recipient) -> None:
    while runs := reader.take_runs():  # a new window may release runs that the reader held
        try:
            recipient.deliver(reader, runs)
        except BaseException:
            reader.hold_acknowledgments = True  # runs that the recipient did not keep are lost otherwise
            raise
        reader.window = recipient.room()
