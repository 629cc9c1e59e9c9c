"""The metadata of a publication log, before its terms: for its owner, and for processes that map the file.

::

       0  magic             8s
       8  i64 each, in the machine's byte order: numbered below
     256  subscribers       64 slots, see :mod:`.subscriber_slots`
    3840  about             JSON, UTF-8
          terms             from the next page on

Every word is read and written by one load or store. The owner writes all but the subscribers' slots.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ..errors import LogError, UsageError
from ..protocol.writing.publication import PublicationPositions
from .owner_lock import is_held
from .segment import JSON, PAGE, page_ceil
from .subscriber_slots import SLOTS_AT, SLOTS_END, SubscriberSlots
from .term_frames import TERMS, term_id_at

MAGIC: Final = b"rtpspub1"
VERSION: Final = 1
TERM_LENGTH_MIN: Final = 64 << 10
TERM_LENGTH_MAX: Final = 1 << 30

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
#: Everything before this position is zeroed, or is being zeroed.
CLEANING_POS: Final = 22
#: 1: the owner holds the lock of the file as long as it lives; 0: of an earlier version, or without such locks.
_OWNER_LOCKS: Final = 23

_ABOUT_AT: Final = SLOTS_END
#: States of a process that has ended and that its parent has not collected yet.
_ENDED: Final = (b"Z", b"X")
TAIL_OFFSET_MASK: Final = (1 << 32) - 1


def check_term_length(term_length: int) -> None:
    if term_length & (term_length - 1) or not TERM_LENGTH_MIN <= term_length <= TERM_LENGTH_MAX:
        raise UsageError(
            f"a term length of {term_length} bytes is invalid: use a power of two from 64 KiB to 1 GiB"
        )


def start_ticks(pid: int) -> int:
    """When the process began (proc(5)): with its id this identifies a process for ever. 0: there is none, or it has
    ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    fields = stat[stat.rindex(b")") + 2 :].split()
    return 0 if fields[0] in _ENDED else int(fields[19])


class LogOwner(NamedTuple):
    """The process that writes a log, as the log records it."""

    process: int
    start: int
    locks: bool

    def lives(self, path: Path | None) -> bool:
        """Whether it still writes the log in the file ``path``; None: in its own memory."""
        if self.locks and path is not None:
            return is_held(path)
        return self.start == start_ticks(self.process) != 0


class PublicationLogMetadata:
    """The words of one mapped log."""

    __slots__ = ("_path", "about", "initial_term_id", "slots", "term_length", "terms_at", "token", "words")

    def __init__(self, mapping: memoryview, path: Path | None) -> None:
        """``mapping`` was filled by :func:`format_metadata`."""
        words = mapping[: len(mapping) & ~7].cast("q")
        self.token: int = words[_TOKEN]
        self.term_length: int = words[_TERM_LENGTH]
        self.initial_term_id: int = words[_INITIAL_TERM_ID]
        self.terms_at: int = words[_TERMS_AT]
        metadata = mapping[: self.terms_at]
        self.words = metadata.cast("q")
        self.slots = SubscriberSlots(metadata, self.words, path)
        self._path = path
        about = bytes(mapping[_ABOUT_AT : _ABOUT_AT + words[_ABOUT_BYTES]])
        self.about: dict[str, JSON] = json.loads(about)

    @property
    def owner(self) -> LogOwner:
        words = self.words
        return LogOwner(words[_OWNER_PID], words[_OWNER_START], bool(words[_OWNER_LOCKS]))

    @property
    def owner_lives(self) -> bool:
        return self.owner.lives(self._path)

    def own(self, *, locks: bool) -> None:
        """Make this process the owner; ``locks``: it holds the lock of the file."""
        pid = os.getpid()
        self.words[_OWNER_START] = start_ticks(pid)
        self.words[_OWNER_PID] = pid
        self.words[_OWNER_LOCKS] = locks

    @property
    def end_of_stream(self) -> bool:
        """Whether nothing more will be added."""
        return bool(self.words[_END_OF_STREAM])

    @end_of_stream.setter
    def end_of_stream(self, value: bool) -> None:
        self.words[_END_OF_STREAM] = value

    def record(
        self, positions: PublicationPositions, *, snd_pos: int | None = None, unblocked: int = 0
    ) -> None:
        """Show the positions, and the number of claims that were never committed and became PADs.

        ``snd_pos`` is the begin of the next frame to be sent, if that is not the sender's position: readers that join
        begin there.
        """
        words = self.words
        words[_PUB_POS] = positions.pub_pos
        words[_PUB_LMT] = positions.pub_lmt
        words[_SND_POS] = positions.snd_pos if snd_pos is None else snd_pos
        words[_SND_LMT] = positions.snd_lmt
        words[_SND_BPE] = positions.snd_bpe
        words[_IS_CONNECTED] = positions.is_connected
        words[_UNBLOCKED] = unblocked

    def positions(self) -> dict[str, int]:
        """The positions that :meth:`record` stored last, and the position up to which the log is cleaned."""
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


def metadata_bytes(about: bytes) -> int:
    """The length of the section, in whole pages."""
    return page_ceil(_ABOUT_AT + len(about))


def format_metadata(
    mapping: memoryview, term_length: int, about: bytes, initial_term_id: int | None, token: int | None
) -> None:
    """Fill the section of a log of zeros; the magic comes last."""
    words = mapping[:SLOTS_AT].cast("q")
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
        raise LogError(f"{path} is not a publication log", path=path)
    words = mapping[:SLOTS_AT].cast("q")
    if words[_VERSION] != VERSION:
        raise LogError(f"{path} is not of the supported version {VERSION}", path=path)
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
    raise LogError(f"{path} is damaged or truncated: it is not a complete publication log", path=path)


def encode_about(about: Mapping[str, JSON]) -> bytes:
    return json.dumps(dict(about)).encode()
