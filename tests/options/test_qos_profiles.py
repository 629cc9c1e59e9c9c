"""Profiles: ROS 2's names, and who wins where several say something."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.options.qos_profiles.named import ROS2_PROFILES
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind, incompatibilities

PROFILES = Path(__file__).parent / "profiles"
READ, WRITE = AppliesTo.READ, AppliesTo.WRITE


def parse(role: AppliesTo, options: dict[str, str]) -> Settings:
    return parse_options({"topic": "T", **options}, role)


def ros(name: str, role: AppliesTo = READ, **options: str) -> Qos:
    return parse(role, {"qos.profile": name, **options}).qos


class TestRos2:
    @pytest.mark.parametrize("role", [READ, WRITE])
    @pytest.mark.parametrize(
        ("name", "reliability", "depth"),
        [
            ("default", ReliabilityKind.RELIABLE, 10),
            ("sensor_data", ReliabilityKind.BEST_EFFORT, 5),
            ("services_default", ReliabilityKind.RELIABLE, 10),
            ("parameters", ReliabilityKind.RELIABLE, 1000),
            ("parameter_events", ReliabilityKind.RELIABLE, 1000),
        ],
    )
    def test_queues(self, role: AppliesTo, name: str, reliability: ReliabilityKind, depth: int) -> None:
        qos = ros(name, role)
        assert (qos.reliability, qos.durability) == (reliability, DurabilityKind.VOLATILE)
        assert (qos.history, qos.history_depth) == (HistoryKind.KEEP_LAST, depth)

    def test_system_default_is_no_profile(self) -> None:
        assert ros("system_default", WRITE) == parse(WRITE, {}).qos

    def test_best_available_reads_from_every_writer(self) -> None:
        requested = ros("best_available")
        for offer in ROS2_PROFILES:
            assert incompatibilities(ros(offer, WRITE), requested) == []

    def test_best_available_writes_to_every_reader(self) -> None:
        offered = ros("best_available", WRITE)
        for request in ("reliable", "best_effort"):
            for durability in ("volatile", "transient_local"):
                requested = parse(READ, {"reliability": request, "durability": durability}).qos
                assert incompatibilities(offered, requested) == []

    @pytest.mark.parametrize("text", ["SENSOR_DATA", " sensor_data ", "rmw_qos_profile_sensor_data"])
    def test_spelling(self, text: str) -> None:
        assert ros(text).reliability is ReliabilityKind.BEST_EFFORT

    @pytest.mark.parametrize("role", [READ, WRITE, AppliesTo.BOTH])
    def test_an_unknown_name_names_the_nearest(self, role: AppliesTo) -> None:
        with pytest.raises(OptionError) as caught:
            parse(role, {"qos.profile": "sensordata"})
        assert caught.value.option == "qos.profile"
        assert "did you mean 'sensor_data'?" in str(caught.value)
        assert "give qos.file" in str(caught.value)

    def test_every_name_is_in_the_table(self) -> None:
        from spark_rtps.options.table import BY_KEY

        for name in ROS2_PROFILES:
            assert f"`{name}`" in BY_KEY["qos.profile"].doc


class TestPrecedence:
    def test_explicit_options_win(self) -> None:
        qos = ros("sensor_data", reliability="reliable", **{"history.depth": "7"})
        assert (qos.reliability, qos.history_depth) == (ReliabilityKind.RELIABLE, 7)

    def test_an_explicit_history_overrules_the_depth(self) -> None:
        assert ros("default", history="keep_all").history is HistoryKind.KEEP_ALL

    def test_starting_offsets_overrules_the_durability(self) -> None:
        assert ros("default", startingOffsets="earliest").durability is DurabilityKind.TRANSIENT_LOCAL

    def test_a_contradiction_with_the_profile_names_both(self) -> None:
        with pytest.raises(OptionError, match=r"resource_limits\.max_samples.*history\.depth, 10"):
            ros("default", **{"resource_limits.max_samples": "5"})

    def test_both_sides_are_checked_without_reading_a_file(self) -> None:
        parse(AppliesTo.BOTH, {"qos.file": "/not/there.xml", "batch.max_samples": "5"})
        with pytest.raises(OptionError, match="must be an integer"):
            parse(AppliesTo.BOTH, {"qos.file": "/not/there.xml", "batch.max_samples": "x"})
        with pytest.raises(OptionError, match="cannot be read: No such file"):
            parse(WRITE, {"qos.file": "/not/there.xml"})
        with pytest.raises(OptionError, match="cannot be read: Is a directory"):
            parse(WRITE, {"qos.file": str(PROFILES)})

    def test_a_value_of_the_file_that_cannot_be(self) -> None:
        with pytest.raises(OptionError) as caught:
            parse(WRITE, {"qos.file": str(PROFILES / "connext.xml"), "qos.profile": "Plant::Wrong"})
        assert caught.value.option == "history.depth"
        assert "must be an integer (set by qos.profile Plant::Wrong)" in str(caught.value)

    def test_explicit_options_suit_what_the_file_switches_on(self) -> None:
        file = f"file://{PROFILES / 'connext.xml'}"
        settings = parse(WRITE, {"qos.file": file, "qos.profile": "Throughput", "batch.max_samples": "77"})
        assert (settings.batch.enable, settings.batch.max_samples) == (True, 77)
