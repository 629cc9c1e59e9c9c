"""Our readers and writers, and the remote endpoints that each of them matches.

Invariants
* ``routes[writer]`` lists exactly our readers that are matched with that writer, ``other_slices[writer]`` those that
  would be if it belonged to their slice. For the user the latter are no matches: no event, no status, no liveliness.
* An endpoint of ours is matched with another one iff both are known, their topics are equal, ``matching.mismatches``
  finds nothing, and the other one has a usable address that is proven to be its participant's. An endpoint that moves
  stays matched at its old address until its new one is proven. A multicast address does not replace a unicast one.
* While the other's type is being looked up, unmatched endpoints wait, and matched ones stay matched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from ...structure import VENDOR_RTI, Guid
from ...value_classes import slotted
from ..agenda import Failures
from ..discovery.endpoint_data import EndpointData
from ..discovery.liveliness import Liveliness
from ..discovery.matching import mismatches
from ..discovery.participant_data import ParticipantData
from ..discovery.remote_participant import RemoteParticipant
from ..discovery.type_matching import TypeMatching
from ..endpoint_info import ReaderInfo, WriterInfo
from ..policies import BatchWire
from ..reading.reader import StatefulReader
from ..trust import Networks
from ..writing.writer import StatefulWriter
from . import events
from .endpoint_addresses import NO_ADDRESS, EndpointAddresses, Locators
from .multicast import MulticastReach
from .slices import Slice


@slotted
class _Local:
    """An endpoint of ours, its announcement, the endpoints matched with it and those that do not match."""

    data: EndpointData
    endpoint: StatefulReader | StatefulWriter
    matched: dict[Guid, WriterInfo | ReaderInfo] = field(default_factory=dict)
    incompatible: dict[Guid, tuple[str, ...]] = field(default_factory=dict)
    #: The writers of other slices that would match otherwise.
    elsewhere: dict[Guid, WriterInfo] = field(default_factory=dict)
    #: It has no type, and does not match writers whose type may still become known.
    awaits_types: bool = False
    #: The networks in which a writer matches readers; None: all.
    allowed: Networks | None = None
    #: The writers that a reader reads; None: all.
    part: Slice | None = None
    #: A writer may send to groups.
    multicast: bool = True
    #: Its type has int8 or uint8 members, which some peers do not support, and no event has reported this yet.
    announces_int8: bool = False

    def knows(self, other: Guid) -> bool:
        """Whether it is matched, or would be if it were of this slice."""
        return other in self.matched or other in self.elsewhere


class LocalEndpoints:
    """The user's endpoints of a participant; ``emit`` gets the events, ``failures`` the exceptions of plug-ins."""

    def __init__(
        self,
        own: ParticipantData,
        remotes: Mapping[bytes, RemoteParticipant],
        liveliness: Liveliness,
        types: TypeMatching,
        *,
        multicast: MulticastReach,
        emit: Callable[[events.Event], None],
        failures: Failures,
    ) -> None:
        #: Readers by the writer they match, remote or ours; the participant adds the readers of the built-in topics.
        self.routes: dict[Guid, list[StatefulReader]] = {}
        #: Readers by the writer of another slice that they only acknowledge.
        self.other_slices: dict[Guid, list[StatefulReader]] = {}
        #: For each participant, the number of its writers in ``routes``, without the built-in ones.
        self._received: Counter[bytes] = Counter()
        #: Number of matches and unmatches of readers.
        self.routes_changed = 0
        #: Whether a reader of ours ever matched a writer of ours.
        self.hears_itself = False
        self._own = own
        self._remotes = remotes
        self._liveliness = liveliness
        self._types = types
        self._multicast = multicast
        self._addresses = EndpointAddresses(own, remotes, multicast)
        self._emit = emit
        self._failures = failures
        self._locals: dict[Guid, _Local] = {}
        self._topics: Counter[str] = Counter()
        #: Matched pairs (our endpoint, the other one), by the other's participant.
        self._matches: Counter[bytes] = Counter()

    # --- ours come and go -------------------------------------------------------------------------

    def data(self) -> list[EndpointData]:
        return [local.data for local in self._locals.values()]

    def add_endpoint(
        self,
        data: EndpointData,
        endpoint: StatefulReader | StatefulWriter,
        others: Iterable[EndpointData],
        *,
        now: int,
        awaits_types: bool = False,
        allowed: Networks | None = None,
        part: Slice | None = None,
        multicast: bool = True,
        announces_int8: bool = False,
    ) -> None:
        """Add an endpoint of ours; ``others`` are the remote endpoints known so far."""
        new = _Local(
            data,
            endpoint,
            awaits_types=awaits_types,
            allowed=allowed,
            part=part,
            multicast=multicast,
            announces_int8=announces_int8,
        )
        for other in others:
            self._consider(new, other, now)
        # Endpoints of one participant match each other, by way of its own unicast address.
        for own in self._locals.values():
            self._consider(new, own.data, now)
            self._consider(own, data, now)
        self._locals[data.guid] = new
        self._topics[data.topic] += 1

    def remove_endpoint(self, guid: Guid) -> EndpointData | None:
        """Remove an endpoint of ours, and return what it announced; None if there is no such endpoint."""
        local = self._locals.pop(guid, None)
        if local is None:
            return None
        self._topics -= Counter((local.data.topic,))
        for other in [*local.matched, *local.elsewhere]:
            self._unmatch(local, other)
        self.lose(guid)
        return local.data

    # --- others come and go -----------------------------------------------------------------------

    def consider(self, other: EndpointData, *, now: int) -> None:
        """Match a remote endpoint that is new, or whose data or addresses have changed."""
        for local in self._locals.values():
            self._consider(local, other, now)

    def lose(self, guid: Guid) -> None:
        """Unmatch an endpoint that is gone."""
        for local in self._locals.values():
            self._drop(local, guid)

    def hears(self, prefix: bytes) -> bool:
        """Whether a reader of ours is matched with a writer of this participant."""
        return prefix in self._received

    @property
    def received_prefixes(self) -> frozenset[bytes]:
        """The participants with a writer that our readers are matched with, or acknowledge as one of another slice."""
        return frozenset((*self._received, *(writer.prefix for writer in self.other_slices)))

    def own(self, guid: Guid) -> EndpointData | None:
        """What an endpoint of ours announces; None if there is no such endpoint."""
        local = self._locals.get(guid)
        return None if local is None else local.data

    def incompatible(self, guid: Guid) -> Mapping[Guid, tuple[str, ...]]:
        """The endpoints on the topic of an endpoint of ours that do not match it, with the reasons."""
        local = self._locals.get(guid)
        return {} if local is None else dict(local.incompatible)

    def has_topic(self, topic: str) -> bool:
        """Whether an endpoint of ours is on that topic."""
        return self._topics[topic] > 0

    def matches(self, prefix: bytes) -> bool:
        """Whether a participant has an endpoint that one of ours matches."""
        return prefix in self._matches

    def topic_of(self, writer: Guid) -> str:
        """The topic that a matched writer, or a writer of ours, writes."""
        if (own := self.own(writer)) is not None:
            return own.topic
        for reader in self.routes.get(writer, ()):
            if (local := self._locals.get(reader.guid)) is not None:
                return local.data.topic
        return ""

    # --- matching ---------------------------------------------------------------------------------

    def _consider(self, local: _Local, other: EndpointData, now: int) -> None:
        if other.is_writer == local.data.is_writer:
            return
        if other.topic != local.data.topic:
            self._drop(local, other.guid)
            return
        if local.announces_int8:
            self._look_for_int8(local, other)
        unicast, multicast = self._addresses.find(other)
        if not local.multicast:
            multicast = ()
        unaddressed = () if unicast else self._addresses.explain_none(other)
        moves = unaddressed not in ((), (NO_ADDRESS,)) and local.knows(other.guid)
        if local.allowed is not None and other.guid.prefix != self._own.guid_prefix:
            unicast, multicast, refused = self._addresses.restrict(local.allowed, other, unicast, multicast)
            unaddressed = unaddressed or refused
        elif not (local.data.qos.is_reliable and other.qos.is_reliable):
            multicast = self._multicast.of_unacknowledging(multicast)
        writer, reader = (local.data, other) if local.data.is_writer else (other, local.data)
        is_elsewhere = local.part is not None and not local.part.has(other.guid)
        of_types: tuple[str, ...] | None = ()  # a writer of another slice compares the types itself
        if not is_elsewhere:
            of_types = self._types.mismatches(writer, reader, awaits_type=local.awaits_types)
        reasons = mismatches(writer, reader, of_types or ()) or unaddressed
        if moves and reasons == unaddressed:
            return  # until its new address is proven, the old one is used
        if of_types is None and not reasons and other.guid not in local.matched:
            local.incompatible.pop(other.guid, None)
            return
        if reasons:
            known = local.incompatible.get(other.guid)
            self._drop(local, other.guid)
            if is_elsewhere:
                return
            local.incompatible[other.guid] = reasons
            if known != reasons:
                self._emit(events.IncompatibleQos(local.data.guid, other.guid, other.topic, reasons))
            return
        local.incompatible.pop(other.guid, None)
        known_before = local.knows(other.guid)
        if not known_before:
            self._matches[other.guid.prefix] += 1
        if is_elsewhere:
            self._match_elsewhere(
                local,
                _writer_info(local, other, self._remotes.get(other.guid.prefix), unicast, multicast),
                now,
            )
            return
        self._match(local, other, unicast, multicast, now)
        if not known_before:
            self._emit(events.Matched(local.data.guid, other.guid, other.topic, unicast, multicast))

    def _look_for_int8(self, local: _Local, other: EndpointData) -> None:
        """Report the first peer that does not know int8, even if it does not match: it requests the type anyway."""
        remote = self._remotes.get(other.guid.prefix)
        if remote is not None and remote.data.crashes_on_int8:
            local.announces_int8 = False
            version = remote.data.product_version
            self._emit(events.TypeNotKnown(local.data.guid, other.guid, other.topic, version))

    def _match(
        self, local: _Local, other: EndpointData, unicast: Locators, multicast: Locators, now: int
    ) -> None:
        """Match them, or hand a matched endpoint the new data of its counterpart."""
        known, guid = local.matched.get(other.guid), other.guid
        if isinstance(local.endpoint, StatefulWriter):
            reader = _reader_info(local.endpoint, other, self._remotes.get(guid.prefix), unicast, multicast)
            if reader != known:
                try:
                    local.endpoint.match_reader(reader, now=now)
                except Exception as error:  # noqa: BLE001  (of a plug-in: the others still match)
                    self._failures.add_failure(error)
            local.matched[guid] = reader
            return
        writer = _writer_info(local, other, self._remotes.get(other.guid.prefix), unicast, multicast)
        if writer != known:
            try:
                local.endpoint.match_writer(writer, now=now)
            except Exception as error:  # noqa: BLE001  (of a plug-in: the others still match)
                self._failures.add_failure(error)
        if known is None:
            if guid not in self.routes:
                self._received[guid.prefix] += 1
            self.routes.setdefault(guid, []).append(local.endpoint)
            self.routes_changed += 1
        local.matched[guid] = writer
        if guid.prefix == self._own.guid_prefix:
            self.hears_itself = True
        else:
            self._liveliness.track(other, now=now)

    def _match_elsewhere(self, local: _Local, writer: WriterInfo, now: int) -> None:
        """Have a reader acknowledge a writer of another slice, or hand it the new data of that writer."""
        known, guid = local.elsewhere.get(writer.guid), writer.guid
        if isinstance(local.endpoint, StatefulReader) and writer != known:
            local.endpoint.match_other_slice(writer, now=now)
            if known is None:
                self.other_slices.setdefault(guid, []).append(local.endpoint)
                self.routes_changed += 1
            local.elsewhere[guid] = writer
            self.hears_itself = self.hears_itself or guid.prefix == self._own.guid_prefix

    def _drop(self, local: _Local, other: Guid) -> None:
        local.incompatible.pop(other, None)
        if local.knows(other):
            self._unmatch(local, other)

    def _unmatch(self, local: _Local, other: Guid) -> None:
        self._matches[other.prefix] -= 1
        self.routes_changed += 1
        if not self._matches[other.prefix]:
            del self._matches[other.prefix]
        if local.elsewhere.pop(other, None) is not None and isinstance(local.endpoint, StatefulReader):
            local.endpoint.unmatch_other_slice(other)
            _take_out(self.other_slices, other, local.endpoint)
            return
        del local.matched[other]
        if isinstance(local.endpoint, StatefulWriter):
            try:
                local.endpoint.unmatch_reader(other)
            except Exception as error:  # noqa: BLE001  (of a plug-in: the others are still unmatched)
                self._failures.add_failure(error)
        else:
            local.endpoint.unmatch_writer(other)
            if _take_out(self.routes, other, local.endpoint):
                self._received -= Counter((other.prefix,))
                self._liveliness.forget_writer(other)
        self._emit(events.Unmatched(local.data.guid, other, local.data.topic))


def _reader_info(
    writer: StatefulWriter,
    other: EndpointData,
    remote: RemoteParticipant | None,
    unicast: Locators,
    multicast: Locators,
) -> ReaderInfo:
    """What a writer of ours knows of a reader."""
    qos, can = other.qos, other.abilities
    # Readers of RTI Connext read batches without announcing it; the writer sends batches to them if its policy says so.
    is_known_to_batch = (
        writer.batch.wire is BatchWire.DATA_BATCH and remote is not None and remote.data.vendor == VENDOR_RTI
    )
    return ReaderInfo(
        other.guid,
        unicast,
        multicast,
        qos.is_reliable,
        qos.is_transient_local,
        can.batches or is_known_to_batch,
        can.codecs,
        can.message_size_max,
        can.no_positive_acks,
        can.status_messages,
        mistakes_keys=remote is not None and remote.mistakes_keys,
    )


def _writer_info(
    local: _Local,
    other: EndpointData,
    remote: RemoteParticipant | None,
    unicast: Locators,
    multicast: Locators,
) -> WriterInfo:
    """What a reader of ours knows of a writer."""
    qos, can = other.qos, other.abilities
    return WriterInfo(
        other.guid,
        unicast,
        multicast,
        qos.is_reliable,
        qos.is_transient_local,
        can.no_positive_acks,
        preemptive_base=1 if remote is None else remote.preemptive_base,
        filters=local.data.content_filter is not None and remote is not None and remote.filters,
        needs_no_acks=can.batches,
        status_messages=can.status_messages,
        term_window=can.term_window,
        heartbeat_period=can.heartbeat_period,
        publication_log=can.publication_log,
        publication_token=can.publication_token,
    )


def _take_out(readers: dict[Guid, list[StatefulReader]], writer: Guid, reader: StatefulReader) -> bool:
    """Remove a reader from the list of a writer; returns whether it was the last one."""
    readers[writer].remove(reader)
    if is_last := not readers[writer]:
        del readers[writer]
    return is_last
