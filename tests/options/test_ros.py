"""``ros=true``: ROS 2's names, environment and QoS as what they mean in DDS."""

from __future__ import annotations

import pytest

from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.options.ros import RosNames, ros_name, translated
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.net.node_config import RosNode
from spark_rtps.transport.protocol.discovery.topic_selection import TopicSelection
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, ReliabilityKind

READ, WRITE = AppliesTo.READ, AppliesTo.WRITE
VARIABLES = ("DOMAIN_ID", "LOCALHOST_ONLY", "AUTOMATIC_DISCOVERY_RANGE", "STATIC_PEERS", "DISTRO")


@pytest.fixture(autouse=True)
def _no_ros_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"ROS_{name}", raising=False)


def parse(topic: str = "/imu", role: AppliesTo = READ, **options: str) -> Settings:
    given = {name.replace("__", "."): text for name, text in options.items()}
    return parse_options({"ros": "true", **given, "topic": topic}, role)


class TestNames:
    @pytest.mark.parametrize(
        ("name", "wire"),
        [
            ("/imu", "rt/imu"),
            ("imu", "rt/imu"),
            ("rt/imu", "rt/imu"),
            ("/robot1/front/scan", "rt/robot1/front/scan"),
            ("/_hidden/x", "rt/_hidden/x"),
            ("~/state", "rt/spark_rtps/state"),
            ("~", "rt/spark_rtps"),
            ("/{node}/x", "rt/spark_rtps/x"),
        ],
    )
    def test_topics(self, name: str, wire: str) -> None:
        assert parse(name).topic == wire

    @pytest.mark.parametrize("name", ["/", "/a/", "/1a", "a b", "/a__b", "/a-b", "/{nothing}/a", "~x", "/é"])
    def test_an_invalid_ros_name_is_refused(self, name: str) -> None:
        with pytest.raises(OptionError, match="is no name of ROS 2") as error:
            parse(name)
        assert error.value.option == "topic"

    @pytest.mark.parametrize("namespace", ["/robot1", "robot1"])
    def test_namespaces(self, namespace: str) -> None:
        settings = parse("imu", ros__namespace=namespace, ros__node="bridge")
        assert settings.topic == "rt/robot1/imu"
        assert settings.ros == RosNode("bridge", "/robot1")
        assert parse("/imu", ros__namespace=namespace).topic == "rt/imu"
        assert parse("~/x", ros__namespace=namespace, ros__node="bridge").topic == "rt/robot1/bridge/x"

    def test_several(self) -> None:
        options = {"ros": "true", "ros.namespace": "/r1", "subscribe": "imu, /odom"}
        assert translated(options, {})["subscribe"] == "rt/r1/imu,rt/odom"

    @pytest.mark.parametrize(
        ("pattern", "wire"), [("/r./imu", "rt/r./imu"), ("sc.*", "rt/r1/sc.*"), ("rt/.*", "rt/.*")]
    )
    def test_patterns_are_of_absolute_names(self, pattern: str, wire: str) -> None:
        options = {"ros": "true", "ros.namespace": "/r1", "subscribePattern": pattern}
        assert translated(options, {})["subscribePattern"] == wire

    @pytest.mark.parametrize(
        ("pattern", "names"),
        [
            ("/imu|/odom", ["/imu", "/odom"]),
            ("(/imu|/odom)/raw|/x", ["/imu/raw", "/odom/raw", "/x"]),
            ("(?:/imu|/odom)", ["/imu", "/odom"]),
            ("/(imu|odom)", ["/imu", "/odom"]),
            ("imu|odom", ["/r1/imu", "/r1/odom"]),
            ("(imu|odom)/raw", ["/r1/imu/raw", "/r1/odom/raw"]),
            ("rt/imu|rt/odom", ["/imu", "/odom"]),
            (".*", ["/r1/imu", "/r1/odom", "/r1/imu/raw", "/r1/odom/raw"]),
            ("^/imu", ["/imu"]),
            ("^/imu$|^odom$", ["/imu", "/r1/odom"]),
            ("(^/imu|^/odom)/raw", ["/imu/raw", "/odom/raw"]),
            ("\\A/imu\\Z", ["/imu"]),
            ("(/imu)", ["/imu"]),
            ("((/imu))", ["/imu"]),
            ("(?P<name>/imu)", ["/imu"]),
            ("\\/imu", ["/imu"]),
            ("/imu|odom", ["/imu", "/r1/odom"]),
            ("imu|/odom", ["/r1/imu", "/odom"]),
            ("(/imu|odom)/raw", ["/imu/raw", "/r1/odom/raw"]),
            ("(imu|(/odom|(?:odom)))/raw", ["/r1/imu/raw", "/odom/raw", "/r1/odom/raw"]),
            ("(?!/imu)/[^/]*", ["/odom", "/x"]),
            ("(?!imu)[a-z]+", ["/r1/odom"]),
            ("(?i)/IMU|ODOM", ["/imu", "/r1/odom"]),
            ("(i|o)(mu|dom)", ["/r1/imu", "/r1/odom"]),
            ("(raw/)?imu", ["/r1/imu"]),
            ("/[i|o](mu|dom)", ["/imu", "/odom"]),
            ("[^/]mu", ["/r1/imu"]),
            ("(rt/imu|rt/odom)", ["/imu", "/odom"]),
        ],
    )
    def test_alternatives(self, pattern: str, names: list[str]) -> None:
        """Remappings are of names: a topic that is remapped is found under the name that it has."""
        namespace = "/r1"
        given = {
            "ros": "true",
            "subscribePattern": pattern,
            "ros.namespace": namespace,
            "ros.remap": "/imu:=/x",
        }
        once = translated(given, {})
        assert translated(once, {}) == once
        selection = TopicSelection(pattern=once["subscribePattern"])
        there = [
            *(f"{space}/{name}" for space in ("", namespace, "/r2") for name in ("imu", "odom")),
            *(f"{space}/{name}/raw" for space in ("", namespace) for name in ("imu", "odom")),
            "/x",
        ]
        assert selection.among(f"rt{name}" for name in there) == sorted(f"rt{name}" for name in names)
        assert not selection.among(["imu", "odom", "/imu", "rq/imu", "art/imu"])

    @pytest.mark.parametrize("pattern", ["(" * 5000, "/a)b", "/[", "(/a", "\\", "(?P<1>/a)"])
    def test_patterns_that_are_none_are_errors(self, pattern: str) -> None:
        with pytest.raises(OptionError, match="subscribePattern"):
            parse_options({"ros": "true", "subscribePattern": pattern}, READ)

    def test_remappings(self) -> None:
        names = RosNames("n", "/a", ["scan:=front/scan", "/imu:=/b/imu", "scan:=never"])
        assert names.topic("scan") == "rt/a/front/scan"
        assert names.topic("/a/scan") == "rt/a/front/scan"
        assert names.topic("/scan") == "rt/scan"
        assert names.topic("/imu") == "rt/b/imu"
        assert parse("scan", ros__remap="scan:=/front , x:=y").topic == "rt/front"

    @pytest.mark.parametrize(
        ("options", "option"),
        [
            ({"ros__node": "a-b"}, "ros.node"),
            ({"ros__namespace": "/a//b "}, "ros.namespace"),
            ({"ros__namespace": "/1"}, "ros.namespace"),
            ({"ros__remap": "a=b"}, "ros.remap"),
            ({"ros__remap": "a:=1b"}, "ros.remap"),
        ],
    )
    def test_impossible_names_are_refused(self, options: dict[str, str], option: str) -> None:
        with pytest.raises(OptionError) as error:
            parse(**options)
        assert error.value.option == option

    def test_without_ros_nothing_is_translated(self) -> None:
        assert parse_options({"topic": "/imu"}, READ).topic == "/imu"
        assert parse_options({"topic": "/imu"}, READ).ros is None
        with pytest.raises(OptionError, match="set ros=true too"):
            parse_options({"topic": "/imu", "ros.node": "n"}, READ)

    def test_twice_is_once(self) -> None:
        given = {"ros": "true", "topic": "scan", "ros.namespace": "/a", "ros.remap": "scan:=b,b:=c"}
        once = translated(given, {"ROS_DOMAIN_ID": "3"})
        assert once["topic"] == "rt/a/b"
        assert translated(once, {}) == once

    def test_types(self) -> None:
        assert parse(type__name="my_msgs/msg/Status").type_name == "my_msgs::msg::dds_::Status_"
        assert parse(type__name="my_msgs/Status").type_name == "my_msgs::msg::dds_::Status_"
        assert parse(type__name="Other").type_name == "Other"

    @pytest.mark.parametrize(
        ("options", "announces"),
        [
            ({}, False),
            ({"type__announce": "true"}, True),
            ({"ros": "false"}, True),
            ({"ros": "false", "type__announce": "false"}, False),
        ],
    )
    def test_whether_types_are_announced(self, options: dict[str, str], announces: bool) -> None:
        assert parse("imu", **options).announces_type is announces

    def test_names_of_topics_on_the_wire(self) -> None:
        assert ros_name("rt/a/imu") == "/a/imu"
        assert ros_name("rq/addRequest") is None


class TestEnvironment:
    def test_the_environment_decides_where_no_option_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ROS_DOMAIN_ID", "42")
        monkeypatch.setenv("ROS_STATIC_PEERS", "10.0.0.1; robot2 ;")
        monkeypatch.setenv("ROS_DISTRO", "humble")
        settings = parse()
        assert (settings.domain, settings.peers) == (42, ("10.0.0.1", "robot2"))
        assert (settings.multicast, settings.ros_distribution) == (True, "humble")
        assert settings.ros == RosNode("spark_rtps", gid_bytes=24)
        settings = parse(domain="7", peers="other", type__ros_distribution="iron")
        assert (settings.domain, settings.peers, settings.ros) == (7, ("other",), RosNode("spark_rtps"))
        settings = parse_options({"topic": "t"}, READ)
        assert (settings.domain, settings.peers) == (0, ())

    @pytest.mark.parametrize(
        ("variables", "interface", "multicast", "peers"),
        [
            ({"LOCALHOST_ONLY": "1", "AUTOMATIC_DISCOVERY_RANGE": "OFF"}, "127.0.0.1", True, ("127.0.0.1",)),
            ({"LOCALHOST_ONLY": "0"}, None, True, ()),
            ({"AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}, None, False, ("127.0.0.1",)),
            (
                {"AUTOMATIC_DISCOVERY_RANGE": "localhost", "STATIC_PEERS": "a"},
                None,
                False,
                ("127.0.0.1", "a"),
            ),
            ({"AUTOMATIC_DISCOVERY_RANGE": "SUBNET", "STATIC_PEERS": "a"}, None, True, ("a",)),
            ({"AUTOMATIC_DISCOVERY_RANGE": "SYSTEM_DEFAULT"}, None, True, ()),
            ({"AUTOMATIC_DISCOVERY_RANGE": "OFF", "STATIC_PEERS": "a"}, None, False, ()),
            ({"AUTOMATIC_DISCOVERY_RANGE": ""}, None, True, ()),
        ],
    )
    def test_discovery_variables_set_interface_multicast_and_peers(
        self,
        monkeypatch: pytest.MonkeyPatch,
        variables: dict[str, str],
        interface: str | None,
        multicast: bool,
        peers: tuple[str, ...],
    ) -> None:
        for name, text in variables.items():
            monkeypatch.setenv(f"ROS_{name}", text)
        settings = parse()
        assert (settings.interface, settings.multicast, settings.peers) == (interface, multicast, peers)
        assert parse(multicast="true", interface="lo").multicast

    @pytest.mark.parametrize(
        ("name", "text"),
        [("ROS_DOMAIN_ID", "233"), ("ROS_DOMAIN_ID", "x"), ("ROS_AUTOMATIC_DISCOVERY_RANGE", "NEAR")],
    )
    def test_errors_name_the_variable(self, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
        monkeypatch.setenv(name, text)
        with pytest.raises(OptionError) as error:
            parse()
        assert error.value.option == name


class TestQos:
    def test_reading(self) -> None:
        settings = parse()
        assert settings.left_to_writers == ("reliability", "durability")
        assert settings.qos.history is HistoryKind.KEEP_ALL
        assert not settings.warnings
        assert parse(reliability="reliable").left_to_writers == ("durability",)
        assert parse(startingOffsets="earliest").left_to_writers == ("reliability",)
        assert not parse(startingOffsets="earliest").warnings
        settings = parse(qos__profile="sensor_data")
        assert (settings.left_to_writers, settings.qos.history_depth) == ((), 5)
        assert parse_options({"topic": "t"}, READ).left_to_writers == ()

    def test_writing(self) -> None:
        qos = parse(role=WRITE).qos
        assert (qos.reliability, qos.durability) == (ReliabilityKind.RELIABLE, DurabilityKind.TRANSIENT_LOCAL)
        assert parse(role=WRITE).left_to_writers == ()

    def test_receiver_services_get_translated_ros_options(self) -> None:
        given = {"receivers": "a=h:1", "ros.namespace": "/r", "ros": "true", "topic": "imu"}
        settings = parse_options(given, READ)  # it reads what is there
        assert (settings.topic, settings.receiver_subscribes) == ("rt/r/imu", None)
        asked = parse_options({**given, "receiver.subscribe": "true"}, READ).receiver_subscribes
        assert asked is not None
        again = parse_options(asked, READ, receiver_service=True)
        assert (again.topic, again.left_to_writers) == ("rt/r/imu", ("reliability", "durability"))
        assert again.ros == RosNode("spark_rtps", "/r")


def test_statuses_are_of_topics_of_ros(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment says of a participant is no option of a source that has none."""
    monkeypatch.setenv("ROS_STATIC_PEERS", "10.0.0.1")
    assert parse("/imu", statuses="true").topic == "rt/imu"
    assert parse("imu", statuses="true", ros__namespace="/r").topic == "rt/r/imu"
    assert parse_options({"ros": "true", "statuses": "true"}, READ).topic == ""


def test_spaces_around_names_are_none_of_them() -> None:
    assert parse(" rt/imu ").topic == "rt/imu"
    assert parse(" /imu").topic == "rt/imu"
    assert parse(type__name=" sensor_msgs/msg/Imu").type_name == "sensor_msgs::msg::dds_::Imu_"
