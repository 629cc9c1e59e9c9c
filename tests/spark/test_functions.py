"""Raw samples are kept as they came, and decoded later: from_cdr, to_cdr, schema_of_cdr."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_rtps.functions import from_cdr, schema_of_cdr, to_cdr
from spark_rtps.transport.errors import OptionError
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.cyclone_types import Blob
from tests.spark.spark_streams import DOMAIN, network, running, source, wait_for_rows

BLOBS = [{"id": i, "data": [i] * i} for i in range(20)]


def test_store_raw_decode_later(spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path) -> None:
    with CyclonePeer(DOMAIN) as peer:
        peer.writer(topic, Blob)
        reported = schema_of_cdr(topic, {k: v for k, v in network().items() if k in ("domain", "interface")})
        assert "struct Blob" in reported
        raw = source(spark, topic, log_dir, None, payload="binary", type=None, key=None)
        with running(raw, tmp_path / "checkpoint") as query:
            peer.wait_for_match(topic)
            peer.write(topic, BLOBS)
            rows = wait_for_rows(spark, query, len(BLOBS))
            rows.write.parquet(str(tmp_path / "bronze"))
    bronze = spark.read.parquet(str(tmp_path / "bronze"))
    silver = bronze.select(from_cdr("value", reported).alias("blob")).select("blob.*").orderBy("id")
    assert [(row.id, list(row.data)) for row in silver.collect()] == [(i, [i] * i) for i in range(20)]
    again = bronze.select("value", to_cdr(from_cdr(F.col("value"), reported), reported).alias("written"))
    assert again.select(from_cdr("written", reported).alias("s")).where("s.id = 7").count() == 1


def test_a_payload_that_does_not_decode(spark: SparkSession) -> None:
    idl = "@final struct P { long long a; };"
    good = spark.range(1).select(to_cdr(F.struct(F.col("id").alias("a")), idl).alias("v"))
    mixed = good.union(spark.sql("SELECT X'00010000FF'")).union(spark.sql("SELECT CAST(NULL AS BINARY)"))
    found = mixed.select(from_cdr("v", idl, {"mode": "PERMISSIVE"}).alias("p")).collect()
    assert [row.p if row.p is None else row.p.a for row in found] == [0, None, None]
    with pytest.raises(Exception, match=r"MalformedSampleError: row 0 of 1 is no P"):
        mixed.repartition(1).where("length(v) = 5").select(from_cdr("v", idl)).collect()


def test_options_are_checked_at_once() -> None:
    with pytest.raises(OptionError, match="use permissive, which gives null, or failfast"):
        from_cdr("value", "struct P { long a; };", {"mode": "dropmalformed"})
    with pytest.raises(OptionError, match="moed"):
        from_cdr("value", "struct P { long a; };", {"moed": "failfast"})
