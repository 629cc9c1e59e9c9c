"""What is said once."""

from __future__ import annotations

from spark_rtps.transport.said import Said


def test_each_thing_is_new_once() -> None:
    said = Said(3)
    assert [said.is_new(each) for each in ("a", ("b", 1), "a", ("b", 1))] == [True, True, False, False]


def test_behind_so_many_nothing_is_new_and_nothing_forgotten() -> None:
    said = Said(2)
    assert [said.is_new(each) for each in (1, 2, 3, 1, 2)] == [True, True, False, False, False]
