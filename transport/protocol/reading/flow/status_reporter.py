"""Status messages, which a reader sends to our own writers beside acknowledgements: its consumption and its window.

Positions are bytes of one writer's runs since the match. On the wire the consumption is a sequence number.

A status message is due
* at the match, and with each ACKNACK that answers a HEARTBEAT, so that the loss of one does no harm;
* when the consumption has moved by more than a quarter of the window since the last one, or into another term;
* when ``status_message_timeout`` has passed since the last one, and something was consumed;
* when the window changed by a quarter, or opened, or congestion control requests one.

So an idle stream sends nothing. A best-effort stream, which has no HEARTBEATs, repeats its last message a few times.

Invariants:
* ``rcv_pos`` is examined only when it reaches ``due``, which happens once or twice between two status messages;
* only samples that the owner took, or with ``consumption_held`` called consumed, are reported as consumed;
* an offer is never taken back: an overrun is measured against the highest position ever offered.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from ....limits import UDP_PAYLOAD_MAX
from ....structure import INFINITE, Guid
from ....wire.status_messages import RttMeasurement, StatusMessage
from ...policies import ReaderCounters, ReaderPolicy
from ..ordering.writer_proxy import WriterProxy
from ..received_stream import StreamPositions
from .congestion_control import CongestionControl, CongestionControlFactory, StaticWindow, built_in

#: A reader sends a status message at each multiple of this position (Aeron: with each term).
TERM_LENGTH: Final = 16 << 20
_WINDOW_MAX: Final = (1 << 32) - 1
_RTT_PERIOD: Final = 100_000_000
#: How often a best-effort stream repeats a status message.
_REPETITIONS: Final = 3
#: The least window: of one writer of many, or with a receive buffer that is small or unknown.
_SHARE_MIN: Final = 4 << 20


class ReceiveCapacity:
    """The kernel's receive buffer of one participant, shared by the writers that follow the windows of its readers.

    ``nbytes``: the size of that buffer; 0: unknown. Half of it is for bytes on their way, because the kernel counts
    more for a datagram than its bytes."""

    __slots__ = ("_half", "streams")

    def __init__(self, nbytes: int = 0) -> None:
        self._half = nbytes // 2
        #: Writers that follow a window.
        self.streams = 0

    @property
    def share(self) -> int:
        """Bytes that one writer may have on its way."""
        return max(self._half // max(self.streams, 1), _SHARE_MIN)


class StatusReporter:
    """The status messages of one reader; ``closed`` (writers for which it has no space) belongs to the reader."""

    def __init__(
        self,
        reader_id: bytes,
        policy: ReaderPolicy,
        counters: ReaderCounters,
        closed: Container[Guid],
        receive_capacity: ReceiveCapacity | None = None,
    ) -> None:
        self.policy = policy
        self.counters = counters
        #: Makes the congestion control of each writer matched later; by default the one that the policy names.
        self.congestion_control: CongestionControlFactory = built_in
        #: Samples are reported as consumed when the owner calls them consumed, instead of when it took them.
        self.consumption_held = False
        #: Writers that were offered less than congestion control allows, with the space at which the offer grows.
        self.starved: dict[Guid, int] = {}
        self._reader_id = reader_id
        self._receive_capacity = receive_capacity or ReceiveCapacity(INFINITE)
        self._closed = closed
        self._controls: dict[Guid, CongestionControl] = {}

    # --- what happened: each returns whether there is something to send ---------------------------

    def introduce(self, proxy: WriterProxy, now: int) -> bool:
        """A writer was matched."""
        if not proxy.info.status_messages:
            return False
        stream, policy = proxy.stream, self.policy.congestion_control
        self._controls[proxy.guid] = StaticWindow(
            policy
        )  # remains if the factory raises, which may be a plug-in
        self._receive_capacity.streams += 1
        stream.due = 1
        if not proxy.reliable:
            stream.repetitions = _REPETITIONS
            stream.timer_at = now + self.policy.status_message_timeout
        stream.wanted, stream.wanted_at = True, now
        self._track(proxy, now)
        self._controls[proxy.guid] = self.congestion_control(policy, proxy.info)
        self._track(proxy, now)
        return True

    def forget_writer(self, writer: Guid) -> None:
        if self._controls.pop(writer, None) is not None:
            self._receive_capacity.streams -= 1
        self.starved.pop(writer, None)

    def on_progress(self, proxy: WriterProxy, datagram: int, now: int) -> bool:
        """``rcv_pos`` has reached ``due``; ``datagram``: estimated bytes of one datagram."""
        stream = proxy.stream
        stream.datagram = max(stream.datagram, min(datagram, UDP_PAYLOAD_MAX))
        if stream.rcv_pos > stream.overrun_at:
            self.counters.overruns += 1
        if stream.timer_at == INFINITE:
            stream.timer_at = max(stream.wanted_at + self.policy.status_message_timeout, now)
        if self.policy.congestion_control.measure_rtt and now >= stream.rtt_asked_at + _RTT_PERIOD:
            stream.ask_rtt(now)
        force = self._track(proxy, now)
        _, position = self._consumption(proxy)
        moved = position - stream.reported_pos > stream.offered_window >> 2
        term = _term_of(proxy)
        rotated = position // term > stream.reported_pos // term
        if stream.wanted or force or moved or rotated or self._is_news(proxy):
            stream.wanted = True
            stream.wanted_at = now
            # Until it is sent, only an overrun matters.
            stream.due = max(stream.overrun_at, stream.rcv_pos) + 1
        else:
            stream.set_due(stream.rcv_pos if self.consumption_held else stream.reported_pos, term)
        return stream.wanted or stream.wants_rtt

    def on_disorder(self, proxy: WriterProxy, last_sn: int, now: int) -> bool:
        """A run up to ``last_sn`` arrived that was not the next one in order."""
        stream = proxy.stream
        if last_sn <= stream.reported_sn:
            self.counters.underruns += 1
        elif stream.rcv_pos + proxy.held.nbytes > stream.overrun_at:
            self.counters.overruns += 1
        before, stream.rcv_hwm = stream.rcv_hwm, max(stream.rcv_hwm, stream.rcv_pos + proxy.held.nbytes)
        if (
            stream.rcv_hwm == before
            or not stream.offered_window
            or stream.wanted
            or proxy.guid in self.starved
        ):
            return False
        if proxy.guid not in self._controls:
            return False
        self._track(proxy, now)
        limit = self._consumption(proxy)[1] + stream.window
        if limit - stream.reported_pos - stream.offered_window > stream.offered_window >> 2:
            stream.wanted, stream.wanted_at = True, now
        return stream.wanted

    def on_loss(self, proxy: WriterProxy, first: int, now: int) -> bool:
        """Samples from ``first`` on were lost. Congestion control is called once for all samples that were on their way
        when the last loss was seen: the writer could not know of that loss yet."""
        stream = proxy.stream
        if proxy.guid not in self._controls or first <= stream.recovery_sn:
            return False
        stream.recovery_sn = max(proxy.announced, first)
        if self._track(proxy, now, loss=True) or self._is_news(proxy):
            stream.wanted, stream.wanted_at = True, now
        return stream.wanted

    def on_passed(self, proxy: WriterProxy, now: int) -> None:
        """Samples will never come: the stream moves on without bytes."""
        stream = proxy.stream
        if proxy.guid in self._controls and stream.timer_at == INFINITE:
            stream.timer_at = now + self.policy.status_message_timeout

    def on_closed(self, proxy: WriterProxy, now: int) -> bool:
        """The owner had no space for a run."""
        stream = proxy.stream
        if proxy.guid in self._controls and stream.offered_window and not stream.wanted:
            stream.wanted, stream.wanted_at = True, now
            return True
        return False

    def on_timer(self, proxy: WriterProxy, now: int) -> bool:
        """The status message time-out has passed."""
        stream = proxy.stream
        timeout = self.policy.status_message_timeout
        moved = self._consumption(proxy)[0] > stream.reported_sn
        if not stream.wanted and now < stream.wanted_at + timeout:
            stream.timer_at = stream.wanted_at + timeout
            return False
        if moved:
            stream.repetitions = 0 if proxy.reliable else _REPETITIONS
        elif not stream.wanted:
            if not stream.repetitions:
                stream.timer_at = INFINITE
                stream.due = min(stream.due, stream.rcv_pos + 1)  # the next byte starts the timer again
                return False
            stream.repetitions -= 1
        stream.timer_at = now + timeout if stream.repetitions else INFINITE
        self._track(proxy, now)
        stream.wanted, stream.wanted_at = True, now
        return True

    def on_open(self, proxy: WriterProxy) -> None:
        """The owner has space again for refused samples: the reader dropped them, not the network."""
        proxy.stream.wanted = proxy.info.status_messages
        proxy.stream.recovery_sn = proxy.announced

    def on_room(self, room: int) -> list[Guid]:
        """The owner has space for ``room`` bytes; returns the writers whose windows grow."""
        found = [guid for guid, needed in self.starved.items() if needed <= room]
        for guid in found:
            del self.starved[guid]
        return found

    def on_consumed(self, proxy: WriterProxy, sn: int, nbytes: int) -> bool:
        """The owner has consumed all samples up to ``sn``, ``nbytes`` more than before."""
        stream = proxy.stream
        stream.sub_sn = max(stream.sub_sn, sn)
        stream.sub_pos = min(stream.sub_pos + nbytes, stream.rcv_pos)
        stream.wanted = stream.wanted or (proxy.guid in self._controls and sn > stream.reported_sn)
        return stream.wanted

    def ask(self, proxy: WriterProxy, now: int) -> bool:
        """Ask a writer whether others wait for this reader; False: it was asked already, or does not support this."""
        stream = proxy.stream
        if proxy.guid not in self._controls or stream.wants_rtt:
            return False
        stream.ask_rtt(now)
        return True

    def on_rtt_measurement(self, proxy: WriterProxy, message: RttMeasurement, now: int) -> bool:
        """Take the reply to a measurement; returns False for a reply to no request, which is ignored."""
        stream, control = proxy.stream, self._controls.get(proxy.guid)
        if control is None or not message.reply or not stream.rtt_question:
            return False
        rtt = now - message.echo_timestamp - message.reception_delta
        if message.echo_timestamp != stream.rtt_question or rtt < 0:
            return False
        stream.rtt_question = 0
        if not self.policy.congestion_control.measure_rtt:
            return True  # it was asked for another reason
        stream.rtt = self.counters.rtt_ns = max(rtt, 1)
        self.counters.rtt_measurements += 1
        control.on_rtt_measurement(stream.rtt, now=now)
        return True

    def positions(self, proxy: WriterProxy) -> StreamPositions:
        stream = proxy.stream
        stream.rcv_hwm = max(stream.rcv_hwm, stream.rcv_pos + proxy.held.nbytes)
        _, consumed = self._consumption(proxy)
        return StreamPositions(stream.rcv_hwm, stream.rcv_pos, consumed, stream.offered_window, stream.rtt)

    # --- what to send ----------------------------------------------------------------------------

    def messages(self, proxy: WriterProxy, count: int, room: int) -> list[bytes]:
        """The messages to send to a writer now; ``room``: bytes that the owner can take."""
        stream, messages = proxy.stream, []
        reader_id, writer_id = self._reader_id, proxy.guid.entity
        if stream.wants_rtt:
            stream.wants_rtt = False
            messages.append(RttMeasurement(reader_id, writer_id, stream.rtt_question).encode())
        if not stream.wanted:
            return messages
        stream.wanted = False
        sn, position = self._consumption(proxy)
        window = self._offer(proxy, position, room)
        if not proxy.reliable and sn > stream.reported_sn:
            stream.repetitions = _REPETITIONS
        message = StatusMessage(reader_id, writer_id, sn, window, count, self.policy.group_tag, proxy.resting)
        messages.append(message.encode())
        stream.reported_sn, stream.reported_pos, stream.offered_window = sn, position, window
        if stream.overrun_at == INFINITE:
            stream.overrun_at = 0
        stream.overrun_at = max(stream.overrun_at, position + window + (window >> 1))
        stream.set_due(position, _term_of(proxy))
        self.counters.status_messages_sent += 1
        return messages

    # --- inside ----------------------------------------------------------------------------------

    def _track(self, proxy: WriterProxy, now: int, *, loss: bool = False) -> bool:
        """Let congestion control size the window; returns whether it must be sent to the writer at once."""
        stream = proxy.stream
        stream.rcv_hwm = max(stream.rcv_hwm, stream.rcv_pos + proxy.held.nbytes)
        window, force = self._controls[proxy.guid].on_track_rebuild(
            now=now,
            consumption=self._consumption(proxy)[1],
            received=stream.rcv_hwm,
            datagram=stream.datagram,
            loss=loss,
        )
        most = min(proxy.info.term_window or _WINDOW_MAX, self._receive_capacity.share)
        stream.window = min(max(int(window), 0), most)
        return force

    def _is_news(self, proxy: WriterProxy) -> bool:
        """Whether congestion control changed the window since the last offer, unless lack of space limited that
        offer."""
        stream = proxy.stream
        if proxy.guid in self.starved:
            return False
        return abs(stream.window - stream.offered_window) << 2 >= max(stream.offered_window, 1)

    def _consumption(self, proxy: WriterProxy) -> tuple[int, int]:
        """The sequence number and the position up to which all is consumed."""
        stream = proxy.stream
        if self.consumption_held and stream.sub_pos < stream.rcv_pos:
            return stream.sub_sn, stream.sub_pos
        return (proxy.expected - 1 if proxy.synced else 0), stream.rcv_pos

    def _offer(self, proxy: WriterProxy, position: int, room: int) -> int:
        """The window to offer beyond ``position``."""
        stream = proxy.stream
        if proxy.resting:
            return stream.window  # all of it is dropped
        taken = stream.rcv_pos - position
        window = 0 if proxy.guid in self._closed else min(stream.window, room + taken)
        if window < stream.window:
            enough = min(stream.window, window + max(window >> 2, stream.datagram))
            self.starved[proxy.guid] = enough - taken
        else:
            self.starved.pop(proxy.guid, None)
        return window


def _term_of(proxy: WriterProxy) -> int:
    return 2 * proxy.info.term_window or TERM_LENGTH
