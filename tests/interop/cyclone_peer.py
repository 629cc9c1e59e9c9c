"""A Cyclone DDS participant in a process of its own, worked from a test by remote calls.

The process reads pickled ``(method, arguments, keyword arguments)`` from its standard input, calls the method of
its :class:`Endpoints` and answers on its standard output; it ends with its standard input.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cache
from itertools import zip_longest
from typing import Any, NamedTuple

from tests.interop.cyclone_qos import cyclone_qos, plain_qos
from tests.support.child_environment import child_environment
from tests.support.peer_process import PeerProcess
from tests.support.stopped import stopped
from tests.support.surroundings import INTERFACE
from tests.support.waiting import PATIENCE, wait_until

_CONFIG = (
    '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="{interface}"/></Interfaces>'
    "<AllowMulticast>{multicast}</AllowMulticast></General><Discovery>{discovery}</Discovery>"
    "<Internal><SocketReceiveBufferSize min='4MB'/>{internal}</Internal></Domain></CycloneDDS>"
)


class Taken(NamedTuple):
    """A sample as Cyclone gave it out; ``row`` holds the key alone where ``valid`` is False."""

    row: dict[str, Any]
    valid: bool
    instance_state: str  # ALIVE, DISPOSED, NO_WRITERS


class CyclonePeer(PeerProcess):
    """The test's end."""

    def __init__(
        self,
        domain: int,
        *,
        interface: str = INTERFACE,
        multicast: str = "default",
        peers: tuple[str, ...] = (),
        loss_per_mille: int = 0,
        batching: bool = False,
        lease_seconds: int = 10,
        high_watermark: str | None = None,
    ) -> None:
        """``high_watermark``: writers wait for acknowledgments only beyond it; else Cyclone adapts it."""
        discovery = f"<LeaseDuration>{lease_seconds} s</LeaseDuration>"
        if peers:
            each = "".join(f'<Peer address="{peer}"/>' for peer in peers)
            discovery += f"<Peers>{each}</Peers>"
        internal = f"<Test><XmitLossiness>{loss_per_mille}</XmitLossiness></Test>" if loss_per_mille else ""
        if high_watermark:
            internal += (
                f"<Watermarks><WhcHigh>{high_watermark}</WhcHigh><WhcHighInit>{high_watermark}</WhcHighInit>"
                "<WhcAdaptive>false</WhcAdaptive></Watermarks>"
            )
        internal += "<WriteBatch>true</WriteBatch>" if batching else ""
        config = _CONFIG.format(
            interface=interface, multicast=multicast, discovery=discovery, internal=internal
        )
        super().__init__(
            [sys.executable, "-m", "tests.interop.cyclone_peer", str(domain)],
            environment=child_environment(CYCLONEDDS_URI=config),
        )

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """It does not run meanwhile: silence, and no dispose."""
        with stopped(self._child.pid):
            yield

    def call(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        """Call a method of the peer's :class:`Endpoints`."""
        pipe_in, pipe_out = self._pipes
        pickle.dump((method, arguments, keywords), pipe_in)
        pipe_in.flush()
        done, answer = pickle.load(pipe_out)
        if not done:
            raise RuntimeError(f"the Cyclone peer failed:\n{answer}")
        return answer

    def writer(self, topic: str, kind: type, **qos: Any) -> None:
        self.call("writer", topic, kind, **qos)

    def reader(self, topic: str, kind: type, **qos: Any) -> None:
        self.call("reader", topic, kind, **qos)

    def reader_without_idl(self, topic: str, timeout: float = PATIENCE, **qos: Any) -> dict[str, str]:
        """A reader of the type that the one writer of a topic announces; returns the type's members."""
        wait_until(lambda: self.call("is_announced", topic), f"a typed writer of {topic}", timeout)
        members: dict[str, str] = self.call("reader_without_idl", topic, **qos)
        return members

    def write(
        self,
        topic: str,
        rows: list[dict[str, Any]],
        how: str = "write",
        timestamps: Sequence[int] = (),
    ) -> None:
        """``how``: write, dispose, unregister_instance or write_dispose."""
        self.call("write", topic, rows, how, timestamps)

    def status(self, topic: str, name: str) -> dict[str, int]:
        """A communication status of the writer or reader of a topic, by its DDS name in snake_case."""
        found: dict[str, int] = self.call("status", topic, name)
        return found

    def discovered(self, kind: str, topic: str, timeout: float = PATIENCE) -> dict[str, Any]:
        """QoS of the one ``publication`` or ``subscription`` of a topic, once discovery found it."""
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            found[:] = self.call("discovered", kind, topic)
            return bool(found)

        wait_until(is_there, f"a {kind} on {topic}", timeout)
        (qos,) = found
        return qos

    def matched(self, topic: str) -> list[str]:
        """GUIDs of what is matched with the writer or reader of a topic, as hex."""
        found: list[str] = self.call("matched", topic)
        return found

    def wait_for_match(self, topic: str, count: int = 1, timeout: float = PATIENCE) -> None:
        wait_until(lambda: len(self.matched(topic)) == count, f"{count} matched on {topic}", timeout)

    def wait_for_acks(self, topic: str, timeout: float = PATIENCE) -> None:
        assert self.call("wait_for_acks", topic, timeout), "not acknowledged by all readers"

    def take(self, topic: str, count: int, timeout: float = PATIENCE) -> list[Taken]:
        """Samples until there are ``count`` (and what else was there then), in order of arrival."""
        found: list[Taken] = []

        def enough() -> bool:
            found.extend(self.call("take", topic))
            return len(found) >= count

        wait_until(enough, lambda: f"{count} samples on {topic}; there are {len(found)}", timeout)
        return found


# --- the other end --------------------------------------------------------------------------------------


class Endpoints:
    """One participant with at most one writer and one reader a topic."""

    def __init__(self, domain: int) -> None:
        from cyclonedds.domain import DomainParticipant

        self._domain = domain
        self._participant = DomainParticipant(domain)
        self._others: list[Any] = []
        self._topics: dict[str, Any] = {}
        self._writers: dict[str, Any] = {}
        self._readers: dict[str, Any] = {}
        self._stream: threading.Thread | None = None
        self._streaming = False
        self._streamed = 0

    def writer(self, topic: str, kind: type | str, **qos: Any) -> None:
        from cyclonedds.pub import DataWriter, Publisher

        policies = cyclone_qos(**qos)
        publisher = Publisher(self._participant, policies.group)
        self._writers[topic] = DataWriter(
            publisher, self._topic(topic, kind, policies.topic), policies.endpoint
        )

    def writer_of_another(self, name: str, topic: str, kind: type) -> None:
        """A writer of one more participant of this process, which is called as if ``name`` were its topic."""
        from cyclonedds.domain import DomainParticipant
        from cyclonedds.pub import DataWriter, Publisher
        from cyclonedds.topic import Topic

        policies = cyclone_qos()
        self._others.append(participant := DomainParticipant(self._domain))
        publisher = Publisher(participant, policies.group)
        of_another = Topic(participant, topic, kind, qos=policies.topic)  # type: ignore[var-annotated]
        self._writers[name] = DataWriter(publisher, of_another, policies.endpoint)

    def reader(self, topic: str, kind: type | str, **qos: Any) -> None:
        from cyclonedds.sub import DataReader, Subscriber

        policies = cyclone_qos(**qos)
        subscriber = Subscriber(self._participant, policies.group)
        self._readers[topic] = DataReader(
            subscriber, self._topic(topic, kind, policies.topic), policies.endpoint
        )

    def is_announced(self, topic: str) -> bool:
        """Whether discovery found a writer of a topic, and its type's identifier."""
        return any(each.type_id is not None for each in self._publications(topic))

    def reader_without_idl(self, topic: str, **qos: Any) -> dict[str, str]:
        """A reader of the type that TypeLookup finds for the writer of a topic; returns the type's members."""
        from cyclonedds.dynamic import get_types_for_typeid

        (publication,) = self._publications(topic)
        kind, _ = get_types_for_typeid(self._participant, publication.type_id, 10_000_000_000)
        self.reader(topic, kind, **qos)
        return {name: str(hint) for name, hint in kind.__annotations__.items()}

    def _publications(self, topic: str) -> list[Any]:
        from cyclonedds import builtin

        reader = builtin.BuiltinDataReader(self._participant, builtin.BuiltinTopicDcpsPublication)
        return [each for each in reader.read(1000) if each.topic_name == topic]

    def delete(self, topic: str) -> None:
        """Delete the endpoints of a topic."""
        self._writers.pop(topic, None)
        self._readers.pop(topic, None)

    def matched(self, topic: str) -> list[str]:
        if topic in self._writers:
            writer = self._writers[topic]
            data = [writer.get_matched_subscription_data(h) for h in writer.get_matched_subscriptions()]
        else:
            reader = self._readers[topic]
            data = [reader.get_matched_publication_data(h) for h in reader.get_matched_publications()]
        return [each.key.hex for each in data if each is not None]

    def discovered(self, kind: str, topic: str) -> list[dict[str, Any]]:
        """QoS of the writers (``publication``) or readers (``subscription``) that discovery found on a topic."""
        from cyclonedds import builtin

        source = {
            "publication": builtin.BuiltinTopicDcpsPublication,
            "subscription": builtin.BuiltinTopicDcpsSubscription,
        }[kind]
        reader = builtin.BuiltinDataReader(self._participant, source)
        return [plain_qos(each.qos) for each in reader.read(1000) if each.topic_name == topic]

    def status(self, topic: str, name: str) -> dict[str, int]:
        """A communication status of the writer or reader of a topic, by its DDS name in snake_case."""
        method = f"get_{name}_status"
        ends = (ends[topic] for ends in (self._writers, self._readers) if topic in ends)
        status = next(getattr(each, method)() for each in ends if hasattr(each, method))
        return {field: getattr(status, field) for field, *_ in status._fields_}

    def assert_liveliness(self, topic: str | None = None) -> None:
        """Of the writer of a topic, or of the participant; the Python binding has no name for it.

        The C library sends a HEARTBEAT with the liveliness flag, or a ParticipantMessageData.
        """
        entity = self._participant if topic is None else self._writers[topic]
        assert entity._dll_handle.dds_assert_liveliness(ctypes.c_int32(entity._ref)) == 0

    def coherent(self, topic: str) -> tuple[int, int]:
        """What begin_coherent of the writer's publisher and end_coherent return; the binding has no name for it."""
        publisher = self._writers[topic].publisher
        library, ref = publisher._dll_handle, ctypes.c_int32(publisher._ref)
        return library.dds_begin_coherent(ref), library.dds_end_coherent(ref)

    def write(
        self, topic: str, rows: list[dict[str, Any]], how: str = "write", timestamps: Sequence[int] = ()
    ) -> None:
        """``timestamps``: source timestamps, ns since the epoch; now by default."""
        writer = self._writers[topic]
        act = getattr(writer, how)
        for row, timestamp in zip_longest(rows, timestamps):
            act(_sample(writer.topic.data_type, row), timestamp)
        _flush(writer)

    def write_numbers(self, topic: str, first: int, count: int) -> None:
        """Samples ``id`` = their number, ``seq`` = its square modulo 2**32."""
        writer = self._writers[topic]
        for number in range(first, first + count):
            writer.write(_number(writer.topic.data_type, number))
        _flush(writer)

    def start_stream(self, topic: str, pause: float) -> None:
        """Write numbers from 0 on, until :meth:`stop_stream`."""
        writer = self._writers[topic]
        self._streaming, self._streamed = True, 0

        def stream() -> None:
            while self._streaming:
                writer.write(_number(writer.topic.data_type, self._streamed))
                self._streamed += 1
                time.sleep(pause)

        self._stream = threading.Thread(target=stream)
        self._stream.start()

    def streamed(self) -> int:
        return self._streamed

    def stop_stream(self) -> int:
        """How many numbers the stream wrote."""
        assert self._stream is not None
        self._streaming = False
        self._stream.join()
        return self._streamed

    def wait_for_acks(self, topic: str, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        writer = self._writers[topic]
        while (left := deadline - time.monotonic()) > 0:
            try:
                if writer.wait_for_acks(int(left * 1e9)):
                    return True
            except Exception as error:  # its own check for a timeout fails
                if "TIMEOUT" not in str(error).upper():
                    raise
        return False

    def unread(self, topic: str) -> int:
        """Samples that the reader of a topic holds, which stay there."""
        return len(self._readers[topic].read(10_000))

    def take(self, topic: str) -> list[Taken]:
        from cyclonedds.core import InstanceState

        names = {
            InstanceState.Alive: "ALIVE",
            InstanceState.NotAliveDisposed: "DISPOSED",
            InstanceState.NotAliveNoWriters: "NO_WRITERS",
        }
        taken = []
        for sample in self._readers[topic].take(10_000):
            info = sample.sample_info
            value = sample if info.valid_data else sample.key_sample
            taken.append(Taken(plain(value), info.valid_data, names[info.instance_state]))
        return taken

    def _topic(self, name: str, kind: type | str, qos: Any) -> Any:
        """``kind``: a class, or the name of one of the interop types."""
        from cyclonedds.topic import Topic

        from tests.interop import cyclone_types

        if isinstance(kind, str):
            kind = getattr(cyclone_types, kind)
        if name not in self._topics:
            self._topics[name] = Topic(self._participant, name, kind, qos)
        return self._topics[name]


def _flush(writer: Any) -> None:
    """Send what write batching holds back; the Python binding has no name for it."""

    writer._dll_handle.dds_write_flush(ctypes.c_int32(writer._ref))


def _number(kind: Any, number: int) -> Any:
    return kind(**(blob_row(number) if kind.__name__ == "Blob" else number_row(number)))


def number_row(number: int) -> dict[str, Any]:
    return {"id": number, "seq": number * number % (1 << 32), "v": [float(number + i) for i in range(7)]}


def blob_row(number: int, size: int = 100_000) -> dict[str, Any]:
    return {"id": number, "data": blob(number, size)}


def blob(number: int, size: int) -> bytes:
    """Octets that differ from place to place and from number to number."""
    seed = bytes((i * 31 + number * 7 + (i >> 8)) % 256 for i in range(4096))
    return (seed * (size // 4096 + 1))[:size]


def _sample(kind: Any, row: dict[str, Any]) -> Any:
    """A Cyclone object from plain values; missing fields get a zero."""
    return _value(kind, row)


def _value(kind: Any, value: Any) -> Any:
    from cyclonedds.idl import types
    from cyclonedds.idl._type_helper import Annotated, get_args, get_origin, get_type_hints

    if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__"):
        hints = get_type_hints(kind, include_extras=True)
        return kind(**{name: _value(hint, value.get(name)) for name, hint in hints.items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind[value]
    if get_origin(kind) is Annotated:
        how = get_args(kind)[1]
        if isinstance(how, types.sequence | types.array) and not isinstance(value, bytes):
            return [_value(how.subtype, each) for each in value]
        if value is None:
            return 0 if get_args(kind)[0] is int else 0.0
    return "" if value is None and kind is str else value


def plain(value: Any) -> Any:
    """A Cyclone value as dicts, lists, strings and numbers; octets as bytes."""
    if hasattr(value, "__dataclass_fields__"):
        octets = _octets(type(value))
        members = ((name, getattr(value, name)) for name in value.__dataclass_fields__)
        return {name: bytes(member) if name in octets else plain(member) for name, member in members}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


@cache
def _octets(kind: Any) -> frozenset[str]:
    """Members that are sequences or arrays of octets: Cyclone gives an empty one as a list."""
    from cyclonedds.idl import types
    from cyclonedds.idl._type_helper import Annotated, get_args, get_origin, get_type_hints

    hints = get_type_hints(kind, include_extras=True)
    annotated = {name: get_args(hint)[1] for name, hint in hints.items() if get_origin(hint) is Annotated}
    return frozenset(name for name, how in annotated.items() if getattr(how, "subtype", None) is types.byte)


def main() -> None:
    commands, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints goes with its errors
    endpoints = Endpoints(int(sys.argv[1]))
    while True:
        try:
            method, arguments, keywords = pickle.load(commands)
        except EOFError:
            return
        try:
            answer = (True, getattr(endpoints, method)(*arguments, **keywords))
        except Exception:  # noqa: BLE001 - whatever it is, the test is told
            answer = (False, traceback.format_exc())
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    # the test unpickles what this module pickles: under its importable name
    from tests.interop import cyclone_peer

    cyclone_peer.main()
