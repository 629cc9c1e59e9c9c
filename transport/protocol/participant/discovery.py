"""Discovery of remote participants, their endpoints and their types (RTPS 2.5 §8.5).

Its input is announcements and the samples of the built-in topics. Each change of a participant, endpoint or type is
matched with our own endpoints, and reported as an event.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import accumulate

from ...errors import DecodeError, DropReason
from ...limits import KNOWN_PARTICIPANTS_BYTES_MAX, MESSAGE_SIZE_LEAST
from ...structure import SPDP_MULTICAST_ADDRESS, Locator, spdp_multicast_port
from ...wire.samples import Run
from ..agenda import Failures
from ..discovery.endpoint_data import EndpointData
from ..discovery.liveliness import Liveliness
from ..discovery.participant_data import ParticipantData
from ..discovery.remote_participant import Announcement, RemoteParticipant
from ..discovery.sedp import Sedp
from ..discovery.spdp import AnnouncementEffect, Spdp
from ..discovery.type_library import TypeLibrary
from ..discovery.type_lookup import TypeLookup
from ..discovery.type_lookup_service import TypeLookupService
from ..discovery.type_matching import TypeMatching
from ..trust import AdmittedPeers, Networks, is_address
from . import events
from .builtin_endpoints import BuiltinEndpoints
from .config import ParticipantConfig
from .endpoints import LocalEndpoints
from .multicast import MulticastReach


class ParticipantDiscovery:
    """The built-in protocols of one participant, and their effects on its endpoints."""

    def __init__(
        self,
        config: ParticipantConfig,
        drops: Counter[DropReason],
        emit: Callable[[events.Event], None],
        *,
        now: int,
    ) -> None:
        """``emit`` gets an event for each change; dropped messages are counted in ``drops``."""
        self._config = config
        self._drops = drops
        self._emit = emit
        self.own = own = ParticipantData(
            config.guid_prefix,
            lease_duration=config.lease_duration,
            metatraffic_unicast=config.metatraffic_unicast,
            metatraffic_multicast=config.metatraffic_multicast,
            default_unicast=config.default_unicast,
            default_multicast=config.default_multicast,
            domain=config.domain,
            name=config.name,
            properties=config.properties,
            user_data=config.user_data,
        )
        multicast: tuple[Locator, ...] = ()
        if config.announce_multicast:
            multicast = (Locator(SPDP_MULTICAST_ADDRESS, spdp_multicast_port(config.domain)),)
        networks = Networks(config.peers_allowed) if config.peers_allowed else None
        self.admitted = AdmittedPeers(networks, config.guid_prefix, config.addresses, drops)
        self.spdp = Spdp(
            own,
            multicast,
            config.peers,
            now=now,
            matches=lambda prefix: self.endpoints.matches(prefix),
            trust=config.trust,
            keep_silent=config.keep_silent,
        )
        prefix, remotes = config.guid_prefix, self.spdp.remotes
        message_size = min(config.message_size, MESSAGE_SIZE_LEAST)
        self.sedp = Sedp(prefix, message_size=message_size, incarnation=config.incarnation)
        self.liveliness = Liveliness(prefix, remotes, incarnation=config.incarnation)
        self.type_library = TypeLibrary()
        self.lookup = TypeLookup(self.type_library, drops)
        self.types = TypeLookupService(
            prefix,
            self.type_library,
            self.lookup,
            remotes,
            drops,
            message_size=message_size,
            incarnation=config.incarnation,
        )
        self.builtin = BuiltinEndpoints(self.sedp, self.liveliness, self.types)
        self._multicast = MulticastReach(config)
        #: The exceptions of plug-ins.
        self.failures = Failures()
        self.endpoints = LocalEndpoints(
            own,
            remotes,
            self.liveliness,
            TypeMatching(prefix, self.type_library, self.lookup),
            multicast=self._multicast,
            emit=emit,
            failures=self.failures,
        )
        #: Datagrams that came from participants before they were proven, to be processed now.
        self.held: deque[tuple[bytes, str]] = deque()
        #: Number of type look-ups that have ended.
        self.settled = 0

    def announce(self, data: EndpointData, *, now: int) -> None:
        """Announce an endpoint of ours, and request the types of the remote endpoints on its topic."""
        self.sedp.announce(data, now=now)
        if not self._config.resolve_types:
            for other in self.sedp.remote.on_topic(data.topic):
                self.lookup.watch(other, now=now)

    # --- participants -----------------------------------------------------------------------------

    def on_announcements(self, runs: list[Run], source_ip: str, size: int, now: int) -> None:
        """Take the SPDP samples of one datagram of ``size`` bytes.

        Cyclone DDS announces all participants of a process in one datagram. They share its size, so that the answers to
        them are together no longer than the datagram.
        """
        share = size // len({run.writer for run in runs})
        for run in runs:
            for i in range(run.count):
                try:
                    self._on_announcement(run.take_range(i, i + 1), source_ip, share, now)
                except DecodeError as error:
                    self._drops[error.reason] += 1

    def _on_announcement(self, run: Run, source_ip: str, size: int, now: int) -> None:
        if run.writer.prefix == self._config.guid_prefix:
            return
        if not is_address(source_ip):
            self._drops[DropReason.UNKNOWN_WRITER] += 1
            return
        change, remote = self.spdp.on_announcement(run, source_ip, size=size, now=now)
        self._lose_sent_away(now)
        if remote is None or change is AnnouncementEffect.NONE:
            return
        if change is AnnouncementEffect.DISPOSED:
            self._lose(remote, now, expired=False)
            return
        if change is AnnouncementEffect.DISCOVERED:
            self._emit(events.ParticipantDiscovered(remote.data))
        self._match(remote, now)

    def on_addressed(self, prefix: bytes, source_ip: str, now: int) -> None:
        """A message of a participant is addressed to us."""
        if is_address(source_ip) and (remote := self.spdp.on_addressed(prefix, source_ip)) is not None:
            self._match(remote, now)

    def on_answered(self, prefix: bytes, source_ip: str, made_up: bytes, now: int) -> None:
        """A participant answers the challenge that was sent to an address which it announces."""
        if is_address(source_ip):
            remote = self.spdp.on_answered(prefix, source_ip, made_up)
            if remote is not None:
                self._match(remote, now)

    def received_by_multicast(self, addresses: Iterable[str], *, now: int) -> None:
        """Announcements came from these addresses by multicast."""
        if news := self._multicast.received(addresses):
            for remote in [each for each in self.spdp.remotes.values() if each.addresses & news]:
                self._match(remote, now)

    def recall(self, announcements: Iterable[Announcement], *, now: int) -> None:
        """Restore the participants that an earlier participant with this GUID knew (:meth:`announcements`)."""
        for announcement in announcements:
            if not self.admitted.admits(announcement.source_ip):
                continue
            if announcement.prefix == self._config.guid_prefix:
                continue
            try:
                remote = self.spdp.recall(announcement, now=now)
                self._lose_sent_away(now)
            except DecodeError as error:
                self._drops[error.reason] += 1
                continue
            if remote is not None:
                self._emit(events.ParticipantDiscovered(remote.data))
                self._match(remote, now)

    def announcements(self) -> list[Announcement]:
        """The last announcements of proven participants, matched ones first, up to KNOWN_PARTICIPANTS_BYTES_MAX."""
        remotes = [remote for remote in self.spdp.remotes.values() if remote.proven]
        remotes.sort(key=lambda remote: not self.endpoints.matches(remote.prefix))
        sizes = accumulate(len(remote.payload) for remote in remotes)
        return [
            remote.announcement
            for remote, size in zip(remotes, sizes, strict=True)
            if size <= KNOWN_PARTICIPANTS_BYTES_MAX
        ]

    def _match(self, remote: RemoteParticipant, now: int) -> None:
        """Match a participant that is new, or whose addresses have changed."""
        if not remote.is_matched:
            return
        self.held.extend(remote.held)
        remote.held.clear()
        self.sedp.match(remote, now=now)
        self.liveliness.match(remote, now=now)
        self.types.match(remote, now=now)
        self.builtin.route(remote.prefix, self.endpoints)
        for data in self.sedp.remote.of_participant(remote.prefix):
            if self.endpoints.has_topic(data.topic):
                self.endpoints.consider(data, now=now)

    def _lose_sent_away(self, now: int) -> None:
        for remote in self.spdp.take_sent_away():
            self._drops[DropReason.OVER_LIMIT] += 1
            self._lose(remote, now, expired=True)

    def _lose(self, remote: RemoteParticipant, now: int, *, expired: bool) -> None:
        for data in self.sedp.remote.leave(remote.prefix):
            self._lose_endpoint(data)
        self.lookup.leave(remote.prefix)
        self.builtin.unmatch(remote.prefix, self.endpoints)
        self._emit(events.ParticipantLost(remote.data, expired))
        self.look_up(now)  # another participant may have the types that this one was asked for

    # --- endpoints and types ----------------------------------------------------------------------

    def on_builtin_samples(self, now: int) -> None:
        """Process the samples of the built-in readers."""
        self.liveliness.take_messages(self._drops, now=now)
        for change in self.sedp.take_changes(self._drops, self.endpoints.has_topic):
            if change.known:
                self._emit(events.EndpointDiscovered(change.data))
                if self._config.resolve_types or self.endpoints.has_topic(change.data.topic):
                    self.lookup.watch(change.data, now=now)
                self.endpoints.consider(change.data, now=now)
            else:
                self._lose_endpoint(change.data)
        self.types.take_messages(now=now)
        self.look_up(now)

    def _lose_endpoint(self, data: EndpointData) -> None:
        self.lookup.forget_endpoint(data.guid)
        self.endpoints.lose(data.guid)
        self._emit(events.EndpointLost(data))

    def look_up(self, now: int) -> None:
        """Send the type look-ups that are due, and match the endpoints whose look-ups have ended."""
        self.types.ask(now=now)
        for guid in self.lookup.take_settled():
            self.settled += 1
            if (data := self.sedp.remote.get(guid)) is not None:
                self.endpoints.consider(data, now=now)

    # --- time -------------------------------------------------------------------------------------

    def get_timer(self) -> int | None:
        """When to call :meth:`handle_timer`; None: never."""
        timers = (self.spdp.get_timer(), self.lookup.get_timer())
        return min((timer for timer in timers if timer is not None), default=None)

    def handle_timer(self, now: int) -> None:
        """Announce our participant, forget participants whose lease has ended, and continue type look-ups."""
        self.spdp.handle_timer(now)
        for remote in self.spdp.expired(now=now):
            self._lose(remote, now, expired=True)
        if (timer := self.lookup.get_timer()) is not None and timer <= now:
            self.lookup.handle_timer(now)
            self.look_up(now)
