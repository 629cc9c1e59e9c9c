"""Which topics a pattern of a receiver service's file means."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.receiver_service.subscribing import matches


@settings(max_examples=500)
@given(st.text("ab*?[\n.", max_size=7), st.text("ab[\n.", max_size=8))
def test_a_star_is_any_text_and_a_question_mark_one_character(pattern: str, topic: str) -> None:
    assert matches(pattern, topic) is fnmatch.fnmatchcase(topic, pattern.replace("[", "[[]"))


@pytest.mark.parametrize(
    ("pattern", "topic"),
    [("rt/*/*/*/imu", "rt" + "/" * 4_000), ("*a*a*a*a*ab", "a" * 4_000), ("*?*?*?x", "y" * 4_000)],
    ids=["slashes", "letters", "any"],
)
def test_names_that_nearly_match_cost_little(pattern: str, topic: str) -> None:
    """Each star was tried again for each place of the others, which took hours: a peer decides about names."""
    assert not matches(pattern, topic)
    assert matches(pattern, f"{topic}{topic}{pattern}")
