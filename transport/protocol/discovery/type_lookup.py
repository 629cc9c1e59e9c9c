"""The types of remote endpoints: which TypeObjects to request from which participant, and when (XTypes 1.3 §7.6.3.3).

Sans I/O: endpoints go in by :meth:`TypeLookup.watch`, questions come out of :meth:`TypeLookup.questions`, answers go in
by :meth:`TypeLookup.on_types`; :meth:`TypeLookup.take_settled` returns the endpoints whose look-up has ended, with or
without a type.

Invariants
* A type is looked up once, however many endpoints have it, and at one of their participants at a time. It is known, or
  given up, within TIMEOUT after the first of these endpoints was watched. A type that no participant sent by then is
  looked up again from time to time; until it is known, the matching done without it holds.
* At most TYPE_LOOKUP_PEERS_MAX participants are asked at a time, each for at most TYPE_LOOKUP_ASKED_MAX TypeObjects. Of
  the answer to one question, at most TYPE_LOOKUP_REPLY_BYTES_MAX are read, and only TypeObjects that were requested.
* All types that are known or being looked up take at most RESOLVED_BYTES_MAX serialized bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ...errors import DecodeError, DropReason, TypeDefinitionError
from ...limits import (
    RESOLVED_BYTES_MAX,
    RESOLVED_TYPE_BYTES_MAX,
    RESOLVED_TYPE_OBJECTS_MAX,
    TYPE_LOOKUP_ASKED_MAX,
    TYPE_LOOKUP_PEERS_MAX,
    TYPE_LOOKUP_REPLY_BYTES_MAX,
)
from ...structure import NANOSECONDS, Guid
from ...types.xtypes.information import TypeInformation
from ...types.xtypes.type_identifiers import EK_COMPLETE, EK_MINIMAL
from ...types.xtypes.type_objects import struct_of
from .endpoint_data import EndpointData, TypeObjectV1
from .type_library import KnownType, TypeLibrary

#: A type that is not known after this time is given up.
TIMEOUT: Final = 5 * NANOSECONDS
#: Time after which a type that was given up is requested again: the network may have failed.
AGAIN: Final = 30 * NANOSECONDS
#: A question is repeated after the first time, then after twice as long each time, up to the second time.
RETRY_FIRST: Final = NANOSECONDS // 4
RETRY_MAX: Final = 2 * NANOSECONDS
#: Unanswered questions before the next participant that has the type is asked.
_PATIENCE: Final = 2

_HASHED_SIZE: Final = 15

NOT_ANNOUNCED: Final = "it does not announce its type"
_NO_SERVICE: Final = "it announces a type, but no TypeLookup service to ask for it"
_NO_ANSWER: Final = f"it did not send its type within {TIMEOUT // NANOSECONDS} s"
_RECURSIVE: Final = "its type has no hash: recursive types are not supported"
_TOO_LARGE: Final = "its type is too large"
_TOO_MANY: Final = "there are too many types"


#: The identifier of a type; else the announced type object with its encoding: peers may announce the same bytes in
#: another encoding.
_Key: TypeAlias = bytes | TypeObjectV1


@dataclass(slots=True, eq=False)
class _Lookup:
    """The look-up of one type, from its first use until no endpoint has the type any more."""

    key: _Key
    deadline: int
    #: The identifier of the type's TypeObject, and of the minimal one that would suffice.
    root: bytes = b""
    fallback: bytes = b""
    #: The endpoints with this type, and their number for each participant, in the order in which participants are
    #: asked.
    users: dict[Guid, None] = field(default_factory=dict)
    prefixes: Counter[bytes] = field(default_factory=Counter)
    #: The participant that is being asked, and those that were asked without success.
    asks: bytes | None = None
    tried: set[bytes] = field(default_factory=set)
    #: TypeObjects that are needed and missing; those that were seen; those that peers listed as needed.
    missing: set[bytes] = field(default_factory=set)
    seen: set[bytes] = field(default_factory=set)
    hints: set[bytes] = field(default_factory=set)
    nbytes: int = 0
    #: The type information announced, if the type can be requested.
    information: TypeInformation | None = None
    result: KnownType | str | None = None

    def add_user(self, user: Guid) -> None:
        if user not in self.users:
            self.users[user] = None
            self.prefixes[user.prefix] += 1

    def discard(self, user: Guid) -> None:
        if user in self.users:
            del self.users[user]
            self.prefixes[user.prefix] -= 1
            if not self.prefixes[user.prefix]:
                del self.prefixes[user.prefix]

    def restart(self, root: bytes) -> int:
        """Restart, with the TypeObject ``root``; returns the number of bytes given up."""
        given_up, self.nbytes = self.nbytes, 0
        self.root, self.missing, self.seen, self.hints = root, {root}, {root}, set()
        return given_up


@dataclass(slots=True, eq=False)
class _Peer:
    """A participant that is being asked."""

    lookups: dict[_Lookup, None] = field(default_factory=dict)
    outstanding: set[bytes] = field(default_factory=set)
    retry_at: int = 0
    #: Questions since the last useful answer; whether it has answered the last question.
    attempts: int = 0
    received: bool = False
    #: Bytes of answers that may still be read.
    room: int = 0

    def lacking(self, most: int) -> tuple[bytes, ...]:
        """The identifiers that can be requested of it, at most ``most``; the needed ones come first."""
        found: dict[bytes, None] = {}
        for needed in (True, False):
            for lookup in self.lookups:
                for each in sorted(lookup.missing if needed else lookup.hints):
                    if each not in self.outstanding:
                        found[each] = None
                    if len(found) == most:
                        return tuple(found)
        return tuple(found)


class TypeLookup:
    """The types of remote endpoints."""

    def __init__(self, library: TypeLibrary, drops: Counter[DropReason]) -> None:
        self._library = library
        self._drops = drops
        #: Participants with a TypeLookup service.
        self._services: set[bytes] = set()
        self._lookups: dict[_Key, _Lookup] = {}
        #: The type of each watched endpoint, or why it has none.
        self._by_user: dict[Guid, _Lookup | str] = {}
        #: Look-ups that are not settled, by deadline.
        self._open: dict[_Lookup, None] = {}
        #: Look-ups given up without an answer, and when to ask again, in this order.
        self._unanswered: dict[_Lookup, int] = {}
        self._peers: dict[bytes, _Peer] = {}
        #: The open types for which no participant is being asked, and whether one may be asked now.
        self._unassigned: dict[_Lookup, None] = {}
        self._assignable = False
        self._nbytes = 0
        self._settled: list[Guid] = []

    # --- participants -----------------------------------------------------------------------------

    def join(self, prefix: bytes) -> None:
        """A participant has a TypeLookup service."""
        self._services.add(prefix)
        self._assignable = True

    def leave(self, prefix: bytes) -> None:
        """Remove a participant. The caller forgets its endpoints one by one."""
        self._services.discard(prefix)
        if (peer := self._peers.get(prefix)) is not None:
            for lookup in list(peer.lookups):
                self._stop_asking(lookup)

    # --- endpoints --------------------------------------------------------------------------------

    def watch(self, data: EndpointData, *, now: int) -> None:
        """Look up the type of this endpoint; called again when it has announced another one."""
        guid, information, v1 = data.guid, data.type_information, data.type_object_v1
        roots = () if information is None else _roots(information)
        if v1 is not None and guid.prefix not in self._services:
            roots = ()  # no service to ask, but the type object was announced
        key = roots[0] if roots else v1 if v1 is not None and v1.value else b""
        known = self._by_user.get(guid)
        if isinstance(known, _Lookup) and known.key == key:
            return
        if known is not None:
            self.forget_endpoint(guid)
        if not key:
            self._by_user[guid] = _why_not(data)
            return
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = _Lookup(key, now + TIMEOUT)
            lookup.add_user(guid)
            if information is not None and roots:
                self._begin(lookup, roots, information, now)
            elif v1 is not None:
                self._read_v1(lookup, v1)
        elif isinstance(lookup.result, str) and guid.prefix not in lookup.prefixes:
            if information is not None and roots:  # perhaps this one knows it
                lookup.result = None
                self._begin(lookup, roots, information, now)
        lookup.add_user(guid)
        self._by_user[guid] = lookup

    def forget_endpoint(self, guid: Guid) -> None:
        """An endpoint is gone."""
        lookup = self._by_user.pop(guid, None)
        if not isinstance(lookup, _Lookup):
            return
        lookup.discard(guid)
        if not lookup.users:
            self._close(lookup)
            self._nbytes -= lookup.nbytes
            del self._lookups[lookup.key]
        elif lookup.asks == guid.prefix and guid.prefix not in lookup.prefixes:
            self._stop_asking(lookup)

    def known(self, guid: Guid) -> KnownType | str | None:
        """The type of an endpoint, or why it has none. None: not known yet, or the endpoint is not watched."""
        lookup = self._by_user.get(guid)
        return lookup.result if isinstance(lookup, _Lookup) else lookup

    def take_settled(self) -> list[Guid]:
        """Endpoints whose type has become known, or was given up, since the last call."""
        settled, self._settled = self._settled, []
        return settled

    # --- questions --------------------------------------------------------------------------------

    def questions(self, *, now: int) -> list[tuple[bytes, tuple[bytes, ...]]]:
        """(participant, identifiers) of each question that is due; it counts as asked."""
        for peer in list(self._peers.values()):
            if peer.retry_at <= now and peer.outstanding:
                self._asked_in_vain(peer)
        if self._assignable:
            self._assignable = False
            for lookup in list(self._unassigned):
                self._assign(lookup)
        due = []
        for prefix, peer in self._peers.items():
            if (room := TYPE_LOOKUP_ASKED_MAX - len(peer.outstanding)) <= 0:
                continue
            asked = peer.lacking(room)
            if asked:
                wait = min(RETRY_FIRST << peer.attempts, RETRY_MAX)
                peer.attempts, peer.retry_at, peer.received = peer.attempts + 1, now + wait, False
                peer.outstanding.update(asked)
                peer.room = TYPE_LOOKUP_REPLY_BYTES_MAX
                due.append((prefix, asked))
        return due

    def _assign(self, lookup: _Lookup) -> None:
        """Choose a participant to ask, if not too many are asked already."""
        for prefix in lookup.prefixes:
            is_free = prefix in self._peers or len(self._peers) < TYPE_LOOKUP_PEERS_MAX
            if prefix in self._services and prefix not in lookup.tried and is_free:
                lookup.asks = prefix
                del self._unassigned[lookup]
                self._peers.setdefault(prefix, _Peer()).lookups[lookup] = None
                return

    def _stop_asking(self, lookup: _Lookup) -> None:
        """Stop asking the current participant; another one may be asked if the type is still open."""
        if lookup.asks is not None:
            peer = self._peers[lookup.asks]
            del peer.lookups[lookup]
            if not peer.lookups:
                del self._peers[lookup.asks]
            lookup.asks = None
        self._assignable = True
        if lookup in self._open:
            self._unassigned[lookup] = None

    def _asked_in_vain(self, peer: _Peer) -> None:
        """Handle an answer that did not arrive in time."""
        peer.outstanding.clear()
        if peer.attempts < _PATIENCE:
            return
        for lookup in list(peer.lookups):
            if peer.received and lookup.fallback and lookup.root in lookup.missing:
                # It answers, but does not have the complete type.
                self._nbytes -= lookup.restart(lookup.fallback)
                lookup.fallback = b""
                self._advance(lookup)
            elif {each for each in lookup.prefixes if each in self._services} - lookup.tried - {lookup.asks}:
                lookup.tried.add(lookup.asks or b"")
                self._stop_asking(lookup)

    # --- answers ----------------------------------------------------------------------------------

    def expects(self, prefix: bytes, nbytes: int) -> bool:
        """Whether an answer of this size from this participant is to be read."""
        peer = self._peers.get(prefix)
        if peer is None or not peer.outstanding:
            return False
        peer.received = True
        if nbytes > peer.room:
            self._drops[DropReason.OVER_LIMIT] += 1
            return False
        peer.room -= nbytes
        return True

    def on_types(self, prefix: bytes, objects: Iterable[tuple[bytes, bytes]]) -> None:
        """Take the TypeObjects that a participant sent. TypeObjects that were not requested are ignored; those with
        another identifier than the one given are counted."""
        if (peer := self._peers.get(prefix)) is None:
            return
        announced: set[bytes] = set()
        for identifier, data in objects:
            if identifier not in peer.outstanding:
                continue
            try:
                self._library.add_type_object(identifier, data)
            except DecodeError as error:
                self._drops[error.reason] += 1
                continue
            peer.outstanding.discard(identifier)
            announced.add(identifier)
        if announced:
            peer.attempts = 0
            for lookup in list(self._open):
                lookup.hints -= announced
                if not announced.isdisjoint(lookup.missing):
                    self._advance(lookup)

    # --- time -------------------------------------------------------------------------------------

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` is to be called, and there may be questions."""
        timers = [peer.retry_at for peer in self._peers.values() if peer.outstanding]
        timers += [lookup.deadline for lookup in self._open][:1]
        timers += [*self._unanswered.values()][:1]
        return min(timers, default=None)

    def handle_timer(self, now: int) -> None:
        while self._open and (oldest := next(iter(self._open))).deadline <= now:
            asked = any(prefix in self._services for prefix in oldest.prefixes)
            self._settle(oldest, _NO_ANSWER if asked else _NO_SERVICE)
            if asked:
                self._unanswered[oldest] = now + AGAIN
        while self._unanswered and self._unanswered[first := next(iter(self._unanswered))] <= now:
            del self._unanswered[first]
            if first.information is not None:
                self._begin(first, _roots(first.information), first.information, now)

    # --- the state of one type --------------------------------------------------------------------

    def _begin(
        self, lookup: _Lookup, roots: tuple[bytes, ...], information: TypeInformation, now: int
    ) -> None:
        self._close(lookup)
        lookup.deadline, lookup.information = now + TIMEOUT, information
        self._open[lookup] = self._unassigned[lookup] = None
        self._assignable = True
        lookup.tried.clear()
        lookup.fallback = roots[1] if len(roots) > 1 else b""
        self._nbytes -= lookup.restart(roots[0])
        form = information.complete if roots[0][0] == EK_COMPLETE else information.minimal
        announced = () if form is None else form.dependents[:RESOLVED_TYPE_OBJECTS_MAX]
        lookup.hints = {each.id for each in announced if _is_hashed(each.id) and each.id not in self._library}
        self._advance(lookup)

    def _advance(self, lookup: _Lookup) -> None:
        """Continue with the TypeObjects that are known now."""
        library = self._library
        at_hand = [each for each in lookup.missing if each in library]
        while at_hand:
            identifier = at_hand.pop()
            lookup.missing.discard(identifier)
            nbytes = len(library[identifier])
            lookup.nbytes += nbytes
            self._nbytes += nbytes
            for each in library.dependencies(identifier) - lookup.seen:
                lookup.seen.add(each)
                if each in library:
                    at_hand.append(each)
                else:
                    lookup.missing.add(each)
            too_many = len(lookup.seen) > RESOLVED_TYPE_OBJECTS_MAX
            if too_many or lookup.nbytes > RESOLVED_TYPE_BYTES_MAX or self._nbytes > RESOLVED_BYTES_MAX:
                self._drops[DropReason.OVER_LIMIT] += 1
                self._settle(lookup, _TOO_MANY if self._nbytes > RESOLVED_BYTES_MAX else _TOO_LARGE)
                return
        if lookup.missing:
            return
        if all(each in library for each in lookup.seen):
            self._settle(lookup, _read(lookup.root, library))
        else:  # a type of ours with the same part was withdrawn, or the limit was reached: ask again
            self._nbytes -= lookup.restart(lookup.root)
            self._advance(lookup)

    def _read_v1(self, lookup: _Lookup, v1: TypeObjectV1) -> None:
        try:
            v1 = v1.uncompressed()  # a kilobyte can stand for a megabyte
            lookup.nbytes = len(v1.value)
            self._nbytes += lookup.nbytes
            if self._nbytes > RESOLVED_BYTES_MAX:
                self._drops[DropReason.OVER_LIMIT] += 1
                self._settle(lookup, _TOO_MANY)
                return
            self._settle(lookup, KnownType(v1.struct()))
        except (DecodeError, TypeDefinitionError) as error:
            if isinstance(error, DecodeError):
                self._drops[error.reason] += 1
            self._settle(lookup, f"its type object cannot be used: {_reason(error)}")

    def _settle(self, lookup: _Lookup, result: KnownType | str) -> None:
        self._close(lookup)
        lookup.result = result
        lookup.missing, lookup.seen, lookup.hints = set(), set(), set()
        if isinstance(result, str):
            self._nbytes -= lookup.nbytes
            lookup.nbytes = 0
        self._settled += lookup.users

    def _close(self, lookup: _Lookup) -> None:
        """Stop asking for this type."""
        self._open.pop(lookup, None)
        self._unanswered.pop(lookup, None)
        self._unassigned.pop(lookup, None)
        self._stop_asking(lookup)


def _roots(information: TypeInformation) -> tuple[bytes, ...]:
    """The identifiers of the type, the most informative one first."""
    forms = (information.complete, information.minimal)
    return tuple(form.type.id for form in forms if form is not None and _is_hashed(form.type.id))


def _is_hashed(identifier: bytes) -> bool:
    return len(identifier) == _HASHED_SIZE and identifier[0] in (EK_COMPLETE, EK_MINIMAL)


def _why_not(data: EndpointData) -> str:
    """Why an endpoint has no type that can be looked up."""
    if data.type_information is not None:
        return _RECURSIVE
    return f"its type information is broken: {data.type_error}" if data.type_error else NOT_ANNOUNCED


def _read(root: bytes, library: TypeLibrary) -> KnownType | str:
    """The type whose TypeObjects are all known, or why it cannot be used."""
    try:
        return KnownType(struct_of(root, library), root[0] == EK_COMPLETE)
    except (DecodeError, TypeDefinitionError) as error:
        return f"its type cannot be used: {_reason(error)}"


def _reason(error: DecodeError | TypeDefinitionError) -> str:
    return error.detail or str(error) if isinstance(error, DecodeError) else str(error)
