"""What ``import spark_rtps`` does for Spark, and what it says of a PySpark that it does not know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.child_environment import child_environment

ROOT = Path(__file__).parents[2]


def run(program: str, *, path: Path | None = None, modules: Path | None = None, **changes: str) -> str:
    """What a program prints on both streams; ``path`` comes first in PATH, ``modules`` first in ``sys.path``."""
    environment = child_environment(**changes)
    if "PYSPARK_PYTHON" not in changes:
        environment.pop("PYSPARK_PYTHON", None)
    environment["PATH"] = f"{path}:{environment['PATH']}" if path else environment["PATH"]
    environment["PYTHONPATH"] = f"{modules or ROOT}:{ROOT}"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    return done.stdout + done.stderr


def pyspark(folder: Path, version: str, **modules: str) -> Path:
    """A package of that name and version, with these modules under ``sql``."""
    sql = folder / "pyspark" / "sql"
    sql.mkdir(parents=True)
    (folder / "pyspark" / "__init__.py").write_text("from .version import __version__\n")
    (folder / "pyspark" / "version.py").write_text(f"__version__: str = '{version}'\n")
    (sql / "__init__.py").touch()
    for name, text in modules.items():
        (sql / f"{name}.py").write_text(text)
    return folder


SHOWN = "import spark_rtps, os; print('worker:', os.environ.get('PYSPARK_PYTHON'))"


class TestPython:
    def test_another_python3_on_the_path(self, tmp_path: Path) -> None:
        (tmp_path / "python3").symlink_to("/bin/false")
        assert f"worker: {sys.executable}\n" in run(SHOWN, path=tmp_path)

    def test_this_python_on_the_path(self) -> None:
        assert run(SHOWN, path=Path(sys.executable).parent) == "worker: None\n"

    def test_a_given_pyspark_python_stays(self, tmp_path: Path) -> None:
        (tmp_path / "python3").symlink_to("/bin/false")
        assert run(SHOWN, path=tmp_path, PYSPARK_PYTHON="python3.x") == "worker: python3.x\n"

    @pytest.mark.parametrize(("python", "warned"), [("/usr/bin/python3.x", True), (sys.executable, False)])
    def test_spark_runs_already(self, python: str, warned: bool) -> None:
        session = (
            "import pyspark.core.context as c, types\n"
            f"c.SparkContext._active_spark_context = types.SimpleNamespace(pythonExec={python!r})\n"
        )
        output = run(session + SHOWN)
        assert "worker: None" in output
        assert ("before the session is made, or with PYSPARK_PYTHON=" in output) is warned


class TestVersions:
    def test_an_old_one_is_named_at_import(self, tmp_path: Path) -> None:
        output = run("import spark_rtps", modules=pyspark(tmp_path, "3.5.1"))
        assert "format('rtps') needs PySpark 4.0 or newer, and 3.5.1 is installed" in output

    def test_an_old_one_has_no_data_source(self, tmp_path: Path) -> None:
        program = (
            "import warnings; warnings.simplefilter('ignore'); import spark_rtps; spark_rtps.RtpsDataSource"
        )
        output = run(program, modules=pyspark(tmp_path, "3.5.1"))
        assert (
            "PySparkVersionError: format('rtps') needs PySpark 4.0 or newer, and 3.5.1 is installed" in output
        )

    def test_the_old_ones_session(self, tmp_path: Path) -> None:
        program = "from spark_rtps.session import session_builder; session_builder()"
        output = run(program, modules=pyspark(tmp_path, "3.5.1"))
        assert (
            "PySparkVersionError: format('rtps') needs PySpark 4.0 or newer, and 3.5.1 is installed" in output
        )

    def test_the_python_api_needs_none(self, tmp_path: Path) -> None:
        program = "import spark_rtps; print(spark_rtps.Participant.__name__)"
        assert "Participant\n" in run(program, modules=pyspark(tmp_path, "3.5.1"))

    @pytest.mark.parametrize(
        "imports", ["import spark_rtps; spark_rtps.RtpsDataSource", "import pyspark_rtps"]
    )
    def test_a_python_that_is_too_new(self, tmp_path: Path, imports: str) -> None:
        output = run(imports, modules=pyspark(tmp_path, "7.0.0", datasource="DataSource = object\n"))
        assert "this spark-rtps supports PySpark 4.0 to 4.3, and 7.0.0 is installed" in output
        assert "install a newer spark-rtps, or PySpark 4.3" in output
