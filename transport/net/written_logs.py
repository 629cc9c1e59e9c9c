"""Our writers' named publication logs: who reads them on this host, how far, and who has to be woken.

This is the writer's side of :mod:`.on_host`.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, field
from typing import Final

from ..errors import LogError
from ..log.publication_log import PublicationLog
from ..log.publication_metadata import Subscriber, SubscriberState
from ..log.publications import Publications, remove
from ..log.segment import JSON
from ..protocol.outgoing import Datagram
from ..protocol.policies import FlowControlPolicy
from ..protocol.writing.tethering import Consumer, Tethering, TetherState
from ..protocol.writing.writer import StatefulWriter
from ..qos import Qos
from ..structure import INFINITE, KIND_WRITER_NO_KEY, KIND_WRITER_WITH_KEY, NANOSECONDS, Guid
from ..types.idl.printer import print_idl
from ..types.model import Struct
from ..wire.message import Header

_log = logging.getLogger(__name__)

#: Who has not shown itself for so long is dead; the longest duty cycle is a second.
_DEAD_NS: Final = 5 * NANOSECONDS
#: A writer that waits for readers of its log looks at them so often: they send it nothing when they get on.
_PATIENCE_MIN_NS: Final = 500_000
_PATIENCE_MAX_NS: Final = 20_000_000
#: And otherwise, for who may have come.
_LOOK_NS: Final = 100_000_000
#: Entity keys of their writers; those of others begin at 1.
_FIRST_KEY: Final = 1 << 16


@dataclass(slots=True)
class _Writing:
    """One writer of ours with a named log, and who reads it there."""

    writer: StatefulWriter
    log: PublicationLog
    tethering: Tethering
    slots: list[Subscriber] = field(default_factory=list)
    #: What the writer was told last.
    told: tuple[dict[Guid, int], list[int]] = field(default_factory=lambda: ({}, []))
    #: How long to wait until the readers have got on.
    patience: int = _PATIENCE_MIN_NS

    @property
    def waits(self) -> bool:
        """Whether the writer could do more if readers of the log got on."""
        positions = self.writer.positions
        return bool(self.slots) and (bool(self.writer.blocked_by) or positions.snd_pos < positions.pub_pos)


class WrittenLogs:
    """The named logs of one participant's writers."""

    def __init__(self, prefix: bytes, domain: int, publications: Publications | None = None) -> None:
        self._prefix = prefix
        self._domain = domain
        self._publications = publications or Publications()
        self._writings: dict[Guid, _Writing] = {}
        self._keys = itertools.count(_FIRST_KEY)
        #: An RTPS message without submessages: it wakes who waits for a datagram.
        self._wake_up = Header(prefix=prefix).encode()

    def create(
        self,
        topic: str,
        type_name: str,
        qos: Qos,
        *,
        keyed: bool,
        policy: FlowControlPolicy,
        term_length: int,
        type: Struct | None,
    ) -> tuple[int | None, PublicationLog | None]:
        """The log of a writer to be, if it is to be found on this host and there is room for it, and its entity key.

        The log tells the GUID of its writer, and its type: to readers that know it from discovery, and to spies.
        """
        if not (policy.ipc or policy.spies_simulate_connection):
            return None, None
        key, kind = next(self._keys), KIND_WRITER_WITH_KEY if keyed else KIND_WRITER_NO_KEY
        about: dict[str, JSON] = {
            "guid": str(Guid(self._prefix, key.to_bytes(3, "big") + bytes((kind,)))),
            "domain": self._domain,
            "topic": topic,
            "type": type_name,
            "keyed": keyed,
            "idl": None if type is None else [print_idl(type), type.name],
            "ipc": policy.ipc,
            "partition": list(qos.partition),
            "lifespan": qos.lifespan,
            "ownership": qos.ownership.name,
            "ownership_strength": qos.ownership_strength,
        }
        try:
            return key, self._publications.create(term_length, about)
        except LogError as error:
            _log.warning("%s: nobody on this host can read it there, readers are sent datagrams", error)
            return key, None

    def add(self, writer: StatefulWriter, log: PublicationLog, policy: FlowControlPolicy) -> None:
        """The log of a writer, which is removed with it."""
        window = writer.positions.term_window
        # A writer that waits for room waits for two datagrams of it: it gets no nearer to the top.
        window -= min(2 * writer.message_size, window // 2)
        tethering = Tethering(
            window, policy.untethered_window_limit_timeout, policy.untethered_resting_timeout
        )
        self._writings[writer.guid] = _Writing(writer, log, tethering)

    def remove(self, guid: Guid) -> None:
        if (writing := self._writings.pop(guid, None)) is not None:
            remove(writing.log)

    def close(self) -> None:
        for guid in list(self._writings):
            self.remove(guid)

    def conduct(self, *, now: int) -> None:
        """Tell writers how far they are read (Aeron's conductor)."""
        for writing in self._writings.values():
            writing.log.record(writing.writer.positions)
            slots = writing.log.subscribers()
            if slots or writing.slots:
                writing.slots = [slot for slot in slots if _is_alive(slot, now)]
                self._conduct(writing, now)

    def wake_readers(self) -> list[Datagram]:
        """Datagrams for readers that wait for what was published now."""
        datagrams = []
        for writing in self._writings.values():
            for slot in writing.slots:
                if slot.waiting and slot.position < writing.log.position:
                    slot.waiting = False
                    proxy = writing.writer.readers.get(slot.guid)
                    if proxy is not None:
                        datagrams.append(Datagram([self._wake_up], proxy.info.destinations))
        return datagrams

    def patience(self) -> int:
        """How many ns to wait at most before :meth:`conduct` has to look again: spies do not wake us."""
        return min(
            (each.patience if each.waits else _LOOK_NS for each in self._writings.values()), default=INFINITE
        )

    # --- inside ------------------------------------------------------------------------------------

    def _conduct(self, writing: _Writing, now: int) -> None:
        writer = writing.writer
        self._tether(writing, now)
        newest = writer.positions.pub_pos
        readers, spies = {}, []
        for slot in writing.slots:
            rests = slot.state is SubscriberState.RESTING
            if not slot.is_spy and slot.guid in writer.readers:
                # One that rests is sent nothing, and waited for by nobody.
                readers[slot.guid] = newest if rests else slot.position
            elif slot.is_spy and not rests:
                spies.append(slot.position)
        if (readers, spies) == writing.told:
            writing.patience = min(2 * writing.patience, _PATIENCE_MAX_NS)
            return
        writing.told, writing.patience = (readers, spies), _PATIENCE_MIN_NS
        writer.on_log_positions(readers, spies, now=now)

    def _tether(self, writing: _Writing, now: int) -> None:
        """Apply to the slots what becomes of untethered readers."""
        writer, slots = writing.writer, {slot.guid: slot for slot in writing.slots}
        consumers = {slot.guid: Consumer(slot.position, slot.is_tethered) for slot in writing.slots}
        by_udp = any(guid not in slots for guid in writer.readers)
        sent = writer.positions.snd_pos if by_udp else 0
        for guid, state in writing.tethering.update(consumers, sent, now=now):
            slot = slots[guid]
            if state is TetherState.ACTIVE:
                slot.position = writing.log.position
            slot.state = SubscriberState(state)
            kind = "spy" if slot.is_spy else "reader"
            _log.info("the untethered %s %s of %s is %s", kind, guid, writer.guid, state.name)


def _is_alive(slot: Subscriber, now: int) -> bool:
    if now - slot.heartbeat <= _DEAD_NS:
        return True
    _log.info("the reader %s of a publication log is dead", slot.guid)
    slot.leave()
    return False
