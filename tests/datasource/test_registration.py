"""How Spark finds the source, and how it gets the source into other processes."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.core.files import SparkFiles

from spark_rtps.datasource import shipping
from spark_rtps.datasource.source import RtpsDataSource
from spark_rtps.transport.errors import OptionError, UsageError

ROOT = Path(__file__).parents[2]


def test_default_source():
    found = runpy.run_path(str(ROOT / "pyspark_rtps.py"))
    assert found["DefaultSource"] is RtpsDataSource
    assert RtpsDataSource.name() == "rtps"


def test_registration_never_fails(monkeypatch):
    monkeypatch.setitem(sys.modules, "spark_rtps.datasource.source", None)
    with pytest.warns(UserWarning, match="spark-rtps cannot be used"):
        found = runpy.run_path(str(ROOT / "pyspark_rtps.py"))
    assert "DefaultSource" not in found


def test_registration_is_light():
    code = (
        "import sys; import pyspark.sql.datasource; before = set(sys.modules); import pyspark_rtps; "
        "print(*[m for m in set(sys.modules) - before if m.split('.')[0] in ('numpy', 'pyarrow', 'lark')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""


def test_a_typo_fails_at_once():
    with pytest.raises(OptionError, match="did you mean 'domain'"):
        RtpsDataSource({"topic": "T", "domian": "1"})


def test_overwrite():
    with pytest.raises(UsageError, match="use mode"):
        RtpsDataSource({"topic": "T"}).writer(None, overwrite=True)


def test_installed_source_is_pickled_as_usual():
    source = RtpsDataSource({"topic": "T"})
    again = cloudpickle.loads(cloudpickle.dumps(source))
    assert type(again) is RtpsDataSource
    assert again.options == {"topic": "T"}


def test_source_from_a_shipped_file_brings_its_path(monkeypatch):
    monkeypatch.setattr(SparkFiles, "_root_directory", str(ROOT))
    monkeypatch.setattr(sys, "path", [p for p in sys.path if Path(p) != ROOT])
    assert shipping.shipped_path() == str(ROOT)
    data = cloudpickle.dumps(RtpsDataSource({"topic": "T"}))
    assert b"spark_rtps.datasource.shipping" not in data  # what loads it must not need it
    again = cloudpickle.loads(data)
    assert type(again) is RtpsDataSource
    assert again.options == {"topic": "T"}
    assert str(ROOT) in sys.path
