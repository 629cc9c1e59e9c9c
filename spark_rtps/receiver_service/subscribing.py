"""The options of a subscription: checked, and turned into the configuration of its receiver."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ..columns.receiving import receiver_config
from ..columns.topic_plan import ContentFilter, TopicPlan, binary_schema, plan_reading
from ..columns.type_sources import given_type
from ..options import Settings
from ..options.participants import node_config
from ..options.settings import parse_options
from ..options.spec import AppliesTo
from ..options.table import BY_KEY
from ..serving.wire_format.receiver_service import is_name
from ..transport.errors import FilterError, OptionError
from ..transport.net.node_config import NodeConfig
from ..transport.qos import HistoryKind
from ..transport.receiver.config import ReceiverConfig
from ..transport.receiver.new_log import where_from
from ..transport.value_classes import value

_NAME_BYTES: Final = 128
#: Options of the log's readers, not of its receiver.
_OF_QUERIES: Final = frozenset(
    {
        "payload", "metadata", "statuses", "columns", "key", "uint64", "enum", "bitmask", "time", "event_time", "mode",
        "columnNameOfCorruptRecord", "maxRowsPerTrigger", "maxBytesPerTrigger", "minPartitions", "failOnDataLoss",
        "read.max_rows", "read.timeout", "type.discovery_timeout", "receivers", "leave_on_stop",
    }
)  # fmt: skip
_OF_QUERIES_BY_PREFIX: Final = ("serve.", "receiver.", "metrics.", "starting", "ending")
#: Options that `directory` of the file decides.
_OF_DIRECTORY: Final = frozenset({"log.dir", "log.retention", "log.retention_bytes"})
#: Options that name files on a client's host.
_FILES_PASSED_OVER: Final = frozenset({"type.file", "type.include_path", "type.extensibility"})
#: Options that decide which samples a subscription receives: equal ones give the same samples.
_RECEIVED: Final = (
    "topic", "topics", "qos", "left_to_writers", "policy", "filter", "accept_writer_removed_batch_samples",
    "consumption", "spy", "slice",
)  # fmt: skip
#: Options that name the topics of a subscription.
TOPICS: Final = ("topic", "subscribe", "subscribePattern")
_TYPE: Final = ("type_name", "keyed", "type", "announces_type", "reports_instances")
_NETWORK: Final = ("domain", "interface", "peers", "peers_allowed", "trust", "multicast")
#: Total length of a client's options, which are recorded on the disk.
_ASKED_MAX: Final = 16 << 10
#: The folder of a log does not matter when subscriptions are compared.
_NOWHERE: Final = Path("/")


@value
class Wanted:
    """A requested subscription. ``options`` are all that were given, as texts."""

    name: str
    options: Mapping[str, str]
    settings: Settings
    plan: TopicPlan
    dynamic: bool = False
    #: The subscription of the file whose pattern this topic matches; None: the topic does not come from a pattern.
    pattern: str | None = None

    def receiver(self, directory: Path, *, reached: int = 0) -> ReceiverConfig:
        """The receiver that fills the log in ``directory``, which was read up to the position ``reached``."""
        settings, is_open = self.settings, self._needs_no_instances()
        if is_open:
            settings = replace(settings, qos=replace(settings.qos, history=HistoryKind.KEEP_ALL))
        config = receiver_config(settings, self.plan, directory, records_writer_types=True)
        return replace(
            config,
            keyed=None if is_open else config.keyed,
            log_reached=reached,
            log_goes_on_behind_loss=True,
            retention=self.settings.retention,
            retention_ns=self.settings.retention_time,
        )

    def _needs_no_instances(self) -> bool:
        """Whether it is unknown if there is a key, and only HISTORY would tell instances apart.

        The first writer decides about the key then. KEEP_LAST removes nothing from a log but samples of batches that
        later
        ones of their instance replace. Only the type identifies instances, so all these samples stay.
        """
        is_open = self.plan.struct is None and not (self.plan.keyed or "keyed" in self.options)
        return is_open and not replace(self.settings.qos, history=HistoryKind.KEEP_ALL).reports_instances

    @property
    def is_pattern(self) -> bool:
        """Whether each topic whose name matches gets a subscription of its own."""
        return self.settings.topics is None and is_pattern(self.settings.topic)

    def is_like(self, other: Wanted) -> bool:
        """Whether both need exactly the same receiver, in every option."""
        return self._raw() == other._raw()

    def receives_for(self, other: Wanted) -> bool:
        """Whether its log has the samples of ``other``: same topic, type, QoS, filter and network.

        A subscription without a type takes that of the topic's first writer, and therefore any log's.
        """
        fields = _RECEIVED if other.plan.struct is None and not other.plan.named else _RECEIVED + _TYPE
        mine, its = self._raw(), other._raw()
        network = all(mine["node"][name] == its["node"][name] for name in _NETWORK)
        return network and all(mine.get(name) == its.get(name) for name in fields)

    def needs_new_log(self, other: Wanted) -> bool:
        """Whether the samples of ``other`` cannot go into the same log. One without a type continues with any type, and
        one
        of several topics with other topics."""
        if where_from(self.receiver(_NOWHERE)) != where_from(other.receiver(_NOWHERE)):
            return True
        mine, its = self.plan, other.plan
        if mine.many is not its.many or (mine.topic != its.topic and not mine.many):
            return True
        return mine.named and its.named and mine.type_name != its.type_name

    def _raw(self) -> dict[str, Any]:
        raw: dict[str, Any] = json.loads(self.receiver(_NOWHERE).to_json())
        if raw["topics"] is not None:  # the order is irrelevant
            raw["topic"] = None
            raw["topics"]["names"].sort()
        return raw


def wanted(
    name: str, options: Mapping[str, str], *, dynamic: bool = False, pattern: str | None = None
) -> Wanted:
    """A subscription with these options, checked. Raises OptionError, or TypeDefinitionError."""
    given = {_own_name(key): text for key, text in options.items()}
    for key in given:
        if key in _OF_DIRECTORY:
            raise OptionError(key, given[key], "is decided by `directory` of the receiver's file; remove it")
        if key in _OF_QUERIES or key.startswith(_OF_QUERIES_BY_PREFIX):
            raise OptionError(key, given[key], "is an option of the queries that read the log; set it there")
    # the receiver decodes nothing; only a filter needs the members of the type
    payload = "cdr" if "filter" in given else "binary"
    settings = parse_options({**given, "payload": payload}, AppliesTo.READ, receiver_service=True)
    return Wanted(name, dict(given), settings, _plan(settings, given), dynamic, pattern)


def wanted_by_client(name: str, options: Mapping[str, str], defaults: Mapping[str, str]) -> Wanted:
    """A client's subscription, with the options of its query. Raises OptionError.

    Options for reading are left out, and so are types in files of the client's host: the log gets the type that the
    topic's writers announce.
    """
    given = {_own_name(key): text for key, text in options.items()}
    length = sum(len(key) + len(text) for key, text in given.items())
    if length > _ASKED_MAX:
        raise OptionError(
            "topic", None, f"all options have {length} characters, at most {_ASKED_MAX} are allowed"
        )
    if "qos.file" in given:
        fix = "is a file of the client's host; set its policies as options"
        raise OptionError("qos.file", given["qos.file"], fix)
    plugin = given.get("congestion_control", "")
    if ":" in plugin:
        raise OptionError("congestion_control", plugin, "a client cannot load code; name one of the built-in")
    left_out = _OF_QUERIES | _OF_DIRECTORY | _FILES_PASSED_OVER
    asked = {
        key: text
        for key, text in given.items()
        if key not in left_out and not key.startswith(_OF_QUERIES_BY_PREFIX)
    }
    if is_pattern(asked.get("topic", "")):
        raise OptionError("topic", asked["topic"], "is a pattern, which only the receiver's file may have")
    merged = {**defaults, **asked}
    if not _has_type(merged):
        if given.get("key", "").strip(" ,"):
            merged["keyed"] = "true"  # only the query needs to know which columns are the key
        # The filter cannot be checked here, and the query filters anyway: its log has more than it needs.
        merged = {key: text for key, text in merged.items() if key not in ("filter", "filter.parameters")}
    return wanted(name, merged, dynamic=True)


def _has_type(options: Mapping[str, str]) -> bool:
    of_type = {key: text for key, text in options.items() if key in TOPICS or key.startswith("type")}
    found = given_type(parse_options(of_type, AppliesTo.READ, receiver_service=True))
    return found is not None and found.struct is not None


def network_of(settings: Settings) -> NodeConfig:
    """The participant that finds the same topics as a subscription's participant."""
    return dataclasses.replace(node_config(settings), guid_prefix=None)


def is_pattern(topic: str) -> bool:
    return "*" in topic or "?" in topic


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic matches a pattern: ``*`` stands for any text, ``?`` for one character."""
    return _compiled(pattern).fullmatch(topic) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """A ``*`` takes the shortest text that fits, without backtracking: with several of them, a peer could otherwise
    name
    a topic that takes hours."""
    first, *more = ("".join("." if c == "?" else re.escape(c) for c in part) for part in pattern.split("*"))
    between, last = more[:-1], more[-1:]
    text = first + "".join(f"(?>.*?{part})" for part in between) + "".join(f".*{part}" for part in last)
    return re.compile(text, re.DOTALL)


def name_for(topic: str, taken: Mapping[str, object], *, under: str = "") -> str:
    """A free name for the subscription to a topic, as similar to the topic's name as possible."""
    base = re.sub(r"[^A-Za-z0-9._/-]", "_", topic).replace("..", "__").lstrip("._/-") or "topic"
    base = (f"{under}/" if under else "") + base
    name, number = base[:_NAME_BYTES], 1
    while name in taken or not is_name(name):
        number += 1
        suffix = f"-{number}"
        name = base[: _NAME_BYTES - len(suffix)].rstrip(".") + suffix
    return name


def _own_name(key: str) -> str:
    spec = BY_KEY.get(key.lower())
    return key if spec is None else spec.name


def _plan(settings: Settings, given: Mapping[str, str]) -> TopicPlan:
    found = given_type(settings)
    if settings.filter is None:
        plan = plan_reading(settings, binary_schema(settings), found)
    else:
        plan = _filtered(settings)
    if found is not None:
        return replace(plan, announced=found.certain)
    # Whether a type known only by name has a key is unknown: the first writer decides, unless the options do. With
    # several topics, the name selects those of the type.
    return replace(plan, named=plan.named and (plan.many or "keyed" in given))


def _filtered(settings: Settings) -> TopicPlan:
    from ..transport.types.filter.content_filter import parse_filter

    assert settings.filter is not None
    found = given_type(settings)
    if found is None or found.struct is None:
        fix = "names members, so that the type has to be given: set type.file, or a ROS 2 name in type"
        raise OptionError("filter", settings.filter, fix)
    try:
        parse_filter(settings.filter, settings.filter_parameters, found.struct)
    except FilterError as error:
        raise OptionError("filter", settings.filter, str(error)) from None
    return TopicPlan(
        settings.topic,
        found.type_name,
        found.keyed,
        settings.payload,
        found.struct,
        binary_schema(settings),
        binary_schema(settings),
        many=settings.topics is not None,
        filter=ContentFilter(settings.filter, settings.filter_parameters),
    )
