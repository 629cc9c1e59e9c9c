"""Reading by the Python API from a live Cyclone DDS: tables, batches, and what DDS says of read and take."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import spark_rtps as rtps
from tests.interop import cyclone_types
from tests.interop.cyclone_peer import CyclonePeer, number_row
from tests.support.waiting import PATIENCE, wait_until

Row = dict[str, Any]
Cyclone = Callable[..., CyclonePeer]

VEHICLES: list[Row] = [
    {"id": 7, "note": "seven", "speed": 0.5},
    {"id": -8, "note": "minus eight", "speed": 1.5},
    {"id": 9, "note": "nine", "speed": 2.5},
]


def vehicle(number: int, note: str) -> Row:
    return {"id": number, "note": note, "speed": 0.0}


def written(cyclone: Cyclone, kind: type, topic: str = "t", **qos: Any) -> CyclonePeer:
    """A Cyclone participant with a writer."""
    peer = cyclone()
    peer.writer(topic, kind, **qos)
    return peer


def subscribed(
    participant: rtps.Participant, peer: CyclonePeer, topic: str = "t", **arguments: Any
) -> rtps.Subscription:
    """A subscription that is matched with the peer's writer, on both sides."""
    subscription = participant.subscribe(topic, **arguments)
    assert subscription.wait_for_writers(PATIENCE)
    peer.wait_for_match(topic)
    return subscription


def notes(table: pa.Table) -> list[str]:
    return [] if not table.num_rows else table["note"].to_pylist()


class TestTables:
    def test_the_type_is_discovered(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        peer = written(cyclone, cyclone_types.Vehicle)
        subscription = subscribed(participant, peer)
        peer.write("t", VEHICLES)
        table = subscription.read(max_rows=3, timeout=PATIENCE)
        assert table.to_pylist() == VEHICLES
        assert table.schema == subscription.schema
        assert subscription.type_name == "interop::Vehicle"

    def test_read_leaves_samples_and_take_removes_them(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        peer = written(cyclone, cyclone_types.Vehicle)
        subscription = subscribed(participant, peer)
        peer.write("t", VEHICLES)
        assert subscription.read(max_rows=2, timeout=PATIENCE).to_pylist() == VEHICLES[:2]
        assert subscription.read(max_rows=1, timeout=PATIENCE).to_pylist() == VEHICLES[2:]
        assert subscription.read().num_rows == 0
        assert subscription.read(sample_states="any").to_pylist() == VEHICLES
        assert subscription.read(max_rows=2, sample_states="any").to_pylist() == VEHICLES[:2]
        peer.write("t", [vehicle(1, "later")])
        assert subscription.read(max_rows=4, timeout=PATIENCE, sample_states="any").num_rows == 4
        assert subscription.take(max_rows=1).to_pylist() == VEHICLES[:1]
        assert subscription.take(sample_states="not_read").num_rows == 0
        assert notes(subscription.take()) == ["minus eight", "nine", "later"]
        assert subscription.read(sample_states="any").num_rows == 0

    def test_a_timeout_returns_what_came(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        peer = written(cyclone, cyclone_types.Vehicle)
        subscription = subscribed(participant, peer)
        before = time.monotonic()
        assert subscription.take(max_rows=1, timeout=0.2).num_rows == 0
        assert time.monotonic() - before >= 0.2
        peer.write("t", VEHICLES)
        assert subscription.take(max_rows=4, timeout=1).num_rows == 3

    def test_without_limits_nothing_is_waited_for(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        peer = written(cyclone, cyclone_types.Vehicle)
        assert subscribed(participant, peer).take().num_rows == 0

    def test_the_history_of_a_writer(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        peer = written(cyclone, cyclone_types.Vehicle, transient_local=True)
        peer.write("t", VEHICLES)
        subscription = subscribed(participant, peer, durability="transient_local")
        assert subscription.take(max_rows=3, timeout=PATIENCE).to_pylist() == VEHICLES

    def test_columns_and_options_by_mapping_and_keyword(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        peer = written(cyclone, cyclone_types.Vehicle, reliable=False)
        subscription = subscribed(
            participant, peer, columns=["note", "id"], options={"reliability": "best_effort"}
        )
        peer.write("t", VEHICLES[:1])
        assert subscription.take(max_rows=1, timeout=PATIENCE).to_pylist() == [{"note": "seven", "id": 7}]

    def test_columns_of_a_schema_are_picked_by_name(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        peer = written(cyclone, cyclone_types.Vehicle)
        schema = pa.schema([("speed", pa.float64()), ("id", pa.int64())])
        subscription = subscribed(participant, peer, schema=schema, key="id")
        peer.write("t", VEHICLES[:1])
        assert subscription.take(max_rows=1, timeout=PATIENCE).to_pylist() == [{"speed": 0.5, "id": 7}]

    def test_a_filter(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        peer = written(cyclone, cyclone_types.Vehicle)
        subscription = subscribed(participant, peer, filter="speed > %0", filter_parameters=["1.0"])
        peer.write("t", VEHICLES)
        assert notes(subscription.take(max_rows=2, timeout=PATIENCE)) == ["minus eight", "nine"]
        assert subscription.counters()["filtered_samples"] == 1

    def test_metadata_and_the_ends_of_instances(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        peer = written(cyclone, cyclone_types.Vehicle)
        subscription = subscribed(participant, peer, metadata=True)
        peer.write("t", VEHICLES[:2])
        peer.write("t", VEHICLES[:1], "dispose")
        peer.write("t", VEHICLES[1:2], "unregister_instance")
        table = subscription.take(max_rows=4, timeout=PATIENCE)
        states = [each["instance_state"] for each in table["_rtps"].to_pylist()]
        assert states == ["ALIVE", "ALIVE", "NOT_ALIVE_DISPOSED", "NOT_ALIVE_NO_WRITERS"]
        assert table["id"].to_pylist() == [7, -8, 7, -8]
        assert table["speed"].to_pylist() == [0.5, 1.5, None, None]
        assert {each["writer"] for each in table["_rtps"].to_pylist()} == set(subscription.writers())

    def test_binary_payloads(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        peer = written(cyclone, cyclone_types.Number)
        subscription = participant.subscribe("t", payload="binary")
        assert subscription.wait_for_writers(PATIENCE)
        peer.wait_for_match("t")
        peer.write("t", [number_row(3)])
        (row,) = subscription.take(max_rows=1, timeout=PATIENCE).to_pylist()
        assert row["topic"] == "t" and row["encapsulation"] in ("CDR_LE", "CDR2_LE")
        assert int.from_bytes(row["value"][4:8], "little") == 3

    def test_a_subscription_before_its_first_writer(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        subscription = participant.subscribe("t", payload="binary")
        assert subscription.guid is None
        peer = written(cyclone, cyclone_types.Vehicle)
        assert subscription.wait_for_writers(PATIENCE)
        peer.wait_for_match("t")
        peer.write("t", VEHICLES)
        assert subscription.take(max_rows=3, timeout=PATIENCE).num_rows == 3
        assert subscription.guid is not None

    def test_several_subscriptions_of_one_participant(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        peer = written(cyclone, cyclone_types.Vehicle, "a")
        peer.writer("b", cyclone_types.Number)
        of_a, again, of_b = (participant.subscribe(topic) for topic in ("a", "a", "b"))
        for each in (of_a, again, of_b):
            assert each.wait_for_writers(PATIENCE)
        peer.wait_for_match("a", 2)
        peer.wait_for_match("b")
        peer.write("a", VEHICLES)
        peer.call("write_numbers", "b", 0, 10)
        assert of_a.take(max_rows=3, timeout=PATIENCE).to_pylist() == VEHICLES
        again.close()
        assert of_b.take(max_rows=10, timeout=PATIENCE)["id"].to_pylist() == list(range(10))
        peer.write("a", VEHICLES)
        assert of_a.take(max_rows=3, timeout=PATIENCE).to_pylist() == VEHICLES


class TestIteration:
    def test_batches_are_yielded_as_they_arrive(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        peer = written(cyclone, cyclone_types.Number)
        subscription = subscribed(participant, peer)
        peer.call("write_numbers", "t", 0, 100)
        found: list[int] = []
        for batch in subscription:
            assert isinstance(batch, pa.RecordBatch) and batch.num_rows
            found += batch["id"].to_pylist()
            if len(found) == 100:
                break
        assert found == list(range(100))
        peer.call("write_numbers", "t", 100, 1)
        assert next(iter(subscription))["id"].to_pylist() == [100]

    @pytest.mark.parametrize("closes", ["subscription", "participant"])
    def test_an_iteration_ends_when_another_thread_closes(
        self, closes: str, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        peer = written(cyclone, cyclone_types.Vehicle)
        subscription = subscribed(participant, peer)
        ended = threading.Event()

        def iterate() -> None:
            for _ in subscription:
                pass
            ended.set()

        thread = threading.Thread(target=iterate)
        thread.start()
        (subscription if closes == "subscription" else participant).close()
        thread.join(PATIENCE)
        assert ended.is_set()
        with pytest.raises(rtps.UsageError, match="closed"):
            subscription.read()

    def test_async_for(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        peer = written(cyclone, cyclone_types.Number)
        subscription = subscribed(participant, peer)

        async def gather() -> list[int]:
            found: list[int] = []
            writing = asyncio.create_task(asyncio.to_thread(peer.call, "write_numbers", "t", 0, 50))
            async for batch in subscription:
                found += batch["id"].to_pylist()
                if len(found) == 50:
                    break
            await writing
            return found

        assert asyncio.run(gather()) == list(range(50))

    def test_async_for_ends_at_close(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        subscription = subscribed(participant, written(cyclone, cyclone_types.Vehicle))

        async def gather() -> int:
            asyncio.get_running_loop().call_later(0.1, subscription.close)
            return len([batch async for batch in subscription])

        assert asyncio.run(gather()) == 0

    def test_a_cancelled_iteration_loses_no_sample(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        peer = written(cyclone, cyclone_types.Number)
        subscription = subscribed(participant, peer)

        async def gather() -> list[int]:
            found: list[int] = []
            writing = asyncio.create_task(asyncio.to_thread(peer.call, "start_stream", "t", 0.001))
            while len(found) < 300:
                try:
                    batch = await asyncio.wait_for(anext(subscription), 0.003)
                    found += batch["id"].to_pylist()
                except TimeoutError:
                    pass
            await writing
            return found

        found = asyncio.run(gather())
        peer.call("stop_stream")
        assert found == list(range(len(found)))


class TestHistory:
    def test_keep_last_waits_of_each_instance(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        peer = written(cyclone, cyclone_types.Vehicle)
        subscription = subscribed(participant, peer, history_depth=2)
        rows = [vehicle(number, f"{number}.{i}") for i in range(5) for number in (1, 2, 3)]
        peer.write("t", rows)
        peer.wait_for_acks("t")
        wait_until(lambda: subscription.counters()["received_samples"] == 15)
        table = subscription.take()
        assert notes(table) == ["1.3", "2.3", "3.3", "1.4", "2.4", "3.4"]
        assert subscription.counters()["replaced_samples"] == 9

    def test_keep_last_of_a_topic_without_a_key(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        peer = written(cyclone, cyclone_types.Number)
        subscription = subscribed(participant, peer, history="keep_last", history_depth=3)
        peer.call("write_numbers", "t", 0, 100)
        wait_until(lambda: subscription.counters()["received_samples"] == 100)
        assert subscription.take()["id"].to_pylist() == [97, 98, 99]

    def test_the_end_of_an_instance_replaces_no_sample(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        peer = written(cyclone, cyclone_types.Vehicle)
        subscription = subscribed(participant, peer, history_depth=1, metadata=True)
        peer.write("t", [vehicle(1, "first"), vehicle(1, "last")])
        peer.write("t", [vehicle(1, "")], "dispose")
        wait_until(lambda: subscription.counters()["received_samples"] == 3)
        table = subscription.take()
        assert notes(table) == ["last", None]

    def test_lifespan_is_over_while_samples_wait(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        peer = written(cyclone, cyclone_types.Vehicle, lifespan=1_500_000_000)
        subscription = subscribed(participant, peer)
        peer.write("t", VEHICLES)
        assert subscription.read(max_rows=3, timeout=PATIENCE).num_rows == 3
        wait_until(lambda: subscription.counters()["expired_samples"] == 3)
        assert subscription.read(sample_states="any").num_rows == 0
        assert subscription.counters()["waiting_bytes"] == 0

    def test_samples_that_were_read_make_room(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        peer = written(cyclone, cyclone_types.Blob)
        subscription = subscribed(participant, peer, buffer_size="1MiB")
        found: list[int] = []
        for first in range(0, 40, 4):
            peer.call("write_numbers", "t", first, 4)
            found += subscription.read(max_rows=4, timeout=PATIENCE)["id"].to_pylist()
        assert found == list(range(40))
        kept = subscription.read(sample_states="any")["id"].to_pylist()
        assert kept == list(range(40))[-len(kept) :] and 4 <= len(kept) <= 6
        assert subscription.counters()["forgotten_samples"] == 40 - len(kept)


class TestBackPressure:
    def test_a_slow_reader_holds_reliable_writers_back(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        peer = written(cyclone, cyclone_types.Blob)
        subscription = subscribed(participant, peer, buffer_size=1 << 20)
        writer = threading.Thread(target=peer.call, args=("write_numbers", "t", 0, 60))
        writer.start()
        wait_until(lambda: subscription.counters()["window_closed"] > 0)
        assert subscription.counters()["waiting_bytes"] <= 1 << 20
        found: list[int] = []
        while len(found) < 60:
            table = subscription.take(max_rows=3, timeout=PATIENCE)
            assert table.num_rows
            found += table["id"].to_pylist()
            time.sleep(0.01)
        writer.join()
        assert found == list(range(60))

    def test_best_effort_samples_are_dropped_and_counted(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        peer = written(cyclone, cyclone_types.Blob, reliable=False)
        subscription = subscribed(participant, peer, reliability="best_effort", buffer_size=1 << 20)
        peer.call("write_numbers", "t", 0, 40)
        wait_until(lambda: subscription.counters()["window_closed"] > 0)
        assert 0 < subscription.take().num_rows < 40


class TestInstances:
    def states(self, subscription: rtps.Subscription) -> dict[int, tuple[str, int]]:
        """State, and number of writers, by key."""
        found = {}
        for each in subscription.instances():
            assert each.key is not None
            found[each.key["id"]] = each.state, len(each.writers)
        return found

    def test_states_and_writers(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        first = written(cyclone, cyclone_types.Vehicle)
        second = written(cyclone, cyclone_types.Vehicle)
        subscription = participant.subscribe("t")
        assert subscription.wait_for_writers(PATIENCE, count=2)
        for peer in (first, second):
            peer.wait_for_match("t")
        first.write("t", [vehicle(1, ""), vehicle(2, ""), vehicle(3, "")])
        second.write("t", [vehicle(2, ""), vehicle(3, "")])
        wait_until(lambda: self.states(subscription) == {1: ("ALIVE", 1), 2: ("ALIVE", 2), 3: ("ALIVE", 2)})
        (two,) = [each for each in subscription.instances() if each.key == {"id": 2}]
        assert sorted(two.writers) == subscription.writers()
        assert two.key_hash == (2).to_bytes(4, "big") + bytes(12)
        first.write("t", [vehicle(2, ""), vehicle(1, "")], "unregister_instance")
        first.write("t", [vehicle(3, "")], "dispose")
        expected = {1: ("NOT_ALIVE_NO_WRITERS", 0), 2: ("ALIVE", 1), 3: ("NOT_ALIVE_DISPOSED", 2)}
        wait_until(lambda: self.states(subscription) == expected, lambda: str(self.states(subscription)))
        second.call("delete", "t")
        expected = {
            1: ("NOT_ALIVE_NO_WRITERS", 0),
            2: ("NOT_ALIVE_NO_WRITERS", 0),
            3: ("NOT_ALIVE_DISPOSED", 1),
        }
        wait_until(lambda: self.states(subscription) == expected, lambda: str(self.states(subscription)))
        first.write("t", [vehicle(3, "again")])
        wait_until(lambda: self.states(subscription)[3] == ("ALIVE", 1))

    def test_a_topic_without_a_key_is_one(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        peer = written(cyclone, cyclone_types.Number)
        subscription = subscribed(participant, peer)
        assert subscription.instances() == []
        peer.call("write_numbers", "t", 0, 3)
        wait_until(subscription.instances)
        (only,) = subscription.instances()
        assert (only.key, only.state, list(only.writers)) == ({}, "ALIVE", subscription.writers())


class TestStatuses:
    def test_matched(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        peer = written(cyclone, cyclone_types.Vehicle)
        subscription = subscribed(participant, peer)
        status = subscription.status("SUBSCRIPTION_MATCHED")
        assert (status["total_count"], status["current_count"], status["total_count_change"]) == (1, 1, 1)
        assert subscription.status("subscription_matched")["total_count_change"] == 0
        peer.call("delete", "t")
        wait_until(lambda: subscription.statuses["SUBSCRIPTION_MATCHED"]["current_count"] == 0)

    def test_a_listener(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        received: list[rtps.StatusChange] = []
        peer = written(cyclone, cyclone_types.Vehicle)
        subscription = subscribed(participant, peer, listener=received.append)
        wait_until(lambda: any(each.status == "SUBSCRIPTION_MATCHED" for each in received))
        (matched,) = [each for each in received if each.status == "SUBSCRIPTION_MATCHED"]
        assert matched.topic == "t" and matched.remote == subscription.writers()[0]
        assert matched.fields["current_count"] == 1
        peer.write("t", VEHICLES)
        wait_until(lambda: any(each.status == "DATA_AVAILABLE" for each in received))

    def test_a_listener_may_call_anything(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        found: list[int] = []
        subscriptions: list[rtps.Subscription] = []

        def take(change: rtps.StatusChange) -> None:
            if change.status == "DATA_AVAILABLE":
                found.extend(subscriptions[0].take()["id"].to_pylist())
                subscriptions[0].status("SUBSCRIPTION_MATCHED")
                subscriptions[0].close()

        peer = written(cyclone, cyclone_types.Number)
        subscriptions.append(participant.subscribe("t", listener=take))
        assert subscriptions[0].wait_for_writers(PATIENCE)
        peer.wait_for_match("t")
        peer.call("write_numbers", "t", 0, 1)
        wait_until(lambda: subscriptions[0].is_closed)
        assert found == [0]

    def test_incompatible_qos(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        received: list[rtps.StatusChange] = []
        written(cyclone, cyclone_types.Vehicle, reliable=False)
        subscription = participant.subscribe("t", durability="transient_local", listener=received.append)
        wait_until(lambda: subscription.status("REQUESTED_INCOMPATIBLE_QOS")["total_count"])
        wait_until(lambda: any(each.reasons for each in received))
        (change,) = [each for each in received if each.reasons]
        assert change.status == "REQUESTED_INCOMPATIBLE_QOS"
        assert change.policy_ids == (11, 2)  # RELIABILITY, DURABILITY
        assert change.reasons[0].startswith("RELIABILITY")

    def test_a_missed_deadline(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        received: list[rtps.StatusChange] = []
        peer = written(cyclone, cyclone_types.Vehicle, deadline=100_000_000)
        subscription = subscribed(participant, peer, options={"deadline": 0.1}, listener=received.append)
        peer.write("t", VEHICLES[:1])
        wait_until(lambda: any(each.status == "REQUESTED_DEADLINE_MISSED" for each in received))
        assert subscription.status("REQUESTED_DEADLINE_MISSED")["total_count"] > 0

    def test_liveliness(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        from spark_rtps.transport.qos import LivelinessKind

        peer = written(
            cyclone,
            cyclone_types.Vehicle,
            liveliness=LivelinessKind.MANUAL_BY_TOPIC,
            liveliness_lease_duration=300_000_000,
        )
        subscription = subscribed(participant, peer)
        peer.write("t", VEHICLES[:1])
        wait_until(lambda: subscription.status("LIVELINESS_CHANGED")["not_alive_count"] == 1)
        states = [each.state for each in subscription.instances()]
        assert states == ["NOT_ALIVE_NO_WRITERS"]

    def test_an_unknown_status_names_all(self, participant: rtps.Participant) -> None:
        schema = pa.schema([("x", pa.int32())])
        with pytest.raises(rtps.UsageError, match="SAMPLE_LOST, SAMPLE_REJECTED, SUBSCRIPTION_MATCHED"):
            participant.subscribe("t", schema=schema, type="T").status("NOTHING")


class TestOwnTopics:
    """A subscription by columns alone in the participant that publishes the topic."""

    @pytest.mark.parametrize("first", ["publication", "subscription"])
    @pytest.mark.parametrize("named", [True, False])
    def test_columns_alone_match_and_get_every_row(
        self, participant: rtps.Participant, *, named: bool, first: str
    ) -> None:
        schema = pa.schema([("i", pa.int64())])
        arguments = {"type": "T"} if named else {}

        def subscribe() -> rtps.Subscription:
            return participant.subscribe("t", schema=schema, reliability="reliable", **arguments)

        early = subscribe() if first == "subscription" else None
        with participant.publish("t", type="T", schema=schema) as publication:
            subscription = early or subscribe()
            assert subscription.wait_for_writers(PATIENCE)
            assert publication.wait_for_readers(PATIENCE)
            publication.write(pa.record_batch({"i": pa.array(range(100), pa.int64())}), wait=False)
            table = subscription.take(max_rows=100, timeout=PATIENCE)
            assert table["i"].to_pylist() == list(range(100))
            publication.wait_for_acknowledgments(PATIENCE)
