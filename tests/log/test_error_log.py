"""The error log: each error once, seen by other processes, also when its writer was killed."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_rtps.transport.errors import LogError
from spark_rtps.transport.log import error_log
from spark_rtps.transport.log.error_log import (
    DistinctError,
    ErrorLog,
    ErrorLogHandler,
    log_errors,
    read_error_log,
)

NOW = 1_700_000_000_000_000_000
#: A process that logs errors of many lengths as fast as it can.
WRITER = """
import itertools, sys
from pathlib import Path
from spark_rtps.transport.log.error_log import ErrorLog
log = ErrorLog(Path(sys.argv[1]), size=4 << 20)
print("ready", flush=True)
for i in itertools.count():
    word = chr(97 + i % 26) * (i % 700)
    log.record("ERROR", "logger", f"{word}<{len(word)}>", now=i + 1)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "error_log"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("spark_rtps")
    before, logger.handlers[:] = logger.handlers[:], []  # other tests of this process may have logged, too
    yield logger
    logger.handlers[:] = before


def errors(path: Path) -> list[DistinctError]:
    return read_error_log(path)[0]


def counts(path: Path) -> dict[str, int]:
    return {error.text: error.count for error in errors(path)}


class TestDistinct:
    def test_each_once(self, path: Path) -> None:
        log = ErrorLog(path)
        for i, text in enumerate(["a", "b", "a", "a\nmore"]):
            log.record("ERROR", "x.y", text, now=NOW + i)
        assert errors(path) == [
            DistinctError("ERROR", "x.y", "a", 2, NOW, NOW + 2),
            DistinctError("ERROR", "x.y", "b", 1, NOW + 1, NOW + 1),
            DistinctError("ERROR", "x.y", "a\nmore", 1, NOW + 3, NOW + 3),
        ]

    def test_entries_of_other_levels_or_loggers_are_distinct(self, path: Path) -> None:
        log = ErrorLog(path)
        for level, logger in (("ERROR", "x"), ("WARNING", "x"), ("ERROR", "y"), ("ERROR", "x")):
            log.record(level, logger, "a", now=NOW)
        assert [(e.level, e.logger, e.count) for e in errors(path)] == [
            ("ERROR", "x", 2),
            ("WARNING", "x", 1),
            ("ERROR", "y", 1),
        ]

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("3 samples lost", "1234 samples lost"),
            ("waited 0.5 s, then 7", "waited 12 s, then 80.25"),
            ("topic 'T': 5; more", "topic 'T': 6; more"),
            ("it ended (17).", "it ended (4)."),
        ],
    )
    def test_numbers_do_not(self, path: Path, one: str, other: str) -> None:
        log = ErrorLog(path)
        log.record("ERROR", "x", one, now=NOW)
        log.record("ERROR", "x", other, now=NOW)
        assert counts(path) == {one: 2}

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("no answer of 10.0.0.1", "no answer of 10.0.0.2"),
            ("port 127.0.0.1:7400", "port 127.0.0.1:7410"),
            ("01020304.05060708.00000001:00000102", "01020304.05060708.00000002:00000102"),
            ("01020304.05060708.00000001:00000102", "01020304.05060708.00000001:00000202"),
            ("topic 'T1'", "topic 'T2'"),
            ("since 2024-01-02", "since 2024-01-03"),
        ],
    )
    def test_names_do(self, path: Path, one: str, other: str) -> None:
        log = ErrorLog(path)
        log.record("ERROR", "x", one, now=NOW)
        log.record("ERROR", "x", other, now=NOW)
        assert counts(path) == {one: 1, other: 1}

    def test_nothing_is_made_before_the_first(self, path: Path) -> None:
        ErrorLog(path)
        assert not path.exists()
        with pytest.raises(LogError, match="cannot open"):
            read_error_log(path)


class TestBounds:
    def test_entries_beyond_the_capacity_are_counted(self, path: Path) -> None:
        log = ErrorLog(path, size=4096)
        for i in range(1000):
            log.record("ERROR", "x", f"e{i}", now=NOW)
        found, overflow = read_error_log(path)
        assert 40 < len(found) < 100
        assert overflow == 1000 - len(found)
        assert path.stat().st_size == 4096
        log.record("ERROR", "x", "e0", now=NOW)  # what has room goes on
        log.record("ERROR", "x", "e999", now=NOW)
        assert counts(path)["e0"] == 2
        assert read_error_log(path)[1] == overflow + 1

    def test_a_long_one_is_cut(self, path: Path) -> None:
        log = ErrorLog(path)
        for _ in range(2):
            log.record("ERROR", "x", "\N{GREEK SMALL LETTER OMEGA}" * 100_000, now=NOW)
        (error,) = errors(path)
        assert error.count == 2
        assert 2000 < len(error.text) < 2100
        ErrorLog(path).record("ERROR", "x", "\N{GREEK SMALL LETTER OMEGA}" * 90_000, now=NOW)
        assert [e.count for e in errors(path)] == [3]

    def test_any_text(self, path: Path) -> None:
        log = ErrorLog(path)
        for text in ("", "\n", "\ud800", "\0"):
            log.record("ERROR", "x", text, now=NOW)
        assert [e.text for e in errors(path)] == ["", "\n", "?", "\0"]


class TestReopening:
    def test_goes_on_with_what_is_there(self, path: Path) -> None:
        ErrorLog(path).record("ERROR", "x", "3 lost", now=NOW)
        again = ErrorLog(path)
        again.record("ERROR", "x", "4 lost", now=NOW + 5)
        again.record("ERROR", "x", "other", now=NOW + 6)
        assert errors(path) == [
            DistinctError("ERROR", "x", "3 lost", 2, NOW, NOW + 5),
            DistinctError("ERROR", "x", "other", 1, NOW + 6, NOW + 6),
        ]

    @pytest.mark.parametrize("raw", [b"", b"x" * 10, b"x" * 4096, b"rtpserr1" + bytes(4088)])
    def test_an_invalid_error_log_is_replaced(self, path: Path, raw: bytes) -> None:
        path.write_bytes(raw)
        with pytest.raises(LogError, match="damaged, or something else"):
            read_error_log(path)
        ErrorLog(path).record("ERROR", "x", "a", now=NOW)
        assert counts(path) == {"a": 1}

    def test_damage_never_raises_and_hides_what_is_behind_it(self, path: Path) -> None:
        log = ErrorLog(path, size=4096)
        for i in range(5):
            log.record("ERROR", "x", f"e{i}", now=NOW)
        whole = path.read_bytes()
        rng = random.Random(1)
        for _ in range(300):
            raw = bytearray(whole)
            for _ in range(rng.randrange(1, 20)):
                raw[rng.randrange(16, 600)] = rng.randrange(256)
            path.write_bytes(raw)
            read_error_log(path)
            ErrorLog(path).record("ERROR", "x", "after", now=NOW)

    def test_half_an_entry_is_written_over(self, path: Path) -> None:
        log = ErrorLog(path, size=4096)
        log.record("ERROR", "x", "first", now=NOW)
        raw = bytearray(path.read_bytes())
        end = 64 + 48 + len(b"ERROR\nx\nfirst")
        end = -(-end // 8) * 8
        raw[end + 4 : end + 1000] = b"\xff" * 996  # all of it but its length
        path.write_bytes(raw)
        assert counts(path) == {"first": 1}
        again = ErrorLog(path, size=4096)
        for text in ("second", "third"):
            again.record("ERROR", "x", text, now=NOW)
        assert counts(path) == {"first": 1, "second": 1, "third": 1}


class TestOtherProcesses:
    def test_read_while_written_and_after_kill(self, path: Path) -> None:
        """Killed at random instants, again and again: whatever is there is whole."""
        rng = random.Random(7)
        before = 0
        for number in range(8):
            if number % 3 == 0:  # twice it goes on with what was left
                path.unlink(missing_ok=True)
                before = 0
            with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                assert child.stdout.readline() == b"ready\n"
                for _ in range(rng.randrange(1, 10)):
                    self.check(path)
                child.send_signal(signal.SIGKILL)
                child.wait()
            before, last = self.check(path), before
            assert before >= last

    @staticmethod
    def check(path: Path) -> int:
        if not path.exists():
            return 0
        found = errors(path)
        for error in found:
            word, _, length = error.text.partition("<")
            assert f"{len(word)}>" == length
            assert len(set(word)) <= 1
            assert (error.level, error.logger) == ("ERROR", "logger")
            assert error.count >= 1
        return sum(error.count for error in found)


class TestHandler:
    def test_our_warnings_and_errors(self, path: Path, logger: logging.Logger) -> None:
        log_errors(lambda: path)
        child = logging.getLogger("spark_rtps.transport.net.node")
        child.warning("domain %d of %s", 7, "here")
        child.warning("domain %d of %s", 8, "here")
        child.info("nothing")
        try:
            raise ValueError("why")
        except ValueError:
            child.exception("it failed")
        logging.getLogger("elsewhere").error("not ours")
        one, two = errors(path)
        assert (one.level, one.text, one.count) == ("WARNING", "domain 7 of here", 2)
        assert one.logger == "spark_rtps.transport.net.node"
        assert two.text.startswith("it failed\nTraceback")
        assert two.text.endswith("ValueError: why")
        assert one.first_ns > NOW

    def test_once_in_a_process(self, path: Path, logger: logging.Logger) -> None:
        for _ in range(3):
            log_errors(lambda: path)
        logger.warning("a")
        assert counts(path) == {"a": 1}

    def test_records_without_another_handler_go_to_stderr(self, path: Path) -> None:
        """Python says it where a logger has no handler; ours is no reason not to."""
        script = (
            "import logging, sys; from pathlib import Path\n"
            "from spark_rtps.transport.log.error_log import log_errors\n"
            "log_errors(lambda: Path(sys.argv[1]))\n"
            "logging.getLogger('spark_rtps.receiver').warning('once')\n"
            "logging.basicConfig(format='>%(message)s')\n"
            "logging.getLogger('spark_rtps.receiver').warning('again')\n"
        )
        done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
        assert done.stderr.splitlines() == ["once", ">again"]
        assert counts(path) == {"once": 1, "again": 1}

    def test_a_forked_child_has_its_own(self, tmp_path: Path) -> None:
        script = (
            "import logging, os, sys; from pathlib import Path\n"
            "from spark_rtps.transport.log.error_log import log_errors\n"
            "log_errors(lambda: Path(sys.argv[1]) / ('child' if os.getpid() != parent else 'parent'))\n"
            "parent = os.getpid()\n"
            "logging.getLogger('spark_rtps').error('parent')\n"
            "if os.fork() == 0:\n"
            "    logging.getLogger('spark_rtps').error('child')\n"
            "    os._exit(0)\n"
            "os.wait()\n"
        )
        subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, capture_output=True)
        assert [counts(tmp_path / name) for name in ("parent", "child")] == [{"parent": 1}, {"child": 1}]

    def test_threads(self, path: Path, logger: logging.Logger) -> None:
        log_errors(lambda: path)

        def work(number: int) -> None:
            for i in range(200):
                logger.warning("%s of %d", "abcdefgh"[i % 8], number)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [(e.text[0], e.count) for e in sorted(errors(path), key=lambda e: e.text)] == [
            (letter, 100) for letter in "abcdefgh"
        ]

    def test_recording_an_error_never_fails_the_logging_call(
        self, tmp_path: Path, logger: logging.Logger
    ) -> None:
        asked = []

        def nowhere() -> Path:
            asked.append(1)
            return tmp_path / "none" / "error_log"

        logger.addHandler(ErrorLogHandler(nowhere))
        logger.warning("a")
        logger.warning("b")
        assert asked == [1]  # given up

    def test_a_record_that_cannot_be_formatted_goes_to_stderr(
        self, path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        handler = ErrorLogHandler(lambda: path)
        record = logging.LogRecord("spark_rtps", logging.ERROR, "", 0, "%d", ("not a number",), None)
        handler.handle(record)
        assert "Logging error" in capsys.readouterr().err

    def test_a_full_disk_creates_no_error_log(
        self, path: Path, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        log_errors(lambda: path)
        logger.error("a")
        assert not path.exists()
        assert list(path.parent.iterdir()) == []

    def test_only_our_loggers(self) -> None:
        assert error_log._LOGGER == "spark_rtps"
