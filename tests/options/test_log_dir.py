"""The directory of all logs: whose it may be, and who else may enter it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.options.log_dir import make_log_dir
from spark_rtps.transport.errors import OptionError


@pytest.fixture
def default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"spark-rtps-{os.getuid()}"


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o770, 0o777, 0o701])
def test_a_default_directory_that_is_open_to_others(default: Path, mode: int) -> None:
    default.mkdir()
    default.chmod(mode)
    with pytest.raises(
        OptionError, match=rf"'log.dir' = .* \(mode {mode:04o}\): chmod 700 it, name"
    ) as raised:
        make_log_dir(default, 0o700)
    assert ("set log.mode" in str(raised.value)) == (not mode & 0o022)
    assert mode_of(default) == mode
    default.chmod(0o700)
    make_log_dir(default, 0o700)


@pytest.mark.parametrize(("mode", "found"), [(0o750, 0o750), (0o770, 0o750), (0o755, 0o755), (None, 0o700)])
@pytest.mark.parametrize("exists", [False, True])
def test_a_default_directory_has_the_permissions_of_log_mode(
    default: Path, mode: int | None, found: int, exists: bool
) -> None:
    if exists:
        default.mkdir(mode=0o700)
    make_log_dir(default, mode)
    assert mode_of(default) == found, "and nobody else may make anything there"
    make_log_dir(default, mode)
    make_log_dir(default)  # as sinks and the error log do
    assert mode_of(default) == found


def test_a_default_directory_that_leads_elsewhere(default: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    default.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OptionError, match="belongs to another user; name a directory of your own"):
        make_log_dir(default, 0o700)


def test_a_named_directory_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    make_log_dir(tmp_path / "shared", 0o700)
    assert mode_of(tmp_path / "shared") == 0o777
    make_log_dir(tmp_path / "new", 0o770)
    assert mode_of(tmp_path / "new") == 0o770


def test_the_option() -> None:
    def mode(**given: str) -> int:
        return parse_options({"topic": "T", **given}, AppliesTo.READ).log_mode

    assert mode() == 0o700
    assert mode(**{"log.mode": "0750"}) == 0o750
    with pytest.raises(OptionError, match=r"'log.mode' = '0777'.*0700.*0755"):
        mode(**{"log.mode": "0777"})
