"""Coherent sets of one writer: begun, ended, given up (RTPS 2.5 §8.7.5, DDS 1.4 §2.2.2.4.1.10)."""

from __future__ import annotations

from ...errors import UsageError
from ...limits import COHERENT_SET_BYTES_MAX, COHERENT_SET_MESSAGES_MAX
from ...structure import INFINITE
from ...wire.framing import frame_end_of_coherent_set
from .history import Change
from .sender import Sender


class CoherentSets:
    """At most one is open at a time."""

    def __init__(
        self,
        writer_id: bytes,
        sender: Sender,
    ) -> None:
        #: The first number of the open set; 0: none is open.
        self.begun = 0
        self._writer_id = writer_id
        self._sender = sender
        self._history = sender.history
        self._publication = sender.publication
        self._acks = sender.acks

    def begin(self, budget: int) -> None:
        """A datagram has room for ``budget`` bytes."""
        self.begun = self._history.last_sn + 1
        self._sender.newest_set = self.begun, INFINITE
        self._history.begin_set()
        self._acks.window.begin_set(min(COHERENT_SET_BYTES_MAX, COHERENT_SET_MESSAGES_MAX * budget))

    def check_open(self, *, is_open: bool) -> None:
        if is_open != (self.begun > 0):
            raise UsageError("no coherent set is open" if is_open else "a coherent set is open already")

    def check_room(self, stopped_by: str) -> None:
        """UsageError if nothing but the open set is in its own way, and ``stopped_by`` is reached."""
        window = self._acks.window
        if self.begun and window.is_full_of_one_set:
            raise UsageError(
                f"the coherent set begun at sample {self.begun} is too large: {stopped_by} is reached "
                f"at {window.nbytes >> 10} KiB, and readers acknowledge nothing of a set before its end; "
                "end it sooner (in Spark: more partitions, or presentation.coherent_access=false)"
            )

    def end_marker(self, timestamp: int) -> Change | None:
        """The last change of the set, which is to be written; None: there is nothing in it. It is open no more."""
        begun, self.begun = self.begun, 0
        history = self._history
        if history.last_sn < begun:
            self._sender.newest_set = 1, 0
            return None
        sn = history.last_sn + 1
        self._sender.newest_set = begun, sn
        end = frame_end_of_coherent_set(self._writer_id, sn)
        return Change(sn, sn, timestamp, end, history.last_batch_sn)

    def ended(self, marker: Change | None, now: int) -> None:
        """The marker is written."""
        if marker is not None:
            self._history.note_end_marker(marker.last_sn)
            self._acks.written(now)
        self._history.end_set()
        self._acks.window.end_set()

    def abort(self, now: int) -> None:
        """The set does not become visible: what nobody has of it is irrelevant, and readers with coherent access
        drop what they hold. Others keep what they have got."""
        begun, self.begun = self.begun, 0
        self._acks.window.end_set()
        if self._history.last_sn < begun:
            self._history.end_set()
            return
        self._sender.broadcast.gap(begun, self._history.abort_set())
        self._publication.give_up(begun)
        self._acks.given_up(begun, now)
        self._acks.written(now)
        self._sender.request_acknowledgment(now)
