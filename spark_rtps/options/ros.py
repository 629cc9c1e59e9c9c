"""Translates ROS 2's names and environment to those of DDS, in the texts of options before they are parsed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, cast

from ..transport.errors import OptionError, TypeDefinitionError
from ..transport.net.node_config import RosNode
from ..transport.types.ros_names import dds_type_name
from .ros_patterns import wire_pattern
from .rules import BEST_AVAILABLE
from .table import BY_KEY
from .texts import list_text, names_of
from .values import Values, parse_value

#: The prefix of topic names on the wire.
TOPIC_PREFIX: Final = "rt/"
_LOCALHOST: Final = "127.0.0.1"

_NAME: Final = re.compile(r"/?[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)
_NODE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SUBSTITUTION: Final = re.compile(r"\{(\w*)\}", re.ASCII)
_TYPE: Final = re.compile(r"\w+/((msg|srv|action)/)?\w+", re.ASCII)
#: Distributions that announce a participant's GUID as 24 bytes in ros_discovery_info; later ones use 16.
_LONG_GIDS: Final = frozenset({"dashing", "eloquent", "foxy", "galactic", "humble"})


def translated(given: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The options with DDS's names, and with the values of the environment for options that are not set.

    Translating twice changes nothing. Raises OptionError.
    """
    if not _is_on(given):
        return dict(given)
    # a query of recordings or statuses joins no domain, nor does one of receiver services, unless it asks them to
    joins = not ("recording" in given or _is_on(given, "statuses"))
    joins = joins and ("receivers" not in given or _is_on(given, "receiver.subscribe"))
    found = {**(_of_environment(given, environment) if joins else {}), **given}
    names = RosNames.from_options(given)
    if "topic" in found:
        found["topic"] = names.topic(found["topic"])
    if "subscribe" in found:
        each = names_of(found["subscribe"].strip())
        found["subscribe"] = list_text(names.topic(name, "subscribe") for name in each)
    if "subscribePattern" in found:
        found["subscribePattern"] = names.pattern(found["subscribePattern"])
    type_name = found.get("type.name", "").strip()
    if _TYPE.fullmatch(type_name):
        found["type.name"] = _dds_type("type.name", type_name)
    if joins and "qos.profile" not in found and "qos.file" not in found:
        found["qos.profile"] = BEST_AVAILABLE
    return found


class RosNames:
    """The names of topics, as a node in a namespace with remappings resolves them."""

    def __init__(self, node: str, namespace: str, remaps: Iterable[str] = ()) -> None:
        """Raises OptionError for an invalid name or remapping."""
        if _NODE.fullmatch(node) is None:
            fix = "must be letters, digits and underscores, such as spark_rtps"
            raise OptionError("ros.node", node, fix)
        self.node = node
        self.namespace = namespace if namespace.startswith("/") else f"/{namespace}"
        if self.namespace != "/" and _NAME.fullmatch(self.namespace) is None:
            raise OptionError("ros.namespace", namespace, f"{_RULE}, such as /robot1")
        self._remaps: dict[str, str] = {}
        for rule in remaps:
            before, sign, after = rule.partition(":=")
            if not sign:
                raise OptionError("ros.remap", rule, "must be from:=to, such as scan:=front/scan")
            whole = self._absolute("ros.remap", before.strip()), self._absolute("ros.remap", after.strip())
            self._remaps.setdefault(*whole)  # as in ROS 2, the first rule that matches applies

    @classmethod
    def from_options(cls, given: Mapping[str, str]) -> RosNames:
        """The names according to the options."""
        specs = [BY_KEY[name] for name in ("ros.node", "ros.namespace", "ros.remap")]
        found = [parse_value(spec, given.get(spec.name, spec.default or "")) for spec in specs]
        node, namespace, remaps = cast("tuple[str, str, tuple[str, ...]]", found)
        return cls(node, namespace, remaps)

    def topic(self, name: str, option: str = "topic") -> str:
        """The name of a topic on the wire. Raises OptionError."""
        name = name.strip()
        if name.startswith(TOPIC_PREFIX):
            return name
        whole = self._absolute(option, name)
        return f"{TOPIC_PREFIX}{self._remaps.get(whole, whole)[1:]}"

    def pattern(self, pattern: str) -> str:
        """The pattern of names on the wire whose absolute names match ``pattern``.

        Remappings apply to names only, not to patterns.
        """
        return wire_pattern(pattern, "/" if self.namespace == "/" else f"{self.namespace}/")

    def _absolute(self, option: str, name: str) -> str:
        here = "" if self.namespace == "/" else self.namespace
        known = {"node": self.node, "ns": self.namespace, "namespace": self.namespace}
        path = _SUBSTITUTION.sub(lambda found: known.get(found[1], found[0]), name).replace("//", "/")
        if path == "~" or path.startswith("~/"):
            path = f"{here}/{self.node}{path[1:]}"
        if _NAME.fullmatch(path) is None or "__" in path:
            raise OptionError(option, name, f"{_RULE}, such as /robot1/imu")
        return path if path.startswith("/") else f"{here}/{path}"


_RULE: Final = (
    "is no name of ROS 2, which has letters, digits and single underscores between slashes, and no digit after a "
    "slash"
)


def ros_name(topic: str) -> str | None:
    """The ROS 2 name of a DDS topic; None: it is not a topic of ROS 2."""
    return f"/{topic.removeprefix(TOPIC_PREFIX)}" if topic.startswith(TOPIC_PREFIX) else None


def ros_node(values: Values) -> RosNode | None:
    """The node that the participant represents; None: it takes no part in a ROS graph."""
    if not values.boolean("ros"):
        return None
    names = RosNames(values.word("ros.node"), values.word("ros.namespace"))
    gid_bytes = 24 if values.word("type.ros_distribution") in _LONG_GIDS else 16
    return RosNode(names.node, names.namespace, gid_bytes=gid_bytes)


def _is_on(given: Mapping[str, str], name: str = "ros") -> bool:
    return name in given and parse_value(BY_KEY[name], given[name]) is True


def _dds_type(option: str, name: str) -> str:
    try:
        return dds_type_name(name)
    except TypeDefinitionError as error:
        raise OptionError(option, name, str(error)) from None


# --- environment ----------------------------------------------------------------------------------


def _of_environment(given: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Options from ROS 2's environment variables; empty variables are ignored."""
    variables = {
        name: text.strip() for name, text in environment.items() if name.startswith("ROS_") and text.strip()
    }
    found: dict[str, str] = {}
    if (domain := variables.get("ROS_DOMAIN_ID")) is not None and "domain" not in given:
        if not domain.isascii() or not domain.isdigit() or int(domain[:4]) > 232:
            raise OptionError(
                "ROS_DOMAIN_ID", domain, "must be a domain id, 0 to 232; or set the option domain"
            )
        found["domain"] = domain
    distribution = variables.get("ROS_DISTRO", "").lower()
    if distribution in BY_KEY["type.ros_distribution"].choices:
        found["type.ros_distribution"] = distribution
    return found | _range(variables)


def _range(variables: Mapping[str, str]) -> dict[str, str]:
    """Whom the participant looks for."""
    peers = [peer.strip() for peer in variables.get("ROS_STATIC_PEERS", "").split(";") if peer.strip()]
    if variables.get("ROS_LOCALHOST_ONLY") == "1":  # it takes precedence over the range, as in ROS 2
        return {"interface": _LOCALHOST, "peers": _LOCALHOST}
    reach = variables.get("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET").upper()
    match reach:
        case "SUBNET" | "SYSTEM_DEFAULT":
            return {"peers": ",".join(peers)} if peers else {}
        case "LOCALHOST":
            return {"multicast": "false", "peers": ",".join([_LOCALHOST, *peers])}
        case "OFF":
            return {"multicast": "false"}
    fix = "must be SUBNET, LOCALHOST, OFF or SYSTEM_DEFAULT; or set the options multicast and peers"
    raise OptionError("ROS_AUTOMATIC_DISCOVERY_RANGE", reach, fix)
