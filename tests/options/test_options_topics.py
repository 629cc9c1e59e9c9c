"""subscribe and subscribePattern: exactly one of them or topic, and what they cannot go with."""

from __future__ import annotations

import re

import pytest

from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.transport.errors import OptionError


def parse(**options: str) -> Settings:
    return parse_options({key.replace("__", "."): text for key, text in options.items()}, AppliesTo.READ)


def test_a_list() -> None:
    found = parse(subscribe=" b, a,b ")
    assert found.topics is not None
    assert (found.topics.names, found.topics.pattern, found.topic) == (("b", "a"), None, "b,a")
    assert [name for name in ("a", "b", "ab", "b,a") if found.topics.selects(name)] == ["a", "b"]


def test_a_pattern_matches_whole_names() -> None:
    found = parse(subscribePattern=r"rt/(imu|odom)\d?").topics
    assert found is not None
    names = ["rt/imu", "rt/imu1", "rt/imu12", "art/imu", "rt/odom", "RT/imu"]
    assert found.among(names) == ["rt/imu", "rt/imu1", "rt/odom"]


@pytest.mark.parametrize("option", ["subscribe", "subscribePattern"])
def test_receiver_services_have_several_topics_too(option: str) -> None:
    read = parse(**{option: "a", "receivers": "x=h:1"})
    assert read.topics is not None and read.receiver_subscribes is None
    asked = parse(**{option: "a", "receivers": "x=h:1", "receiver.subscribe": "true"}).receiver_subscribes
    assert asked is not None and asked[option] == "a" and "topic" not in asked


def test_selections_are_alike_whatever_their_order() -> None:
    one, other, fewer = (parse(subscribe=text).topics for text in ("a,b", "b,a", "a"))
    pattern = parse(subscribePattern="a").topics
    assert one is not None and other is not None and fewer is not None and pattern is not None
    assert one.is_like(other) and pattern.is_like(pattern)
    assert not one.is_like(fewer) and not fewer.is_like(pattern)


def test_one_topic() -> None:
    assert parse(topic="T").topics is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            {"topic": "T", "subscribe": "a"},
            "option 'subscribe' = 'a': only one of the options topic, subscribe and subscribePattern can be set, and "
            "there is topic=T; remove all but one",
        ),
        ({"path": "T", "subscribePattern": "a"}, "there is topic=T; remove all but one"),
        ({"subscribe": "a", "subscribePattern": "b"}, "and there is subscribe=a; remove all but one"),
        ({"subscribe": " , "}, "must name a topic"),
        ({"subscribe": "a" * 5000}, "fewer than 4096 bytes"),
        ({"subscribePattern": "*"}, "is no regular expression: nothing to repeat.* write .* for any text"),
        ({"subscribePattern": "rt/("}, "is no regular expression: missing )"),
        ({"subscribePattern": "a", "spy": "true"}, "cannot be used with spy=true"),
        ({"subscribe": "a", "payload": "binary", "metadata": "true"}, "has these columns already"),
    ],
)
def test_contradictory_topic_options_are_refused(options: dict[str, str], error: str) -> None:
    with pytest.raises(OptionError, match=re.escape(error).replace(r"\.\*", ".*")):
        parse_options(options, AppliesTo.READ)


def test_a_sink_writes_one_topic() -> None:
    with pytest.raises(OptionError, match="applies only to reading"):
        parse_options({"subscribe": "a"}, AppliesTo.WRITE)
