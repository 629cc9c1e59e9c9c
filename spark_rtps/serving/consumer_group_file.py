"""The consumer groups of one log: what each has committed, kept in ``groups.json`` beside the log."""

from __future__ import annotations

import json
import logging
import os
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..monitoring.consumer_groups import GROUPS, ConsumerGroup, told_groups
from ..transport.errors import LogError
from ..transport.log.counters import Counters
from ..transport.log.frame import Cursor
from ..transport.log.small_file import replace_text
from ..transport.receiver.files import COUNTERS_FILE
from .served_logs import Refusal
from .standing import is_name

_log = logging.getLogger("spark_rtps.serving")

GROUPS_MAX: Final = 1_000
_BYTES_MAX: Final = 4 << 20
#: A file that could not be read is put aside under this name.
_DAMAGED: Final = GROUPS + ".damaged"


class ConsumerGroupFile:
    """The groups of the log in ``directory``. This process alone writes the file; threads wait for each other."""

    def __init__(self, directory: Path, retention_ns: int) -> None:
        self._directory = directory
        self._retention_ns = retention_ns
        self._lock = threading.Lock()
        self._groups: dict[str, ConsumerGroup] | None = None  # not read yet

    def told(self, now_ns: int) -> bytes:
        """The groups as they are kept."""
        with self._lock:
            return _as_json(self._living(now_ns)).encode()

    def commit(self, name: str, cursor: Cursor, now_ns: int, *, holds_log: bool) -> None:
        """A group has consumed everything before ``cursor``; with ``holds_log`` what all have consumed may go."""
        with self._lock:
            groups = dict(self._living(now_ns))
            if name not in groups and len(groups) >= GROUPS_MAX:
                raise Refusal(409, f"the log has {GROUPS_MAX} consumer groups already; delete some")
            groups[name] = ConsumerGroup(name, cursor.position, cursor.row, now_ns)
            self._write(groups)
            if holds_log:
                self._let_go()

    def delete(self, name: str, now_ns: int, *, holds_log: bool) -> None:
        """Forget a group. Raises Refusal if there is none of this name."""
        with self._lock:
            groups = dict(self._living(now_ns))
            if groups.pop(name, None) is None:
                raise Refusal(404, "the log has no such consumer group")
            self._write(groups)
            if holds_log:
                self._let_go()

    # --- inside ------------------------------------------------------------------------------------

    def _living(self, now_ns: int) -> dict[str, ConsumerGroup]:
        """The groups, without those that committed nothing for too long: these are removed, and that is said."""
        if self._groups is None:
            self._groups = self._read(now_ns)
        old = [name for name, each in self._groups.items() if now_ns - each.at_ns > self._retention_ns]
        if old:
            self._write({name: each for name, each in self._groups.items() if name not in old})
            for name in old:
                said = (
                    "group %s of the log in %s committed nothing for %.0f s (groups_retention): it is removed"
                )
                _log.warning(said, name, self._directory, self._retention_ns / 1e9)
        return self._groups

    def _read(self, now_ns: int) -> dict[str, ConsumerGroup]:
        path = self._directory / GROUPS
        try:
            with open(path, "rb") as file:
                raw = file.read(_BYTES_MAX + 1)
            if len(raw) > _BYTES_MAX:
                raise ValueError("it is too long")
            found = told_groups(raw)
            if len(found) > GROUPS_MAX or not all(is_name(each.name) for each in found):
                raise ValueError("it has names or numbers of groups that cannot be")
        except FileNotFoundError:
            return {}
        except ValueError as error:
            with suppress(OSError):
                os.replace(path, self._directory / _DAMAGED)
            said = (
                "%s is damaged (%s) and put aside as %s; each consumer group is known again when it commits"
            )
            _log.error(said, path, error, _DAMAGED)
            return {}
        # a clock that was set back must not keep a group for ever
        return {each.name: replace(each, at_ns=min(each.at_ns, now_ns)) for each in found}

    def _write(self, groups: dict[str, ConsumerGroup]) -> None:
        try:
            replace_text(self._directory / GROUPS, _as_json(groups))
        except OSError as error:
            why = f"what is committed cannot be written now: {error.strerror}"
            raise Refusal(503, why, (("Retry-After", "1"),)) from error
        self._groups = groups

    def _let_go(self) -> None:
        """Let the receiver trim what all groups have consumed; it never takes that back."""
        if not self._groups:
            return
        least = min(each.position for each in self._groups.values())
        try:
            consumer = Counters.open(self._directory / COUNTERS_FILE).counter("log.consumer")
        except (LogError, OSError, UnicodeDecodeError):
            return  # its receiver has not started yet: the next commit says it
        if least > consumer.get():
            consumer.set(least)


def _as_json(groups: dict[str, ConsumerGroup]) -> str:
    kept = {
        each.name: {"position": each.position, "row": each.row, "at_ns": each.at_ns}
        for each in groups.values()
    }
    return json.dumps({"v": 1, "groups": kept})
