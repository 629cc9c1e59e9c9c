"""The Dockerfile, as far as it can be judged without a daemon: its form, and what its steps would find."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.packaging.test_packaging import build_wheel, names_in

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "conf" / "Dockerfile"
KNOWN = {
    "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD",
}  # fmt: skip


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage, with their arguments."""
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()).replace("\\\n", " ")
    found: list[list[tuple[str, str]]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        assert name in KNOWN and rest, line
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest.strip()))
    return found


def given(stage: list[tuple[str, str]], name: str) -> list[str]:
    return [rest for instruction, rest in stage if instruction == name]


def test_the_last_stage_runs_the_receiver_as_a_user_without_rights() -> None:
    build, last = stages()
    assert given(last, "FROM") == ["python:3.13-slim"]
    assert given(build, "FROM") == ["python:3.13-slim AS build"]
    assert given(last, "USER") == ["10001:10001"]
    assert "--uid 10001 " in given(last, "RUN")[0]
    assert json.loads(given(last, "ENTRYPOINT")[0]) == ["spark-rtps"]
    assert json.loads(given(last, "CMD")[0])[0] == "receive"
    order = [name for name, _ in last]
    assert order.index("USER") > max(at for at, name in enumerate(order) if name in ("RUN", "COPY"))
    assert given(last, "COPY") == ["--from=build /opt/spark-rtps /opt/spark-rtps"]


def test_the_images_python_is_supported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "Programming Language :: Python :: 3.13" in project["classifiers"]


def test_the_image_installs_the_dependencies_except_pyspark() -> None:
    """The expression of the step itself is run."""
    (step,) = (rest for rest in given(stages()[0], "RUN") if "tomllib" in rest)
    words = shlex.split(step.partition(" > ")[0])
    assert words[:2] == ["python", "-c"]
    done = subprocess.run([sys.executable, *words[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["metrics"], *extras["ros"]]
    assert done.stdout.split("\n")[:-1] == [each for each in wanted if not each.startswith("pyspark")]
    assert "h11" in done.stdout and "pyspark" not in done.stdout


def copied() -> list[tuple[str, str]]:
    pairs = []
    for rest in given(stages()[0], "COPY"):
        *sources, target = rest.split()
        pairs += [(source, target) for source in sources]
    return pairs


def test_the_context_has_what_is_copied_and_little_else() -> None:
    lines = (ROOT / "conf" / "Dockerfile.dockerignore").read_text().splitlines()
    assert lines[0] == "*"
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == {
        name for name, _ in copied()
    }
    assert any(fnmatch("a/__pycache__", line) for line in lines[1:])


@pytest.mark.parametrize("source", [name for name, _ in copied()])
def test_copied_files_exist(source: str) -> None:
    assert (ROOT / source).exists()


def test_the_wheel_is_made_of_what_is_copied(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, target in copied():
        if (ROOT / name).is_dir():
            skip = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(ROOT / name, source / target, symlinks=True, ignore=skip)
        else:
            shutil.copy(ROOT / name, source / target)
    names = names_in(build_wheel(source, tmp_path / "wheel", tmp_path))
    assert "spark_rtps/cli.py" in names and "spark_rtps/transport/receiver/__init__.py" in names
