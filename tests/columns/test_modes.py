"""Samples that do not decode: what each mode makes of them, and where they are counted."""

from __future__ import annotations

import logging
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.columns.decoding import decode_range
from spark_rtps.columns.encoding import arrow_sample
from spark_rtps.columns.topic_plan import ARROW_BATCH, METADATA_SCHEMA, TopicPlan
from spark_rtps.monitoring.decoding_report import (
    DECODING_REPORT,
    DecodingReport,
    MalformedSamples,
    read_decoding_report,
    update_decoding_report,
)
from spark_rtps.monitoring.reports import read_error_reports
from spark_rtps.monitoring.stream_counters import malformed, read_streams
from spark_rtps.options import Mode, Payload
from spark_rtps.transport.errors import MalformedSampleError
from spark_rtps.transport.limits import MALFORMED_REASONS_MAX
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.model import (
    Case,
    Enum,
    Map,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Union,
)
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, Run
from tests.support.stream_logs import (
    NOTE,
    OTHER,
    POINT,
    RECEPTION,
    SOURCE,
    WRITER,
    encoded,
    points,
    run_of,
    write_log,
)

RTPS = pa.field("_rtps", pa.struct(list(METADATA_SCHEMA)))
CORRUPT = pa.field("_corrupt_record", pa.binary())
REASON = pa.field("_corrupt_record", pa.string())
INT = Primitive(PrimitiveKind.INT32)
CDR_LE = b"\0\1\0\0"


def of(name: str, member_type: Any) -> Struct:
    return Struct(name, (Member("id", INT, 0), Member("value", member_type, 1)))


TEXT = of("Text", String())
COLOR = of("Painted", Enum("Color", (("RED", 0), ("GREEN", 1))))
WHICH = Enum("Which", (("A", 1), ("B", 2)))
CHOICE = of("Chosen", Union("Choice", WHICH, (Case("a", INT, 1, (1,)), Case("b", String(), 2, (2,)))))
NUMBERS = of("Numbered", Sequence(Primitive(PrimitiveKind.INT32)))


def text(length: int, value: bytes) -> bytes:
    return CDR_LE + struct.pack("<iI", 7, length) + value


#: What is wrong, its type, the payload, a word of the reason.
MALFORMED = [
    pytest.param(TEXT, text(1000, b"ab\0\0"), "length", id="string longer than the sample"),
    pytest.param(TEXT, text(2, b"ab\0\0"), "terminated", id="string without an end"),
    pytest.param(TEXT, text(3, b"\xff\xfe\0\0"), "UTF-8", id="no UTF-8"),
    pytest.param(COLOR, CDR_LE + struct.pack("<ii", 7, 77), "enum", id="no literal"),
    pytest.param(CHOICE, CDR_LE + struct.pack("<iii", 7, 5, 1), "enum", id="union without a branch"),
    pytest.param(
        NUMBERS, CDR_LE + struct.pack("<iI", 7, 1 << 31), "elements", id="sequence beyond the sample"
    ),
    pytest.param(POINT, CDR_LE + b"\7\0", "length", id="truncated"),
    pytest.param(POINT, CDR_LE[:3], "header", id="no encapsulation header"),
    pytest.param(POINT, b"\x77\x77\0\0" + bytes(16), "encapsulation", id="unknown encapsulation"),
]
GOOD = {
    "Text": text(3, b"ab\0\0"),
    "Painted": CDR_LE + struct.pack("<ii", 7, 1),
    "Chosen": CDR_LE + struct.pack("<iii", 7, 1, 9),
    "Numbered": CDR_LE + struct.pack("<iIi", 7, 1, 9),
    "Point": CDR_LE + struct.pack("<iid", 7, 0, 0.5),
}
VALUES = {
    "Text": "ab",
    "Painted": "GREEN",
    "Chosen": {"discriminator": "A", "a": 9, "b": None},
    "Numbered": [9],
    "Point": 0.5,
}


def plan(of: Struct, mode: Mode, corrupt: pa.Field | None = None, *, metadata: bool = True) -> TopicPlan:
    data = arrow_schema(of)
    added = [field for field in (corrupt, RTPS if metadata else None) if field is not None]
    columns = pa.schema([*data, *added])
    name = None if corrupt is None else corrupt.name
    return TopicPlan("T", of.name, of.is_keyed, Payload.CDR, of, data, columns, mode=mode, corrupt=name)


def single(payload: bytes, sn: int, *, writer: Guid = WRITER, flags: int = 0) -> Run:
    return Run.single(writer, sn, np.frombuffer(payload, np.uint8), flags=flags, timestamp=SOURCE)


def decode(directory: Path, runs: list[Run], plan: TopicPlan) -> list[dict[str, Any]]:
    end = write_log(directory, runs)
    return read(directory, Cursor(0), end, plan)


def read(directory: Path, start: Cursor, end: Cursor, plan: TopicPlan) -> list[dict[str, Any]]:
    batches = list(decode_range(LogView(directory), start, end, plan))
    for batch in batches:
        assert batch.schema.equals(plan.columns)
        batch.validate(full=True)
    return pa.Table.from_batches(batches, plan.columns).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("of", "bad", "word"), MALFORMED)
class TestModes:
    def runs(self, of: Struct, bad: bytes) -> list[Run]:
        good = GOOD[of.name]
        return [single(good, 1), single(bad, 2, writer=OTHER), single(good, 3)]

    def test_dropmalformed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, of: Struct, bad: bytes, word: str
    ) -> None:
        rows = decode(tmp_path, self.runs(of, bad), plan(of, Mode.DROPMALFORMED))
        assert [row["_rtps"]["sequence_number"] for row in rows] == [1, 3]
        assert {row["id"] for row in rows} == {7}
        assert f"1 malformed sample of writer {OTHER} dropped: " in caplog.text
        (found,) = read_decoding_report(tmp_path).malformed.values()
        assert (found.writer, found.count) == (str(OTHER), 1)
        assert found.reason in caplog.text and word in found.reason
        assert (found.first_ns, found.last_ns) == (RECEPTION, RECEPTION)

    def test_permissive_shows_the_payload(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, of: Struct, bad: bytes, word: str
    ) -> None:
        rows = decode(tmp_path, self.runs(of, bad), plan(of, Mode.PERMISSIVE, CORRUPT))
        names = [m.name for m in of.members]
        assert [row["_corrupt_record"] for row in rows] == [None, bad, None]
        assert [row["_rtps"]["sequence_number"] for row in rows] == [1, 2, 3]
        assert [row["_rtps"]["writer"] for row in rows] == [str(WRITER), str(OTHER), str(WRITER)]
        assert {rows[1][name] for name in names} == {None}
        for row in (rows[0], rows[2]):
            assert row["id"] == 7
            assert row[names[1]] == VALUES[of.name]
        assert f"1 malformed sample of writer {OTHER} read as nulls: " in caplog.text
        assert malformed(read_decoding_report(tmp_path).counters()) == 1

    def test_permissive_shows_the_reason(self, tmp_path: Path, of: Struct, bad: bytes, word: str) -> None:
        rows = decode(tmp_path, self.runs(of, bad), plan(of, Mode.PERMISSIVE, REASON))
        record = rows[1]["_corrupt_record"]
        assert record.endswith(f"; {len(bad)} bytes: {bad.hex()}")
        assert word in record
        assert rows[0]["_corrupt_record"] is rows[2]["_corrupt_record"] is None

    def test_permissive_without_the_column(self, tmp_path: Path, of: Struct, bad: bytes, word: str) -> None:
        rows = decode(tmp_path, self.runs(of, bad), plan(of, Mode.PERMISSIVE, metadata=False))
        assert [row["id"] for row in rows] == [7, None, 7]

    def test_failfast(self, tmp_path: Path, of: Struct, bad: bytes, word: str) -> None:
        with pytest.raises(MalformedSampleError) as raised:
            decode(tmp_path, self.runs(of, bad), plan(of, Mode.FAILFAST))
        (found,) = read_decoding_report(tmp_path).malformed.values()
        assert f"topic 'T': sample 2 of writer {OTHER} is malformed: {found.reason}." in str(raised.value)


class TestPermissive:
    def test_a_long_payload_is_shown_in_part(self, tmp_path: Path) -> None:
        bad = b"\x77\x77\0\0" + bytes(range(200))
        (row,) = decode(tmp_path, [single(bad, 1)], plan(POINT, Mode.PERMISSIVE, REASON))
        assert row["_corrupt_record"].endswith(f"; 204 bytes: {bad[:64].hex()}...")

    def test_columns_that_are_not_null_have_no_such_rows(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        given = plan(POINT, Mode.PERMISSIVE, CORRUPT)
        data = pa.schema([field.with_nullable(False) for field in given.data])
        strict = replace(given, data=data, columns=pa.schema([*data, CORRUPT, RTPS]))
        bad = single(b"\x77\x77\0\0", 2)
        rows = decode(
            tmp_path, [run_of(encoded(points(0, 1)), 1), bad, run_of(encoded(points(1, 1)), 3)], strict
        )
        assert [row["id"] for row in rows] == [0, 1]
        assert "1 malformed sample of writer" in caplog.text and "dropped" in caplog.text

    def test_the_column_stands_where_the_schema_has_it(self, tmp_path: Path) -> None:
        given = plan(POINT, Mode.PERMISSIVE, CORRUPT)
        columns = pa.schema([CORRUPT, given.data.field("x"), RTPS, given.data.field("id")])
        data = pa.schema([given.data.field("x"), given.data.field("id")])
        runs = [run_of(encoded(points(5, 1)), 1), single(b"\x77\x77\0\0", 2)]
        rows = decode(tmp_path, runs, replace(given, data=data, columns=columns))
        assert [(r["_corrupt_record"], r["x"], r["id"]) for r in rows] == [
            (None, 2.5, 5),
            (b"\x77\x77\0\0", None, None),
        ]

    def test_an_end_of_instance_is_no_corrupt_record(self, tmp_path: Path) -> None:
        nothing = Run.single(WRITER, 2, np.zeros(0, np.uint8), flags=DISPOSED | KEY_ONLY, timestamp=SOURCE)
        runs = [run_of(encoded(points(5, 1)), 1), nothing, single(b"\x77\x77\0\0", 3)]
        rows = decode(tmp_path, runs, plan(POINT, Mode.PERMISSIVE, CORRUPT))
        assert [r["_corrupt_record"] for r in rows] == [None, None, b"\x77\x77\0\0"]
        assert [r["_rtps"]["instance_state"] for r in rows] == ["ALIVE", "NOT_ALIVE_DISPOSED", "ALIVE"]

    def test_nothing_but_malformed(self, tmp_path: Path) -> None:
        rows = decode(tmp_path, [single(b"\x77\x77\0\0", 1)], plan(NOTE, Mode.PERMISSIVE, CORRUPT))
        assert [(r["id"], r["text"], r["_corrupt_record"]) for r in rows] == [(None, None, b"\x77\x77\0\0")]


class TestNotNull:
    """Nulls where a column, or a field inside of one, is declared NOT NULL."""

    INNER = Struct("Inner", (Member("maybe", INT, 0, optional=True), Member("sure", INT, 1)))
    OUTER = Struct(
        "Outer",
        (
            Member("one", INNER, 0),
            Member("many", Sequence(INNER), 1),
            Member("by_name", Map(String(), INNER), 2),
        ),
    )

    def samples(self) -> tuple[list[dict[str, Any]], Any]:
        def inner(maybe: int | None) -> dict[str, int | None]:
            return {"maybe": maybe, "sure": 1}

        rows = [
            {"one": inner(1), "many": [], "by_name": []},
            {"one": inner(None), "many": [inner(2)], "by_name": [("a", inner(1))]},
            {"one": inner(3), "many": [inner(2), inner(None)], "by_name": []},
            {"one": inner(4), "many": [inner(2)], "by_name": [("a", inner(1)), ("b", inner(None))]},
            {"one": inner(5), "many": [inner(2)], "by_name": [("c", inner(1))]},
        ]
        codec = Codec(self.OUTER)
        batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(self.OUTER))
        return rows, codec.encode_batch(batch, representation=DataRepresentation.XCDR2)  # type: ignore[return-value]

    def strict(self, not_null: str, mode: Mode = Mode.DROPMALFORMED) -> TopicPlan:
        def inner(column: str) -> pa.StructType:
            maybe = pa.field("maybe", pa.int32(), nullable=column not in not_null.split())
            return pa.struct([maybe, pa.field("sure", pa.int32())])

        by_name = pa.map_(pa.string(), inner("by_name"))
        data = pa.schema([("one", inner("one")), ("many", pa.list_(inner("many"))), ("by_name", by_name)])
        return TopicPlan("T", "Outer", False, Payload.CDR, self.OUTER, data, data, mode=mode)

    @pytest.mark.parametrize(
        ("not_null", "kept"),
        [
            ("", [0, 1, 2, 3, 4]),
            ("one", [0, 2, 3, 4]),
            ("many", [0, 1, 3, 4]),
            ("by_name", [0, 1, 2, 4]),
            ("one many by_name", [0, 4]),
        ],
    )
    def test_inside(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, not_null: str, kept: list[int]
    ) -> None:
        rows, samples = self.samples()
        assert decode(tmp_path, [run_of(samples, 1)], self.strict(not_null)) == [rows[i] for i in kept]
        assert ("declared NOT NULL" in caplog.text) == bool(not_null)

    def test_failfast(self, tmp_path: Path) -> None:
        _, samples = self.samples()
        with pytest.raises(MalformedSampleError, match=r"sample 2 .* no value for one, declared NOT NULL"):
            decode(tmp_path, [run_of(samples, 1)], self.strict("one", Mode.FAILFAST))

    def test_failfast_lets_instances_end(self, tmp_path: Path) -> None:
        given = plan(POINT, Mode.FAILFAST)
        data = pa.schema([field.with_nullable(False) for field in given.data])
        strict = replace(given, data=data, columns=data.append(RTPS))
        nothing = Run.single(WRITER, 2, np.zeros(0, np.uint8), flags=DISPOSED, timestamp=SOURCE)
        rows = decode(tmp_path, [run_of(encoded(points(0, 1)), 1), nothing], strict)
        assert [row["id"] for row in rows] == [0]


class TestArrow:
    BAD = pa.record_batch({"y": [1]})

    def plan(self, mode: Mode, corrupt: pa.Field | None) -> TopicPlan:
        data = points(0, 1).schema
        columns = pa.schema([*data, *([corrupt] if corrupt else []), RTPS])
        name = None if corrupt is None else corrupt.name
        given = TopicPlan("T", ARROW_BATCH.name, False, Payload.ARROW, ARROW_BATCH, data, columns)
        return replace(given, mode=mode, corrupt=name)

    def runs(self) -> list[Run]:
        good = [run_of(arrow_sample(points(i, 2)), sn) for i, sn in ((0, 1), (2, 4))]
        return [good[0], run_of(arrow_sample(self.BAD), 2), single(b"\x77\x77\0\0\1", 3), good[1]]

    def test_permissive(self, tmp_path: Path) -> None:
        rows = decode(tmp_path, self.runs(), self.plan(Mode.PERMISSIVE, CORRUPT))
        payload = bytes(arrow_sample(self.BAD).payload(0))
        assert [r["id"] for r in rows] == [0, 1, None, None, 2, 3]
        assert [r["_rtps"]["sequence_number"] for r in rows] == [1, 1, 2, 3, 4, 4]
        records = [r["_corrupt_record"] for r in rows]
        assert records == [None, None, payload, b"\x77\x77\0\0\1", None, None]

    def test_reason(self, tmp_path: Path) -> None:
        rows = decode(tmp_path, self.runs(), self.plan(Mode.PERMISSIVE, REASON))
        assert rows[2]["_corrupt_record"].startswith("there is no column 'id' among ['y']; ")

    def test_dropmalformed(self, tmp_path: Path) -> None:
        rows = decode(tmp_path, self.runs(), self.plan(Mode.DROPMALFORMED, CORRUPT))
        assert [(r["id"], r["_corrupt_record"]) for r in rows] == [(i, None) for i in range(4)]
        assert malformed(read_decoding_report(tmp_path).counters()) == 2

    def test_failfast(self, tmp_path: Path) -> None:
        with pytest.raises(MalformedSampleError, match=r"sample 2 .* there is no column 'id'"):
            decode(tmp_path, self.runs(), self.plan(Mode.FAILFAST, None))

    def test_rows_given_up_are_counted_when_they_are_read(self, tmp_path: Path) -> None:
        end = write_log(tmp_path, self.runs())
        rows = decode_range(LogView(tmp_path), Cursor(0), end, self.plan(Mode.PERMISSIVE, CORRUPT))
        assert [next(rows).num_rows for _ in range(2)] == [2, 1]
        rows.close()  # type: ignore[attr-defined]
        assert malformed(read_decoding_report(tmp_path).counters()) == 1
        read(tmp_path, Cursor(0), end, self.plan(Mode.DROPMALFORMED, None))
        assert malformed(read_decoding_report(tmp_path).counters()) == 2


class TestCounting:
    BAD = b"\x77\x77\0\0"

    def scene(self, directory: Path) -> tuple[list[Cursor], TopicPlan]:
        """Every third of 30 samples is malformed, of two writers in turn; a cursor before each, and the end."""
        runs = [
            single(self.BAD if i % 3 == 0 else GOOD["Point"], i + 1, writer=(WRITER, OTHER)[i % 2])
            for i in range(30)
        ]
        end = write_log(directory, runs)
        cursors = [Cursor(frame.position) for frame in LogView(directory).frames(Cursor(0), end)]
        return [*cursors, end], plan(POINT, Mode.DROPMALFORMED)

    @staticmethod
    def counts(directory: Path) -> dict[str, int]:
        return {m.writer: m.count for m in read_decoding_report(directory).malformed.values()}

    def test_a_range_that_is_read_again_counts_once(self, tmp_path: Path) -> None:
        at, plan = self.scene(tmp_path)
        for _ in range(3):
            read(tmp_path, at[0], at[30], plan)
        assert self.counts(tmp_path) == {str(WRITER): 5, str(OTHER): 5}

    def test_ranges_in_any_order_that_overlap(self, tmp_path: Path) -> None:
        at, plan = self.scene(tmp_path)
        for first, last in ((20, 30), (0, 7), (5, 21), (0, 30), (12, 13)):
            read(tmp_path, at[first], at[last], plan)
        assert self.counts(tmp_path) == {str(WRITER): 5, str(OTHER): 5}
        assert len(read_decoding_report(tmp_path).counted) == 1

    def test_malformed_samples_of_an_unfetched_range_are_not_counted(self, tmp_path: Path) -> None:
        at, plan = self.scene(tmp_path)
        decode_range(LogView(tmp_path), at[0], at[30], plan).close()  # type: ignore[attr-defined]
        assert not (tmp_path / DECODING_REPORT).exists()

    def test_malformed_samples_fetched_of_an_abandoned_range_are_counted(self, tmp_path: Path) -> None:
        at, plan = self.scene(tmp_path)
        rows = decode_range(LogView(tmp_path), at[0], at[30], plan)
        next(rows)
        rows.close()  # type: ignore[attr-defined]
        assert self.counts(tmp_path) == {str(WRITER): 5, str(OTHER): 5}

    def test_nothing_malformed_no_report(self, tmp_path: Path) -> None:
        decode(tmp_path, [run_of(encoded(points(0, 9)), 1)], plan(POINT, Mode.PERMISSIVE, CORRUPT))
        assert not (tmp_path / DECODING_REPORT).exists()

    def test_a_sample_that_ends_a_query_counts_once(self, tmp_path: Path) -> None:
        at, plan = self.scene(tmp_path)
        for _ in range(2):
            with pytest.raises(MalformedSampleError):
                read(tmp_path, at[1], at[30], replace(plan, mode=Mode.FAILFAST))
            assert self.counts(tmp_path) == {str(OTHER): 1}
        read(tmp_path, at[0], at[30], plan)
        assert self.counts(tmp_path) == {str(WRITER): 5, str(OTHER): 5}

    def test_a_damaged_report_is_started_anew(self, tmp_path: Path) -> None:
        at, plan = self.scene(tmp_path)
        for damaged in (b"", b"{}", b'{"v": 1, "malformed": [1]}', b"[]", b"\xff"):
            (tmp_path / DECODING_REPORT).write_bytes(damaged)
            assert read_decoding_report(tmp_path).counters() == {}
        read(tmp_path, at[0], at[30], plan)
        assert sum(self.counts(tmp_path).values()) == 10

    def test_an_unwritable_report_is_logged(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        at, plan = self.scene(tmp_path)
        (tmp_path / f"{DECODING_REPORT}.lock").mkdir()
        with caplog.at_level(logging.WARNING):
            assert len(read(tmp_path, at[0], at[30], plan)) == 20
        assert "`spark-rtps errors` and `loss` will not show the samples that gave no rows" in caplog.text

    def test_malformed_samples_are_in_the_error_reports(self, tmp_path: Path) -> None:
        directory = tmp_path / "log"
        at, plan = self.scene(directory)
        read(directory, at[0], at[30], plan)
        (report,) = [r for r in read_error_reports([tmp_path]) if r.path.name == DECODING_REPORT]
        assert (
            sorted((e.level, e.count, e.first_ns) for e in report.errors) == [("WARNING", 5, RECEPTION)] * 2
        )
        (text,) = {e.text for e in report.errors if str(OTHER) in e.text}
        assert text.startswith(f"malformed sample of writer {OTHER}: ")

    def test_malformed_samples_are_in_the_statistics(self, tmp_path: Path) -> None:
        directory = tmp_path / "log"
        about = {"topic": "T", "type": "Point", "guid_prefix": "01" * 12}
        StreamLog.create(directory, max_bytes=1 << 20, metadata=about).close()
        Counters.create(directory / "counters").counter("receiver.pid").set(1 << 30)
        found = MalformedSamples(str(WRITER), "length beyond the sample", 10, RECEPTION, RECEPTION)
        update_decoding_report(directory, lambda report: report.add_malformed(found))
        (stream,) = read_streams([tmp_path], now=0)
        assert (stream.malformed, stream.statuses) == (10, {})
        update_decoding_report(directory, lambda report: setattr(report, "filtered", 3))
        (stream,) = read_streams([tmp_path], now=0)
        assert stream.statuses == {"DATA_READER_CACHE_STATUS": {"content_filter_dropped_sample_count": 3}}

    def test_bounds(self) -> None:
        report = DecodingReport()
        for i in range(MALFORMED_REASONS_MAX + 7):
            report.add_malformed(MalformedSamples("w", f"reason {i}", 2, 1, 1))
            report.see(3 * i, 3 * i + 1)
        assert len(report.malformed) == MALFORMED_REASONS_MAX
        assert report.overflow == 14
        assert malformed(report.counters()) == 2 * (MALFORMED_REASONS_MAX + 7)
        assert len(report.counted) <= 256
        numbers = np.arange(3 * (MALFORMED_REASONS_MAX + 7))
        assert report.uncounted(numbers) == 256  # of more holes

    def test_warnings_of_too_many_writers_are_merged(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        many = MALFORMED_REASONS_MAX + 20
        writers = [Guid(i.to_bytes(12, "big"), b"\0\0\1\2") for i in range(many)]
        runs = [single(self.BAD, 1, writer=writers[i % many]) for i in range(2 * many)]
        assert len(decode(tmp_path, runs, plan(POINT, Mode.PERMISSIVE, CORRUPT))) == 2 * many
        report = read_decoding_report(tmp_path)
        assert {m.count for m in report.malformed.values()} == {2}
        assert (len(report.malformed), report.overflow) == (MALFORMED_REASONS_MAX, 40)
        assert "40 more malformed samples" in caplog.text

    def test_repeated_warnings_become_rarer(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        end = write_log(tmp_path, [single(self.BAD, sn) for sn in range(1, 20)])
        for _ in range(9):
            read(tmp_path, Cursor(0), end, plan(POINT, Mode.DROPMALFORMED))
        reported = [record.getMessage().split(" malformed")[0] for record in caplog.records]
        assert reported == [f"topic 'T': {19 * times}" for times in (1, 1, 2, 4)]

    def test_first_and_last(self) -> None:
        report = DecodingReport()
        for first, last in ((5, 6), (1, 2), (8, 9)):
            report.add_malformed(MalformedSamples("w", "r", 1, first, last))
        assert list(report.malformed.values()) == [MalformedSamples("w", "r", 3, 1, 9)]
