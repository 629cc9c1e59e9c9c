"""What is written for users agrees with what is built."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spark_rtps.cli import app
from spark_rtps.session import spark_defaults

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_options_table_is_what_the_command_prints() -> None:
    printed = CliRunner().invoke(app, ["options"]).output
    match = re.search(r"<!-- options -->\n(.*?)<!-- /options -->", README, re.DOTALL)
    assert match is not None
    assert match[1].strip() == printed.strip(), "run: spark-rtps options, and put that between the markers"


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_the_examples_of_the_readme_are_python(block: str) -> None:
    ast.parse(block)


@pytest.mark.parametrize("target", re.findall(r"\]\((?!https?:|#)([^)#]+)", README))
def test_the_links_of_the_readme_lead_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


@pytest.mark.parametrize("example", re.findall(r"`(\w+\.py)`", (ROOT / "examples" / "README.md").read_text()))
def test_the_examples_are_there(example: str) -> None:
    ast.parse((ROOT / "examples" / example).read_text(encoding="utf-8"))


def test_every_example_is_listed() -> None:
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert all(f"`{path.name}`" in listed for path in (ROOT / "examples").glob("*.py"))


def test_every_spark_setting_is_explained() -> None:
    lines = (ROOT / "conf" / "spark-defaults.conf").read_text(encoding="utf-8").split("\n\n")
    for paragraph in lines:
        assert paragraph.lstrip().startswith("#"), paragraph
    assert spark_defaults()["spark.sql.execution.arrow.maxBytesPerBatch"] == "2147483647"


def test_the_shipped_idl_is_the_shapes_type() -> None:
    from spark_rtps.transport.types.arrow import arrow_schema
    from spark_rtps.transport.types.idl.parser import parse_idl
    from spark_rtps.transport.types.model import Struct

    path = ROOT / "conf" / "ShapeType.idl"
    shape = parse_idl(path.read_text(encoding="utf-8"), str(path))["ShapeType"]
    assert isinstance(shape, Struct)
    assert shape.is_keyed
    assert {f.name: str(f.type) for f in arrow_schema(shape)} == {
        "color": "string",
        "x": "int32",
        "y": "int32",
        "shapesize": "int32",
    }
