"""The stateful writer: sends once to all, again what is missed, holds back when it must (RTPS 2.5 §8.4.9).

Sans I/O: samples in by :meth:`StatefulWriter.write`, ACKNACKs in by ``on_acknack``, datagrams out by
:meth:`StatefulWriter.outgoing`. Costs are per block of samples (about a datagram), never per sample.

Invariants:
* ``_in_flight`` holds, in order, what was written and is not acknowledged by every matched reliable reader;
  ``unacknowledged_bytes`` is its sum. ``write`` adds only while that is within the send window;
* what is in flight is in the history;
* ``_waiting`` holds the reliable readers that have not acknowledged everything, or were never heard: only
  they have heartbeats due;
* what an ACKNACK makes us send goes to the reader's announced locators, and is bounded per turn
  (:mod:`.repairs`).

Sequence numbers start at ``first_sn``: a writer that may be restarted under the same GUID begins above what it
used before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from ..errors import UsageError
from ..limits import FRAGMENT_SIZE, MESSAGE_SIZE_MAX
from ..qos import Qos
from ..structure import ENTITYID_UNKNOWN, INFINITE, Guid, Locator
from ..wire.framing import frame
from ..wire.samples import DISPOSED, FILTERED, I64, U8, UNREGISTERED, Samples
from ..wire.submessages import AckNack, Heartbeat, NackFrag
from .counts import next_count
from .endpoint_info import ReaderInfo
from .history import Change, LargeSample, WriterHistory
from .outgoing import HEADER_ROOM, HEARTBEAT_ROOM, Outgoing, Packer, union_of
from .policies import WRITER_POLICY, WriterCounters, WriterPolicy
from .reader_proxy import ReaderProxy
from .repairs import Repairs

__all__ = ["ReaderInfo", "ReaderProxy", "StatefulWriter", "WriterCounters", "WriterPolicy"]

_DATA_HEADER = 24
#: DATA_FRAG header, and its inline QoS with key hash, status info and sentinel.
_DATA_FRAG_ROOM = 36 + 32
_FRAGMENT_SIZE_MIN = 64


class StatefulWriter:
    """One local writer, its history and its matched readers."""

    def __init__(
        self,
        guid: Guid,
        qos: Qos,
        *,
        policy: WriterPolicy = WRITER_POLICY,
        message_size: int = MESSAGE_SIZE_MAX,
        first_sn: int = 1,
    ) -> None:
        self.guid = guid
        self.qos = qos
        self.policy = policy
        self.message_size = message_size
        self.readers: dict[Guid, ReaderProxy] = {}
        self.counters = WriterCounters()
        self.unacknowledged_bytes = 0
        self.last_sn = first_sn - 1
        #: What the last :meth:`write` could not take all for: "send window", "resource_limits.max_samples" or "".
        self.blocked_by = ""
        self._first_sn = first_sn
        #: Largest DATA submessage that leaves room for headers and a HEARTBEAT.
        self._budget = message_size - HEADER_ROOM - HEARTBEAT_ROOM
        self._fragment_size = min(FRAGMENT_SIZE, self._budget - _DATA_FRAG_ROOM) & ~3
        if self._fragment_size < _FRAGMENT_SIZE_MIN:
            raise UsageError(f"message_size {message_size} is too small; 576 fits every network")
        self._history = WriterHistory(qos, first_sn)
        self._reliable: dict[Guid, ReaderProxy] = {}
        self._waiting: dict[Guid, ReaderProxy] = {}
        self._in_flight: deque[tuple[int, int]] = deque()  # (last SN of a change, its bytes)
        self._repairs = Repairs(guid.entity, self._history, policy, self.counters, self._budget)
        self._heartbeat_count = 0
        self._bytes_since_heartbeat = 0
        self._out: list[Outgoing] = []
        #: Datagrams to all readers that more may be added to, and where they go: None until asked for.
        self._open: Packer | None = None
        self._destinations: tuple[Locator, ...] | None = None

    # --- matching --------------------------------------------------------------------------------

    def match_reader(self, info: ReaderInfo, *, now: int) -> None:
        """Begin, or go on with new locators, with a reader."""
        known = self.readers.get(info.guid)
        reliable = self.qos.is_reliable and info.reliable
        if known is not None and known.reliable == reliable:
            known.info = info
            self._redirect()
            return
        if known is not None:
            self.unmatch_reader(info.guid)
        wants_history = reliable and info.transient_local and self.qos.is_transient_local
        proxy = ReaderProxy(
            info,
            reliable=reliable,
            first_relevant=self._first_sn if wants_history else self.last_sn + 1,
            joined_sn=self.last_sn,
            may_skip=self.qos.is_transient_local and not wants_history,
        )
        self.readers[info.guid] = proxy
        self._redirect()
        if reliable:
            self._reliable[info.guid] = self._waiting[info.guid] = proxy
            proxy.heartbeat_interval = self._heartbeat_interval
            proxy.heartbeat_at = now + proxy.heartbeat_interval
            self._heartbeat_to(proxy, now)

    def unmatch_reader(self, guid: Guid) -> None:
        """The reader is gone: nothing waits for it any more."""
        if self.readers.pop(guid, None) is None:
            return
        self._redirect()
        self._waiting.pop(guid, None)
        if self._reliable.pop(guid, None) is not None:
            self._on_acknowledged()

    # --- writing ---------------------------------------------------------------------------------

    def write(
        self,
        samples: Samples,
        *,
        timestamp: int,
        now: int,
        flags: int = 0,
        key_hashes: U8 | None = None,
    ) -> int:
        """Write samples from the front; returns how many were taken.

        ``timestamp`` (ns since the epoch) is the source timestamp of all, ``flags`` the sample flags of all,
        ``key_hashes`` (n, 16) their instances. Fewer than all: back-pressure, the rest is to be offered again
        after acknowledgements. Raises UsageError for a payload whose length is not a multiple of 4.
        """
        if samples.size % 4 or (samples.lengths is not None and (samples.lengths % 4).any()):
            raise UsageError("payloads have to be padded to a multiple of 4 bytes")
        overhead = _framing(flags, key_hashes is not None)
        was_blocked = self.blocked_by
        count, self.blocked_by = self._acceptable(samples, overhead)
        if count:
            self._write(_part(samples, 0, count), overhead, timestamp, now, flags, key_hashes)
        if self.blocked_by:
            self.counters.back_pressured += 1
            if count and self._bytes_since_heartbeat:
                self._piggyback(now)
            if not was_blocked:
                for proxy in self._waiting.values():
                    proxy.heartbeat_interval = self._heartbeat_interval
                    proxy.heartbeat_at = min(proxy.heartbeat_at, now + proxy.heartbeat_interval)
        return count

    def _acceptable(self, samples: Samples, overhead: int) -> tuple[int, str]:
        """How many samples from the front resource limits and the send window let in; what stops the rest."""
        count, stopped_by = samples.count, ""
        if self._reliable or self.qos.is_transient_local:
            room = self._history.room
            if room is not None and room < count:
                count, stopped_by = room, "resource_limits.max_samples"
        if not self._reliable or not count:
            return count, stopped_by
        free = self.policy.send_window_bytes - self.unacknowledged_bytes
        if samples.is_uniform:
            size = samples.size + overhead
            fitting = max(free, 0) // size
            fitting_bytes = fitting * size
        else:
            total = np.cumsum(samples.all_lengths()[:count] + overhead)
            fitting = int(np.searchsorted(total, free, side="right"))
            fitting_bytes = int(total[fitting - 1]) if fitting else 0
        if fitting >= count:
            return count, stopped_by
        if not self._in_flight:
            fitting = max(fitting, 1)  # a sample larger than the window goes alone
        elif fitting_bytes < min(self._budget, self.policy.send_window_bytes // 4):
            fitting = 0  # not in dribbles: wait until a datagram can be filled
        return fitting, stopped_by if fitting == count else "send window"

    def _write(
        self, samples: Samples, overhead: int, timestamp: int, now: int, flags: int, key_hashes: U8 | None
    ) -> None:
        self.counters.written_samples += samples.count
        first_sn = self.last_sn + 1
        keep = bool(self._reliable) or self.qos.is_transient_local
        if keep or self.readers:
            for change in self._changes(samples, overhead, timestamp, flags, key_hashes):
                self.last_sn = change.last_sn
                if keep:
                    self._history.append(change)
                self._send(change, now)
        self.last_sn = self._history.last_sn = first_sn + samples.count - 1
        if keep and key_hashes is not None:
            self._history.note_instances(first_sn, key_hashes[: samples.count], flags)
        if not self._reliable:
            self._history.trim(self.last_sn)
        elif len(self._waiting) < len(self._reliable):
            for guid, proxy in self._reliable.items():
                if guid not in self._waiting:
                    self._waiting[guid] = proxy
                    proxy.heartbeat_at = now + proxy.heartbeat_interval

    def _changes(
        self, samples: Samples, overhead: int, timestamp: int, flags: int, key_hashes: U8 | None
    ) -> Iterator[Change]:
        """Frame samples: blocks for what fits a datagram, large samples one by one."""
        sn = self.last_sn + 1
        for first, last, is_large in _segments(samples, self._budget - overhead):
            hashes = None if key_hashes is None else key_hashes[first:last]
            if is_large:
                # Ownership passes on here: the caller's buffer is the caller's again.
                payload = np.array(np.frombuffer(samples.payload(first), np.uint8))
                key_hash = None if hashes is None else hashes[0].tobytes()
                large = LargeSample(payload, self._fragment_size, flags, key_hash)
                yield Change(sn + first, sn + first, timestamp, large)
                continue
            part = _part(samples, first, last)
            blocks = frame(
                part, self.guid.entity, sn + first, budget=self._budget, flags=flags, key_hashes=hashes
            )
            for block in blocks:
                yield Change(block.first_sn, block.last_sn, timestamp, block)

    def _send(self, change: Change, now: int) -> None:
        """Queue a change's first and only sending to all."""
        nbytes = change.nbytes
        self.counters.written_bytes += nbytes
        if self._reliable:
            self._in_flight.append((change.last_sn, nbytes))
            self.unacknowledged_bytes += nbytes
        if not self.readers:
            return
        content = change.content
        if isinstance(content, LargeSample):
            for number in range(1, content.fragments + 1):
                fragment = content.encode(self.guid.entity, change.first_sn, number)
                self._data.add(fragment, change.timestamp, reserve=HEARTBEAT_ROOM)
        else:
            data = content.slice(change.first_sn, change.last_sn)
            self._data.add(data, change.timestamp, reserve=HEARTBEAT_ROOM)
        self._bytes_since_heartbeat += nbytes
        policy = self.policy
        if self._reliable and (
            self._bytes_since_heartbeat * policy.heartbeats_per_window >= policy.send_window_bytes
        ):
            self._piggyback(now)

    # --- heartbeats ------------------------------------------------------------------------------

    def request_acknowledgment(self, now: int) -> None:
        """Ask every reader that is behind to acknowledge, now."""
        if self._waiting:
            self._piggyback(now)

    def _piggyback(self, now: int) -> None:
        """A HEARTBEAT to all readers, behind the data queued so far."""
        self._data.add(self._heartbeat(ENTITYID_UNKNOWN, now))
        self._bytes_since_heartbeat = 0
        for proxy in self._waiting.values():
            proxy.heartbeat_at = now + proxy.heartbeat_interval

    def _heartbeat_to(self, proxy: ReaderProxy, now: int) -> None:
        """A HEARTBEAT to one reader."""
        packer = self._packer_for(proxy)
        packer.add(self._heartbeat(proxy.guid.entity, now))
        self._queue(packer)

    def _heartbeat(self, reader_id: bytes, now: int) -> bytes:
        self._heartbeat_count = next_count(self._heartbeat_count, now)
        self.counters.heartbeats_sent += 1
        first = min(self._history.first_sn, self.last_sn + 1)
        return Heartbeat(reader_id, self.guid.entity, first, self.last_sn, self._heartbeat_count).encode()

    @property
    def _heartbeat_interval(self) -> int:
        """Between HEARTBEATs to a reader that answers them."""
        return self.policy.fast_heartbeat_period if self.blocked_by else self.policy.heartbeat_period

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` wants to be called; None: not before something happens."""
        return min((proxy.heartbeat_at for proxy in self._waiting.values()), default=None)

    def handle_timer(self, now: int) -> None:
        due = [proxy for proxy in self._waiting.values() if proxy.heartbeat_at <= now]
        for proxy in due:
            proxy.heartbeat_at = now + proxy.heartbeat_interval
            proxy.heartbeat_interval = min(proxy.heartbeat_interval * 2, self.policy.heartbeat_period_max)
        if len(due) == 1:
            self._heartbeat_to(due[0], now)
        elif due:
            packer = Packer(self.message_size, union_of([proxy.info.destinations for proxy in due]), None)
            packer.add(self._heartbeat(ENTITYID_UNKNOWN, now))
            self._queue(packer)

    # --- acknowledgements ------------------------------------------------------------------------

    def on_acknack(self, reader: Guid, acknack: AckNack, *, now: int) -> None:
        """A reader says what it has and what it lacks (RTPS 2.5 §8.3.8.1, §8.4.9.2)."""
        proxy = self._reliable.get(reader)
        if proxy is None:
            self.counters.unknown_reader += 1
            return
        if not proxy.acknacks.accept(acknack.count, now):
            self.counters.stale_counts += 1
            return
        self.counters.acknacks += 1
        proxy.acknacks_heard += 1
        if acknack.final or acknack.missing.base > 1 or not acknack.missing.is_empty:
            proxy.settled = True
        proxy.heartbeat_interval = self._heartbeat_interval
        # Nobody can have what was never written.
        acked = min(acknack.missing.base - 1, self.last_sn)
        if acked > proxy.acked:
            proxy.acked = acked
            self._on_acknowledged()
        else:
            self._update_waiting(proxy)
        if not acknack.missing.is_empty:
            packer = self._packer_for(proxy)
            self._repairs.send(packer, proxy, acknack.missing, now)
            self._finish_repair(packer, proxy, now)
        elif not acknack.final:
            self._heartbeat_to(proxy, now)

    def _on_acknowledged(self) -> None:
        for proxy in list(self._waiting.values()):
            self._update_waiting(proxy)
        acked = min((proxy.acked for proxy in self._reliable.values()), default=self.last_sn)
        while self._in_flight and self._in_flight[0][0] <= acked:
            self.unacknowledged_bytes -= self._in_flight.popleft()[1]
        if not self._reliable:
            self._in_flight.clear()
            self.unacknowledged_bytes = 0
        self._history.trim(acked)

    def _update_waiting(self, proxy: ReaderProxy) -> None:
        if proxy.heard and proxy.acked >= self.last_sn:
            self._waiting.pop(proxy.guid, None)
            proxy.heartbeat_at = INFINITE

    def unacknowledged(self, sn: int | None = None) -> dict[Guid, int]:
        """Reliable readers that lack something up to ``sn`` (default: all written), each with the highest
        sequence number it has acknowledged."""
        target = self.last_sn if sn is None else sn
        return {guid: proxy.acked for guid, proxy in self._reliable.items() if proxy.acked < target}

    # --- repairs ---------------------------------------------------------------------------------

    def on_nack_frag(self, reader: Guid, nack: NackFrag, *, now: int) -> None:
        """A reader lacks fragments of one sample (RTPS 2.5 §8.3.8.10)."""
        proxy = self._reliable.get(reader)
        if proxy is None:
            self.counters.unknown_reader += 1
            return
        if not proxy.nack_frags.accept(nack.count, now):
            self.counters.stale_counts += 1
            return
        self.counters.nack_frags += 1
        if not 1 <= nack.sn <= self.last_sn:
            return
        proxy.heartbeat_interval = self._heartbeat_interval
        packer = self._packer_for(proxy)
        self._repairs.send_fragments(packer, proxy, nack.sn, nack.missing, now)
        self._finish_repair(packer, proxy, now)

    def _finish_repair(self, packer: Packer, proxy: ReaderProxy, now: int) -> None:
        """A HEARTBEAT behind the repairs, so that the reader says at once what it still lacks."""
        if packer.packed:
            packer.add(self._heartbeat(proxy.guid.entity, now))
            self._queue(packer)

    # --- out -------------------------------------------------------------------------------------

    def outgoing(self) -> list[Outgoing]:
        """What to send now."""
        self._close_datagrams()
        out, self._out = self._out, []
        return out

    def _redirect(self) -> None:
        """Who is matched changed: the datagrams of data so far are closed, the next go to the others."""
        self._close_datagrams()
        self._destinations = None

    def _close_datagrams(self) -> None:
        if self._open is not None:
            self._queue(self._open)
            self._open = None

    def _queue(self, packer: Packer) -> None:
        if packer.destinations:
            self._out += packer.packed

    @property
    def _data(self) -> Packer:
        """Packs what goes to all readers."""
        if self._open is None:
            if self._destinations is None:
                self._destinations = union_of([proxy.info.destinations for proxy in self.readers.values()])
            self._open = Packer(self.message_size, self._destinations, None)
        return self._open

    def _packer_for(self, proxy: ReaderProxy) -> Packer:
        return Packer(self.message_size, proxy.info.destinations, proxy.guid.prefix)


def _framing(flags: int, with_key_hash: bool) -> int:
    """Bytes a DATA submessage adds to its payload."""
    qos = (20 if with_key_hash else 0) + (8 if flags & (DISPOSED | UNREGISTERED | FILTERED) else 0)
    return _DATA_HEADER + (qos + 4 if qos else 0)


def _part(samples: Samples, first: int, last: int) -> Samples:
    """Samples [first, last); also of samples without payload, which are neither uniform nor ragged."""
    if first == 0 and last == samples.count:
        return samples
    if samples.is_uniform:
        return samples.take(first, last)
    return Samples.ragged(samples.data, samples.all_offsets()[first:last], samples.all_lengths()[first:last])


def _segments(samples: Samples, largest: int) -> Iterator[tuple[int, int, bool]]:
    """[first, last) stretches of samples of at most ``largest`` bytes, and single larger ones (True)."""
    count = samples.count
    if samples.is_uniform:
        if samples.size <= largest:
            yield 0, count, False
        else:
            for i in range(count):
                yield i, i + 1, True
        return
    lengths: I64 = samples.all_lengths()
    start = 0
    for i in np.flatnonzero(lengths > largest).tolist():
        if start < i:
            yield start, i, False
        yield i, i + 1, True
        start = i + 1
    if start < count:
        yield start, count, False
