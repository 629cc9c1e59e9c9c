"""The receiver of RTPS messages: parses datagrams submessage by submessage (RTPS 2.5 §8.3.4).

The cost of a datagram is its header, each submessage header and one dictionary look-up per run; all work per sample is
in `wire.runs.scan`. The :mod:`.router` decides where the parts go; :mod:`.burst_receiver` handles the datagrams that
can be parsed together.

=================================  ===============================================  ==================================
a submessage                       is handled by                                    and changes of the receiver's state
=================================  ===============================================  ==================================
INFO_TS, INFO_DST, INFO_SRC        ``_on_info_ts`` and so on                        timestamp; destination; source
DATA, DATA_BATCH, DATA_FRAG        ``_on_data`` and so on; ``_pass_over``, where    the timestamp, where INFO_TS lie
                                   no reader of ours reads their writer             between DATA
COMPRESSED                         ``_on_compressed``                               how much more may be inflated
PAD                                ``_on_pad``                                      nothing
all others                         ``_on_other``                                    nothing
=================================  ===============================================  ==================================

Invariants
* The contents of a datagram never make :meth:`receive` raise. An invalid submessage is counted and skipped; one with a
  wrong length ends its message (§8.3.4.1).
* Of samples without a matched reader here, only the headers and the writer's id are read.
* Processing of a message stops when its work exceeds MESSAGE_WORK_MAX. Samples of a reliable writer that are cut off
  are requested again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from typing import Final, Literal

import numpy as np

from ...errors import DecodeError, DropReason
from ...limits import MESSAGE_WORK_MAX, UDP_PAYLOAD_MAX
from ...structure import ENTITYID_SPDP_WRITER, PREFIX_UNKNOWN, VENDOR_ID, Guid
from ...wire.batch import DATA_BATCH, scan_batch
from ...wire.batch_scan import BYTES_PER_WORK, BYTES_PER_WORK_SCANNED
from ...wire.compressed import COMPRESSED, SERIES, decompress
from ...wire.info import INFO_TS_SIZE
from ...wire.message import FLAG_E, HEADER_SIZE, SUBMESSAGE_HEADER_SIZE, header_at, submessage_at
from ...wire.runs import scan
from ...wire.samples import NO_TIMESTAMP, U8
from ...wire.submessages import (
    Data,
    DataFrag,
    InfoDestination,
    InfoSource,
    InfoTimestamp,
    Pad,
    decode_submessage,
)
from ...wire.unread_samples import pass_over
from ..agenda import Failures
from ..discovery.remote_participant import RemoteParticipant
from ..trust import Trust
from ..writing.writer import StatefulWriter
from .message_work import SHORT, WORK, WORK_SHORT
from .router import Matches, Router

_LOOKAHEAD_MIN: Final = 1024
#: Maximum of bytes to which the COMPRESSED submessages of one message may inflate.
_INFLATED_MAX: Final = 64 * UDP_PAYLOAD_MAX
_DATA: Final = Data.KIND
_DATA_FRAG: Final = DataFrag.KIND
#: The submessages with samples that name their writer, all at the same offset.
_NAMING_WRITERS: Final = (_DATA, DATA_BATCH, _DATA_FRAG)
_INFO_TS: Final = InfoTimestamp.KIND
_INFO_DST: Final = InfoDestination.KIND
_INFO_SRC: Final = InfoSource.KIND
#: Submessages that are processed whatever the destination of a message is.
_FOR_ALL: Final = (_INFO_TS, _INFO_DST, _INFO_SRC, Pad.KIND)
#: Empty PADs; our announcements hold more than a hundred of them (`discovery.spdp`).
_PADS: Final = 16 * Pad().encode()
_INFO: Final = (_INFO_TS, _INFO_DST, _INFO_SRC)
_SAMPLES: Final = (*_NAMING_WRITERS, COMPRESSED)
#: Submessages inspected in a message from an untrusted source.
_UNTRUSTED_SUBMESSAGES_MAX: Final = 16
#: Offset of the writer id in the body of DATA and similar submessages.
_WRITER_ID: Final = slice(8, 12)


#: [start, stop) of a message in the buffer, and its source address; a message from a publication log of this host has
#: :func:`~.trust.source_of_log` instead.
Span = tuple[int, int, str]


def _timestamp(flags: int, body: memoryview) -> int:
    """The timestamp of an INFO_TS."""
    stamp = InfoTimestamp.decode(flags, body).timestamp
    return NO_TIMESTAMP if stamp is None else stamp


def _is_of_discovery(view: memoryview, kind: int, pos: int, end: int) -> bool:
    """Whether a submessage is processed from any source: SPDP samples, and the INFO submessages that apply to them."""
    if kind != _DATA:
        return kind in _INFO
    return bytes(view[pos + SUBMESSAGE_HEADER_SIZE : end][_WRITER_ID]) == ENTITYID_SPDP_WRITER


class _State:
    """The state of the receiver within one message (RTPS 2.5 §8.3.4.1), which each INFO submessage changes."""

    __slots__ = (
        "data",
        "end",
        "for_us",
        "inflated_left",
        "lookahead",
        "now",
        "refusal",
        "source",
        "source_ip",
        "stamped",
        "timestamp",
        "vendor",
        "view",
        "work_max",
    )

    def __init__(self, data: U8, view: memoryview, source_ip: str, now: int, work_max: int) -> None:
        self.data = data
        self.view = view
        self.source_ip = source_ip
        self.now = now
        #: Processing of the message stops when the router's work reaches this.
        self.work_max = work_max
        #: Where the next submessage begins.
        self.end = 0
        self.for_us = True
        self.timestamp = NO_TIMESTAMP
        #: The offset behind the last INFO_TS.
        self.stamped = -1
        self.lookahead = UDP_PAYLOAD_MAX
        self.inflated_left = _INFLATED_MAX
        #: The GUID prefix of the sender, its vendor, and why it is not trusted; None: it is.
        self.source: bytes
        self.vendor: bytes
        self.refusal: DropReason | None


class MessageReceiver:
    """Parses messages; ``router`` hands their contents on. The other arguments are those of :class:`.Router`.

    Of a message from an untrusted source, only SPDP samples are processed, which SPDP itself checks.
    """

    def __init__(
        self,
        prefix: bytes,
        endpoints: Matches,
        writers: Mapping[bytes, StatefulWriter],
        remotes: Mapping[bytes, RemoteParticipant],
        drops: Counter[DropReason],
        *,
        addresses: frozenset[str] = frozenset(),
        trust: Trust = Trust.ADDRESS,
        failures: Failures | None = None,
    ) -> None:
        self.router = Router(
            prefix, endpoints, writers, remotes, drops, addresses=addresses, trust=trust, failures=failures
        )
        #: Called with a participant that addressed us and its source address, if it is the first message from there.
        self.on_addressed: Callable[[bytes, str, int], None] | None = None
        #: The aliases of open address challenges, and the callback for an answer: participant, source address, alias.
        self.challenged: Container[bytes] = ()
        self.on_answered: Callable[[bytes, str, bytes, int], None] | None = None
        self._prefix = prefix
        self._endpoints = endpoints
        self._remotes = remotes
        self._drops = drops

    def receive(self, data: U8, view: memoryview, start: int, stop: int, source_ip: str, *, now: int) -> None:
        """Process the datagram ``data[start:stop]``; ``view`` is a memoryview of all of ``data``."""
        router = self.router
        try:
            _, vendor, source = header_at(view, start, stop)
            if source == self._prefix and not self._endpoints.hears_itself:
                return  # our own multicast
            state = _State(data, view, source_ip, now, router.work + MESSAGE_WORK_MAX)
            state.source, state.vendor = source, vendor
            state.refusal = router.refusal(source, source_ip, now)
            pos, untrusted = start + HEADER_SIZE, 0
            while pos < stop:
                if router.work > state.work_max:
                    raise DecodeError(DropReason.OVER_LIMIT, "a message that is too much work")
                kind, flags, end = submessage_at(view, pos, stop)
                router.work += 1
                if state.refusal is not None:
                    untrusted += 1
                    if untrusted > _UNTRUSTED_SUBMESSAGES_MAX:
                        return
                    if not _is_of_discovery(view, kind, pos, end):
                        if state.for_us and (state.refusal is DropReason.FOREIGN_ADDRESS or kind in _SAMPLES):
                            self._drops[state.refusal] += 1
                        pos = end
                        continue
                state.end = end
                if state.for_us or kind in _FOR_ALL:
                    try:
                        _HANDLERS.get(kind, _OTHER)(self, state, kind, flags, pos, stop)
                    except DecodeError as error:
                        self._drops[error.reason] += 1
                        router.work += 8
                pos = state.end
        except DecodeError as error:  # of the framing: the rest of the message cannot be found
            self._drops[error.reason] += 1

    # --- the state of the receiver ------------------------------------------------------------------

    def _on_info_ts(self, state: _State, kind: int, flags: int, pos: int, stop: int) -> None:
        end = state.end
        stamp = InfoTimestamp.decode(flags, state.view[pos + SUBMESSAGE_HEADER_SIZE : end]).timestamp
        state.timestamp = NO_TIMESTAMP if stamp is None else stamp
        state.stamped = end if end - pos == INFO_TS_SIZE else -1

    def _on_info_dst(self, state: _State, kind: int, flags: int, pos: int, stop: int) -> None:
        body = state.view[pos + SUBMESSAGE_HEADER_SIZE : state.end]
        destination = InfoDestination.decode(flags, body).prefix
        state.for_us = destination in (self._prefix, PREFIX_UNKNOWN)
        source, source_ip, now = state.source, state.source_ip, state.now
        if destination == self._prefix and self.on_addressed is not None:
            remote = self._remotes.get(source)
            if remote is not None and source_ip in remote.received_from:
                return
            self.on_addressed(source, source_ip, now)
        elif destination in self.challenged and self.on_answered is not None:
            self.on_answered(source, source_ip, destination, now)
        else:
            return
        state.refusal = self.router.refusal(source, source_ip, now)

    def _on_info_src(self, state: _State, kind: int, flags: int, pos: int, stop: int) -> None:
        # RTPS 2.5 §8.3.8.9: a new source; the state of the old one no longer applies
        info = InfoSource.decode(flags, state.view[pos + SUBMESSAGE_HEADER_SIZE : state.end])
        state.source, state.vendor, state.timestamp = info.prefix, info.vendor, NO_TIMESTAMP
        state.refusal = self.router.refusal(info.prefix, state.source_ip, state.now)

    def _on_pad(self, state: _State, kind: int, flags: int, pos: int, stop: int) -> None:
        while state.view[state.end : state.end + len(_PADS)] == _PADS:
            state.end += len(_PADS)
            self.router.work += 1

    # --- samples ------------------------------------------------------------------------------------

    def _pass_over(self, state: _State, writer: Guid, pos: int, stop: int) -> None:
        """Count samples without a reader here, of this submessage and of those directly behind it."""
        state.end, count, stamp_at = pass_over(state.data, state.view, pos, stop)
        self.router.work += count // 2
        if stamp_at >= 0:
            state.stamped = stamp_at + INFO_TS_SIZE
            state.timestamp = _timestamp(state.view[stamp_at + 1], state.view[stamp_at + 4 : state.stamped])
        self.router.unread.drop(writer, count)

    def _on_data(self, state: _State, kind: int, flags: int, pos: int, stop: int) -> None:
        """Process a DATA, together with the DATA of the same layout behind it."""
        router, source = self.router, state.source
        entity = state.view[pos + SUBMESSAGE_HEADER_SIZE : state.end][_WRITER_ID].tobytes()
        writer = Guid(source, entity)
        if writer not in router.routes and not router.is_wanted(entity, source):
            self._pass_over(state, writer, pos, stop)
            return
        runs, state.end, state.timestamp = scan(
            state.data,
            pos,
            stop,
            source,
            state.timestamp,
            after_info_ts=pos == state.stamped,
            lookahead=state.lookahead,
        )
        size = state.end - pos
        # After a short run, the next scan looks less far ahead: else a message of many short
        # runs would be compared repeatedly.
        state.lookahead = max(_LOOKAHEAD_MIN, 4 * size)
        for run in runs:
            if state.refusal is None or run.writer.entity == ENTITYID_SPDP_WRITER:
                if run.count > 1:
                    router.work += size // BYTES_PER_WORK
                    router.work += 0 if run.index is None else run.count
                    router.work += WORK_SHORT if run.count < SHORT else 0
                router.on_run(run, state.now, state.work_max - router.work)

    def _on_data_batch(self, state: _State, kind: int, flags: int, pos: int, stop: int) -> None:
        entity = state.view[pos + SUBMESSAGE_HEADER_SIZE : state.end][_WRITER_ID].tobytes()
        if self.router.is_wanted(entity, state.source):
            self._take_batch(state, state.data, pos, state.end)
        else:
            self._pass_over(state, Guid(state.source, entity), pos, stop)

    def _take_batch(self, state: _State, data: U8, pos: int, end: int) -> None:
        work_max = state.work_max - self.router.work
        try:
            batch = scan_batch(data, pos, end, state.source, state.timestamp, work_max=work_max)
        except DecodeError:
            self.router.work += (end - pos) // BYTES_PER_WORK_SCANNED
            raise
        self.router.on_batch(batch, state.now)

    def _on_data_frag(self, state: _State, kind: int, flags: int, pos: int, stop: int) -> None:
        body = state.view[pos + SUBMESSAGE_HEADER_SIZE : state.end]
        entity = body[_WRITER_ID].tobytes()
        if self.router.is_wanted(entity, state.source):
            fragments = DataFrag.decode(flags, body)
            self.router.work += WORK[_DATA_FRAG]
            self.router.on_data_frag(fragments, state.source, state.timestamp, state.now)
        else:
            self._pass_over(state, Guid(state.source, entity), pos, stop)

    def _on_compressed(self, state: _State, kind: int, flags: int, pos: int, stop: int) -> None:
        if state.vendor != VENDOR_ID:
            return
        router, source = self.router, state.source
        if not self._endpoints.hears(source):
            router.unread.drop_compressed(source)
            router.work += 8
            return
        body = state.view[pos + SUBMESSAGE_HEADER_SIZE : state.end]
        order: Literal["little", "big"] = "little" if flags & FLAG_E else "big"
        size = int.from_bytes(body[4:8], order)
        state.inflated_left -= size
        if state.inflated_left < 0:
            raise DecodeError(DropReason.OVER_LIMIT, "a message that grows too large")
        router.work += WORK[COMPRESSED] + size // BYTES_PER_WORK
        self._take_inflated(state, decompress(body, little_endian=bool(flags & FLAG_E)))

    def _take_inflated(self, state: _State, inner: bytes) -> None:
        """Process the contents of a COMPRESSED as if they stood in the message."""
        view = memoryview(inner)
        kind, flags, size = inner[0], inner[1], len(inner)
        data = np.frombuffer(inner, np.uint8)
        router, source = self.router, state.source
        if kind == SERIES:
            self._take_series(state, data, view)
            return
        if kind not in _NAMING_WRITERS:  # no writer compresses small submessages
            raise DecodeError(DropReason.BAD_ENCAPSULATION, f"COMPRESSED: kind {kind:#04x}")
        entity = inner[SUBMESSAGE_HEADER_SIZE:][_WRITER_ID]
        if not router.is_wanted(entity, source):
            _, count, _ = pass_over(data, view, 0, size)
            router.unread.drop(Guid(source, entity), count)
            return
        if kind == DATA_BATCH:
            self._take_batch(state, data, 0, size)
            return
        router.work += size // BYTES_PER_WORK_SCANNED
        if kind == _DATA:
            for run in scan(data, 0, size, source, state.timestamp).runs:
                router.on_run(run, state.now)
        else:
            router.on_data_frag(DataFrag.decode(flags, view[4:]), source, state.timestamp, state.now)

    def _take_series(self, state: _State, data: U8, view: memoryview) -> None:
        """Process the DATA and INFO_TS of a SERIES; they do not affect the submessages behind it."""
        router, source, timestamp = self.router, state.source, state.timestamp
        pos, stop, lookahead = SUBMESSAGE_HEADER_SIZE, len(data), UDP_PAYLOAD_MAX
        while pos < stop:
            if router.work > state.work_max:
                raise DecodeError(DropReason.OVER_LIMIT, "a series that is too much work")
            kind, flags, end = submessage_at(view, pos, stop)
            router.work += 1
            body = pos + SUBMESSAGE_HEADER_SIZE
            if kind == _INFO_TS:
                timestamp = _timestamp(flags, view[body:end])
            elif kind != _DATA:  # no writer compresses small submessages
                raise DecodeError(DropReason.BAD_ENCAPSULATION, f"SERIES: kind {kind:#04x}")
            elif not router.is_wanted(entity := view[body:end][_WRITER_ID].tobytes(), source):
                router.unread.drop(Guid(source, entity), 1)
            else:
                runs, end, timestamp = scan(data, pos, stop, source, timestamp, lookahead=lookahead)
                lookahead = max(_LOOKAHEAD_MIN, 4 * (end - pos))
                for run in runs:
                    router.work += (
                        run.count + WORK_SHORT if run.count < SHORT else (end - pos) // BYTES_PER_WORK
                    )
                    router.on_run(run, state.now, state.work_max - router.work)
            pos = end

    # --- other submessages --------------------------------------------------------------------------

    def _on_other(self, state: _State, kind: int, flags: int, pos: int, stop: int) -> None:
        submessage = decode_submessage(kind, flags, state.view[pos + SUBMESSAGE_HEADER_SIZE : state.end])
        self.router.on_other(kind, submessage, state.source, state.now)


#: Each is called with the state, the kind and flags of a submessage, where it begins, and where its message ends.
_HANDLERS: Final[dict[int, Callable[[MessageReceiver, _State, int, int, int, int], None]]] = {
    _INFO_TS: MessageReceiver._on_info_ts,
    _INFO_DST: MessageReceiver._on_info_dst,
    _INFO_SRC: MessageReceiver._on_info_src,
    Pad.KIND: MessageReceiver._on_pad,
    _DATA: MessageReceiver._on_data,
    DATA_BATCH: MessageReceiver._on_data_batch,
    _DATA_FRAG: MessageReceiver._on_data_frag,
    COMPRESSED: MessageReceiver._on_compressed,
}
_OTHER: Final = MessageReceiver._on_other
