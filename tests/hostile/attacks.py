"""Well-formed messages that do harm, one function for each kind.

An attack yields the datagrams that its :class:`Attacker` sends to the honest host ``on``, which exchanges rows with the
honest host ``other``. ``ATTACKS`` lists them by who can send them:

* ``unmatched_peer``: a participant with an address of its own, matched with nobody, that knows all GUIDs;
* ``peer``: a participant that is matched with endpoints of ``on``, in its own name: what it may not do to *others*;
* ``process``: a process on the host of ``on``, which speaks from that host's address in its own name, or in another's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.hostile import messages as m
from tests.hostile.attacker import READER, WRITER, Attacker, Datagram, Host

Function = Callable[[Attacker, Host, Host], Iterator[Datagram]]


class Attack(NamedTuple):
    name: str
    who: tuple[str, ...]
    function: Function
    #: It takes many messages, or large ones: a campaign of many attacks makes it rarely.
    heavy: bool = False


ATTACKS: dict[str, Attack] = {}


def attack(*who: str, heavy: bool = False) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        ATTACKS[function.__name__] = Attack(function.__name__, who, function, heavy)
        return function

    return register


def payload(number: int = 0xBAD) -> bytes:
    """A row that no honest writer wrote."""
    return b"\0\1\0\0" + struct.pack("<II", 0xEEEEEEEE, number)


def mixed_batch(
    writer: bytes, samples: int, *, kinds: int = 2, batch_sn: int = 1, first_sn: int = 1
) -> bytes:
    """A DATA_BATCH whose sample infos differ in shape from one to the next."""
    qos = m.parameters([(0x0071, bytes(4))])
    shapes = [
        m.sample_info(0),
        m.sample_info(0, timestamp=True),
        m.sample_info(0, inline_qos=qos),
        m.sample_info(0, timestamp=True, inline_qos=qos),
        m.sample_info(0, inline_qos=m.parameters([(0x8001, bytes(4))])),
        m.sample_info(0, inline_qos=m.parameters([])),
        m.sample_info(0, timestamp=True, inline_qos=m.parameters([(0x8001, bytes(8))])),
        m.sample_info(0, removed=True),
    ][:kinds]
    infos, room, at = [], 65_000, 0  # type: ignore[var-annotated]
    while len(infos) < samples and room > 100:
        infos.append(shapes[at % kinds])
        room -= len(infos[-1])
        at += 1
    return m.data_batch(writer, batch_sn, first_sn, infos, b"")


def batch_bomb(writer: bytes, *, kinds: int = 2, codec: str = "zstd") -> bytes:
    """As many COMPRESSED of such batches as one datagram may stand for: a few kB that become 4 MB."""
    return m.compressed(mixed_batch(writer, 1 << 20, kinds=kinds), codec) * 64


# --- the rows of the table ----------------------------------------------------------------------------


@attack("unmatched", "peer", "process", heavy=True)
def batches_of_mixed_shapes(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """One datagram of a few kB, which stands for thousands of samples."""
    writer = a.random.choice((WRITER, other.writer, m.PUBLICATIONS_WRITER, m.SPDP_WRITER))
    kinds = a.random.randint(2, 8)
    if a.random.random() < 0.9:
        yield Datagram(a.to(on, m.compressed(mixed_batch(writer, 1 << 20, kinds=kinds))))
    else:
        yield Datagram(a.to(on, batch_bomb(writer, kinds=kinds)))


@attack("unmatched")
def heartbeat_far_ahead(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """In the honest writer's name: it holds nothing before a far number."""
    first = a.random.choice((a.far(), a.near()))
    beat = m.heartbeat(
        other.writer, first, first + a.random.randint(-1, 5), a.random.choice((a.count(), 1 << 30))
    )
    yield Datagram(a.to(on, beat, prefix=other.prefix))


@attack("unmatched")
def gap_far_ahead(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """In the honest writer's name: all that it writes is irrelevant."""
    base = a.random.choice((a.far(), a.near()))
    gap = m.gap(other.writer, 1, base, a.random.choice((0, 1, 256)))
    yield Datagram(a.to(on, gap, prefix=other.prefix))


@attack("unmatched")
def data_far_ahead(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """In the honest writer's name: a row of the attacker's."""
    sn = a.random.choice((a.far(), a.near()))
    sample = m.data(other.writer, sn, payload(), reader=a.random.choice((m.UNKNOWN, on.reader)))
    yield Datagram(a.to(on, m.info_timestamp(1.7e9), sample, prefix=other.prefix))


@attack("unmatched")
def dispose_of_an_endpoint(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """By SEDP in the honest participant's name."""
    for entity, builtin in ((other.writer, m.PUBLICATIONS_WRITER), (other.reader, m.SUBSCRIPTIONS_WRITER)):
        guid = other.prefix + entity
        status = m.status_info(disposed=True, unregistered=True)
        sn = a.random.choice((2, 3, 4, 5, 100, a.far()))
        if a.random.random() < 0.5:
            yield a.sedp(on, builtin, m.endpoint_key(guid), prefix=other.prefix, sn=sn, inline_qos=[status])
        else:
            qos = [m.key_hash(guid), status]
            yield a.sedp(on, builtin, m.endpoint_key(guid), prefix=other.prefix, sn=sn, inline_qos=qos)


@attack("unmatched")
def acknowledgement_far_ahead(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """In the honest reader's name: it has what was never sent."""
    base = a.random.choice((10**6, a.far(), a.near()))
    kind = a.random.choice((m.acknack, m.acknack_batch))
    count = a.random.choice((a.count(), 1 << 30))
    yield Datagram(a.to(on, kind(other.reader, on.writer, base, 0, count), prefix=other.prefix))


@attack("unmatched")
def nack_storm(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """In the honest reader's name: everything is to be sent again."""
    nack = m.acknack(other.reader, on.writer, 1, 256, a.count())
    yield Datagram(a.to(on, nack, prefix=other.prefix))


@attack("unmatched")
def reflection_by_announcement(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """Participants that are said to be where a third party is."""
    at = tuple((a.victim[0], a.victim[1] + i) for i in range(a.random.choice((1, 2, 16))))
    own = (a.here,) if a.random.random() < 0.3 else ()
    yield a.announcement(a.fresh_prefix(), at=own + at, default=at)


@attack("unmatched", "peer")
def reflection_by_best_effort_reader(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """It proves where it is, and has a best-effort reader that is said to be elsewhere."""
    yield from a.introduction(on)
    entity = struct.pack(">I", a.random.randint(1, 8) << 8 | 4)
    yield a.endpoint(on, entity, on.writes, type_name=on.type_name, reliable=False, unicast=[a.victim])


@attack("unmatched", heavy=True)
def crowd_of_participants(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """Each announced once, for as long as it may be."""
    for _ in range(a.random.choice((1, 50))):
        yield a.announcement(a.fresh_prefix(), lease=m.INFINITE_LEASE)


@attack("unmatched", heavy=True)
def crowd_of_endpoints(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """A participant that answers, with many endpoints."""
    prefix = a.fresh_prefix()
    yield from a.introduction(on, prefix)
    for i in range(a.random.choice((1, 40))):
        entity = struct.pack(">I", (i + 256) << 8 | a.random.choice((3, 4)))
        topic = a.random.choice((on.reads, on.writes, f"x{i}"))
        # A reliable reader that never acknowledges is a row of its own.
        type_name, reliable = a.random.choice((("T", False), ("U", True)))
        yield a.endpoint(on, entity, topic, prefix=prefix, type_name=type_name, reliable=reliable)


@attack("unmatched", "peer", heavy=True)
def fragments(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """First fragments of samples that never become whole, in its own name and in the honest writer's."""
    unmatched_peer = a.random.random() < 0.5
    prefix, writer = (other.prefix, other.writer) if unmatched_peer else (a.prefix, WRITER)
    for _ in range(a.random.choice((1, 8))):
        size = a.random.choice((1_000, 60_000))
        sample = m.data_frag(writer, a.near(), 1, 1, size, a.random.choice((10, 250)) << 20, bytes(size))
        yield Datagram(a.to(on, sample, prefix=prefix))


@attack("peer")
def timestamp_far_ahead(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """A row that is newer than all others will ever be."""
    sn = a.count()
    yield Datagram(a.to(on, m.info_timestamp(4.2e9), m.data(WRITER, sn, payload())))


# --- others -------------------------------------------------------------------------------------------


@attack("unmatched")
def in_anothers_name_by_info_source(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """The message is its own, what is in it is said to be the honest writer's."""
    far = a.random.choice((a.far(), a.near()))
    output = a.random.choice(
        (
            m.gap(other.writer, 1, far),
            m.heartbeat(other.writer, far, far + 3, 1 << 29),
            m.data(other.writer, far, payload()),
            m.acknack(other.reader, on.writer, far, 0, 1 << 29),
            m.status_message(other.reader, on.writer, 0, 0, 1 << 29),
        )
    )
    before = (m.info_destination(on.prefix), m.info_source(other.prefix))
    yield Datagram(a.output(*(before if a.random.random() < 0.5 else reversed(before)), output))


@attack("unmatched")
def counts_far_ahead(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """Honest HEARTBEATs and ACKNACKs would look old."""
    count = a.random.choice((1 << 31, (1 << 31) - 1, (1 << 32) - 1, 1 << 20))
    last = a.written
    yield Datagram(
        a.to(
            on,
            m.heartbeat(other.writer, 1, max(0, last), count),
            m.heartbeat_batch(other.writer, (1, 1), (1, max(1, last)), count),
            m.heartbeat_frag(other.writer, max(1, last), 3, count),
            m.acknack(other.reader, on.writer, 1, 0, count, flags=m.FINAL),
            m.status_message(other.reader, on.writer, 0, 1 << 20, count),
            m.heartbeat(m.PUBLICATIONS_WRITER, 1, 1, count),
            m.acknack(m.PUBLICATIONS_READER, m.PUBLICATIONS_WRITER, 1, 0, count),
            prefix=other.prefix,
        )
    )


@attack("unmatched")
def window_shut(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """In the honest reader's name: it has no room, or it leaves."""
    status = m.status_message(
        other.reader,
        on.writer,
        a.random.choice((0, a.near(), a.far())),
        a.random.choice((0, 1, 0xFFFFFFFF)),
        a.random.choice((a.count(), 1 << 31)),
        end=a.random.random() < 0.3,
    )
    yield Datagram(a.to(on, status, prefix=other.prefix))


@attack("unmatched", "peer", "process")
def round_trips(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """Questions for round-trip times, and answers that nobody asked for."""
    who = a.random.choice((a.prefix, other.prefix))
    echo = a.random.choice((0, 1, -(1 << 63), (1 << 63) - 1))
    asked = m.rtt_measurement(other.reader, on.writer, echo)
    answer = m.rtt_measurement(on.reader, other.writer, echo, a.random.choice((0, (1 << 63) - 1)), reply=True)
    yield Datagram(a.to(on, *[asked] * a.random.choice((1, 100)), answer, prefix=who))


@attack("unmatched")
def liveliness_in_anothers_name(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    kind = a.random.choice((1, 2))
    output = b"\0\1\0\0" + other.prefix + struct.pack(">I", kind) + struct.pack("<I", 0)
    sn = a.random.choice((1, 2, 3, a.far()))
    yield Datagram(
        a.to(
            on,
            m.data(m.LIVELINESS_WRITER, sn, output),
            m.heartbeat(m.LIVELINESS_WRITER, sn, sn, 1 << 30),
            m.heartbeat(other.writer, 1, a.written, 1 << 30, flags=m.FINAL | m.LIVELINESS),
            prefix=other.prefix,
        ),
        user=a.random.random() < 0.5,
    )


@attack("unmatched")
def builtin_readers_confused(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """GAPs, HEARTBEATs and DATA to the readers of discovery in the honest participant's name."""
    writer = a.random.choice(
        (
            m.PUBLICATIONS_WRITER,
            m.SUBSCRIPTIONS_WRITER,
            m.LIVELINESS_WRITER,
            m.TYPE_REPLY_WRITER,
            m.TYPE_REQUEST_WRITER,
        )
    )
    far = a.random.choice((a.far(), 2, 3, 4))
    output = a.random.choice(
        (
            m.gap(writer, 1, far),
            m.heartbeat(writer, far, far + 1, 1 << 30),
            m.heartbeat(writer, 1, 0, 1 << 30),
            m.data(writer, far, b"\0\3\0\0\1\0\0\0"),
        )
    )
    yield Datagram(a.to(on, output, prefix=other.prefix), user=a.random.random() < 0.5)


@attack("unmatched")
def builtin_writers_confused(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """ACKNACKs to the writers of discovery in the honest participant's name."""
    ends = a.random.choice(
        (
            (m.PUBLICATIONS_READER, m.PUBLICATIONS_WRITER),
            (m.SUBSCRIPTIONS_READER, m.SUBSCRIPTIONS_WRITER),
            (m.LIVELINESS_READER, m.LIVELINESS_WRITER),
        )
    )
    base, missing = a.random.choice(((1, 256), (a.far(), 0), (2, 0)))
    yield Datagram(a.to(on, m.acknack(*ends, base, missing, 1 << 30), prefix=other.prefix), user=False)


@attack("unmatched")
def endpoints_in_anothers_name(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """The honest writer is announced again: of another type, best-effort, elsewhere; and writers it never had."""
    sn = a.random.choice((2, 3, 4, a.far()))
    entity = a.random.choice((other.writer, other.reader, b"\0\0\x77\3", b"\0\0\x77\4"))
    topic = on.reads if entity[3] == 3 else on.writes
    yield a.endpoint(
        on,
        entity,
        a.random.choice((topic, "elsewhere")),
        prefix=other.prefix,
        sn=sn,
        type_name=a.random.choice(("T", "U")),
        reliable=a.random.random() < 0.5,
        unicast=a.random.choice(((), (a.victim,), (a.here,))),
    )


@attack("unmatched")
def participants_in_anothers_name(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """The honest participant is announced again, elsewhere, with a shorter lease; or disposed."""
    if a.random.random() < 0.5:
        at = a.random.choice((a.here, a.victim))
        yield a.announcement(other.prefix, at=(at,), lease=a.random.choice(((0, 1), (1, 0))), sn=a.far())
        return
    key = m.parameter_payload([(0x0050, other.prefix + m.PARTICIPANT)])
    qos = [m.status_info(disposed=True, unregistered=True)]
    gone = m.data(m.SPDP_WRITER, a.random.choice((a.count(), a.far())), key, inline_qos=qos, key=True)
    yield Datagram(m.message(a.random.choice((a.prefix, other.prefix)), gone), user=a.random.random() < 0.5)


@attack("unmatched")
def in_our_own_name(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """In the name of the participant that it sends to."""
    far = a.far()
    output = a.random.choice(
        (
            m.data(on.writer, far, payload()),
            m.gap(on.writer, 1, far),
            m.heartbeat(on.writer, far, far, 1 << 30),
            m.acknack(on.reader, on.writer, far, 0, 1 << 30),
            m.data(m.SPDP_WRITER, far, m.announced_participant(on.prefix, [a.victim], [a.victim])),
            m.data(
                m.PUBLICATIONS_WRITER,
                far,
                m.endpoint_key(on.writer_guid),
                key=True,
                inline_qos=[m.status_info(disposed=True)],
            ),
        )
    )
    yield Datagram(a.to(on, output, prefix=on.prefix), user=a.random.random() < 0.5)


@attack("unmatched", "peer", "process")
def type_questions(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """Requests and replies of TypeLookup that are mostly nonsense."""
    writer = a.random.choice((m.TYPE_REQUEST_WRITER, m.TYPE_REPLY_WRITER))
    sn = a.random.choice((a.count(), a.far()))
    body = b"\0\x09\0\0" + a.random.randbytes(a.random.choice((16, 64, 400)))
    prefix = a.random.choice((a.prefix, other.prefix)) if a.prefix[0] == 0xEE else a.prefix
    yield Datagram(
        a.to(on, m.data(writer, sn, body), m.heartbeat(writer, sn, sn, a.count()), prefix=prefix), user=False
    )


@attack("unmatched", "peer", heavy=True)
def bomb_in_a_type(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """A writer on the topic that announces a compressed type of very many zeros."""
    import zlib

    zeros = zlib.compress(bytes(1 << 20), 9)
    value = struct.pack("<III", 2, 64 << 20, len(zeros)) + zeros
    yield from a.introduction(on)
    yield a.endpoint(on, b"\0\0\x55\3", on.reads, type_name="U", more=[(0x8021, value)])


@attack("unmatched", "peer", "process")
def multicast_games(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """Readers in groups that nobody asked for: the group of discovery among them."""
    group = a.random.choice((("239.255.0.1", 7400), ("239.1.2.3", 7411), ("224.0.0.1", 53)))
    yield a.announcement(multicast=[group])
    yield Datagram(a.to(on), user=False)
    yield a.endpoint(on, READER, on.writes, type_name=on.type_name, reliable=False, multicast=[group])


@attack("unmatched", "peer")
def destinations(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """INFO_DST of others, of all and of the host itself in turn; INFO_REPLY to a third party."""
    far = a.far()
    yield Datagram(
        a.output(
            m.info_destination(other.prefix),
            m.gap(on.writer, 1, far),
            m.info_destination(bytes(12)),
            m.info_reply(a.victim),
            m.info_source(other.prefix),
            m.acknack(other.reader, on.writer, 1, 256, a.count()),
            m.heartbeat(other.writer, 1, a.written + 1000, a.count()),
            m.info_destination(on.prefix),
            m.gap(other.writer, 1, far),
        )
    )


@attack("unmatched")
def coherent_sets_in_anothers_name(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """A set of the honest writer's that is never complete."""
    sn = a.near()
    qos = [(0x0056, m.number(sn))]
    yield Datagram(a.to(on, m.data(other.writer, sn, payload(), inline_qos=qos), prefix=other.prefix))


@attack("peer")
def own_stream_leaps(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """A matched writer's own numbers, in any order: gaps, heartbeats, rows, batches, sets."""
    far = a.random.choice((a.far(), a.near(), 1, 2))
    output = a.random.choice(
        (
            m.data(WRITER, far, payload()),
            m.gap(WRITER, 1, far, 3),
            m.heartbeat(WRITER, far, far + a.random.choice((-1, 0, 300)), a.count()),
            m.heartbeat(WRITER, 1, far, a.count()),
            m.heartbeat_batch(WRITER, (1, 5), (1, far), a.count()),
            m.data(WRITER, far, payload(), inline_qos=[(0x0056, m.number(far))]),
            m.data_batch(WRITER, far, far, [m.sample_info(8)] * 3, bytes(24)),
        )
    )
    yield Datagram(a.to(on, output))


@attack("peer")
def own_acknowledgements(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """A matched best-effort reader that asks, acknowledges and shuts windows all the same."""
    base = a.random.choice((0, 1, a.near(), a.far()))
    output = a.random.choice(
        (
            m.acknack(READER, on.writer, max(1, base), 256, a.count()),
            m.acknack(READER, on.writer, base, 0, a.count()),
            m.nack_frag(READER, on.writer, a.near(), 1, 256, a.count()),
            m.status_message(READER, on.writer, base, 0, a.count()),
        )
    )
    yield Datagram(a.to(on, output))


@attack("peer")
def others_by_a_peer(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """A matched peer attacks the streams of others as an unmatched participant does."""
    unmatched_peer = [each for each in ATTACKS.values() if each.who == ("unmatched",) and not each.heavy]
    yield from a.random.choice(unmatched_peer).function(a, on, other)


@attack("process")
def announced_here(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """A process on the same host announces itself, speaks to the host, and has endpoints on its topics."""
    yield from a.introduction(on)
    yield a.endpoint(on, b"\0\0\x31\3", on.reads, type_name="U")
    yield Datagram(a.to(on, m.data(WRITER, a.far(), payload())))


@attack("process")
def others_by_a_process(a: Attacker, on: Host, other: Host) -> Iterator[Datagram]:
    """In the name of the honest host elsewhere, from this host's address."""
    names = (
        "heartbeat_far_ahead",
        "gap_far_ahead",
        "data_far_ahead",
        "dispose_of_an_endpoint",
        "acknowledgement_far_ahead",
        "window_shut",
        "participants_in_anothers_name",
        "endpoints_in_anothers_name",
    )
    yield from ATTACKS[a.random.choice(names)].function(a, on, other)
