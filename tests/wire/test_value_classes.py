"""What is made by ``value`` and ``slotted`` is like what ``dataclass`` makes."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from spark_rtps.transport.value_classes import slotted, value


@value
class Place:
    x: int
    y: int = 0
    secret: str = dataclasses.field(default="s", repr=False)
    seen: int = dataclasses.field(default=0, compare=False)


@value
class Nowhere:
    """Without fields."""


@slotted
class Tally:
    name: str
    rows: list[object] = dataclasses.field(default_factory=list)


@value
class ByHand:
    x: int

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "by hand"


def test_values_are_equal_and_hashed_by_the_fields_that_are_compared() -> None:
    assert Place(1, 2, seen=1) == Place(1, 2, seen=2)
    assert hash(Place(1, 2, seen=1)) == hash(Place(1, 2, seen=2))
    assert Place(1, 2) != Place(1, 3) and Place(1, 2) != (1, 2, "s")  # type: ignore[comparison-overlap]
    assert Nowhere() == Nowhere() and len({Nowhere(), Nowhere()}) == 1 and Nowhere() != Place(1)  # type: ignore[comparison-overlap]


def test_slotted_ones_are_equal_by_their_fields_and_not_hashed() -> None:
    assert Tally("a", [1]) == Tally("a", [1]) != Tally("b", [1])
    with pytest.raises(TypeError, match="unhashable"):
        hash(Tally("a"))


def test_methods_of_a_class_itself_are_kept() -> None:
    assert ByHand(1) == ByHand(2) and hash(ByHand(1)) == 7 and repr(ByHand(1)) == "by hand"


def test_value_classes_have_the_repr_of_dataclasses() -> None:
    assert repr(Place(1, 2)) == "Place(x=1, y=2, seen=0)"
    round_in_itself = Tally("a")
    round_in_itself.rows.append(round_in_itself)
    assert repr(round_in_itself) == "Tally(name='a', rows=[...])"


def test_value_classes_are_dataclasses_with_slots() -> None:
    assert dataclasses.replace(Place(1, 2), y=3) == Place(1, 3)
    assert dataclasses.asdict(Tally("a", [1])) == {"name": "a", "rows": [1]}
    assert not hasattr(Place(1), "__dict__")
    match Place(1, 2):
        case Place(x, y):
            assert (x, y) == (1, 2)


@pytest.mark.parametrize("made", [Place(1, 2), Nowhere(), Tally("a", [1])])
def test_value_classes_are_pickled_and_copied(made: object) -> None:
    assert pickle.loads(pickle.dumps(made)) == made == copy.copy(made)
