"""Who imports whom: lazily in the façade, in one direction inside, and never a bare ``import transport``."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Set
from pathlib import Path

import pytest

import spark_rtps
from tests.support.rows import each_of, place_of

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for room in ("spark_rtps", "transport", "datasource", "tests", "examples")
    for path in (ROOT / room).rglob("*.py")
)

#: Without such a text a source has no import of a room by its bare name, and need not be parsed.
BARE_IMPORT = re.compile(r"(?:\bfrom|\bimport|,)[\s\\]*(?:transport|datasource)\b")


#: The rooms of the product, and the packages they are.
PRODUCT = {
    "spark_rtps": "spark_rtps",
    "transport": "spark_rtps.transport",
    "datasource": "spark_rtps.datasource",
}


def module_of(path: Path) -> str:
    """The name of the module of a source of the product."""
    room, *parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join((PRODUCT[room], *parts)).removesuffix(".__init__")


def imported_by(name: str, path: Path, modules: Set[str]) -> set[str]:
    """Those of ``modules`` that a module imports, wherever it does."""
    found: set[str] = set()
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # a name may be a module, or something in one
            submodules = {f"{origin}.{alias.name}" for alias in node.names} & modules
            found |= submodules or {origin}
    return (found & modules) - {name}


def circles(imports: dict[str, set[str]]) -> list[str]:
    """The modules that import themselves by way of others, or lie between two such circles."""
    left, before = set(imports), None
    while left != before:
        before = left
        imported = set().union(*(imports[name] for name in left))
        left = {name for name in left & imported if imports[name] & left}
    return sorted(left)


def modules_after(statement: str) -> set[str]:
    """The modules a fresh interpreter has loaded after a statement."""
    script = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import spark_rtps",
        "import spark_rtps.transport",
        "from spark_rtps import RtpsError, OptionError",
        "import spark_rtps.transport.net.node",
        "import spark_rtps.transport.receiver.process",
    ],
)
def test_the_transport_does_not_load_spark(statement: str) -> None:
    assert "pyspark" not in modules_after(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "import spark_rtps; [getattr(spark_rtps, name) for name in spark_rtps.__all__ if 'Data' not in name]",
        "import spark_rtps; spark_rtps.Participant(domain=0).close()",
    ],
    ids=["names", "participant"],
)
def test_the_python_api_loads_neither_spark_nor_the_command_line(statement: str) -> None:
    assert not modules_after(statement) & {"pyspark", "py4j", "typer", "rich", "lark", "cyclonedds"}


def test_the_command_line_starts_light() -> None:
    loaded = modules_after("import spark_rtps.cli")
    assert not loaded & {"pyspark", "pyarrow", "numpy", "lark", "cyclonedds"}


#: What takes the longest to load, and what start-up does without; pandas is loaded by whoever calls ``pyarrow.array``.
CODECS = {
    "pandas",
    "pyarrow.compute",
    "spark_rtps.transport.types.cdr.codec",
    "spark_rtps.transport.types.cdr.decoding.decoder",
}
ASYNC = {"asyncio", "ssl", "http.client"}


@pytest.mark.parametrize(
    ("statement", "without"),
    [
        ("import spark_rtps", {"typing", "re", "importlib.util", "dataclasses", "numpy"}),
        ("import spark_rtps.transport.receiver.__main__", {*CODECS, *ASYNC, "pyarrow", "lark"}),
        ("import spark_rtps; spark_rtps.Participant(domain=0).close()", {*CODECS, *ASYNC, "pyarrow"}),
        ("import spark_rtps.datasource.source", {*CODECS, *ASYNC, "pyarrow", "numpy"}),
        (
            "import spark_rtps.datasource.stream_reader",
            {"pandas", *ASYNC, "spark_rtps.columns.decoding", "spark_rtps.datasource.log_reading"},
        ),
        ("import spark_rtps.datasource.log_reading", {"pandas"}),
    ],
    ids=["package", "receiver", "participant", "source", "stream reader", "task"],
)
def test_starting_programs_import_only_what_they_need(statement: str, without: set[str]) -> None:
    # what an interpreter loads before it runs anything, such as by .pth files, is not ours
    assert not (modules_after(statement) - modules_after("pass")) & without


def test_every_public_name_is_there() -> None:
    for name in spark_rtps.__all__:
        assert getattr(spark_rtps, name).__name__ == name
    assert set(spark_rtps.__all__) <= set(dir(spark_rtps))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = spark_rtps.Nothing


@each_of(SOURCES, name=place_of)
def test_no_bare_import_of_a_room(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if not BARE_IMPORT.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        for name in names:
            assert name.split(".")[0] not in ("transport", "datasource"), f"{path}:{node.lineno}"


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports within functions, and those for annotations alone, count too: such modules cannot be understood apart."""
    modules = {module_of(path): path for path in SOURCES if path.relative_to(ROOT).parts[0] in PRODUCT}
    imports = {name: imported_by(name, path, modules.keys()) for name, path in modules.items()}
    assert "spark_rtps.transport.net.sockets" in imports["spark_rtps.transport.net.node"]
    assert circles(imports) == []


def test_a_circle_of_imports_is_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"d", "b"}, "d": set(), "e": {"a"}}
    assert circles(imports) == ["b", "c"]


def test_tests_import_each_other_by_whole_names() -> None:
    """Also what only `make bench` and `make simulate` load."""
    wrong = []
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom):
                continue
            module = ROOT.joinpath(*(node.module or "").split("."))
            ours = (node.module or "").split(".")[0] == "tests"
            there = module.with_suffix(".py").exists() or all(
                (module / f"{each.name}.py").exists() for each in node.names
            )
            if node.level or (ours and not there):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong
