"""A place on a DDS domain, from which a program subscribes and publishes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Final

from ..options import AppliesTo, Settings
from ..options.explanations import explained
from ..transport.net.node import Node
from ..transport.net.topic_types import AnnouncedType, await_type
from .arguments import CAPACITY, Options, OptionValue, participant_settings, size_argument, topic_settings
from .flushing import FLUSH_QUEUE
from .membership import Membership
from .statuses import Listener
from .topic_endpoint import wants_group

if TYPE_CHECKING:
    import pyarrow as pa

    from ..transport.protocol.discovery.participant_data import ParticipantData
    from ..transport.protocol.participant.participant import RemoteEndpoint
    from .publication import FlushFailed, Publication
    from .subscription import Subscription

#: A subscription with less capacity could not take a UDP message.
_CAPACITY_MIN: Final = 256 << 10


class Participant:
    """A place on a DDS domain.

    ::

        with rtps.Participant(domain=0) as p:
            table = p.subscribe("Square").read(max_rows=1000, timeout=5)

    It joins the domain when it is entered by ``with``, or first used, and leaves it by :meth:`close`. One background
    thread serves its sockets, another one its listeners. All methods may be called from any thread. In a process that
    is forked it is closed, while the parent's continues.
    """

    def __init__(
        self,
        domain: int | None = None,
        *,
        interface: str | None = None,
        peers: str | Iterable[str] | None = None,
        options: Options | None = None,
    ) -> None:
        """
        Args:
            domain: DDS domain id, 0 to 232; default: 0, with ``ros`` that of ROS_DOMAIN_ID.
            interface: network interface, by name or address; default: all but loopback.
            peers: hosts to announce to by unicast, as ``host`` or ``host:port``.
            options: options of the whole participant, by the names that ``spark-rtps options`` lists:
                ``participant.name``, ``participant.lease_duration``, ``multicast``, ``multicast.receive``,
                ``multicast.ttl``, ``multicast.interface``, ``receive_buffer``, ``send_buffer``, ``mtu``,
                ``message_size_max``, ``peers.allow``, ``trust``, ``ipc``, ``ros``, ``ros.node``, ``ros.namespace``,
                ``ros.remap``.

        Raises:
            OptionError: an unknown option, one that is about a single topic, or an invalid value.
        """
        given: dict[str, OptionValue] = {"domain": domain, "interface": interface, "peers": peers}
        self._texts, self._settings = participant_settings({**(options or {}), **_set(given)})
        self._membership = Membership(self._settings)

    # --- joining and leaving ----------------------------------------------------------------------

    def __enter__(self) -> Participant:
        _ = self.node
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all subscriptions and publications, and leave the domain. A second call does nothing."""
        self._membership.close()

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._membership.is_closed

    @property
    def domain(self) -> int:
        """The id of its DDS domain, 0 to 232."""
        return self._settings.domain

    # --- subscribing ------------------------------------------------------------------------------

    @explained()
    def subscribe(
        self,
        topic: str,
        *,
        type: str | None = None,
        type_file: str | os.PathLike[str] | None = None,
        schema: pa.Schema | None = None,
        columns: str | Iterable[str] | None = None,
        key: str | Iterable[str] | None = None,
        filter: str | None = None,
        filter_parameters: str | Iterable[str] | None = None,
        reliability: str | None = None,
        durability: str | None = None,
        history: str | None = None,
        history_depth: int | None = None,
        partition: str | Iterable[str] | None = None,
        metadata: bool | None = None,
        payload: str | None = None,
        mode: str | None = None,
        options: Options | None = None,
        buffer_size: int | str = CAPACITY,
        listener: Listener | None = None,
    ) -> Subscription:
        """Subscribe to a topic.

        The type comes from ``type_file`` (IDL or ROS 2), from a ROS 2 name in ``type``, from the columns of ``schema``,
        or else from the topic's peers, which are waited for (``type.discovery_timeout``, 10 s by default).

        Args:
            topic: name of the topic.
            type: ROS 2 name of the type, or the name of a struct in ``type_file``, or of the peers' type.
            type_file: IDL or ROS 2 definition, as a path.
            schema: the columns wanted, as a `pyarrow.Schema`; default: all that the type has.
            columns: dotted paths of the members to decode; default: all.
            key: names of the key columns, where ``schema`` makes the type.
            filter: content filter in DDS's SQL, such as ``"x > 10 AND color = 'RED'"``.
            filter_parameters: what ``%0``, ``%1`` and so on stand for in it.
            reliability: ``reliable`` (the default) or ``best_effort``.
            durability: ``volatile`` (the default) or ``transient_local``, for the history that writers keep.
            history: ``keep_all`` (the default) or ``keep_last``.
            history_depth: samples of each instance that wait at most; implies ``keep_last``.
            partition: names of the partitions; default: the one without a name.
            metadata: add the column ``_rtps``, and show disposed and unregistered instances as rows.
            payload: ``cdr`` (the default): typed columns; ``binary``: serialized payloads; ``arrow``: samples that are
                Arrow record batches.
            mode: samples that do not decode: ``dropmalformed`` (the default), ``permissive`` or ``failfast``.
            options: any option of the data source by its own name, such as ``{"history.depth": 5}``. A duration is a
                text with a unit, a number of seconds, or a timedelta; a size is a text with a unit, or bytes.
            buffer_size: bytes of samples that wait at most, or a text such as ``"64MiB"``.
            listener: called with a :class:`StatusChange` whenever a communication status changes, or samples have
                arrived, in a thread of the participant.

        Raises:
            OptionError: an unknown option, one of the participant or of Spark alone, one that is given twice, a value
                that cannot be; or no peer announced the topic's type.
            TypeDefinitionError: the type, or the schema, makes no columns.
            TransportError: the domain cannot be joined.
            UsageError: the participant is closed.
        """
        # imported here: commands that only discover, such as `spark-rtps ls`, need no columns
        from ..columns.topic_plan import plan_reading, schema_to_read, topic_type
        from .subscription import Subscription

        keywords: dict[str, OptionValue] = {
            "type": type,
            "type.file": None if type_file is None else os.fspath(type_file),
            "columns": columns,
            "key": key,
            "filter": filter,
            "filter.parameters": filter_parameters,
            "reliability": reliability,
            "durability": durability,
            "history": history,
            "history.depth": history_depth,
            "partition": partition,
            "metadata": metadata,
            "payload": payload,
            "mode": mode,
        }
        settings = self.settings(topic, AppliesTo.READ, options, keywords)
        capacity = size_argument("buffer_size", buffer_size, least=_CAPACITY_MIN)
        found = None
        if schema is None:
            found = topic_type(settings, self.node)
            schema = schema_to_read(settings, found)
        plan = plan_reading(settings, schema, found)
        return Subscription(self._membership, settings, plan, buffer_size=capacity, listener=listener).open()

    # --- publishing -------------------------------------------------------------------------------

    @explained()
    def publish(
        self,
        topic: str,
        *,
        type: str | None = None,
        type_file: str | os.PathLike[str] | None = None,
        schema: pa.Schema | None = None,
        key: str | Iterable[str] | None = None,
        reliability: str | None = None,
        durability: str | None = None,
        history: str | None = None,
        history_depth: int | None = None,
        partition: str | Iterable[str] | None = None,
        payload: str | None = None,
        options: Options | None = None,
        listener: Listener | None = None,
        on_flush_failed: FlushFailed | None = None,
    ) -> Publication:
        """Publish to a topic.

        The type comes from ``type_file`` (IDL or ROS 2), from a ROS 2 name in ``type``, or else from the columns of
        ``schema``.

        Args:
            topic: name of the topic.
            type: ROS 2 name of the type, or the name of a struct in ``type_file``, or the name that the type gets which
                ``schema`` makes.
            type_file: IDL or ROS 2 definition, as a path.
            schema: the columns of the rows, as a `pyarrow.Schema`; default: all that the type has.
            key: names of the key columns, where ``schema`` makes the type.
            reliability: ``reliable`` (the default) or ``best_effort``.
            durability: ``volatile`` (the default) or ``transient_local``: readers that come later get the history.
            history: ``keep_all`` (the default) or ``keep_last``.
            history_depth: samples of each instance that later readers get; implies ``keep_last``.
            partition: names of the partitions; default: the one without a name.
            payload: ``cdr`` (the default): typed columns; ``binary``: serialized payloads in the column ``value``;
                ``arrow``: each record batch is a sample.
            options: any option of the sink by its own name, such as ``{"publication.term_length": "1MiB"}``. A duration
                is a text with a unit, a number of seconds, or a timedelta; a size is a text with a unit, or bytes.
            listener: called with a :class:`StatusChange` whenever a communication status changes, in a thread of the
                participant.
            on_flush_failed: called with a TransportError when a flush that nobody asked for (``batch.max_flush_delay``)
                could not send best-effort samples, in a thread of the participant. Default: the next call raises it.

        Raises:
            OptionError: an unknown option, one of the participant or of Spark alone, one that is given twice, a value
                that cannot be; or neither a type nor a schema is given.
            TypeDefinitionError: the type cannot be, or the schema makes none.
            UsageError: the schema does not fit the type, or the participant is closed.
            TransportError: the domain cannot be joined.
        """
        from ..columns.topic_plan import plan_writing, schema_to_write
        from .publication import Publication

        keywords: dict[str, OptionValue] = {
            "type": type,
            "type.file": None if type_file is None else os.fspath(type_file),
            "key": key,
            "reliability": reliability,
            "durability": durability,
            "history": history,
            "history.depth": history_depth,
            "partition": partition,
            "payload": payload,
        }
        settings = self.settings(topic, AppliesTo.WRITE, options, keywords)
        plan = plan_writing(settings, schema_to_write(settings) if schema is None else schema)
        return Publication(
            self._membership, settings, plan, listener=listener, on_flush_failed=on_flush_failed
        )

    @explained()
    def flush(self, *, ignore_errors: bool = False) -> None:
        """Send what waits in the batches of all publications; :func:`spark_rtps.flush` does so for all participants.

        It returns when all of it is handed to the network, or to flow controllers (``publish_mode=asynchronous``).

        Args:
            ignore_errors: True: samples that cannot be sent are lost silently.

        Raises:
            TransportError: best-effort samples could not be sent; all others were.
        """
        self._membership.flush(ignore_errors=ignore_errors)

    def flush_async(
        self,
        *,
        sent: Callable[[], object] | None = None,
        failed: Callable[[Exception], object] | None = None,
    ) -> Future[None]:
        """:meth:`flush` without waiting for it; arguments and result are those of :meth:`Publication.flush_async`."""
        return FLUSH_QUEUE.put(self.flush, sent, failed)

    # --- discovery ----------------------------------------------------------------------------

    def participants(self) -> list[ParticipantData]:
        """The other participants that were discovered so far, by GUID prefix."""
        node = self.node
        with node.lock:
            found = list(node.participant.database.participants.values())
        return sorted(found, key=lambda each: each.guid_prefix)

    def endpoints(self) -> list[RemoteEndpoint]:
        """The readers and writers of other participants that were discovered so far: by topic, writers first."""
        node = self.node
        with node.lock:
            found = list(node.participant.database.endpoints)
        return sorted(found, key=lambda each: (each.topic, each.kind != "writer", each.guid))

    def topics(self) -> dict[str, list[str]]:
        """The topics that were discovered so far, each with the names of its types; ``spark-rtps ls`` shows more."""
        found: dict[str, list[str]] = {}
        for endpoint in self.endpoints():
            names = found.setdefault(endpoint.topic, [])
            if endpoint.type_name not in names:
                names.append(endpoint.type_name)
        return found

    @explained()
    def discover_type(
        self, topic: str, *, timeout: float = 10.0, type_name: str | None = None
    ) -> AnnouncedType:
        """The type of a topic, as its peers announce it: the one that all others on the topic can be read as.

        Args:
            topic: name of the topic.
            timeout: seconds to wait for peers, and for their answers.
            type_name: only endpoints whose type has this name are asked.

        Returns:
            The endpoint that announces it, the name, whether it has a key, and the type's members as ``struct``.

        Raises:
            UnknownTypeError: no peer announced a type within the time, or several that contradict each other; the
                message has what was seen.
        """
        node = self.node
        return await_type(
            node.directory, topic, timeout=timeout, type_name=type_name, stopping=lambda: node.is_closed
        )

    # --- inside -----------------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        """The transport's participant, which this one starts at the first use.

        Raises UsageError after :meth:`close`, TransportError if the domain cannot be joined.
        """
        return self._membership.node

    def settings(self, topic: str, role: AppliesTo, options: Options | None, keywords: Options) -> Settings:
        """The settings of one endpoint of this participant; raises OptionError as :func:`topic_settings` does."""
        found = topic_settings(
            topic, role, of_participant=self._texts, options=options or {}, keywords=keywords
        )
        if wants_group(found.qos):
            self._membership.check_is_first_of_group(role)
        return found


def _set(given: dict[str, OptionValue]) -> dict[str, OptionValue]:
    return {name: value for name, value in given.items() if value is not None}
