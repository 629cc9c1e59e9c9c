"""Whom type lookup asks for what, and when again; what it takes for an answer. Without a network."""

from __future__ import annotations

import struct as struct_module
import zlib
from collections import Counter
from dataclasses import replace

import pytest

from spark_rtps.transport import limits
from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.discovery import endpoint_data, type_library, type_lookup
from spark_rtps.transport.protocol.discovery.endpoint_data import TypeObjectV1
from spark_rtps.transport.protocol.discovery.type_library import KnownType, TypeLibrary
from spark_rtps.transport.protocol.discovery.type_lookup import (
    AGAIN,
    RETRY_FIRST,
    RETRY_MAX,
    TIMEOUT,
    TypeLookup,
)
from spark_rtps.transport.protocol.discovery.type_matching import TypeMatching
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.types.xtypes.information import Dependencies, SizedIdentifier, TypeInformation
from spark_rtps.transport.types.xtypes.type_objects import type_objects_of
from tests.protocol.type_scene import endpoint, guid, large, objects, struct
from tests.support.virtual_network import SECOND
from tests.types.type_library_v1 import Library

RICH = objects("Rich")
INFORMATION = RICH.information
assert INFORMATION.complete is not None and INFORMATION.minimal is not None
ROOT = INFORMATION.complete.type.id
#: What announces no dependencies.
SHY = TypeInformation(
    Dependencies(INFORMATION.minimal.type, -1, ()), Dependencies(INFORMATION.complete.type, -1, ())
)

Question = tuple[bytes, tuple[bytes, ...]]


class Scene:
    """A lookup, and participants that answer it as they are told."""

    def __init__(self, *participants: int) -> None:
        self.drops: Counter[DropReason] = Counter()
        self.type_library = TypeLibrary()
        self.lookup = TypeLookup(self.type_library, self.drops)
        self.now = SECOND
        for participant in participants:
            self.lookup.join(bytes((participant,)) * 12)

    def watch(self, participant: int, information: TypeInformation | None = SHY, number: int = 1) -> None:
        self.lookup.watch(endpoint(participant, information, number), now=self.now)

    def questions(self) -> list[Question]:
        return self.lookup.questions(now=self.now)

    def answer(self, question: Question, known: dict[bytes, bytes] | None = None) -> None:
        prefix, ids = question
        known = dict(RICH.objects) if known is None else known
        if self.lookup.expects(prefix, 1_000):
            self.lookup.on_types(prefix, [(each, known[each]) for each in ids if each in known])

    def pass_time(self) -> list[tuple[int, Question]]:
        """Until nothing is to be done for a while: when it asked what."""
        asked = []
        while (timer := self.lookup.get_timer()) is not None and timer - self.now < AGAIN:
            self.now = max(self.now, timer)
            self.lookup.handle_timer(self.now)
            asked += [(self.now, question) for question in self.questions()]
        return asked


def test_root_first_then_what_it_refers_to() -> None:
    scene = Scene(1)
    scene.watch(1)
    assert scene.lookup.known(guid(1)) is None
    asked = []
    while questions := scene.questions():
        (question,) = questions
        assert question[0] == bytes((1,)) * 12
        asked.append(set(question[1]))
        scene.answer(question)
    assert asked[0] == {ROOT}
    assert len(asked) == 2
    assert scene.lookup.known(guid(1)) == KnownType(struct("Rich"))
    assert scene.lookup.take_settled() == [guid(1)]
    assert scene.lookup.take_settled() == []
    assert scene.lookup.get_timer() is None


def test_announced_dependencies_are_asked_for_at_once() -> None:
    scene = Scene(1)
    scene.watch(1, INFORMATION)
    (question,) = scene.questions()
    assert INFORMATION.complete is not None
    assert set(question[1]) == {ROOT, *(each.id for each in INFORMATION.complete.dependents)}
    scene.answer(question)
    assert scene.lookup.known(guid(1)) == KnownType(struct("Rich"))


def test_announced_dependencies_that_are_none_are_not_waited_for() -> None:
    assert SHY.complete is not None
    bogus = SizedIdentifier(b"\xf2" + bytes(14), 10)
    scene = Scene(1)
    scene.watch(1, replace(SHY, complete=replace(SHY.complete, dependents=(bogus,))))
    while questions := scene.questions():
        for question in questions:
            scene.answer(question)
    assert scene.lookup.known(guid(1)) == KnownType(struct("Rich"))
    assert scene.lookup.get_timer() is None


def test_a_type_is_asked_for_once_however_many_have_it() -> None:
    scene = Scene(*range(1, 100))
    for participant in range(1, 100):
        scene.watch(participant, INFORMATION)
    (question,) = scene.questions()
    scene.answer(question)
    assert scene.questions() == []
    assert set(scene.lookup.take_settled()) == {guid(participant) for participant in range(1, 100)}
    scene.watch(200, INFORMATION)
    assert scene.lookup.known(guid(200)) == KnownType(struct("Rich"))


def test_known_types_are_not_requested() -> None:
    scene = Scene(1)
    scene.type_library.offer(struct("Rich"))
    scene.watch(1)
    assert scene.lookup.known(guid(1)) == KnownType(struct("Rich"))
    scene.watch(1, objects("Wide").information, number=2)
    (question,) = scene.questions()
    root = objects("Wide").information.complete
    assert root is not None
    assert question[1] == (root.type.id,)  # its parts are those of Rich


def test_back_off_and_giving_up() -> None:
    scene = Scene(1)
    start = scene.now
    scene.watch(1)
    scene.questions()
    asked = [when - start for when, _ in scene.pass_time()]
    waits = [b - a for a, b in zip([0, *asked], asked, strict=False)]
    assert waits == [RETRY_FIRST, 2 * RETRY_FIRST, 4 * RETRY_FIRST, RETRY_MAX]
    assert scene.now - start == TIMEOUT
    assert scene.lookup.known(guid(1)) == "it did not send its type within 5 s"
    assert scene.lookup.take_settled() == [guid(1)]


def test_abandoned_types_are_requested_again() -> None:
    """Until it is known, what was decided without it holds."""
    scene = Scene(1)
    scene.watch(1)
    scene.questions()
    scene.pass_time()
    refusal = scene.lookup.known(guid(1))
    for _ in range(2):
        given_up = scene.now
        assert scene.lookup.get_timer() == given_up + AGAIN
        scene.lookup.take_settled()
        scene.now += AGAIN
        scene.lookup.handle_timer(scene.now)
        assert len(scene.questions()) == 1
        assert scene.lookup.known(guid(1)) == refusal
        assert len(scene.pass_time()) == 4 and scene.now == given_up + AGAIN + TIMEOUT
    scene.now += AGAIN
    scene.lookup.handle_timer(scene.now)
    scene.lookup.take_settled()
    while questions := scene.questions():
        scene.answer(questions[0])
    assert scene.lookup.known(guid(1)) == KnownType(struct("Rich"))
    assert scene.lookup.take_settled() == [guid(1)]
    assert scene.lookup.get_timer() is None


def test_abandoned_types_of_gone_endpoints_are_not_requested_again() -> None:
    scene = Scene(1, 2)
    scene.watch(1)
    scene.questions()
    scene.pass_time()
    scene.now += AGAIN
    scene.lookup.handle_timer(scene.now)
    scene.questions()
    scene.watch(2)  # while that is on
    assert len(scene.questions()) == 1
    for participant in (1, 2):
        scene.lookup.forget_endpoint(guid(participant))
    assert scene.lookup.get_timer() is None and scene.questions() == []
    scene.watch(1)
    scene.questions()
    scene.pass_time()
    scene.lookup.forget_endpoint(guid(1))
    assert scene.lookup.get_timer() is None


def test_a_peer_without_type_lookup_is_not_asked() -> None:
    scene = Scene()
    scene.watch(1)
    assert scene.questions() == []
    scene.pass_time()
    assert "no TypeLookup service" in str(scene.lookup.known(guid(1)))


def test_another_participant_with_that_type_is_asked_instead() -> None:
    scene = Scene(1, 2)
    scene.watch(1)
    scene.watch(2)
    assert [prefix[0] for prefix, _ in scene.questions()] == [1]
    while not (asked := [q for q in scene.questions() if q[0][0] == 2]):
        timer = scene.lookup.get_timer()
        assert timer is not None
        scene.now = timer
        scene.lookup.handle_timer(scene.now)
    assert scene.now < SECOND + TIMEOUT // 2
    while asked:
        scene.answer(asked[0])
        asked = scene.questions()
    assert scene.lookup.known(guid(1)) == scene.lookup.known(guid(2)) == KnownType(struct("Rich"))


def test_another_participant_is_asked_when_one_leaves() -> None:
    scene = Scene(1, 2)
    scene.watch(1)
    scene.watch(2)
    assert [prefix[0] for prefix, _ in scene.questions()] == [1]
    scene.lookup.forget_endpoint(guid(1))
    scene.lookup.leave(bytes((1,)) * 12)
    assert [prefix[0] for prefix, _ in scene.questions()] == [2]
    assert scene.lookup.known(guid(1)) is None
    scene.lookup.forget_endpoint(guid(2))
    assert scene.lookup.get_timer() is None
    assert scene.questions() == []


def test_a_later_peer_is_asked_for_a_missing_type() -> None:
    scene = Scene(1, 2)
    scene.watch(1)
    scene.pass_time()
    assert isinstance(scene.lookup.known(guid(1)), str)
    scene.watch(2)
    while questions := scene.questions():
        scene.answer(next(question for question in questions if question[0][0] in (1, 2)))
    assert scene.lookup.known(guid(1)) == KnownType(struct("Rich"))


def test_a_peer_with_the_minimal_type_only() -> None:
    minimal = {identifier: data for identifier, data in RICH.objects.items() if identifier[0] == 0xF1}
    scene = Scene(1)
    scene.watch(1)
    while scene.lookup.known(guid(1)) is None:
        while questions := scene.questions():
            scene.answer(questions[0], minimal)
        if (timer := scene.lookup.get_timer()) is not None:
            scene.now = max(scene.now, timer)
            scene.lookup.handle_timer(scene.now)
    known = scene.lookup.known(guid(1))
    assert isinstance(known, KnownType)
    assert not known.is_complete
    assert [member.id for member in known.struct.members] == [0, 1, 2, 3, 4]
    assert scene.now < SECOND + 2 * SECOND


def test_a_slow_peer_is_not_taken_for_one_with_the_minimal_type_only() -> None:
    scene = Scene(1)
    scene.watch(1)
    scene.questions()
    for _, (_, ids) in scene.pass_time():
        assert ids == (ROOT,)


def test_a_type_in_the_announcement_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """XTypes 1.1: nobody has to be asked, and it is read once, however many have it."""
    read = 0

    def struct_of_v1(value: bytes, little_endian: bool) -> Struct:
        nonlocal read
        read += 1
        return struct("Rich")

    monkeypatch.setattr(endpoint_data, "struct_of_v1", struct_of_v1)
    v1 = TypeObjectV1(b"a type object of XTypes 1.1", True, False)
    scene = Scene(1)
    for number in range(1, 10):
        scene.lookup.watch(replace(endpoint(3, None, number), type_object_v1=v1), now=scene.now)
    # Who announces both ways is asked, if it can be.
    both = replace(endpoint(2, SHY), type_object_v1=v1)
    scene.lookup.watch(both, now=scene.now)
    assert read == 1
    assert {scene.lookup.known(guid(3, number)) for number in range(1, 10)} == {KnownType(struct("Rich"))}
    assert scene.lookup.known(guid(2)) == KnownType(struct("Rich"))
    assert scene.questions() == []
    scene.lookup.watch(replace(endpoint(1, SHY), type_object_v1=v1), now=scene.now)
    assert scene.lookup.known(guid(1)) is None
    assert len(scene.questions()) == 1


@pytest.mark.parametrize(("little_endian", "compressed"), [(True, True), (False, False)])
def test_a_type_is_read_although_another_announces_its_bytes_as_something_else(
    little_endian: bool, compressed: bool
) -> None:
    value = Library(True).type_object(struct("Rich"))
    scene = Scene()
    for participant, v1 in (
        (1, TypeObjectV1(value, little_endian, compressed)),
        (2, TypeObjectV1(value, True, False)),
    ):
        scene.lookup.watch(replace(endpoint(participant, None), type_object_v1=v1), now=scene.now)
    assert isinstance(scene.lookup.known(guid(1)), str)
    assert isinstance(scene.lookup.known(guid(2)), KnownType)


def test_a_comparison_is_not_shared_with_an_endpoint_of_a_second_type() -> None:
    """Who has no TypeLookup service is taken at its type object; that says nothing of others."""
    scene = Scene(2)
    own = replace(endpoint(9, scene.type_library.offer(struct("Wide"))), guid=guid(9, writer=False))
    matching = TypeMatching(own.guid.prefix, scene.type_library, scene.lookup)
    v1 = TypeObjectV1(Library(True).type_object(struct("Other")), True, False)
    both, plain = replace(endpoint(1, SHY), type_object_v1=v1), endpoint(2, SHY)
    scene.lookup.watch(both, now=scene.now)
    assert matching.mismatches(both, own)
    scene.lookup.watch(plain, now=scene.now)
    while questions := scene.questions():
        scene.answer(questions[0])
    assert matching.mismatches(plain, own) == ()


def test_a_compressed_type_counts_as_what_it_becomes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type_lookup, "RESOLVED_BYTES_MAX", 5_000)
    packed = zlib.compress(bytes(10_000))
    v1 = TypeObjectV1(struct_module.pack("<3I", 1, 10_000, len(packed)) + packed, True, True)
    scene = Scene(1)
    scene.lookup.watch(replace(endpoint(3, None), type_object_v1=v1), now=scene.now)
    assert scene.lookup.known(guid(3)) == "there are too many types"
    assert scene.drops[DropReason.OVER_LIMIT] == 1


def test_a_part_of_ours_that_is_withdrawn_meanwhile_is_asked_for() -> None:
    idl = "struct A { long a; }; struct Z { double z; }; struct Both { A a; Z z; }; struct Ours { A a; };"
    types = {name: t for name, t in parse_idl(idl).items() if isinstance(t, Struct)}
    both = type_objects_of(types["Both"])
    assert both.information.complete is not None and both.information.minimal is not None
    forms = both.information.minimal, both.information.complete
    scene = Scene(1)
    ours = scene.type_library.offer(types["Ours"])
    scene.watch(1, TypeInformation(*(Dependencies(form.type, -1, ()) for form in forms)))
    scene.answer(*scene.questions(), dict(both.objects))  # type: ignore[call-arg]  # A is at hand, and Z is lacking
    scene.type_library.withdraw(ours)
    while questions := scene.questions():
        scene.answer(*questions, dict(both.objects))  # type: ignore[call-arg]
    assert scene.lookup.known(guid(1)) == KnownType(types["Both"])


# --- hostile answers ------------------------------------------------------------------------------


def test_a_type_object_that_differs_from_its_hash_is_dropped() -> None:
    scene = Scene(1)
    scene.watch(1)
    (question,) = scene.questions()
    wrong = next(data for identifier, data in RICH.objects.items() if identifier != ROOT)
    scene.answer(question, {ROOT: wrong})
    assert scene.drops[DropReason.BAD_PARAMETER] == 1
    assert scene.lookup.known(guid(1)) is None
    scene.pass_time()
    assert isinstance(scene.lookup.known(guid(1)), str)
    assert len(scene.type_library) == 0


@pytest.mark.parametrize("data", [b"", b"\0", b"\4\0\0\0abcd", b"\xff\xff\xff\x7f" + bytes(8)])
def test_an_object_that_is_none(data: bytes) -> None:
    scene = Scene(1)
    scene.watch(1)
    (question,) = scene.questions()
    scene.answer(question, {ROOT: data})
    assert sum(scene.drops.values()) == 1
    assert scene.lookup.known(guid(1)) is None


def test_unrequested_types_are_not_kept() -> None:
    scene = Scene(1)
    scene.lookup.on_types(bytes((1,)) * 12, RICH.objects.items())
    scene.watch(1)
    (question,) = scene.questions()
    assert not scene.lookup.expects(bytes((2,)) * 12, 10)
    scene.lookup.on_types(bytes((2,)) * 12, RICH.objects.items())
    scene.lookup.on_types(bytes((1,)) * 12, objects("Plain").objects.items())
    assert len(scene.type_library) == 0
    assert question[1] == (ROOT,)


def test_answers_without_end_are_not_looked_at() -> None:
    scene = Scene(1)
    scene.watch(1)
    scene.questions()
    prefix = bytes((1,)) * 12
    sizes = [1 << 20] * 20
    assert (
        sum(scene.lookup.expects(prefix, size) for size in sizes) == limits.TYPE_LOOKUP_REPLY_BYTES_MAX >> 20
    )
    assert scene.drops[DropReason.OVER_LIMIT] > 0


def test_a_type_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type_lookup, "RESOLVED_TYPE_OBJECTS_MAX", 50)
    big = type_objects_of(large(60))
    scene = Scene(1)
    scene.watch(1, big.information)
    while questions := scene.questions():
        for question in questions:
            scene.answer(question, dict(big.objects))
    assert scene.lookup.known(guid(1)) == "its type is too large"
    assert scene.drops[DropReason.OVER_LIMIT] == 1
    assert scene.lookup.take_settled() == [guid(1)]


def test_too_many_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type_lookup, "RESOLVED_BYTES_MAX", 2_000)
    scene, failed = Scene(1), 0
    for members in range(1, 20):
        one = type_objects_of(large(members))
        scene.watch(1, one.information, number=members)
        while questions := scene.questions():
            scene.answer(questions[0], dict(one.objects))
        known = scene.lookup.known(guid(1, members))
        failed += known == "there are too many types"
        assert failed or isinstance(known, KnownType)
    assert failed > 10
    scene.lookup.forget_endpoint(guid(1, 1))  # there is room again for a small one
    scene.lookup.forget_endpoint(guid(1, 2))
    again = type_objects_of(large(1))
    scene.watch(1, again.information, number=1)
    assert isinstance(scene.lookup.known(guid(1, 1)), KnownType)


def test_the_library_forgets_what_was_not_used_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type_library, "TYPE_OBJECTS_BYTES_MAX", 1_000)
    library = TypeLibrary()
    own = library.offer(struct("Plain"))
    many = type_objects_of(large(30)).objects
    for identifier, data in many.items():
        library.add_type_object(identifier, data)
    assert sum(len(library[each]) for each in many if each in library) <= 1_000
    assert own.complete is not None
    assert own.complete.type.id in library
    library.withdraw(own)
    assert own.complete.type.id not in library


def test_bounds_on_what_is_asked() -> None:
    scene = Scene(*range(1, 101))
    for participant in range(1, 101):
        for number in range(1, 101):
            root = b"\xf2" + bytes(10) + participant.to_bytes(2, "big") + number.to_bytes(2, "big")
            form = Dependencies(SizedIdentifier(root, 100), -1, ())
            scene.watch(participant, TypeInformation(None, form), number=number)
    questions = scene.questions()
    assert len(questions) == limits.TYPE_LOOKUP_PEERS_MAX
    assert {len(ids) for _, ids in questions} == {limits.TYPE_LOOKUP_ASKED_MAX}
    assert scene.questions() == []
    asked = len(questions) + len(scene.pass_time())
    assert asked <= 6 * limits.TYPE_LOOKUP_PEERS_MAX
    assert scene.now == SECOND + TIMEOUT
    assert len(scene.lookup.take_settled()) == 10_000


def test_types_without_a_hash() -> None:
    scene = Scene(1)
    recursive = SizedIdentifier(b"\xb0\xf2" + bytes(22), 0)
    scene.watch(1, TypeInformation(None, Dependencies(recursive, 0, ())))
    assert "recursive" in str(scene.lookup.known(guid(1)))
    scene.watch(1, None, number=2)
    assert scene.lookup.known(guid(1, 2)) == "it does not announce its type"


def test_another_announcement_is_another_type() -> None:
    scene = Scene(1)
    scene.watch(1)
    while questions := scene.questions():
        scene.answer(questions[0])
    wide = objects("Wide")
    scene.watch(1, wide.information)
    assert scene.lookup.known(guid(1)) is None
    while questions := scene.questions():
        scene.answer(questions[0], dict(wide.objects))
    assert scene.lookup.known(guid(1)) == KnownType(struct("Wide"))
    scene.watch(1, None)
    assert scene.lookup.known(guid(1)) == "it does not announce its type"
    assert scene.now == SECOND
