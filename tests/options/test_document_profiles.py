"""The profiles ``rti`` and ``aeron``: the documents' own defaults, and where the options say what these are."""

from __future__ import annotations

import pytest

from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.options.qos_profiles.named import DOCUMENT_PROFILES
from spark_rtps.options.table import BY_KEY
from spark_rtps.options.values import parse_value
from spark_rtps.transport.errors import OptionError

READ, WRITE = AppliesTo.READ, AppliesTo.WRITE
MS = 1_000_000
#: Every value of every profile: (the profile, whether it is of writers, the option, its text).
FIGURES = [
    pytest.param(profile, writes, name, text, id=f"{profile}-{name}")
    for profile, sides in DOCUMENT_PROFILES.items()
    for writes, side in zip((True, False), sides, strict=True)
    for name, text in side.items()
]


@pytest.mark.parametrize(("profile", "writes", "name", "text"), FIGURES)
def test_a_default_that_differs_says_the_documents_figure(
    profile: str, *, writes: bool, name: str, text: str
) -> None:
    spec = BY_KEY[name.lower()]
    assert spec.applies_to in (WRITE if writes else READ, AppliesTo.BOTH)
    value = parse_value(spec, text)
    if spec.default is not None and value != parse_value(spec, spec.default):
        assert {"rti": "RTI's default is", "aeron": "Aeron's default"}[profile] in spec.doc
        shown = {"62500us": "62.5ms"}.get(text, text)
        assert f" {shown}" in spec.doc or f"`{shown}`" in spec.doc


def test_rti() -> None:
    settings = parse_options({"topic": "T", "qos.profile": "rti"}, WRITE)
    policy = settings.writer_policy
    assert (policy.heartbeat_period, policy.fast_heartbeat_period) == (200 * MS, 200 * MS)
    assert (policy.high_watermark, policy.max_heartbeat_retries) == (1, 150)
    assert (policy.max_nack_response_delay, policy.max_bytes_per_nack_response) == (200 * MS, 128 << 10)
    assert settings.batch.max_data_bytes == 1024 and not settings.batch.enable
    assert settings.warnings == ()
    settings = parse_options({"topic": "T", "qos.profile": "RTI"}, READ)
    reader = settings.reader_policy
    assert (reader.max_heartbeat_response_delay, reader.heartbeat_suppression_duration) == (
        500 * MS,
        62_500_000,
    )
    assert (reader.round_trip_time, reader.nack_period, reader.receive_window_size) == (0, 5_000 * MS, 256)
    assert settings.warnings == ()


def test_aeron() -> None:
    settings = parse_options({"topic": "T", "qos.profile": "aeron"}, WRITE)
    assert (settings.flow_control.strategy, settings.flow_control.receiver_timeout) == ("max", 5_000 * MS)
    assert settings.warnings == ()
    settings = parse_options({"topic": "T", "qos.profile": "aeron"}, READ)
    assert settings.reader_policy.congestion_control.initial_window == 128 << 10
    assert settings.warnings == ()


def test_options_that_are_set_win() -> None:
    given = {"topic": "T", "qos.profile": "rti", "reliable_writer.heartbeat_period": "1s"}
    assert parse_options(given, WRITE).writer_policy.heartbeat_period == 1_000 * MS


def test_an_unknown_profile_error_lists_document_profiles() -> None:
    with pytest.raises(OptionError) as caught:
        parse_options({"topic": "T", "qos.profile": "aeronn"}, READ)
    assert "did you mean 'aeron'?" in str(caught.value)


def test_both_sides_at_once_may_be_named() -> None:
    for name in DOCUMENT_PROFILES:
        parse_options({"topic": "T", "qos.profile": name}, AppliesTo.BOTH)
