"""Writing by the Python API to a live Cyclone DDS: rows, instances, coherent sets, statuses."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import spark_rtps as rtps
from spark_rtps.transport.protocol.discovery import participant_data
from tests.interop import cyclone_types
from tests.interop.cyclone_peer import CyclonePeer
from tests.support.waiting import PATIENCE, wait_until

Row = dict[str, Any]
Cyclone = Callable[..., CyclonePeer]

VEHICLE = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("note", pa.string(), nullable=False),
        pa.field("speed", pa.float64(), nullable=False),
    ]
)
KEYED: dict[str, Any] = {"schema": VEHICLE, "type": "interop::Vehicle", "key": "id"}
ROWS: list[Row] = [
    {"id": 7, "note": "seven", "speed": 0.5},
    {"id": -8, "note": "minus eight", "speed": 1.5},
    {"id": 9, "note": "nine", "speed": 2.5},
]
KEPT = {"durability": "transient_local", "history_depth": 1}


@pytest.fixture
def peer(cyclone: Cyclone) -> CyclonePeer:
    """A Cyclone participant with a reader of vehicles."""
    peer = cyclone()
    peer.reader("t", cyclone_types.Vehicle)
    return peer


def rows_of(peer: CyclonePeer, count: int) -> list[Row]:
    return sorted((taken.row for taken in peer.take("t", count)), key=lambda row: row["id"])


IN_ORDER = sorted(ROWS, key=lambda row: row["id"])


class TestRows:
    @pytest.mark.parametrize(
        "rows",
        [
            ROWS,
            pa.RecordBatch.from_pylist(ROWS, schema=VEHICLE),
            pa.Table.from_pylist(ROWS, schema=VEHICLE),
            pa.Table.from_pylist(ROWS, schema=VEHICLE).select(["speed", "id", "note"]),
            pa.Table.from_pylist(ROWS),  # with id as int64
        ],
        ids=["dicts", "batch", "table", "other order", "other types"],
    )
    def test_written_rows_are_read_by_cyclone(
        self, participant: rtps.Participant, peer: CyclonePeer, rows: Any
    ) -> None:
        with participant.publish("t", **KEYED) as vehicles:
            vehicles.write(rows)
            assert rows_of(peer, 3) == IN_ORDER
            assert vehicles.schema == VEHICLE and vehicles.type_name == "interop::Vehicle"

    def test_the_type_of_a_file(
        self, participant: rtps.Participant, peer: CyclonePeer, tmp_path: Path
    ) -> None:
        idl = tmp_path / "vehicle.idl"
        idl.write_text(
            "module interop { @final struct Vehicle { @key long id; string note; double speed; }; };"
        )
        vehicles = participant.publish("t", type_file=idl, type="interop::Vehicle")
        vehicles.write(ROWS[0])
        assert rows_of(peer, 1) == ROWS[:1]
        assert vehicles.schema.names == ["id", "note", "speed"]

    def test_an_unknown_column_is_refused(self, participant: rtps.Participant) -> None:
        vehicles = participant.publish("t", **KEYED, options={"on_no_reader": "drop"})
        with pytest.raises(rtps.UsageError, match="sped, which is no column; columns are id, note, speed"):
            vehicles.write([{**ROWS[0], "sped": 1.0}])
        with pytest.raises(rtps.UsageError, match="the rows have the columns id, note; the publication has"):
            vehicles.write(pa.table({"id": [1], "note": ["x"]}))
        with pytest.raises(rtps.UsageError, match="the rows are not of the schema"):
            vehicles.write(pa.table({"id": ["x"], "note": ["x"], "speed": [1.0]}))
        with pytest.raises(rtps.EncodeError, match="fit"):
            vehicles.write([{**ROWS[0], "id": 1 << 40}])
        with pytest.raises(rtps.UsageError, match="int are not rows"):
            vehicles.write(5)

    def test_an_event_loop_goes_on_meanwhile(self, participant: rtps.Participant, peer: CyclonePeer) -> None:
        vehicles = participant.publish("t", **KEYED)

        async def main() -> None:
            await asyncio.gather(*(asyncio.to_thread(vehicles.write, row) for row in ROWS))

        asyncio.run(main())
        assert rows_of(peer, 3) == IN_ORDER

    def test_a_subscription_of_ours_reads_a_batch_a_sample(
        self, participate: Callable[..., rtps.Participant]
    ) -> None:
        batch = pa.RecordBatch.from_pylist(ROWS, schema=VEHICLE)
        reading = participate().subscribe("arrows", payload="arrow", schema=VEHICLE)
        participate().publish("arrows", payload="arrow").write(batch)
        assert reading.take(max_rows=3, timeout=PATIENCE).to_pylist() == ROWS


class TestInstances:
    def test_a_late_joiner_gets_the_newest_of_each_instance(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        vehicles = participant.publish("t", **KEYED, **KEPT, options={"on_no_reader": "drop"})
        vehicles.write([{"id": n % 4, "note": str(n), "speed": 0.0} for n in range(12)])
        late = cyclone()
        late.reader("t", cyclone_types.Vehicle, transient_local=True)
        assert [row["note"] for row in rows_of(late, 4)] == ["8", "9", "10", "11"]

    def test_cyclone_sees_what_is_disposed_and_unregistered(
        self, participant: rtps.Participant, peer: CyclonePeer
    ) -> None:
        vehicles = participant.publish("t", **KEYED)
        vehicles.write(ROWS)
        peer.take("t", 3)
        vehicles.dispose({"id": 7})
        (taken,) = peer.take("t", 1)
        assert (taken.row["id"], taken.valid, taken.instance_state) == (7, False, "DISPOSED")
        vehicles.unregister(pa.table({"note": ["ignored"], "id": [9]}))
        (taken,) = peer.take("t", 1)
        assert (taken.row["id"], taken.valid, taken.instance_state) == (9, False, "NO_WRITERS")

    def test_a_topic_without_a_key_has_none(self, participant: rtps.Participant) -> None:
        keyless = participant.publish("t", schema=VEHICLE)
        with pytest.raises(rtps.UsageError, match="topic 't' has no key, so it has no instances"):
            keyless.dispose({"id": 7})
        vehicles = participant.publish("t", **KEYED)
        with pytest.raises(rtps.UsageError, match="the rows lack the column id"):
            vehicles.dispose(pa.table({"note": ["x"]}))


class TestCoherentSets:
    COHERENT: ClassVar = {"presentation.coherent_access": True, "presentation.access_scope": "topic"}

    def test_rows_become_visible_together_or_not_at_all(
        self, participate: Callable[..., rtps.Participant]
    ) -> None:
        reading = participate().subscribe("t", schema=VEHICLE, options=self.COHERENT)
        vehicles = participate().publish("t", schema=VEHICLE, options=self.COHERENT)
        with vehicles.coherent():
            vehicles.write(ROWS[0])
            vehicles.write(ROWS[1])
            assert not reading.take().num_rows
        assert reading.take(max_rows=2, timeout=PATIENCE).to_pylist() == ROWS[:2]
        with pytest.raises(rtps.UsageError, match="no column"), vehicles.coherent():
            vehicles.write([*ROWS[:2], {"strange": 1}])
        vehicles.write(ROWS[2])
        assert reading.take(max_rows=1, timeout=PATIENCE).to_pylist() == ROWS[2:]

    def test_a_group_of_several_topics_is_refused(self, participant: rtps.Participant) -> None:
        group = {**self.COHERENT, "presentation.access_scope": "group"}
        first = participant.publish("t", schema=VEHICLE, options=group)
        with pytest.raises(rtps.OptionError, match="each publication of a participant is a group of its own"):
            participant.publish("u", schema=VEHICLE, options=group)
        participant.publish("u", schema=VEHICLE, options=self.COHERENT)
        participant.publish("v", schema=VEHICLE, options={"presentation.access_scope": "group"})
        participant.subscribe("t", schema=VEHICLE, options=group)
        with pytest.raises(rtps.OptionError, match="each subscription"):
            participant.subscribe("u", schema=VEHICLE, options=group)
        first.close()
        participant.publish("u", schema=VEHICLE, options=group)

    def test_coherent_sets_need_the_option(self, participant: rtps.Participant) -> None:
        vehicles = participant.publish("t", schema=VEHICLE)
        with pytest.raises(rtps.OptionError, match="set it to true for coherent sets"), vehicles.coherent():
            pass


class TestErrors:
    def test_options_are_named(self, participant: rtps.Participant) -> None:
        def refused(**arguments: Any) -> str:
            with pytest.raises(rtps.OptionError) as caught:
                participant.publish("t", **{"schema": VEHICLE, **arguments})
            return str(caught.value)

        assert "belongs to Spark's queries" in refused(options={"checkpointLocation": "x"})
        assert "belongs to Spark's queries" in refused(options={"metrics.port": 5})
        assert "'reliabilty'" in refused(options={"reliabilty": "reliable"})
        assert "Participant()" in refused(options={"domain": 3})
        assert "give one of the two" in refused(
            durability="volatile", options={"durability": "transient_local"}
        )
        assert "no column" in refused(key="nobody")
        assert "the schema of the rows" in refused(schema=None)
        assert "'filter'" in refused(options={"filter": "x > 1"})

    def test_without_a_reader(self, participant: rtps.Participant) -> None:
        waiting = participant.publish("t", **KEYED, options={"connect_timeout": 0.2})
        with pytest.raises(rtps.NoReaderError, match="raise connect_timeout, or set on_no_reader=drop"):
            waiting.write(ROWS)

    def test_a_reader_that_does_not_match_is_explained(
        self, participant: rtps.Participant, cyclone: Cyclone
    ) -> None:
        changes: list[rtps.StatusChange] = []
        peer = cyclone()
        peer.reader("t", cyclone_types.Vehicle, transient_local=True)
        vehicles = participant.publish("t", **KEYED, options={"connect_timeout": 1}, listener=changes.append)
        with pytest.raises(rtps.NoReaderError, match="set durability=transient_local"):
            vehicles.write(ROWS)
        ((reader, reasons),) = vehicles.incompatible_readers().items()
        assert reader and "DURABILITY" in reasons[0]
        (change,) = [each for each in changes if each.status == "OFFERED_INCOMPATIBLE_QOS"]
        assert change.policy_ids == (2,) and change.remote == reader
        assert vehicles.status("OFFERED_INCOMPATIBLE_QOS")["last_policy_id"] == 2

    @pytest.mark.parametrize("announce", ["auto", "false"])
    def test_a_peer_that_does_not_know_the_members_of_a_type_is_warned_of(
        self,
        announce: str,
        participant: rtps.Participant,
        cyclone: Cyclone,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(participant_data, "_CYCLONE_WITHOUT_INT8", (11, 99))  # this one knows them
        peer = cyclone()
        peer.reader("t", cyclone_types.Vehicle)
        schema = pa.schema([pa.field("small", pa.int8(), nullable=False)])
        changes: list[rtps.StatusChange] = []
        participant.publish("t", schema=schema, options={"type.announce": announce}, listener=changes.append)
        wait_until(lambda: bool(changes), "the reader, which has another type")
        output = [record.getMessage() for record in caplog.records if "int8" in record.getMessage()]
        assert len(output) == (announce == "auto")
        assert all("Cyclone DDS 11.0.1" in each and "set type.announce=false" in each for each in output)

    def test_a_reader_that_stops_is_named(self, participant: rtps.Participant, peer: CyclonePeer) -> None:
        vehicles = participant.publish("t", **KEYED, options={"acknowledgment_timeout": 2})
        vehicles.write(ROWS)
        (reader,) = vehicles.readers()
        with (
            peer.suspended(),
            pytest.raises(rtps.AcknowledgmentError, match="raise acknowledgment_timeout") as e,
        ):
            vehicles.write(ROWS)
        assert reader in str(e.value)
        vehicles.wait_for_acknowledgments(PATIENCE)


class TestStatuses:
    def test_readers_come_and_go(self, participant: rtps.Participant, cyclone: Cyclone) -> None:
        changes: list[rtps.StatusChange] = []
        vehicles = participant.publish("t", **KEYED, listener=changes.append)
        assert not vehicles.wait_for_readers(0.05)
        peer = cyclone()
        peer.reader("t", cyclone_types.Vehicle)
        assert vehicles.wait_for_readers(PATIENCE)
        matched = vehicles.status("PUBLICATION_MATCHED")
        assert (matched["total_count"], matched["current_count"], matched["total_count_change"]) == (1, 1, 1)
        peer.call("delete", "t")
        wait_until(lambda: not vehicles.readers())
        wait_until(lambda: any(each.fields.get("current_count") == 0 for each in changes))
        counts = [each.fields["current_count"] for each in changes if each.status == "PUBLICATION_MATCHED"]
        assert counts == [1, 0]
        assert vehicles.status("PUBLICATION_MATCHED")["total_count_change"] == 0
        assert vehicles.counters()["written_samples"] == 0

    def test_a_deadline_that_is_missed_and_liveliness(
        self, participant: rtps.Participant, peer: CyclonePeer
    ) -> None:
        changes: list[str] = []
        vehicles = participant.publish(
            "t",
            **KEYED,
            options={
                "deadline": datetime.timedelta(milliseconds=100),
                "liveliness": "manual_by_topic",
                "liveliness.lease_duration": 0.3,
            },
            listener=lambda change: changes.append(change.status),
        )
        vehicles.write(ROWS[0])
        wait_until(lambda: {"OFFERED_DEADLINE_MISSED", "LIVELINESS_LOST"} <= set(changes))
        lost = vehicles.statuses["LIVELINESS_LOST"]["total_count"]
        assert lost >= 1  # more where the reader was found late
        vehicles.assert_liveliness()
        wait_until(lambda: vehicles.statuses["LIVELINESS_LOST"]["total_count"] == lost + 1)

    def test_a_closed_publication_refuses_calls(
        self, participant: rtps.Participant, peer: CyclonePeer
    ) -> None:
        with participant.publish("t", **KEYED) as vehicles:
            vehicles.write(ROWS)
        assert vehicles.is_closed and not vehicles.wait_for_readers()
        wait_until(lambda: not peer.matched("t"))
        for call in (
            lambda: vehicles.write(ROWS),
            lambda: vehicles.dispose(ROWS),
            vehicles.flush,
            vehicles.wait_for_acknowledgments,
        ):
            with pytest.raises(rtps.UsageError, match="topic 't': the publication is closed"):
                call()  # type: ignore[no-untyped-call]
        assert vehicles.incompatible_readers() == {}
        vehicles.close()
        closed_with_its_participant = participant.publish("t", **KEYED)
        participant.close()
        assert closed_with_its_participant.is_closed
        assert closed_with_its_participant.offer(ROWS) is rtps.PublicationResult.CLOSED
