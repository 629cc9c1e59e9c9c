"""Ranges of a log to the rows Spark sees."""

import datetime
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.columns import decoding
from spark_rtps.columns.decoding import decode_range
from spark_rtps.columns.encoding import arrow_sample, samples_of
from spark_rtps.columns.sample_columns import payloads
from spark_rtps.columns.topic_plan import (
    ARROW_BATCH,
    BINARY_SCHEMA,
    METADATA_SCHEMA,
    ContentFilter,
    TopicPlan,
)
from spark_rtps.datasource.log_reading import read_log
from spark_rtps.datasource.range_calculator import LogPartition
from spark_rtps.monitoring.decoding_report import DECODING_REPORT, read_decoding_report
from spark_rtps.options import Mode, Payload
from spark_rtps.transport.errors import EncodeError, LogLostError, MalformedSampleError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.receiver.writer_types import WriterTypes
from spark_rtps.transport.types.arrow import arrow_schema, struct_from_arrow
from spark_rtps.transport.types.cdr import cursors
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Member, Primitive, PrimitiveKind, String, Struct
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, UNREGISTERED, Run, Samples
from tests.support.stream_logs import (
    NOTE,
    OTHER,
    POINT,
    RECEPTION,
    SOURCE,
    WRITER,
    encoded,
    notes,
    points,
    run_of,
    write_log,
)

RTPS = pa.field("_rtps", pa.struct(list(METADATA_SCHEMA)))


def plan(struct: Struct = POINT, *, metadata: bool = False, payload: Payload = Payload.CDR) -> TopicPlan:
    data = arrow_schema(struct)
    columns = data.append(RTPS) if metadata else data
    return TopicPlan("T", struct.name, struct.is_keyed, payload, struct, data, columns)


BINARY = TopicPlan("T", "Any", False, Payload.BINARY, None, BINARY_SCHEMA, BINARY_SCHEMA)


def decode(tmp_path: Path, runs: Iterable[Run], plan: TopicPlan) -> pa.Table:
    end = write_log(tmp_path, runs)
    batches = list(decode_range(LogView(tmp_path), Cursor(0), end, plan))
    assert all(b.schema.equals(plan.columns) for b in batches)
    return pa.Table.from_batches(batches, plan.columns)


def key_run(sn: int, row: int, flags: int) -> Run:
    payload = np.frombuffer(Codec(POINT).encode_keys(points(row, 1)).payload(0), np.uint8)
    return Run.single(WRITER, sn, payload, flags=flags | KEY_ONLY, timestamp=SOURCE)


def at(ns: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(microseconds=ns // 1000)


class TestCdr:
    def test_columns(self, tmp_path: Path) -> None:
        runs = [run_of(encoded(points(i, 7)), i + 1) for i in range(0, 70, 7)]
        assert decode(tmp_path, runs, plan()).to_batches()[0].equals(points(0, 70))

    def test_variable_sizes(self, tmp_path: Path) -> None:
        runs = [run_of(encoded(notes(i, 7), NOTE), i + 1) for i in range(0, 70, 7)]
        assert decode(tmp_path, runs, plan(NOTE)).combine_chunks().to_batches()[0].equals(notes(0, 70))

    def test_metadata(self, tmp_path: Path) -> None:
        runs = [
            run_of(encoded(points(0, 2)), 11),
            run_of(encoded(points(2, 1)), 5, writer=OTHER, timestamp=SOURCE + 2000),
        ]
        rows = decode(tmp_path, runs, plan(metadata=True)).column("_rtps").to_pylist()
        assert [r["writer"] for r in rows] == [str(WRITER), str(WRITER), str(OTHER)]
        assert [r["sequence_number"] for r in rows] == [11, 12, 5]
        assert [r["source_timestamp"] for r in rows] == [at(SOURCE), at(SOURCE), at(SOURCE + 2000)]
        assert {r["reception_timestamp"] for r in rows} == {at(RECEPTION)}
        assert {r["instance_state"] for r in rows} == {"ALIVE"}

    def test_absent_timestamp_is_null(self, tmp_path: Path) -> None:
        runs = [run_of(encoded(points(0, 2)), 1, timestamp=-(1 << 63))]
        rows = decode(tmp_path, runs, plan(metadata=True)).column("_rtps").to_pylist()
        assert [r["source_timestamp"] for r in rows] == [None, None]

    def test_end_of_instance_is_skipped_without_metadata(self, tmp_path: Path) -> None:
        runs = [run_of(encoded(points(0, 2)), 1), key_run(3, 1, DISPOSED), run_of(encoded(points(2, 1)), 4)]
        assert decode(tmp_path, runs, plan()).column("id").to_pylist() == [0, 1, 2]

    def test_end_of_instance_is_a_row_with_metadata(self, tmp_path: Path) -> None:
        runs = [
            run_of(encoded(points(0, 2)), 1),
            key_run(3, 1, DISPOSED),
            run_of(encoded(points(2, 1)), 4),
            key_run(5, 0, UNREGISTERED),
            Run.single(WRITER, 6, np.zeros(0, np.uint8), flags=DISPOSED, timestamp=SOURCE),
        ]
        table = decode(tmp_path, runs, plan(metadata=True))
        assert table.column("id").to_pylist() == [0, 1, 1, 2, 0, None]
        assert table.column("x").to_pylist() == [0.0, 0.5, None, 1.0, None, None]
        rtps = table.column("_rtps").to_pylist()
        assert [r["sequence_number"] for r in rtps] == [1, 2, 3, 4, 5, 6]
        assert [r["instance_state"] for r in rtps] == [
            "ALIVE",
            "ALIVE",
            "NOT_ALIVE_DISPOSED",
            "ALIVE",
            "NOT_ALIVE_NO_WRITERS",
            "NOT_ALIVE_DISPOSED",
        ]

    def test_a_key_hash_gives_a_short_key(self, tmp_path: Path) -> None:
        key_hash = Codec(POINT).key_hashes(points(7, 1))[0].tobytes()
        nothing = np.zeros(0, np.uint8)
        runs = [
            run_of(encoded(points(0, 1)), 1),
            Run.single(WRITER, 2, nothing, flags=DISPOSED, timestamp=SOURCE, key_hash=key_hash),
        ]
        table = decode(tmp_path, runs, plan(metadata=True))
        assert table.column("id").to_pylist() == [0, 7]
        assert table.column("x").to_pylist() == [0.0, None]

    def test_a_key_hash_that_is_an_md5_gives_no_key(self, tmp_path: Path) -> None:
        named = Struct("Named", (Member("name", String(), 0, key=True),))
        run = Run.single(WRITER, 1, np.zeros(0, np.uint8), flags=DISPOSED, key_hash=bytes(range(16)))
        assert decode(tmp_path, [run], plan(named, metadata=True)).column("name").to_pylist() == [None]

    def test_end_of_instance_lacks_a_column_that_is_not_null(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        given = plan(metadata=True)
        data = pa.schema([f.with_nullable(f.name != "x") for f in given.data])
        strict = replace(given, data=data, columns=data.append(RTPS))
        runs = [run_of(encoded(points(0, 2)), 1), key_run(3, 0, DISPOSED), run_of(encoded(points(2, 1)), 4)]
        table = decode(tmp_path, runs, strict)
        assert table.column("id").to_pylist() == [0, 1, 2]
        assert [r["sequence_number"] for r in table.column("_rtps").to_pylist()] == [1, 2, 4]
        why = "dropped: no value for x, declared NOT NULL"
        assert f"1 malformed sample of writer {WRITER} {why}" in caplog.text

    @pytest.mark.parametrize("metadata", [False, True])
    def test_null_in_a_column_that_is_not_null_is_malformed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, metadata: bool
    ) -> None:
        maybe = Struct("Maybe", (Member("x", Primitive(PrimitiveKind.INT32), 0, optional=True),))
        data = pa.schema([pa.field("x", pa.int32(), nullable=False)])
        columns = data.append(RTPS) if metadata else data
        strict = TopicPlan("T", "Maybe", False, Payload.CDR, maybe, data, columns)
        batch = pa.record_batch({"x": pa.array([1, None, 3], pa.int32())})
        samples = Codec(maybe).encode_batch(batch, representation=DataRepresentation.XCDR2)
        table = decode(tmp_path, [run_of(samples, 1)], strict)
        assert table.column("x").to_pylist() == [1, 3]
        assert "1 malformed sample" in caplog.text

    def test_nothing_but_malformed(self, tmp_path: Path) -> None:
        strange = Run.single(WRITER, 1, np.array([77, 77, 0, 0], np.uint8))
        assert decode(tmp_path, [strange], plan(metadata=True)).num_rows == 0

    def test_malformed_samples_are_dropped_and_reported(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        short = Run.single(OTHER, 1, np.array([0, 1, 0, 0, 9, 9, 9, 9], np.uint8))
        strange = Run.single(OTHER, 2, np.array([77, 77, 0, 0, 1, 1, 1, 1], np.uint8))
        runs = [run_of(encoded(points(0, 2)), 1), short, strange, run_of(encoded(points(2, 1)), 3)]
        with caplog.at_level(logging.WARNING):
            table = decode(tmp_path, runs, plan(metadata=True))
        assert table.column("id").to_pylist() == [0, 1, 2]
        assert [r["sequence_number"] for r in table.column("_rtps").to_pylist()] == [1, 2, 3]
        assert f"2 malformed samples of writer {OTHER} dropped" in caplog.text

    @pytest.mark.parametrize(
        ("wanted", "reason"),
        [
            (pa.schema([("id", pa.int32()), ("y", pa.float64())]), "Point has no member 'y'"),
            (
                pa.schema([("id", pa.int32()), ("x", pa.string())]),
                "member 'x' of Point is double, not string",
            ),
        ],
    )
    def test_samples_of_a_writer_whose_type_lacks_the_columns_are_malformed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, wanted: pa.Schema, reason: str
    ) -> None:
        guess = TopicPlan(
            "T", "Point", False, Payload.CDR, struct_from_arrow(wanted, "Point"), wanted, wanted
        )
        guess = replace(guess, announced=False)
        for directory in (tmp_path, tmp_path / "again", tmp_path / "more"):
            directory.mkdir(exist_ok=True)
            types = WriterTypes(directory, {WRITER: POINT}.get)
            types.record_writer(WRITER)
            types.record_writer(OTHER)  # has told nothing: as the columns say
        row = pa.record_batch(
            [pa.array([7], pa.int32()), pa.array(["3"]).cast(wanted.types[1])], schema=wanted
        )
        theirs = encoded(row, guess.struct)
        runs = [run_of(encoded(points(0, 3)), 1), run_of(theirs, 1, writer=OTHER)]
        with caplog.at_level(logging.WARNING):
            assert decode(tmp_path, runs, guess).column("id").to_pylist() == [7]
        assert (
            f"3 malformed samples of writer {WRITER} dropped: the type that its writer announced does not fit"
            in caplog.text
        )
        assert reason in caplog.text
        with pytest.raises(MalformedSampleError, match=reason):
            decode(tmp_path / "again", runs, replace(guess, mode=Mode.FAILFAST))
        table = decode(tmp_path / "more", runs, replace(guess, mode=Mode.PERMISSIVE))
        assert table.to_pylist()[:3] == [dict.fromkeys(wanted.names)] * 3

    @pytest.mark.parametrize("representation", [DataRepresentation.XCDR1, DataRepresentation.XCDR2])
    def test_writers_of_older_types_in_both_representations(
        self, tmp_path: Path, representation: DataRepresentation
    ) -> None:
        """In XCDR1, what follows a part that one of them lacks is found by the writer's own type."""
        part = "@appendable struct Part {{ long a; {} }};"
        idl = part + "@appendable struct Whole {{ Part part; Part parts[2]; long x; }};"
        old, new = (parse_idl(idl.format(more))["Whole"] for more in ("", "long b;"))
        older, newer = {"a": 1}, {"a": 3, "b": 4}
        rows = {"part": older, "parts": [older] * 2, "x": 2}, {"part": newer, "parts": [newer] * 2, "x": 5}
        types = WriterTypes(tmp_path, {WRITER: old, OTHER: new}.get)
        runs = []
        for struct, row, writer in ((old, rows[0], WRITER), (new, rows[1], OTHER)):
            types.record_writer(writer)
            batch = pa.RecordBatch.from_pylist([row], schema=arrow_schema(struct))
            samples = Codec(struct).encode_batch(batch, representation=representation)
            runs.append(run_of(samples, 1, writer=writer))
        found = decode(tmp_path, runs, replace(plan(new), inferred=True)).to_pylist()
        lacking = older | {"b": None}
        assert found == [{"part": lacking, "parts": [lacking] * 2, "x": 2}, rows[1]]

    def test_same_range_same_rows(self, tmp_path: Path) -> None:
        runs = [run_of(encoded(points(i, 10)), i + 1) for i in range(0, 100, 10)]
        end = write_log(tmp_path, runs)
        part = LogPartition(str(tmp_path), "h", 0, 3, end.position, 0)
        first, again = (list(read_log(part, plan())) for _ in range(2))
        assert first == again
        assert sum(b.num_rows for b in first) == 97

    def test_log_is_gone(self, tmp_path: Path) -> None:
        part = LogPartition(str(tmp_path / "none"), "elsewhere", 0, 0, 32, 0)
        with pytest.raises(LogLostError, match="it lies on host elsewhere"):
            list(read_log(part, plan()))


class TestParts:
    """Chunks that would take too much memory at once."""

    def mixed(self) -> list[Run]:
        runs = []
        for i in range(0, 40, 4):
            strange = Run.single(OTHER, i + 1, np.array([77, 77, 0, 0, 1, 1, 1, 1], np.uint8))
            ended = key_run(100 + i, i % 7, DISPOSED)
            runs += [run_of(encoded(points(i, 3)), i + 1), strange, ended]
        return runs

    @pytest.mark.parametrize("mode", [Mode.DROPMALFORMED, Mode.PERMISSIVE])
    @pytest.mark.parametrize("expression", [None, "id < 21"])
    def test_same_rows_and_counts(
        self,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
        mode: Mode,
        expression: str | None,
    ) -> None:
        given = replace(plan(metadata=True), mode=mode)
        if expression is not None:
            given = replace(given, filter=ContentFilter(expression, ()))
        end = write_log(tmp_path, self.mixed())
        found = []
        for most in (1000, 20):
            monkeypatch.setattr(cursors, "DECODE_LEAVES_MAX", most)
            caplog.clear()
            (tmp_path / DECODING_REPORT).unlink(missing_ok=True)
            batches = list(decode_range(LogView(tmp_path), Cursor(0), end, given))
            report = read_decoding_report(tmp_path)
            counted = report.malformed, report.filtered, list(report.counted)
            found.append((pa.Table.from_batches(batches).to_pylist(), list(caplog.messages), counted))
            # 10 with data, and as many that end an instance
            assert len(batches) == 1 if most == 1000 else all(batch.num_rows <= 20 for batch in batches)
        assert found[0] == found[1]
        assert "10 malformed samples" in caplog.text

    def test_failfast_names_the_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        end = write_log(tmp_path, self.mixed())
        monkeypatch.setattr(cursors, "DECODE_LEAVES_MAX", 20)
        batches = decode_range(LogView(tmp_path), Cursor(0), end, replace(plan(), mode=Mode.FAILFAST))
        with pytest.raises(MalformedSampleError, match=f"sample 1 of writer {OTHER}"):
            list(batches)

    @pytest.mark.parametrize("mode", [Mode.DROPMALFORMED, Mode.PERMISSIVE])
    def test_rows_of_many_columns(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
        """Be they rows of nulls, of samples that have no columns at all."""
        wide = Struct("Wide", tuple(Member(f"m{i}", Primitive(PrimitiveKind.INT32), i) for i in range(100)))
        monkeypatch.setattr(decoding, "DECODE_LEAVES_MAX", 1000)
        strange = np.tile(np.array([77, 77, 0, 0], np.uint8), 500)
        runs = [run_of(Samples.uniform(strange, 500, 4), 1)]
        end = write_log(tmp_path, runs)
        given = replace(plan(wide), mode=mode)
        batches = list(decode_range(LogView(tmp_path), Cursor(0), end, given))
        assert sum(batch.num_rows for batch in batches) == (500 if mode is Mode.PERMISSIVE else 0)
        assert all(batch.num_rows <= 20 for batch in batches)


class TestBinary:
    def test_rows(self, tmp_path: Path) -> None:
        samples = encoded(notes(0, 3), NOTE)
        keyed = Run.single(
            OTHER, 9, np.frombuffer(samples.payload(0), np.uint8), key_hash=bytes(range(16)), timestamp=SOURCE
        )
        runs = [run_of(samples, 1), keyed, key_run(10, 0, DISPOSED)]
        table = decode(tmp_path, runs, BINARY)
        values = [bytes(samples.payload(i)) for i in range(3)]
        assert table.column("value").to_pylist()[:4] == [*values, values[0]]
        assert table.column("encapsulation").to_pylist() == ["CDR_LE"] * 5
        assert table.column("key_hash").to_pylist() == [None, None, None, bytes(range(16)), None]
        assert table.column("sequence_number").to_pylist() == [1, 2, 3, 9, 10]
        assert table.column("topic").to_pylist() == ["T"] * 5
        assert table.column("instance_state").to_pylist()[-1] == "NOT_ALIVE_DISPOSED"

    def test_no_payload_no_encapsulation(self, tmp_path: Path) -> None:
        table = decode(tmp_path, [Run.single(WRITER, 1, np.zeros(0, np.uint8), flags=DISPOSED)], BINARY)
        assert table.column("encapsulation").to_pylist() == [None]
        assert table.column("value").to_pylist() == [b""]

    def test_there_and_back(self) -> None:
        given = [b"\0\1\0\0abcd", b"\0\1\0\1abc", b"\0\1\0\4abcdef", b"\0\1\0\3abc\0", b"\0\1\0\0"]
        sent = [b"\0\1\0\1abc\0", b"\0\1\0\6abcdef\0\0", b"\0\1\0\3abc\0", b"\0\1\0\0"]
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
            samples = samples_of(pa.array(given, kind).slice(1))
            assert payloads(samples).to_pylist() == sent
            assert [bytes(samples.payload(i)) for i in range(4)] == sent
            assert (samples.all_offsets() % 4 == 0).all() and (samples.all_lengths() % 4 == 0).all()
        uniform = Samples.uniform(np.arange(24, dtype=np.uint8), 3, 6, stride=8)
        assert payloads(uniform).to_pylist() == [bytes(range(i, i + 6)) for i in (0, 8, 16)]

    def test_big_payloads_there_and_back(self) -> None:
        given = [b"\0\1\0\0" + bytes([i]) * (4000 * i) for i in range(1, 5)]
        assert payloads(samples_of(pa.array(given, pa.binary()))).to_pylist() == given

    @pytest.mark.parametrize(
        ("values", "why"), [([b"\0\1\0\0", None], "row 1: .*null"), ([b"x"], "row 0: shorter")]
    )
    def test_values_that_cannot_be_written_are_refused(
        self, values: list[bytes | None] | list[bytes], why: str
    ) -> None:
        with pytest.raises(EncodeError, match=why):
            samples_of(pa.array(values, pa.binary()))


class TestArrow:
    def arrow_plan(self, *, metadata: bool = False) -> TopicPlan:
        data = points(0, 1).schema
        columns = data.append(RTPS) if metadata else data
        return TopicPlan("T", ARROW_BATCH.name, False, Payload.ARROW, ARROW_BATCH, data, columns)

    def test_round_trip(self, tmp_path: Path) -> None:
        runs = [run_of(arrow_sample(points(i, n)), i + 1) for i, n in ((0, 3), (3, 5))]
        assert decode(tmp_path, runs, self.arrow_plan()).combine_chunks().to_batches()[0].equals(points(0, 8))

    @pytest.mark.parametrize(
        ("representation", "low"), [(DataRepresentation.XCDR1, 0x01), (DataRepresentation.XCDR2, 0x07)]
    )
    def test_representation(self, tmp_path: Path, representation: DataRepresentation, low: int) -> None:
        sample = arrow_sample(points(0, 3), representation)
        assert bytes(sample.payload(0)[:2]) == bytes([0, low])
        (ipc,) = Codec(ARROW_BATCH).decode_samples(sample).batch.column(0).to_pylist()
        again = Codec(ARROW_BATCH).encode_batch(
            pa.record_batch({"ipc": [ipc]}), representation=representation
        )
        assert bytes(again.payload(0)) == bytes(sample.payload(0))
        table = decode(tmp_path, [run_of(sample, 1)], self.arrow_plan())
        assert table.to_batches()[0].equals(points(0, 3))

    def test_metadata_is_that_of_the_sample(self, tmp_path: Path) -> None:
        runs = [run_of(arrow_sample(points(i, n)), i + 1) for i, n in ((0, 3), (3, 2))]
        rows = decode(tmp_path, runs, self.arrow_plan(metadata=True)).column("_rtps").to_pylist()
        assert [r["sequence_number"] for r in rows] == [1, 1, 1, 4, 4]

    def test_columns_by_name_and_cast(self, tmp_path: Path) -> None:
        batch = pa.record_batch({"x": [1, 2], "more": ["a", "b"], "id": [3, 4]})
        table = decode(tmp_path, [run_of(arrow_sample(batch), 1)], self.arrow_plan())
        assert table.to_pylist() == [{"id": 3, "x": 1.0}, {"id": 4, "x": 2.0}]

    @pytest.mark.parametrize(
        ("batch", "why"),
        [
            (pa.record_batch({"y": [1]}), "there is no column 'id' among ['y']"),
            (pa.record_batch({"id": ["seven"], "x": [1.0]}), "column 'id' is string and does not fit int32"),
            (pa.record_batch({"id": [1 << 40], "x": [1.0]}), "column 'id' is int64 and does not fit int32"),
            (pa.record_batch({"id": [[1]], "x": [1.0]}), "column 'id' is list<item: int64> and does not fit"),
        ],
    )
    def test_a_batch_that_does_not_fit_is_malformed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, batch: pa.RecordBatch, why: str
    ) -> None:
        runs = [run_of(arrow_sample(batch), 1), run_of(arrow_sample(points(0, 1)), 2)]
        assert decode(tmp_path, runs, self.arrow_plan(metadata=True)).num_rows == 1
        assert f"1 malformed sample of writer {WRITER} dropped: {why}" in caplog.text

    def test_nulls_in_a_column_that_is_not_null_are_malformed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        given = self.arrow_plan()
        strict = pa.schema([f.with_nullable(False) for f in given.data])
        batch = pa.record_batch({"id": [1, None], "x": [1.0, 2.0]})
        runs = [run_of(arrow_sample(batch), 1), run_of(arrow_sample(points(0, 1)), 2)]
        assert decode(tmp_path, runs, replace(given, data=strict, columns=strict)).num_rows == 1
        assert "column 'id' is declared NOT NULL and has nulls" in caplog.text

    def test_offsets_out_of_bounds_are_malformed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        text = pa.schema([("s", pa.string())])
        plan = TopicPlan("T", ARROW_BATCH.name, False, Payload.ARROW, ARROW_BATCH, text, text)
        sample = arrow_sample(pa.record_batch({"s": ["ab", "cd"]}))
        offsets = np.array([0, 2, 4], np.int32).tobytes()
        at = sample.data.tobytes().index(offsets)
        sample.data[at + 4 : at + 8] = np.frombuffer(np.int32(1 << 30).tobytes(), np.uint8)
        assert decode(tmp_path, [run_of(sample, 1)], plan).num_rows == 0
        assert "1 malformed sample" in caplog.text

    def test_garbage_is_malformed(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        sample = arrow_sample(points(0, 3))
        sample.data[8:40] = 0xFF
        runs = [run_of(sample, 1), run_of(arrow_sample(points(0, 1)), 2)]
        assert decode(tmp_path, runs, self.arrow_plan()).num_rows == 1
        assert "1 malformed sample" in caplog.text
