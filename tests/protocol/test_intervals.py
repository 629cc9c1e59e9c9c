"""Sets of intervals, against plain sets of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.protocol.intervals import IntervalSet


def set_of(numbers: set[int]) -> IntervalSet:
    found = IntervalSet()
    for number in numbers:
        found.add_range(number, number)
    return found


@given(st.sets(st.integers(1, 200), max_size=100), st.sets(st.integers(1, 200), max_size=60))
def test_intervals_put_in_together_are_as_if_each_had_been_put_in(there: set[int], more: set[int]) -> None:
    found, given = set_of(there), list(set_of(more))
    found.update([first for first, _ in given], [last for _, last in given])
    assert list(found) == list(set_of(there | more))


@given(st.integers(1, 400), st.integers(0, 3))
def test_few_put_in_where_many_are(number: int, length: int) -> None:
    numbers = set(range(1, 200, 4))
    found = set_of(numbers)
    found.update([number], [number + length])
    assert list(found) == list(set_of(numbers | set(range(number, number + length + 1))))


@given(st.sets(st.integers(1, 200), max_size=100), st.integers(0, 201))
def test_take_up_to_takes_all_numbers_up_to_the_last(there: set[int], last: int) -> None:
    found = set_of(there)
    firsts, lasts = found.take_up_to(last)
    assert list(zip(firsts, lasts, strict=True)) == list(
        set_of({number for number in there if number <= last})
    )
    assert list(found) == list(set_of({number for number in there if number > last}))
