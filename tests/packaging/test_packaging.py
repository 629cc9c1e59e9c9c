"""Wheel, sdist, editable install, zip and source tree: all give the same modules, each once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("spark_rtps", "transport", "datasource", "conf")

# Run without site, so that the editable install of the development environment is out of the way.
IMPORT_ALL = """
import importlib, site, sys
sys.path[:0] = {first!r}
for directory in {sites!r}:
    site.addsitedir(directory)
sys.path.append({last!r})
for name in {names!r}:
    module = importlib.import_module(name)
    print(name, module.__file__)
"""


def modules_of_the_tree() -> list[str]:
    """The dotted names of all modules in the source tree, links followed."""
    found = ["pyspark_ros2", "pyspark_rtps"]
    for room, prefix in (("spark_rtps", ""), ("transport", "spark_rtps."), ("datasource", "spark_rtps.")):
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found.append(prefix + ".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(set(found))


def copy_of_source(copy: Path) -> Path:
    """A copy of what packaging sees, links kept, so that building leaves nothing in the tree."""
    for name in PACKAGES:
        shutil.copytree(
            ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", ".*")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE", "pyspark_ros2.py", "pyspark_rtps.py"):
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree to build from."""
    return copy_of_source(tmp_path_factory.mktemp("source"))


def pip(*arguments: object, cwd: Path) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def build_wheel(source: Path, out: Path, cwd: Path) -> Path:
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", out, source, cwd=cwd)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(source, tmp_path_factory.mktemp("wheel"), source)


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if ".dist-info/" not in name]


def import_all(path: Path | None, *, cwd: Path, site: Path | None = None) -> dict[str, str]:
    """Import every module in a fresh interpreter; returns where each came from."""
    names = [name for name in modules_of_the_tree() if not name.endswith("__main__")]
    script = IMPORT_ALL.format(
        names=names,
        first=[str(path)] if path else [],
        sites=[str(site)] if site else [],
        last=sysconfig.get_path("purelib"),
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(tuple(names)))


def test_the_wheel_holds_every_module_once_and_nothing_else_on_top(wheel: Path) -> None:
    names = names_in(wheel)
    assert len(names) == len(set(names))
    assert {name.split("/")[0] for name in names} == {"spark_rtps", "pyspark_ros2.py", "pyspark_rtps.py"}
    as_modules = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in names
        if name.endswith(".py")
    )
    assert as_modules == modules_of_the_tree()


def test_the_wheel_holds_the_data_files(wheel: Path) -> None:
    names = set(names_in(wheel))
    assert "spark_rtps/py.typed" in names
    settings = {path for path in (ROOT / "conf").rglob("*") if path.is_file()}
    assert {f"spark_rtps/{path.relative_to(ROOT)}" for path in settings} <= names
    grammars = {f"spark_rtps/{path.relative_to(ROOT)}" for path in (ROOT / "transport").rglob("*.lark")}
    assert grammars <= names


def test_the_wheel_names_its_licence_and_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = {name.split("/", 1)[1]: name for name in archive.namelist() if ".dist-info/" in name}
        assert "Apache License" in archive.read(info["licenses/LICENSE"]).decode()
        assert "spark-rtps = spark_rtps.cli:main" in archive.read(info["entry_points.txt"]).decode()


def test_the_sdist_makes_the_same_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    script = f"from setuptools import build_meta; print(build_meta.build_sdist({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", script], cwd=source, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    again = build_wheel(sdist, tmp_path / "again", tmp_path)
    assert sorted(names_in(again)) == sorted(names_in(wheel))


def test_everything_imports_from_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    pip("install", "--no-deps", "--no-index", "--target", target, wheel, cwd=tmp_path)
    origins = import_all(target, cwd=tmp_path)
    assert all(origin.startswith(str(target)) for origin in origins.values())


def test_everything_imports_from_the_wheel_as_a_zip(wheel: Path, tmp_path: Path) -> None:
    origins = import_all(wheel, cwd=tmp_path)
    assert all(origin.startswith(str(wheel)) for origin in origins.values())


@pytest.mark.parametrize("install", ["wheel", "editable"])
def test_spark_finds_the_data_source(install: str, source: Path, wheel: Path, tmp_path: Path) -> None:
    """Spark looks for modules called pyspark_* with pkgutil, in the folders on sys.path."""
    target = tmp_path / "site"
    what = [wheel] if install == "wheel" else ["--no-build-isolation", "-e", source]
    pip("install", "--no-deps", "--no-index", "--target", target, *what, cwd=tmp_path)
    look = f"import pkgutil, site; site.addsitedir({str(target)!r}); print(*pkgutil.iter_modules())"
    done = subprocess.run(
        [sys.executable, "-S", "-c", look], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "name='pyspark_rtps'" in done.stdout


def test_everything_imports_from_an_editable_install(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    pip(
        "install",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--target",
        target,
        "-e",
        source,
        cwd=tmp_path,
    )
    origins = import_all(None, cwd=tmp_path, site=target)
    assert [origin for origin in origins.values() if not origin.startswith(str(source))] == []


def test_everything_imports_from_the_source_tree(source: Path) -> None:
    origins = import_all(source, cwd=source)
    assert all(origin.startswith(str(source)) for origin in origins.values())


def test_a_module_is_one_module_however_it_is_reached() -> None:
    import spark_rtps.transport.errors as by_name
    from spark_rtps import RtpsError

    assert RtpsError is by_name.RtpsError
    assert sys.modules["spark_rtps.transport.errors"] is by_name
