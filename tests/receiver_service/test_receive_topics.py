"""``spark-rtps receive`` with several topics in one log: live Cyclone writers, kills, and queries of what it has."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from spark_rtps.datasource import receiver_services
from spark_rtps.datasource.receiver_service_batch_reader import ReceiverServiceBatchReader
from spark_rtps.datasource.schema import plan_source
from spark_rtps.datasource.source import RtpsDataSource
from spark_rtps.options import AppliesTo
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.cyclone_types import Part, Vehicle
from tests.receiver_service.receive_scene import DOMAIN
from tests.support.receive_command import Receive
from tests.support.waiting import wait_until

HEAD = 'reliability = "reliable"\nhistory = "keep_all"\n'


def vehicles(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": i, "note": "n" * (i % 7), "speed": i / 2} for i in range(first, first + count)]


@pytest.fixture(autouse=True)
def patient_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that starts on a busy machine takes longer than a plan waits."""
    monkeypatch.setattr(receiver_services, "_PATIENCE_SECONDS", 20.0)


def query(receive: Receive, **options: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and rows of a batch of all that was received, as Spark gets them."""
    port = receive.printed().rpartition("serving at 127.0.0.1:")[2].split()[0]
    given = {
        "receivers": f"edge=127.0.0.1:{port.rstrip(',.;')}",
        "receiver.token.file": str(receive.root / "token"),
        **{key.replace("__", "."): text for key, text in options.items()},
    }
    source = RtpsDataSource(given)
    schema = source.schema()
    settings = source._settings(AppliesTo.READ)
    reader = ReceiverServiceBatchReader(settings, plan_source(settings, schema, source._topic_type))
    batches = (batch for part in reader.partitions() for batch in reader.read(part))
    return schema.names, [row for batch in batches for row in batch.to_pylist()]


def test_topics_join_and_come_once_whoever_is_killed(receive: Receive) -> None:
    """One participant has all readers, which a successor has again; the column topic says whose each row is."""
    receive.start(f'[subscriptions.all]\n{HEAD}subscribePattern = "together/.*"\n')
    one, two, other = "together/one", "together/two", "apart"
    with CyclonePeer(DOMAIN) as peer:
        for topic in (one, other):
            peer.writer(topic, Vehicle)
        peer.wait_for_match(one)
        peer.write(one, vehicles(0, 10))
        peer.writer(two, Vehicle)  # later than the receiver
        peer.wait_for_match(two)
        peer.write(two, vehicles(100, 10))
        guids = [peer.matched(each)[0] for each in (one, two)]
        assert guids[0][:24] == guids[1][:24]
        (receiver,) = receive.children()["receiver"]
        os.kill(receiver, signal.SIGKILL)
        peer.write(one, vehicles(10, 10))
        wait_until(lambda: receive.children()["receiver"] not in ([], [receiver]), receive.printed)
        peer.write(two, vehicles(110, 10))
        wait_until(lambda: len(query(receive, subscribePattern="together/.*")[1]) >= 40, receive.printed)
        columns, rows = query(receive, subscribePattern="together/.*")
        assert [peer.matched(each)[0] for each in (one, two)] == guids
        assert peer.matched(other) == []
    assert columns == ["topic", "id", "note", "speed"]
    assert sorted((row["topic"], row["id"], row["speed"]) for row in rows) == [
        *((one, row["id"], row["speed"]) for row in vehicles(0, 20)),
        *((two, row["id"], row["speed"]) for row in vehicles(100, 20)),
    ]
    assert len(list(receive.root.glob("*/metadata.json"))) == 1, "there is one log"


def test_types_that_differ_and_a_selection_that_changes(receive: Receive) -> None:
    """Payloads carry topic, type and hash; a query with a type reads its topics alone. Writers of a topic that is no
    longer selected do not wait for its reader."""
    names = {kind: f"mixed_{kind.__name__}" for kind in (Vehicle, Part)}
    both = ",".join(names.values())
    receive.start(f'[subscriptions.mixed]\n{HEAD}subscribe = "{names[Vehicle]}"\n')
    with CyclonePeer(DOMAIN) as peer:
        for kind, name in names.items():
            peer.writer(name, kind)
        peer.wait_for_match(names[Vehicle])
        peer.write(names[Vehicle], vehicles(0, 3))
        log = receive.log("mixed")
        receive.write(f'[subscriptions.mixed]\n{HEAD}subscribe = ["{names[Vehicle]}", "{names[Part]}"]\n')
        receive.signal(signal.SIGHUP)
        peer.wait_for_match(names[Part])
        peer.write(names[Part], [{"plant": "p", "number": 1, "weight": 0.5}])
        wait_until(lambda: len(query(receive, subscribe=both)[1]) >= 4, receive.printed)
        assert receive.log("mixed") == log
        columns, rows = query(receive, subscribe=both)
        typed = query(receive, subscribe=both, type="interop::Vehicle")
        receive.write(f'[subscriptions.mixed]\n{HEAD}subscribe = ["{names[Part]}", "none"]\n')
        receive.signal(signal.SIGHUP)
        wait_until(lambda: peer.matched(names[Vehicle]) == [], receive.printed)
        assert peer.matched(names[Part]) != []
    assert columns[:3] == ["topic", "type_name", "type_hash"] and columns[-1] == "value"
    hashes = {row["topic"]: (row["type_name"], row["type_hash"]) for row in rows}
    assert {topic: name for topic, (name, _) in hashes.items()} == {
        names[Vehicle]: "interop::Vehicle",
        names[Part]: "interop::Part",
    }
    assert len({type_hash for _, type_hash in hashes.values()}) == 2
    assert all(len(str(type_hash)) == 28 for _, type_hash in hashes.values())
    assert typed[0] == ["topic", "id", "note", "speed"] and [row["id"] for row in typed[1]] == [0, 1, 2]


def test_a_client_asks_for_topics(receive: Receive) -> None:
    receive.start("")
    asked = {"receiver__subscribe": "true", "domain": str(DOMAIN), "interface": "lo", "payload": "binary"}
    asked |= {"subscribePattern": "asked/.*", "history": "keep_all"}
    assert query(receive, **asked)[1] == []
    with CyclonePeer(DOMAIN) as peer:
        peer.writer("asked/v", Vehicle)
        peer.wait_for_match("asked/v")
        peer.write("asked/v", vehicles(0, 5))
        wait_until(lambda: len(query(receive, **asked)[1]) >= 5, receive.printed)
    (record,) = receive.records().values()
    assert record["options"]["subscribePattern"] == "asked/.*"
    assert {row["topic"] for row in query(receive, **asked)[1]} == {"asked/v"}
