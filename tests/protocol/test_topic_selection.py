"""Which topics a list or a pattern selects."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_rtps.transport.protocol.discovery.topic_selection import TopicSelection

_PIECES = [
    "a", "b", "/", ".", ".*", "[ab]", "[^/]+", "(a|b)", r"\w", r"\d", "+", "*", "?", "{2}", "{1,}", "|", r"\.", r"\s",
    "^", "é", r"\b", "(?i)", "[]a]", "(?=a)", r"(a)\1", "-",
]  # fmt: skip


def selects(pattern: str, topic: str) -> bool:
    selection = TopicSelection((), pattern)
    assert selection.among([topic, topic]) == [topic, topic] * selection.selects(topic)
    return selection.selects(topic)


@settings(max_examples=500)
@given(st.lists(st.sampled_from(_PIECES), min_size=1, max_size=7), st.text("ab/1.Aé\n _-", max_size=8))
def test_a_pattern_is_a_regular_expression_of_python(pieces: list[str], topic: str) -> None:
    pattern = "".join(pieces)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = re.compile(pattern, re.DOTALL)
        except re.error:
            assume(False)
            return
        assert selects(pattern, topic) is (expected.fullmatch(topic) is not None)


@pytest.mark.parametrize(
    ("pattern", "topic"),
    [("rt/.*/.*/.*/imu", "rt" + "/" * 4_000), (r"(\w+)+/x", "a" * 4_000), ("(?:é+)+x", "é" * 2_000)],
    ids=["slashes", "words", "no ASCII"],
)
def test_names_that_nearly_match_cost_little(pattern: str, topic: str) -> None:
    """Python tries each repetition at each place, which took hours: a peer decides about names."""
    assert not selects(pattern, topic)
    assert selects(pattern, f"{topic}/imu") is pattern.endswith("imu")


def test_a_list_selects_its_names() -> None:
    listed = TopicSelection(("rt/b", "rt/a"))
    assert listed.among({"rt/a", "rt/b", "rt/c"}) == ["rt/a", "rt/b"] and not listed.selects("rt/.")
