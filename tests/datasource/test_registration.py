"""How Spark finds the source, and how it gets the source into other processes."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.core.files import SparkFiles
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import IntegerType, StructType

from spark_rtps.datasource import shipping
from spark_rtps.datasource.batch_reader import RtpsBatchReader
from spark_rtps.datasource.receiver_service_batch_reader import ReceiverServiceBatchReader
from spark_rtps.datasource.recording_reader import RecordingReader
from spark_rtps.datasource.source import Ros2DataSource, RtpsDataSource
from spark_rtps.datasource.status_reader import StatusBatchReader
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.options.settings import Settings
from spark_rtps.transport.errors import OptionError, UsageError
from spark_rtps.transport.log_once import LogOnce

ROOT = Path(__file__).parents[2]


def test_no_reader_takes_filters() -> None:
    """PySpark 4.3 would apply the last ones to all uses of a DataFrame, and each union or join would be wrong."""
    for reader in (RtpsBatchReader, ReceiverServiceBatchReader, RecordingReader, StatusBatchReader):
        assert reader.pushFilters is DataSourceReader.pushFilters


def test_default_source() -> None:
    found = runpy.run_path(str(ROOT / "pyspark_rtps.py"))
    assert found["DefaultSource"] is RtpsDataSource
    assert RtpsDataSource.name() == "rtps"
    found = runpy.run_path(str(ROOT / "pyspark_ros2.py"))
    assert found["DefaultSource"] is Ros2DataSource
    assert Ros2DataSource.name() == "ros2"


def test_ros2_is_rtps_with_names_of_ros() -> None:
    source = Ros2DataSource({"topic": "/imu", "Domain": "3"})
    assert source.options == {"topic": "/imu", "domain": "3", "ros": "true"}
    again = cloudpickle.loads(cloudpickle.dumps(source))
    assert type(again) is Ros2DataSource
    assert again._settings(AppliesTo.READ).topic == "rt/imu"
    with pytest.raises(OptionError, match="no name of ROS 2"):
        Ros2DataSource({"topic": "/a-b"})


@pytest.mark.parametrize("module", ["pyspark_rtps.py", "pyspark_ros2.py"])
def test_registration_never_fails(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, "spark_rtps.datasource.source", None)
    with pytest.warns(UserWarning, match="spark-rtps cannot be used"):
        found = runpy.run_path(str(ROOT / module))
    assert "DefaultSource" not in found


def test_registration_is_light() -> None:
    code = (
        "import sys; import pyspark.sql.datasource; before = set(sys.modules); import pyspark_rtps; "
        "print(*[m for m in set(sys.modules) - before if m.split('.')[0] in ('numpy', 'pyarrow', 'lark')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""


def test_a_typo_fails_at_once() -> None:
    with pytest.raises(OptionError, match="did you mean 'domain'"):
        RtpsDataSource({"topic": "T", "domian": "1"})


def test_overwrite() -> None:
    with pytest.raises(UsageError, match="use mode"):
        RtpsDataSource({"topic": "T"}).writer(None, overwrite=True)


def test_installed_source_is_pickled_as_usual() -> None:
    source = RtpsDataSource({"topic": "T"})
    again = cloudpickle.loads(cloudpickle.dumps(source))
    assert type(again) is RtpsDataSource
    assert again.options == {"topic": "T"}


def test_source_from_a_shipped_file_brings_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "_root_directory", str(ROOT))
    monkeypatch.setattr(sys, "path", [p for p in sys.path if Path(p) != ROOT])
    assert shipping.shipped_path() == str(ROOT)
    data = cloudpickle.dumps(RtpsDataSource({"topic": "T"}))
    assert b"spark_rtps.datasource.shipping" not in data  # what loads it must not need it
    again = cloudpickle.loads(data)
    assert type(again) is RtpsDataSource
    assert again.options == {"topic": "T"}
    assert str(ROOT) in sys.path


def test_options_are_parsed_once_for_each_role(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []

    def parse(options: Mapping[str, str], role: AppliesTo) -> Settings:
        parsed.append(role)
        return parse_options(options, role)

    monkeypatch.setattr("spark_rtps.datasource.source.parse_options", parse)
    columns = StructType().add("id", "integer")
    source = RtpsDataSource({"topic": "T", "type": "sensor_msgs/msg/Temperature", "payload": "binary"})
    schema = source.schema()
    source.reader(schema)
    again = cloudpickle.loads(cloudpickle.dumps(source))
    again.reader(schema)
    again.streamReader(schema)
    assert parsed == [AppliesTo.BOTH, AppliesTo.READ]
    sink = RtpsDataSource({"topic": "T"})
    for _ in range(2):
        sink.writer(columns, overwrite=False)
        sink.streamWriter(columns, overwrite=False)
    assert parsed[2:] == [AppliesTo.BOTH, AppliesTo.WRITE]


def test_parsed_options_travel_with_a_shipped_source() -> None:
    code = f"""
import sys
from pyspark.core.files import SparkFiles
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import IntegerType, StructType
SparkFiles._root_directory = {str(ROOT)!r}
from pyspark import cloudpickle
from spark_rtps.datasource.source import RtpsDataSource
source = RtpsDataSource({{"topic": "T", "type": "sensor_msgs/msg/Temperature"}})
source.schema()
sys.stdout.buffer.write(cloudpickle.dumps(source))
"""
    data = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT).stdout
    load = f"""
import os, pickle, sys
sys.path[:] = [p for p in sys.path if p and os.path.abspath(p) != {str(ROOT)!r}]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
source = pickle.loads(sys.stdin.buffer.read())
print(source.options["topic"], source._topic_type.type_name)
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", load], input=data, capture_output=True, check=True, cwd="/", env=environment
    )
    assert done.stdout.split() == [b"T", b"sensor_msgs::msg::dds_::Temperature_"]


@pytest.mark.parametrize("folder", ["", "streaming_job"])
def test_shipped_modules_are_found_after_all_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str
) -> None:
    for name in ("shipped.py", "more.zip", "older.egg", "data.csv"):
        (tmp_path / name).touch()
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path / folder))
    before = [*sys.path]
    monkeypatch.setattr(sys, "path", [*before])
    for _ in range(2):
        shipping.find_shipped_modules()
        assert sys.path == [*before, *map(str, (tmp_path, tmp_path / "more.zip", tmp_path / "older.egg"))]


def test_nothing_is_shipped_where_no_spark_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "_root_directory", None)
    before = [*sys.path]
    shipping.find_shipped_modules()
    assert sys.path == before


def test_each_role_says_once_what_its_options_probably_do_not_intend(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("spark_rtps.datasource.source._LOGGED", LogOnce(256))
    columns = StructType().add("id", IntegerType())
    doubtful = {"batch.enable": "true", "turbo_mode": "true"}
    for topic, make in (
        ("Batch", lambda sink: sink.writer(columns, overwrite=False)),
        ("Stream", lambda sink: sink.streamWriter(columns, overwrite=False)),
    ):
        for _ in range(2):
            make(RtpsDataSource({"topic": topic, **doubtful}))  # type: ignore[no-untyped-call]
        (output,) = (each for each in caplog.messages if topic in each)
        assert "turbo_mode" in output
