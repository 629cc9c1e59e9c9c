"""Receives in turns: a burst of expensive datagrams delays neither timers nor the other sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Final

from ..protocol.agenda import Failures
from ..protocol.participant.participant import Reception, RtpsParticipant
from ..protocol.receiving.message_receiver import Span
from ..wire.samples import U8
from .ipc_reading import ReadLogs
from .recipients import Recipients
from .sockets import Sockets

#: How long the datagrams of one socket may delay everything else in one cycle, and the amount of work (in about
#: microseconds) between two checks of that; the bursts of honest peers need one check.
_TURN_NS: Final = 20_000_000
_PART_WORK: Final = 10_000


class ReceiveTurns:
    """Processes the contents of sockets and of logs on this host, and delivers to the recipients; all calls under the
    node's lock."""

    def __init__(self, participant: RtpsParticipant, sockets: Sockets, recipients: Recipients) -> None:
        self._participant = participant
        self._sockets = sockets
        self._recipients = recipients
        #: The logs of writers on this host.
        self.read_logs = ReadLogs(self._receive)
        #: The rest of a burst that took longer than its turn, by socket.
        self.unfinished: dict[socket.socket, Reception] = {}
        #: Bytes received in the current duty cycle.
        self.received_bytes = 0

    def take_turns(self) -> int:
        """Give each socket its turn; returns the number of datagrams received."""
        self.received_bytes = received = 0
        for source in self._sockets.receivers:
            received += self._take_from(source)
        return received

    def close(self) -> None:
        """Stop processing."""
        self.unfinished.clear()
        self.read_logs.close()

    def _take_from(self, source: socket.socket) -> int:
        """Process the datagrams that wait in a socket; returns their number.

        If that takes longer than a socket's turn, the rest of the burst waits for the next cycle: timers and the other
        sockets come first.
        """
        received, fresh = 0, False
        now: int | None = None
        failures = Failures()
        reception = self.unfinished.get(source)
        if reception is None:
            spans = self._sockets.drain(source)
            # A datagram may announce samples that lie in a log: the logs are read first.
            try:
                received = self._receive_from_logs()
            except Exception as error:  # noqa: BLE001  (raised once the burst, which is not sent again, is begun)
                failures.add_failure(error)
            if not spans:
                failures.raise_first()
                return received
            if source is self._sockets.discovery:
                sources = {span[2] for span in spans}
                self._participant.discovery.received_by_multicast(sources, now=time.monotonic_ns())
            received += len(spans)
            self.received_bytes += spans[-1][1]
            begun, fresh = time.monotonic_ns(), True
            reception = self._participant.receiving(
                self._sockets.buffer, spans, now=begun, work_max=_PART_WORK
            )
        else:
            begun = now = time.monotonic_ns()
        while True:
            try:
                readers = reception.send(now)
            except StopIteration as end:
                self.unfinished.pop(source, None)
                self._recipients.deliver(end.value)
                failures.raise_first()
                return received
            except Exception:  # the generator that raised has ended: the burst has no rest
                self.unfinished.pop(source, None)
                raise
            if fresh:  # other sockets are read meanwhile
                self._sockets.renew_buffer()
                self.unfinished[source], fresh = reception, False
            self._recipients.deliver(readers)
            now = time.monotonic_ns()
            if now - begun > _TURN_NS or self.unfinished.get(source) is not reception:
                failures.raise_first()
                return received

    def _receive(self, data: U8, spans: Sequence[Span], _since: int | None) -> None:
        """Hand messages to the protocol, and deliver their samples to the recipients."""
        self._recipients.deliver(self._participant.receive(data, spans, now=time.monotonic_ns()))

    def _receive_from_logs(self) -> int:
        """Read the frames that writers on this host have published; returns the number of messages."""
        logs = self.read_logs
        if not logs.writers:
            return 0
        messages, nbytes = logs.read_logs(now=time.monotonic_ns())
        self.received_bytes += nbytes
        return messages
