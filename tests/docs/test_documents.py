"""What is written for users agrees with what is built: options, links, and the code in documents."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from spark_rtps.cli import app
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.options.table import BY_KEY, SPARK_KEYS
from spark_rtps.options.values import parse_value
from spark_rtps.session import spark_defaults
from tests.docs.document_links import ROOT, anchors, broken_links, documents, links, without_code
from tests.support.rows import each_of, place_of

DOCUMENTS: Final = documents()
README: Final = ROOT / "README.md"
README_BYTES_MAX: Final = 8_000
_BLOCK: Final = re.compile(r"^```(\w*)[ \t]*(.*?)\n(.*?)^```", re.DOTALL | re.MULTILINE)
#: An option with its value, in the running text.
_SETTING: Final = re.compile(r"`([a-z][A-Za-z0-9_.]*)=([^`=\s]+)`")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


class Block(NamedTuple):
    """A code block of a document; its name is the document's with its place among the blocks."""

    name: str
    text: str


def _blocks(language: str, *, marked: str = "") -> list[Block]:
    """The code blocks of a language."""
    return [
        Block(f"{document.stem}-{number}", match[3])
        for document in DOCUMENTS
        for number, match in enumerate(_BLOCK.finditer(_read(document)))
        if match[1] == language and (not marked or match[2] == marked)
    ]


# --- pages and links --------------------------------------------------------------------------------


def test_the_page_of_options_is_what_the_command_prints() -> None:
    printed = CliRunner().invoke(app, ["options"]).output
    assert _read(ROOT / "docs" / "options.md") == printed, "run: make docs"


def test_the_readme_is_short() -> None:
    assert len(README.read_bytes()) <= README_BYTES_MAX


@each_of(DOCUMENTS, name=place_of)
def test_links_lead_somewhere(document: Path) -> None:
    assert broken_links(document) == []


def test_a_broken_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.document_links.ROOT", tmp_path)
    (tmp_path / "b.md").write_text("# One\n## Two, `three`\n## One\n```\n# no heading\n```\n")
    (tmp_path / "a.md").write_text(
        "[x](b.md#two-three) [y](b.md#one-1) [z](https://example.org) `[no](link.md)`\n[w](c.md) [v](b.md#four)\n"
        "[u](#none)"
    )
    assert broken_links(tmp_path / "a.md") == [
        "a.md: there is no c.md",
        "a.md: b.md has no heading #four",
        "a.md: a.md has no heading #none",
    ]
    assert anchors(_read(tmp_path / "b.md")) == {"one", "two-three", "one-1"}


def test_the_readme_leads_to_every_page() -> None:
    linked = {link.partition("#")[0] for link in links(_read(README))}
    pages = {str(path.relative_to(ROOT)) for path in DOCUMENTS if path not in (README,)}
    assert pages <= linked


# --- code in documents ------------------------------------------------------------------------------


@each_of(_blocks("python"), name=lambda block: block.name)
def test_python_compiles(block: Block) -> None:
    compile(block.text, "document", "exec")


@each_of(_blocks("python", marked="run"), name=lambda block: block.name)
def test_python_marked_to_run_runs(block: Block) -> None:
    exec(compile(block.text, "document", "exec"), {"__name__": "document"})


@each_of(_blocks("python"), name=lambda block: block.name)
def test_options_in_python_are_valid(block: Block) -> None:
    """Each chain of calls on a reader or writer of this format is parsed as Spark would hand it over."""
    for reads, options in _chains(ast.parse(block.text)):
        if "qos.file" in options:  # both sides at once: no file is read
            parse_options(options, AppliesTo.BOTH)
        else:
            parse_options(options, AppliesTo.READ if reads else AppliesTo.WRITE)


def _chains(tree: ast.Module) -> Iterator[tuple[bool, dict[str, str]]]:
    """Whether a chain reads, and its options; of each chain with ``format("rtps")`` the longest."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    inner = {id(n.func.value) for n in calls if isinstance(n.func, ast.Attribute)}
    for call in calls:
        if id(call) in inner:
            continue
        names, options = _chain(call)
        if "rtps" in names:
            if not {"subscribe", "subscribePattern"} & options.keys():
                options.setdefault("topic", "Topic")
            yield any(name in names for name in ("read", "readStream")), options


def _chain(node: ast.expr) -> tuple[list[str], dict[str, str]]:
    names: list[str] = []
    options: dict[str, str] = {}
    while isinstance(node, ast.Call | ast.Attribute):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
            continue
        arguments = [a.value for a in node.args if isinstance(a, ast.Constant)]
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if called == "format" and arguments == ["rtps"]:
            names.append("rtps")
        elif called == "option" and len(arguments) == 2:
            value = arguments[1]
            options[str(arguments[0])] = str(value).lower() if isinstance(value, bool) else str(value)
        elif called in ("load", "save", "start") and arguments:
            options["topic"] = str(arguments[0])
        node = node.func
    return names, options


@each_of(_blocks("idl"), name=lambda block: block.name)
def test_idl_parses(block: Block) -> None:
    from spark_rtps.transport.types.idl.parser import parse_idl

    assert parse_idl(block.text, "document.idl")


@each_of([*_blocks("sh"), *_blocks("console")], name=lambda block: block.name)
def test_commands_exist(block: Block) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    targets = set(re.findall(r"^([\w-]+):", _read(ROOT / "Makefile"), re.MULTILINE))
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True) if line.strip() else []
        if words[:1] == ["spark-rtps"]:
            command = commands[words[1]]
            command = getattr(command, "commands", {}).get(words[2] if len(words) > 2 else "", command)
            known = {name for parameter in command.params for name in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= known
        elif words[:1] == ["make"]:
            assert words[1] in targets


def test_the_printed_idl_is_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Spark, whose parser reads the schema: names, types and NOT NULL are all that is used here."""
    from pyspark.sql.types import DoubleType, LongType, StringType, StructType

    known = {"string": StringType(), "bigint": LongType(), "double": DoubleType()}

    def schema(text: str) -> StructType:
        made = StructType()
        for column in text.split(","):
            name, kind, *rest = column.split()
            made.add(name, known[kind], nullable=rest != ["not", "null"])
        return made

    monkeypatch.setattr("spark_rtps.commands.idl.spark_schema", schema)
    shown = re.search(
        r"```console\n\$ spark-rtps (idl .*?)\n(.*?)```", _read(ROOT / "docs" / "writing.md"), re.DOTALL
    )
    assert shown is not None
    assert CliRunner().invoke(app, shlex.split(shown[1])).output == shown[2]


@each_of(DOCUMENTS, name=place_of)
def test_settings_in_the_text_are_options(document: Path) -> None:
    for name, value in _SETTING.findall(without_code(_read(document))):
        if name.startswith("spark.") or name.lower() in SPARK_KEYS:
            continue
        assert name.lower() in BY_KEY, name
        parse_value(BY_KEY[name.lower()], value)


# --- examples and configuration ---------------------------------------------------------------------


@each_of(re.findall(r"`(\w+\.py)`", _read(ROOT / "examples" / "README.md")))
def test_the_examples_are_there(example: str) -> None:
    ast.parse(_read(ROOT / "examples" / example))


def test_every_example_is_listed() -> None:
    listed = _read(ROOT / "examples" / "README.md")
    examples = [path for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".ipynb")]
    assert all(f"`{path.name}`" in listed for path in examples)


def test_every_spark_setting_is_explained() -> None:
    lines = _read(ROOT / "conf" / "spark-defaults.conf").split("\n\n")
    for paragraph in lines:
        assert paragraph.lstrip().startswith("#"), paragraph
    assert spark_defaults()["spark.sql.execution.arrow.maxBytesPerBatch"] == "2147483647"


def test_the_shipped_idl_is_the_shapes_type() -> None:
    from spark_rtps.transport.types.arrow import arrow_schema
    from spark_rtps.transport.types.idl.parser import parse_idl
    from spark_rtps.transport.types.model import Struct

    path = ROOT / "conf" / "ShapeType.idl"
    shape = parse_idl(_read(path), str(path))["ShapeType"]
    assert isinstance(shape, Struct)
    assert shape.is_keyed
    assert {f.name: str(f.type) for f in arrow_schema(shape)} == {
        "color": "string",
        "x": "int32",
        "y": "int32",
        "shapesize": "int32",
    }


# --- stations of the architecture -------------------------------------------------------------------


@cache
def _defined_in(file: str) -> set[str]:
    nodes = ast.walk(ast.parse(_read(ROOT / file)))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _stations() -> list[tuple[list[str], str]]:
    """Rows of the architecture's tables that name functions of files."""
    found: list[tuple[list[str], str]] = []
    for row in _read(ROOT / "docs" / "architecture.md").splitlines():
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        files = re.findall(r"\]\(\.\./([\w/]+\.py)\)", row)
        if len(cells) == 3 and files:
            names = re.findall(r"`(\w+)`", cells[2])
            found += [(files, name) for name in names]
    return found


@each_of(_stations(), name=lambda station: f"{station[0][0]} {station[1]}")
def test_stations_of_the_architecture_exist(station: tuple[list[str], str]) -> None:
    files, name = station
    assert name in set().union(*map(_defined_in, files))


def test_the_architecture_has_stations() -> None:
    assert len(_stations()) > 40
