"""QoS files: each policy to its option, everything else to a warning, nothing that XML can do beyond."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.options.qos_profiles import Profile
from spark_rtps.options.qos_profiles.xml_file import read_profile
from spark_rtps.options.qos_profiles.xml_paths import (
    DDS_PROPERTIES,
    DDS_READER,
    DDS_WRITER,
    FAST_READER,
    FAST_WRITER,
)
from spark_rtps.options.table import BY_KEY
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.protocol.policies import FlowControllerPolicy
from spark_rtps.transport.qos import (
    DataRepresentation,
    DestinationOrderKind,
    DurabilityKind,
    HistoryKind,
    LivelinessKind,
    OwnershipKind,
    PresentationScope,
    ReliabilityKind,
)
from spark_rtps.transport.structure import INFINITE

PROFILES = Path(__file__).parent / "profiles"
CONNEXT, DDS_XML, FAST = PROFILES / "connext.xml", PROFILES / "dds_xml.xml", PROFILES / "fastdds.xml"


def settings(role: AppliesTo, file: Path, profile: str | None = None) -> Settings:
    named = {} if profile is None else {"qos.profile": profile}
    return parse_options({"topic": "T", "qos.file": str(file), **named}, role)


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "qos.xml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def dds(body: str) -> str:
    return f'<dds><qos_library name="L"><qos_profile name="P">{body}</qos_profile></qos_library></dds>'


def options_of(tmp_path: Path, body: str, *, writes: bool = True) -> Profile:
    return read_profile(written(tmp_path, dds(body)), None, writes=writes)


class TestConnext:
    def test_the_writer(self) -> None:
        found = settings(AppliesTo.WRITE, CONNEXT)  # the default one
        qos = found.qos
        assert qos.reliability is ReliabilityKind.RELIABLE
        assert qos.max_blocking_time == 2_500_000_000
        assert qos.durability is DurabilityKind.PERSISTENT
        assert (qos.history, qos.history_depth) == (HistoryKind.KEEP_LAST, 64)
        assert (qos.max_samples, qos.max_instances, qos.max_samples_per_instance) == (4096, INFINITE, 128)
        assert (qos.deadline, qos.lifespan) == (INFINITE, 9_000_000_000)
        assert (qos.ownership, qos.ownership_strength) == (OwnershipKind.EXCLUSIVE, 7)
        assert qos.destination_order is DestinationOrderKind.BY_SOURCE_TIMESTAMP
        assert qos.presentation_scope is PresentationScope.TOPIC
        assert qos.coherent_access and not qos.ordered_access
        assert qos.partition == ("hall/*", "yard")
        assert (qos.user_data, qos.group_data) == (b"hi!", b"group")
        assert found.representation is DataRepresentation.XCDR2
        assert found.transport_priority == 3
        assert found.flow_controller == FlowControllerPolicy()

    def test_batches_and_protocol_of_connext(self) -> None:
        found = settings(AppliesTo.WRITE, CONNEXT)
        batch, policy = found.batch, found.writer_policy
        assert (batch.enable, batch.max_data_bytes, batch.max_samples) == (True, 30720, INFINITE)
        assert (batch.max_flush_delay, batch.source_timestamp_resolution) == (50_000_000, 0)
        assert (batch.thread_safe_write, batch.max_batches, batch.turbo_mode) == (True, 32, True)
        assert batch.disable_inline_keyhash
        assert (policy.low_watermark, policy.high_watermark) == (5, 15)
        assert (policy.heartbeat_period, policy.heartbeats_per_max_samples) == (20_000_000, 4)
        assert (policy.min_send_window_size, policy.max_send_window_size) == (32, 64)
        assert (policy.max_heartbeat_retries, policy.max_bytes_per_nack_response) == (500, 32768)

    def test_the_reader(self) -> None:
        found = settings(AppliesTo.READ, CONNEXT, "Plant::Throughput")
        assert found.qos.durability is DurabilityKind.TRANSIENT_LOCAL  # of the base
        assert found.qos.history is HistoryKind.KEEP_ALL  # says nothing: ours
        assert found.qos.time_based_filter == 100
        assert found.qos.source_timestamp_tolerance == 5_000_000_000
        assert found.qos.ordered_access
        assert found.reader_policy.max_heartbeat_response_delay == 2_000_000
        assert found.reader_policy.receive_window_size == 1024
        assert found.accept_writer_removed_batch_samples

    def test_policies_without_an_option_are_named(self) -> None:
        warnings = "\n".join(settings(AppliesTo.WRITE, CONNEXT).warnings)
        for part in (
            "qos.profile Plant::Throughput: datawriter_qos/resource_limits/initial_samples=16",
            "datawriter_qos/protocol/push_on_write=true",
            "datawriter_qos/protocol/rtps_reliable_writer/samples_per_virtual_heartbeat=8",
            "property dds.data_writer.history.memory_manager.pool_buffer_max_size=1000",
            "participant_qos",
        ):
            assert part in warnings
        assert "datareader_qos" not in warnings  # that is the other side
        assert "turbo_mode=true is ignored" in warnings

    def test_composition(self) -> None:
        profile = read_profile(CONNEXT, "Snippets", writes=True)
        assert profile.options["history.depth"] == "64"
        assert "deadline" in profile.options and profile.options["deadline"] == "infinite"
        assert any("BuiltinQosSnippetLib::Feature.Monitoring is built into" in w for w in profile.warnings)
        assert any("topic_filter=Alarm* is not used" in w for w in profile.warnings)

    def test_the_base_of_a_section_is_a_section(self) -> None:
        options = read_profile(CONNEXT, "OfSection", writes=True).options
        assert options["history"] == "KEEP_ALL_HISTORY_QOS"
        assert options["batch.enable"] == "true"
        assert "partition" not in options  # of the base's publisher

    @pytest.mark.parametrize(
        ("profile", "output"),
        [
            ("Throughputs", "did you mean 'Plant::Throughput'? there are Plant::Base, "),
            ("Plant::throughput", "did you mean 'Plant::Throughput'?"),
            ("Zzz", "there are Plant::Base"),
            ("Wrong", "is in several libraries: Plant::Wrong, Yard::Wrong"),
            ("Snake", "is its own base: Plant::Snake -> Plant::Tail -> Snake"),
            ("Orphan", "option 'qos.profile' = 'Bass': is a base of Plant::Orphan, but not in"),
        ],
    )
    def test_a_profile_that_is_none(self, profile: str, output: str) -> None:
        with pytest.raises(OptionError) as caught:
            settings(AppliesTo.WRITE, CONNEXT, profile)
        assert caught.value.option == "qos.profile"
        assert output in str(caught.value)


class TestDdsXml:
    def test_a_namespace_and_the_only_profile(self) -> None:
        qos = settings(AppliesTo.READ, DDS_XML).qos
        assert qos.reliability is ReliabilityKind.BEST_EFFORT
        assert qos.deadline == 3_000_000_000
        assert qos.liveliness is LivelinessKind.MANUAL_BY_TOPIC
        assert qos.liveliness_lease_duration == INFINITE

    @pytest.mark.parametrize(
        ("period", "text"),
        [
            ("<sec>1</sec><nanosec>500000000</nanosec>", "1500ms"),
            ("<sec>1</sec><nsec>0</nsec>", "1s"),
            ("<nanosec>7</nanosec>", "7ns"),
            ("<sec>DURATION_INFINITY</sec>", "infinite"),
            ("<sec>DDS_DURATION_INFINITE_SEC</sec><nanosec>0</nanosec>", "infinite"),
            ("<sec>2147483647</sec><nanosec>4294967295</nanosec>", "infinite"),
            ("DURATION_INFINITE", "infinite"),
            ("DURATION_INFINITY", "infinite"),
        ],
    )
    def test_durations(self, tmp_path: Path, period: str, text: str) -> None:
        body = f"<datawriter_qos><deadline><period>{period}</period></deadline></datawriter_qos>"
        profile = options_of(tmp_path, body)
        assert profile.options == {"deadline": text}
        assert profile.warnings == ()

    @pytest.mark.parametrize(
        "period",
        [
            "<sec>-1</sec>",
            "<sec>a</sec>",
            "<sec>1</sec><hours>2</hours>",
            "DURATION_AUTO",
            f"<sec>{'9' * 99}</sec>",
        ],
    )
    def test_no_durations(self, tmp_path: Path, period: str) -> None:
        body = f"<datawriter_qos><deadline><period>{period}</period></deadline></datawriter_qos>"
        profile = options_of(tmp_path, body)
        assert profile.options == {}
        assert profile.warnings == ("qos.profile L::P: datawriter_qos/deadline/period is not understood",)

    @pytest.mark.parametrize(
        ("value", "text"),
        [("1,2,255", "0x0102ff"), ("0x41, 66", "0x4142"), ("aGkh", "0x686921"), ("aG\n kh", "0x686921")],
    )
    def test_octets(self, tmp_path: Path, value: str, text: str) -> None:
        body = f"<datareader_qos><user_data><value>{value}</value></user_data></datareader_qos>"
        assert options_of(tmp_path, body, writes=False).options == {"user_data": text}

    @pytest.mark.parametrize("value", ["1,256", "not base64!", "abc"])
    def test_no_octets(self, tmp_path: Path, value: str) -> None:
        body = f"<datareader_qos><user_data><value>{value}</value></user_data></datareader_qos>"
        (warning,) = options_of(tmp_path, body, writes=False).warnings
        assert warning == "qos.profile L::P: datareader_qos/user_data/value is not understood"

    def test_a_flow_controller_whose_tokens_are_elsewhere(self, tmp_path: Path) -> None:
        body = (
            "<datawriter_qos><publish_mode><kind>ASYNCHRONOUS_PUBLISH_MODE_QOS</kind>"
            "<flow_controller_name>slow</flow_controller_name></publish_mode></datawriter_qos>"
        )
        (warning,) = options_of(tmp_path, body).warnings
        assert "flow controller slow" in warning and "flow_controller.token_bucket" in warning

    def test_an_option_of_the_other_side_is_ignored_with_a_warning(self, tmp_path: Path) -> None:
        time = "<max_blocking_time><sec>1</sec></max_blocking_time>"
        body = f"<datareader_qos><reliability>{time}</reliability></datareader_qos>"
        (warning,) = options_of(tmp_path, body, writes=False).warnings
        assert "reliability/max_blocking_time=1s has no option here" in warning

    def test_several_and_none_marked(self, tmp_path: Path) -> None:
        text = '<qos_library name="L"><qos_profile name="A"/><qos_profile name="B"/></qos_library>'
        with pytest.raises(OptionError, match=r"name one profile of .* in qos.profile: L::A, L::B"):
            settings(AppliesTo.READ, written(tmp_path, text))

    def test_a_file_without_profiles_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="there are none"):
            settings(AppliesTo.READ, written(tmp_path, '<qos_library name="L"/>'))


class TestFastDds:
    def test_the_writer(self) -> None:
        found = settings(AppliesTo.WRITE, FAST)  # the default one
        qos, policy = found.qos, found.writer_policy
        assert (qos.reliability, qos.max_blocking_time) == (ReliabilityKind.RELIABLE, 1_000_000_000)
        assert qos.durability is DurabilityKind.TRANSIENT_LOCAL
        assert (qos.history, qos.history_depth) == (HistoryKind.KEEP_LAST, 20)
        assert (qos.max_samples, qos.max_instances, qos.max_samples_per_instance) == (500, INFINITE, 40)
        assert (qos.latency_budget, qos.lifespan) == (3_000_000, INFINITE)
        assert qos.liveliness_lease_duration == 8_000_000_000
        assert (qos.ownership, qos.ownership_strength) == (OwnershipKind.EXCLUSIVE, 50)
        assert qos.partition == ("left", "right")
        assert qos.user_data == b"\x03\x0a\xff"
        assert found.flow_controller == FlowControllerPolicy(name="slow_lane")
        assert policy.heartbeat_period == 1_500_000_000
        assert (policy.min_nack_response_delay, policy.max_nack_response_delay) == (7_000_000, 7_000_000)
        assert policy.nack_suppression_duration == 1_000_000
        assert policy.disable_positive_acks is False
        assert policy.disable_positive_acks_min_sample_keep_duration == 2_000_000_000

    def test_the_reader(self) -> None:
        found = settings(AppliesTo.READ, FAST, "arm")
        assert found.qos.reliability is ReliabilityKind.BEST_EFFORT
        assert found.qos.time_based_filter == 400
        assert found.reader_policy.min_heartbeat_response_delay == 4_000_000
        assert found.reader_policy.max_heartbeat_response_delay == 4_000_000
        assert any(
            w == "qos.profile arm: lifespan=5s applies only to writing; ignored" for w in found.warnings
        )

    def test_policies_without_an_option_are_named(self) -> None:
        warnings = "\n".join(settings(AppliesTo.WRITE, FAST, "arm").warnings)
        for part in (
            "qos.profile arm: topic/resource_limits_qos/allocated_samples=20 has no option here",
            "qos/liveliness/announcement_period=2s",
            "times/initial_heartbeat_delay=12ms",
            "history_memory_policy=DYNAMIC",
            "flow controller slow_lane",
        ):
            assert part in warnings

    def test_a_profile_of_the_other_side(self) -> None:
        with pytest.raises(OptionError, match=r"is no <data_reader> of .*; did you mean 'arm'?"):
            settings(AppliesTo.READ, FAST, "arms")
        with pytest.raises(OptionError, match="is no <data_reader> of"):
            settings(AppliesTo.READ, FAST, "other")


class TestFiles:
    @pytest.mark.parametrize(
        ("text", "output"),
        [
            ("", "is not XML: no element found"),
            ("<a><b></a>", "is not XML: mismatched tag: line 1"),
            ("<a/>", "has neither a <qos_library> nor <profiles>"),
            ('<?xml version="1.0" encoding="no-such"?><a/>', "is not XML: unknown encoding"),
            (b"\xff\xfe\x00", "is not XML"),
            ("<!DOCTYPE a><a/>", "has a document type"),
            ('<!DOCTYPE a [<!ENTITY e "x">]><a>&e;</a>', "has a document type"),
            ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "has a document type"),
            ("<a>&e;</a>", "is not XML: undefined entity"),
            ("<a>" * 100_000, "has elements nested deeper than 64"),
        ],
        ids=range(10),
    )
    def test_no_qos_file(self, tmp_path: Path, text: bytes | str, output: str) -> None:
        with pytest.raises(OptionError) as caught:
            settings(AppliesTo.READ, written(tmp_path, text))
        assert caught.value.option == "qos.file"
        assert output in str(caught.value)

    def test_a_file_that_is_too_large(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("spark_rtps.options.qos_profiles.xml_file._FILE_BYTES_MAX", 1 << 20)
        with pytest.raises(OptionError, match="is larger than 1 MiB"):
            settings(AppliesTo.READ, written(tmp_path, b" " * ((1 << 20) + 1)))


def test_every_path_leads_to_an_option_of_its_side() -> None:
    sides = {
        AppliesTo.WRITE: [*DDS_WRITER.values(), FAST_WRITER],
        AppliesTo.READ: [*DDS_READER.values(), FAST_READER],
    }
    for role, tables in sides.items():
        for table in tables:
            for path, options in table.items():
                for option in options:
                    spec = BY_KEY[option.lower()]
                    fits = spec.applies_to in (role, AppliesTo.BOTH)
                    assert fits or path == "qos/lifespan/duration", (path, option)
    assert set(DDS_PROPERTIES.values()) <= {spec.name for spec in BY_KEY.values()}


@pytest.mark.parametrize(
    ("head", "partition", "foot"),
    [
        (
            '<dds><profiles><data_reader profile_name="P" is_default_profile="true"><qos>',
            "<partition><names>{}</names></partition>",
            "</qos></data_reader></profiles></dds>",
        ),
        (
            '<dds><qos_library name="L"><qos_profile name="P" is_default_qos="true"><subscriber_qos>',
            "<partition><name>{}</name></partition>",
            "</subscriber_qos></qos_profile></qos_library></dds>",
        ),
    ],
    ids=["Fast DDS", "OMG"],
)
def test_names_of_partitions_are_taken_as_they_are(
    tmp_path: Path, head: str, partition: str, foot: str
) -> None:
    """Empty ones, by which peers without a partition match, such with commas, and such that look like constants."""
    names = ("", "a,b", "DDS_X", "Y_AUTO", "DURATION_ZERO")
    element = "name" if "names" in partition else "element"
    inner = "".join(f"<{element}>{name}</{element}>" for name in names)
    path = tmp_path / "qos.xml"
    path.write_text(head + partition.format(inner) + foot)
    assert settings(AppliesTo.READ, path).qos.partition == names


def test_receiver_services_are_not_asked_for_a_depth_that_means_nothing(tmp_path: Path) -> None:
    """A file may have one beside KEEP_ALL; options that are given must not."""
    body = "<datareader_qos><history><kind>KEEP_ALL_HISTORY_QOS</kind><depth>5</depth></history></datareader_qos>"
    given = {"topic": "T", "qos.file": str(written(tmp_path, dds(body))), "receivers": "a=h:1"}
    asked = parse_options({**given, "receiver.subscribe": "true"}, AppliesTo.READ).receiver_subscribes
    assert asked is not None
    again = parse_options(asked, AppliesTo.READ, receiver_service=True)
    assert again.qos.history is HistoryKind.KEEP_ALL
