"""The named publication logs of local writers: the readers on this host, their positions, and which of them to wake.

This is the writer's side of :mod:`.ipc_reading`.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import field
from typing import Final

from ..errors import LogError
from ..limits import FLOW_CONTROLLER_BYTES_MAX
from ..log.named_logs import NamedLogs, remove
from ..log.publication_log import PublicationLog
from ..log.segment import JSON
from ..log.subscriber_slots import SubscriberSlot, SubscriberState
from ..log.tethering import Consumer, Tethering
from ..protocol.outgoing import OutgoingDatagrams
from ..protocol.participant.endpoint_specs import WriterSpec
from ..protocol.policies import FlowControlPolicy, PublicationPolicy
from ..protocol.writing.publication import TERM_LENGTH
from ..protocol.writing.writer import StatefulWriter
from ..structure import INFINITE, KIND_WRITER_NO_KEY, KIND_WRITER_WITH_KEY, NANOSECONDS, Guid
from ..types.idl.printer import print_idl
from ..value_classes import slotted
from ..wire.message import Header

_log = logging.getLogger(__name__)

#: A reader whose heartbeat is older than this is dead; the longest duty cycle is a second.
_DEAD_NS: Final = 5 * NANOSECONDS
#: How often a writer that waits for readers of its log checks their positions: readers send nothing when they advance.
_PATIENCE_MIN_NS: Final = 500_000
_PATIENCE_MAX_NS: Final = 20_000_000
#: How often other writers check for new readers of their logs.
_LOOK_NS: Final = 100_000_000
#: Entity keys of writers with named logs begin here, all others at 1.
_FIRST_KEY: Final = 1 << 16


@slotted
class _LoggedWriter:
    """One local writer with a named log, and the readers of the log."""

    writer: StatefulWriter
    log: PublicationLog
    tethering: Tethering
    slots: list[SubscriberSlot] = field(default_factory=list)
    #: The positions handed to the writer last: of readers, of spies.
    announced: tuple[dict[Guid, int], list[int]] = field(default_factory=lambda: ({}, []))
    #: How long to wait for the readers to advance.
    patience: int = _PATIENCE_MIN_NS

    @property
    def waits(self) -> bool:
        """Whether the writer could send more if readers of the log advanced."""
        positions = self.writer.positions
        return bool(self.slots) and (
            bool(self.writer.state.blocked_by) or positions.snd_pos < positions.pub_pos
        )


class WrittenLogs:
    """The named logs of one participant's writers."""

    def __init__(self, prefix: bytes, domain: int, named_logs: NamedLogs | None = None) -> None:
        self._prefix = prefix
        self._domain = domain
        self._named_logs = named_logs or NamedLogs()
        self._writings: dict[Guid, _LoggedWriter] = {}
        self._keys = itertools.count(_FIRST_KEY)
        #: An RTPS message without submessages: it wakes a node that waits for datagrams.
        self._wake_up = Header(prefix=prefix).encode()

    def create(self, spec: WriterSpec, term_length: int) -> tuple[int | None, PublicationLog | None]:
        """Make the entity key and the log of a future writer, if its policy asks for a named log and the system has
        space.

        The log records its writer's GUID, which readers know from discovery, and its type, for spies.
        """
        policy, qos = spec.policy.flow_control, spec.qos
        if not (policy.ipc or policy.spies_simulate_connection):
            return None, None
        key, kind = next(self._keys), KIND_WRITER_WITH_KEY if spec.keyed else KIND_WRITER_NO_KEY
        about: dict[str, JSON] = {
            "guid": str(Guid(self._prefix, key.to_bytes(3, "big") + bytes((kind,)))),
            "domain": self._domain,
            "topic": spec.topic,
            "type": spec.type_name,
            "keyed": spec.keyed,
            "idl": None if spec.type is None else [print_idl(spec.type), spec.type.name],
            "ipc": policy.ipc,
            "partition": list(qos.partition),
            "lifespan": qos.lifespan,
            "ownership": qos.ownership.name,
            "ownership_strength": qos.ownership_strength,
        }
        try:
            return key, self._named_logs.create(term_length, about)
        except LogError as error:
            _log.warning("%s: readers on this host receive datagrams instead", error)
            return key, None

    def add_log(self, writer: StatefulWriter, log: PublicationLog, policy: FlowControlPolicy) -> None:
        """Manage the log of a writer until :meth:`remove_log`."""
        window = policy.log_window(log.term_length)
        # A writer waits until there is space for two datagrams, and so comes no nearer to the top of the window.
        window -= min(2 * writer.state.message_size, window // 2)
        tethering = Tethering(
            window, policy.untethered_window_limit_timeout, policy.untethered_resting_timeout
        )
        self._writings[writer.guid] = _LoggedWriter(writer, log, tethering)

    def remove_log(self, guid: Guid) -> None:
        if (writing := self._writings.pop(guid, None)) is not None:
            remove(writing.log)

    def close(self) -> None:
        for guid in list(self._writings):
            self.remove_log(guid)

    def conduct(self, *, now: int) -> None:
        """Hand the writers the positions of the readers of their logs (Aeron's conductor)."""
        for writing in self._writings.values():
            writer = writing.writer
            unblocked = writer.counters.unblocked_publications
            writing.log.record(writer.positions, snd_pos=writer.next_frame, unblocked=unblocked)
            slots = writing.log.subscribers()
            if slots or writing.slots:
                writing.slots = [slot for slot in slots if _is_alive(slot, now)]
                self._conduct(writing, now)

    def wake_readers(self) -> list[OutgoingDatagrams]:
        """Datagrams that wake the sleeping readers of logs with new frames."""
        datagrams = []
        for writing in self._writings.values():
            for slot in writing.slots:
                if slot.waiting and slot.position < writing.log.position:
                    slot.waiting = False
                    proxy = writing.writer.readers.get(slot.guid)
                    if proxy is not None:
                        datagrams.append(OutgoingDatagrams([self._wake_up], proxy.info.destinations))
        return datagrams

    def patience(self) -> int:
        """The longest wait in ns before :meth:`conduct` has to check again: spies do not wake this node."""
        return min(
            (each.patience if each.waits else _LOOK_NS for each in self._writings.values()), default=INFINITE
        )

    # --- inside ------------------------------------------------------------------------------------

    def _conduct(self, writing: _LoggedWriter, now: int) -> None:
        writer = writing.writer
        self._tether(writing, now)
        newest = writer.positions.pub_pos
        readers, spies = {}, []
        for slot in writing.slots:
            rests = slot.state is SubscriberState.RESTING
            if not slot.is_spy and slot.guid in writer.readers:
                # A resting reader gets no samples, and the writer does not wait for it.
                readers[slot.guid] = newest if rests else slot.position
            elif slot.is_spy and not rests:
                spies.append(slot.position)
        if (readers, spies) == writing.announced:
            writing.patience = min(2 * writing.patience, _PATIENCE_MAX_NS)
            return
        writing.announced, writing.patience = (readers, spies), _PATIENCE_MIN_NS
        writer.feedback.on_log_positions(readers, spies, now=now)

    def _tether(self, writing: _LoggedWriter, now: int) -> None:
        """Set the states of untethered readers in their slots."""
        writer, slots = writing.writer, {slot.guid: slot for slot in writing.slots}
        consumers = {slot.guid: Consumer(slot.position, slot.is_tethered) for slot in writing.slots}
        by_udp = any(guid not in slots for guid in writer.readers)
        sent = writer.positions.snd_pos if by_udp else 0
        for guid, state in writing.tethering.update(consumers, sent, now=now):
            slot = slots[guid]
            if state is SubscriberState.ACTIVE:
                slot.position = writing.log.position
            slot.state = state
            kind = "spy" if slot.is_spy else "reader"
            _log.info("the untethered %s %s of %s is %s", kind, guid, writer.guid, state.name)


def _is_alive(slot: SubscriberSlot, now: int) -> bool:
    if now - slot.heartbeat <= _DEAD_NS:
        return True
    _log.info("the reader %s of a publication log is dead", slot.guid)
    slot.leave()
    return False


def unnamed_log(policy: PublicationPolicy) -> PublicationLog | None:
    """The log of a writer without a named log; None: it publishes in memory without a log."""
    return (
        PublicationLog.create(term_length(policy), zeroes=False) if policy.flow_control.term_length else None
    )


def term_length(policy: PublicationPolicy) -> int:
    """Bytes of a term of a writer's log."""
    # Samples that wait for tokens of a flow controller lie in the log, behind the sender's position.
    least = 4 * FLOW_CONTROLLER_BYTES_MAX if policy.flow_controller else 0
    return max(policy.flow_control.term_length or TERM_LENGTH, least)
