"""Errors of transport carry facts; the sentence that says what to set names options."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from spark_rtps.options.explanations import (
    READER_HINTS,
    RECEIVER_HINTS,
    WRITER_HINTS,
    explained,
    hint_of,
    no_reader,
)
from spark_rtps.transport import qos
from spark_rtps.transport.errors import (
    AcknowledgmentError,
    CoherentSetError,
    EncodeError,
    LogAccessError,
    LogDamagedError,
    LogError,
    LogFormatError,
    LogFullError,
    LogLostError,
    NullPlace,
    OptionError,
    OutOfTokensError,
    Plugin,
    PluginError,
    RtpsError,
    TypeGap,
    UnknownTypeError,
    UnloggedError,
    WriterLimit,
)
from spark_rtps.transport.receiver.hints import reasons_with_hints, with_hints
from spark_rtps.transport.structure import Guid

WHERE = Path("/logs/one")
READER = Guid(bytes(range(12)), bytes(4))
HELD_UP = "flow_control.receiver_timeout"

ERRORS = [
    (LogFullError("it is too long", path=WHERE, needed=40, limit=20), "set log.max_bytes to at least 40"),
    (LogAccessError("it is theirs", path=WHERE, owner=7), "log.mode=0750"),
    (LogFullError("no room", path=WHERE, needed=40, free=20), "lower log.max_bytes, or set log.dir"),
    (LogLostError("it is gone", path=WHERE, position=7), "failOnDataLoss=false"),
    (LogDamagedError("it is damaged", path=WHERE, position=7, stop=9, rows=2), "`spark-rtps log verify`"),
    (LogFormatError("it is old", path=WHERE, version=1), "let the version that wrote the log finish"),
    (OutOfTokensError("it waits"), "tokens_added_per_period, or offer_timeout"),
    (OutOfTokensError("it waits", admitted=True), "tokens_added_per_period, or acknowledgment_timeout"),
    (AcknowledgmentError("it is stuck", limit=WriterLimit.GROUP), "lower flow_control.group_min_size"),
    (
        AcknowledgmentError("it is stuck", limit=WriterLimit.MAX_BATCHES),
        "raise offer_timeout, or max_batches",
    ),
    (
        AcknowledgmentError("it is stuck", limit=WriterLimit.SEND_WINDOW),
        "or reliable_writer.send_window_bytes",
    ),
    (AcknowledgmentError("it is stuck", limit=WriterLimit.PUBLICATION), "or publication.term_length"),
    (AcknowledgmentError("it is stuck", limit=WriterLimit.MAX_SAMPLES), "or resource_limits.max_samples"),
    (AcknowledgmentError("it is stuck", limit=WriterLimit.MAX_SAMPLES), HELD_UP),
    (UnknownTypeError("none", gap=TypeGap.NO_ENDPOINT), "give the type with type.file"),
    (UnknownTypeError("none", gap=TypeGap.UNEXPLAINED), "a ROS 2 name with type"),
    (UnknownTypeError("two", gap=TypeGap.CONTRADICTORY), "by its name with type"),
    (EncodeError("null", null=NullPlace.MEMBER), "nullable=optional"),
    (CoherentSetError("too large"), "presentation.coherent_access=false"),
    (UnloggedError("no log"), "publication.term_length"),
]


@pytest.mark.parametrize(("error", "fix"), ERRORS)
def test_an_error_says_what_mends_it(error: RtpsError, fix: str) -> None:
    plain = str(error)
    for _ in range(2):  # nested boundaries explain it once
        with pytest.raises(type(error)) as caught, explained():
            raise error
        assert caught.value is error
        assert str(error) == f"{plain}; {hint_of(error)}"
        assert fix in str(error)


@pytest.mark.parametrize(
    "error",
    [
        LogError("cannot open it", path=WHERE),
        UnknownTypeError("others", gap=TypeGap.OTHER_NAME),
        AcknowledgmentError("late"),
        EncodeError("too large"),
        RtpsError("it ended"),
    ],
)
def test_an_error_that_no_option_mends_stays_as_it_is(error: RtpsError) -> None:
    plain = str(error)
    with pytest.raises(type(error)), explained():
        raise error
    assert str(error) == plain


@pytest.mark.parametrize("error", [error for error, _ in ERRORS])
def test_facts_and_hint_survive_pickle(error: RtpsError) -> None:
    error.hint = hint_of(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


def test_an_error_names_the_readers_it_waits_for_as_facts() -> None:
    error = AcknowledgmentError("late", readers={READER: 3}, last_sn=5, positions={"pub-pos": 64})
    assert (error.readers, error.last_sn, error.positions) == ({READER: 3}, 5, {"pub-pos": 64})


@pytest.mark.parametrize(
    ("plugin", "option", "where"),
    [
        (Plugin.INTERCEPTOR, "batch.interceptor", "--py-files"),
        (Plugin.FLOW_CONTROL, "flow_control.strategy", "--py-files"),
        (Plugin.CONGESTION_CONTROL, "congestion_control", "addPyFile"),
    ],
)
def test_code_of_the_users_is_an_option(plugin: Plugin, option: str, where: str) -> None:
    error = PluginError.for_plugin(plugin, "a:b", "cannot be loaded", is_loaded=False)
    again = PluginError(str(error))  # as the parent of a receiver process makes it
    vars(again).update(json.loads(json.dumps(vars(error))))
    for each in (error, again):
        with (
            pytest.raises(OptionError, match=rf"'a:b': cannot be loaded; .*{where}") as caught,
            explained(),
        ):
            raise each
        assert (caught.value.option, caught.value.value) == (option, "a:b")
    with pytest.raises(OptionError) as caught, explained():
        raise PluginError.for_plugin(plugin, "a:b", "is not callable")
    assert caught.value.fix == "is not callable"


@pytest.mark.parametrize("hints", [READER_HINTS, WRITER_HINTS])
def test_every_compared_policy_has_a_hint(hints: dict[str, str]) -> None:
    policies = {"RELIABILITY", "DURABILITY", "DEADLINE", "LIVELINESS", "OWNERSHIP", "PRESENTATION"}
    assert policies <= hints.keys()
    offered = qos.Qos()
    requested = qos.requested_by_reader(qos.Qos(reliability=qos.ReliabilityKind.RELIABLE))
    (reason,) = qos.incompatibilities(offered, requested)
    assert reasons_with_hints([reason], hints) == f"{reason} ({hints['RELIABILITY']})"


def test_hints_of_warnings() -> None:
    assert with_hints("it is full", ["LOG_FULL"], RECEIVER_HINTS, needed=40) == (
        "it is full (set log.max_bytes to at least 40)"
    )
    assert with_hints("it is odd", ["SOMETHING"], RECEIVER_HINTS) == "it is odd"
    assert json.loads(json.dumps(RECEIVER_HINTS)) == RECEIVER_HINTS


def test_no_reader_names_the_first_mismatches() -> None:
    readers = {Guid(bytes(12), bytes((0, 0, 0, i))): ("RELIABILITY: no",) for i in range(5)}
    assert str(no_reader("T", 0, 1.0, readers)).count(WRITER_HINTS["RELIABILITY"]) == 3
    assert "raise connect_timeout" in str(no_reader("T", 0, 1.0, {}))
