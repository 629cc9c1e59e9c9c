"""LogOnce: each message is new once, within a bound."""

from __future__ import annotations

from spark_rtps.transport.log_once import LogOnce


def test_each_thing_is_new_once() -> None:
    output = LogOnce(3)
    assert [output.is_new(each) for each in ("a", ("b", 1), "a", ("b", 1))] == [True, True, False, False]


def test_beyond_the_bound_no_message_is_new_and_none_forgotten() -> None:
    output = LogOnce(2)
    assert [output.is_new(each) for each in (1, 2, 3, 1, 2)] == [True, True, False, False, False]
