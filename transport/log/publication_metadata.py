"""What a publication log says of itself, before its terms: for its owner, and for whoever maps the file.

::

       0  magic             8s
       8  i64 each, in the machine's byte order: see the ``_WORD`` numbers below
     256  subscribers       64 slots: guid 16s, then i64 each: position, heartbeat (monotonic ns), state, waiting,
                            what it is (bits: a spy, untethered)
    3840  about             JSON, UTF-8
          terms             from the next page on

Every word is read and written by one load or store. The owner writes all but the subscribers' slots; a slot is
its subscriber's from :meth:`Metadata.subscribe` to :meth:`Subscriber.leave`, but for the state, by which the
owner tells it what becomes of it, and the position while it rests.
"""

from __future__ import annotations

import enum
import fcntl
import json
import os
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from ..errors import LogError, UsageError
from ..protocol.writing.positions import PublicationPositions
from ..structure import Guid
from .segment import JSON, PAGE, page_ceil, refusal
from .term_frames import TERMS, term_id_at

MAGIC: Final = b"rtpspub1"
VERSION: Final = 1
TERM_LENGTH_MIN: Final = 64 << 10
TERM_LENGTH_MAX: Final = 1 << 30
SUBSCRIBERS_MAX: Final = 64

_VERSION: Final = 1
_TOKEN: Final = 2
_TERM_LENGTH: Final = 3
_INITIAL_TERM_ID: Final = 4
_TERMS_AT: Final = 5
_ABOUT_BYTES: Final = 6
_OWNER_PID: Final = 7
_OWNER_START: Final = 8
_IS_CONNECTED: Final = 9
_END_OF_STREAM: Final = 10
ACTIVE_TERM_COUNT: Final = 11
#: Three: term id in the high 32 bits, offset in the low ones.
TAILS: Final = 12
_PUB_POS: Final = 15
_PUB_LMT: Final = 16
_SND_POS: Final = 17
_SND_LMT: Final = 18
_SND_BPE: Final = 19
CLEAN_POS: Final = 20
_UNBLOCKED: Final = 21
#: What is before is zeroed, or is just being.
CLEANING_POS: Final = 22

_SLOTS_AT: Final = 256
_GUID_BYTES: Final = 16
_SLOT_BYTES: Final = 56
_ABOUT_AT: Final = _SLOTS_AT + SUBSCRIBERS_MAX * _SLOT_BYTES
#: Words behind the GUID.
_POSITION: Final = 0
_HEARTBEAT: Final = 1
_STATE: Final = 2
_WAITING: Final = 3
_WHAT: Final = 4
_SPY: Final = 1
_UNTETHERED: Final = 2

TAIL_OFFSET_MASK: Final = (1 << 32) - 1


class SubscriberState(enum.IntEnum):
    """Aeron's states of a tethered or untethered subscription."""

    FREE = 0
    ACTIVE = 1
    LINGER = 2
    RESTING = 3


_STATES: Final = frozenset(SubscriberState)


class Subscriber:
    """One slot: a reader of the log on this host."""

    __slots__ = ("_at", "_bytes", "_guid_at", "_words", "guid")

    def __init__(self, guid: Guid, metadata: memoryview, words: memoryview, at: int) -> None:
        self.guid = guid
        self._bytes = metadata
        self._words = words
        self._guid_at = at
        self._at = (at + _GUID_BYTES) // 8

    @property
    def position(self) -> int:
        """It has consumed all before."""
        value: int = self._words[self._at + _POSITION]
        return value

    @position.setter
    def position(self, value: int) -> None:
        self._words[self._at + _POSITION] = value

    @property
    def heartbeat(self) -> int:
        """When it last showed itself, by the host's monotonic clock in ns."""
        value: int = self._words[self._at + _HEARTBEAT]
        return value

    @heartbeat.setter
    def heartbeat(self, value: int) -> None:
        self._words[self._at + _HEARTBEAT] = value

    @property
    def state(self) -> SubscriberState:
        value = self._words[self._at + _STATE]
        # Another process may have stored anything there.
        return SubscriberState(value) if value in _STATES else SubscriberState.FREE

    @state.setter
    def state(self, value: SubscriberState) -> None:
        self._words[self._at + _STATE] = value

    @property
    def waiting(self) -> bool:
        """It sleeps, and wants to be woken when there is more."""
        return bool(self._words[self._at + _WAITING])

    @waiting.setter
    def waiting(self, value: bool) -> None:
        self._words[self._at + _WAITING] = value

    @property
    def is_spy(self) -> bool:
        """It is no reader that the owner's writer is matched with."""
        return bool(self._words[self._at + _WHAT] & _SPY)

    @property
    def is_tethered(self) -> bool:
        """It is waited for, however slow it is."""
        return not self._words[self._at + _WHAT] & _UNTETHERED

    @property
    def is_there(self) -> bool:
        """The slot is still of this subscriber: one that was thought dead loses it."""
        at = self._guid_at
        mine = self._bytes[at : at + _GUID_BYTES] == self.guid.to_bytes()
        return mine and self.state is not SubscriberState.FREE

    def leave(self) -> None:
        """Free the slot; by the subscriber, or by the owner when it has died."""
        self.state = SubscriberState.FREE


def check_term_length(term_length: int) -> None:
    if term_length & (term_length - 1) or not TERM_LENGTH_MIN <= term_length <= TERM_LENGTH_MAX:
        raise UsageError(
            f"a term length of {term_length} bytes cannot be: take a power of two from 64 KiB to 1 GiB"
        )


def start_ticks(pid: int) -> int:
    """When the process began (proc(5)): with its id it names a process for ever. 0: there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


class Metadata:
    """The words of one mapped log."""

    __slots__ = (
        "_bytes",
        "_path",
        "_states",
        "about",
        "initial_term_id",
        "term_length",
        "terms_at",
        "token",
        "words",
    )

    _subscribing: Final = threading.Lock()

    def __init__(self, mapping: memoryview, path: Path | None) -> None:
        """Of a mapping that :func:`format_metadata` filled."""
        self._path = path
        words = mapping[: len(mapping) & ~7].cast("q")
        self.token: int = words[_TOKEN]
        self.term_length: int = words[_TERM_LENGTH]
        self.initial_term_id: int = words[_INITIAL_TERM_ID]
        self.terms_at: int = words[_TERMS_AT]
        self._bytes = mapping[: self.terms_at]
        self.words = self._bytes.cast("q")
        first = (_SLOTS_AT + _GUID_BYTES) // 8 + _STATE
        #: Of all slots, to be looked at together.
        self._states = np.frombuffer(self._bytes, np.int64)[first : _ABOUT_AT // 8 : _SLOT_BYTES // 8]
        about = bytes(mapping[_ABOUT_AT : _ABOUT_AT + words[_ABOUT_BYTES]])
        self.about: dict[str, JSON] = json.loads(about)

    # --- its owner -------------------------------------------------------------------------------

    @property
    def owner(self) -> int:
        """Process id."""
        pid: int = self.words[_OWNER_PID]
        return pid

    @property
    def owner_lives(self) -> bool:
        return self.words[_OWNER_START] == start_ticks(self.owner) != 0

    def own(self) -> None:
        """This process is the owner."""
        pid = os.getpid()
        self.words[_OWNER_START] = start_ticks(pid)
        self.words[_OWNER_PID] = pid

    @property
    def end_of_stream(self) -> bool:
        """Nothing will be added."""
        return bool(self.words[_END_OF_STREAM])

    @end_of_stream.setter
    def end_of_stream(self, value: bool) -> None:
        self.words[_END_OF_STREAM] = value

    @property
    def unblocked(self) -> int:
        """Claims that were never committed and became PADs."""
        value: int = self.words[_UNBLOCKED]
        return value

    def count_unblocked(self) -> None:
        self.words[_UNBLOCKED] += 1

    def record(self, positions: PublicationPositions) -> None:
        """Let everybody see the positions."""
        words = self.words
        words[_PUB_POS] = positions.pub_pos
        words[_PUB_LMT] = positions.pub_lmt
        words[_SND_POS] = positions.snd_pos
        words[_SND_LMT] = positions.snd_lmt
        words[_SND_BPE] = positions.snd_bpe
        words[_IS_CONNECTED] = positions.is_connected

    def positions(self) -> dict[str, int]:
        """What :meth:`record` left, for tools to show and for an owner that goes on."""
        words = self.words
        return {
            "pub_pos": words[_PUB_POS],
            "pub_lmt": words[_PUB_LMT],
            "snd_pos": words[_SND_POS],
            "snd_lmt": words[_SND_LMT],
            "snd_bpe": words[_SND_BPE],
            "clean_pos": words[CLEAN_POS],
            "is_connected": words[_IS_CONNECTED],
            "unblocked": words[_UNBLOCKED],
        }

    # --- its subscribers -------------------------------------------------------------------------

    def subscribe(
        self, guid: Guid, *, position: int, now: int, spy: bool = False, tether: bool = True
    ) -> Subscriber | None:
        """Take a slot, or the one that is of ``guid`` already; None: all are taken."""
        what = (_SPY if spy else 0) | (0 if tether else _UNTETHERED)
        with self._subscribing:
            if self._path is None:
                return self._take_slot(guid, position, now, what)
            try:
                fd = os.open(self._path, os.O_RDWR)
            except OSError as error:
                raise refusal(error, f"subscribe to {self._path}") from error
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)  # other processes take slots too
                return self._take_slot(guid, position, now, what)
            finally:
                os.close(fd)

    def _take_slot(self, guid: Guid, position: int, now: int, what: int) -> Subscriber | None:
        slots = [self._slot(number) for number in range(SUBSCRIBERS_MAX)]
        free = None
        for number, slot in enumerate(slots):
            if slot.state is SubscriberState.FREE:
                free = number if free is None else free
            elif slot.guid == guid:
                free = number
                break
        if free is None:
            return None
        at = _SLOTS_AT + free * _SLOT_BYTES
        self._bytes[at : at + _GUID_BYTES] = guid.to_bytes()
        taken = self._slot(free)
        taken.position = position
        taken.heartbeat = now
        taken.waiting = False
        self.words[(at + _GUID_BYTES) // 8 + _WHAT] = what
        taken.state = SubscriberState.ACTIVE
        return taken

    def _slot(self, number: int) -> Subscriber:
        at = _SLOTS_AT + number * _SLOT_BYTES
        guid = Guid.from_bytes(bytes(self._bytes[at : at + _GUID_BYTES]))
        return Subscriber(guid, self._bytes, self.words, at)

    def subscribers(self) -> list[Subscriber]:
        """All that are there now, whatever their state; an empty list costs a microsecond."""
        slots = (self._slot(number) for number in self._states.nonzero()[0].tolist())
        return [slot for slot in slots if slot.state is not SubscriberState.FREE]


def metadata_bytes(about: bytes) -> int:
    """How long the section is, to the page."""
    return page_ceil(_ABOUT_AT + len(about))


def format_metadata(
    mapping: memoryview, term_length: int, about: bytes, initial_term_id: int | None, token: int | None
) -> None:
    """Fill the section of a log of zeros; the magic comes last."""
    words = mapping[:_SLOTS_AT].cast("q")
    if initial_term_id is None:
        initial_term_id = secrets.randbits(32) - (1 << 31)
    words[_VERSION] = VERSION
    words[_TOKEN] = token if token is not None else secrets.randbits(63)
    words[_TERM_LENGTH] = term_length
    words[_INITIAL_TERM_ID] = initial_term_id
    words[_TERMS_AT] = metadata_bytes(about)
    words[_ABOUT_BYTES] = len(about)
    words[TAILS] = initial_term_id << 32
    mapping[_ABOUT_AT : _ABOUT_AT + len(about)] = about
    mapping[: len(MAGIC)] = MAGIC


def check_metadata(mapping: memoryview, path: Path) -> None:
    """LogError unless ``mapping``, the whole file, is a publication log of this version."""
    if len(mapping) < PAGE or bytes(mapping[: len(MAGIC)]) != MAGIC:
        raise LogError(f"{path} is not a publication log")
    words = mapping[:_SLOTS_AT].cast("q")
    if words[_VERSION] != VERSION:
        raise LogError(f"{path} is not of version {VERSION}, the one known here")
    term_length, terms_at, about_bytes = words[_TERM_LENGTH], words[_TERMS_AT], words[_ABOUT_BYTES]
    try:
        check_term_length(term_length)
        about = bytes(mapping[_ABOUT_AT : _ABOUT_AT + max(about_bytes, 0)])
        whole = terms_at == metadata_bytes(about) and isinstance(json.loads(about), dict)
        whole = whole and len(mapping) == terms_at + TERMS * term_length and len(about) == about_bytes
    except (UsageError, ValueError):
        whole = False
    term_count, clean_pos = words[ACTIVE_TERM_COUNT], words[CLEAN_POS]
    if whole and 0 <= term_count < 1 << 31 and clean_pos >= 0:
        tail: int = words[TAILS + term_count % TERMS]
        term_id = term_id_at(words[_INITIAL_TERM_ID], term_count)
        if tail >> 32 == term_id and tail & TAIL_OFFSET_MASK <= term_length:
            return
    raise LogError(f"{path} is damaged or cut short: it is no whole publication log")


def encode_about(about: Mapping[str, JSON]) -> bytes:
    return json.dumps(dict(about)).encode()
