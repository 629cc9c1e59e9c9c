"""The consumer groups of one log: what each has committed, kept in the sidecar file ``groups.json``.

A new group is on the disk before its client gets the answer. Its later positions follow within a second, unless the
log waits for it: a power failure, or killing the server, may set a group back a little, which holds more than needed.

How long a group has committed nothing is counted by the clock since the kernel started, which nobody sets. The wall
clock only measures the time in which the host was off. That counts half of a group's retention at most, so a wall
clock that is wrong after a start never removes a group that was in use before.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...monitoring.consumer_groups import GROUPS, ConsumerGroup, parse_groups
from ...monitoring.untrusted_json import parse_number, parse_object, parse_text
from ...transport.errors import LogError
from ...transport.log.counters import COUNTERS_FILE, Counters
from ...transport.log.frame import Cursor
from ...transport.log.host_clocks import Clocks
from ...transport.log.small_file import replace_text
from ...transport.structure import NANOSECONDS
from ...transport.value_classes import value
from ..wire_format.receiver_service import is_name
from .http_messages import Refusal

_log = logging.getLogger("spark_rtps.serving")

GROUPS_MAX: Final = 1_000
_BYTES_MAX: Final = 4 << 20
#: A file that could not be read is renamed to this.
_DAMAGED: Final = GROUPS + ".damaged"
#: Parts of the retention: the most that an age grows while the host is off, and how old the ages in the file become.
_OFF: Final = 2
_WRITTEN: Final = 8
#: After a damaged file, nothing is released for so long: queries commit each half minute, unless a micro-batch takes
#: longer.
_KNOWN_AGAIN_NS: Final = 120 * NANOSECONDS


@value
class _Kept:
    """A group, and when it committed last, in ns since the kernel started; negative: before that."""

    group: ConsumerGroup
    since_ns: int


class ConsumerGroupFile:
    """The groups of the log in ``directory``. Only this process writes the file; threads wait for each other.

    With ``holds_log``, the receiver trims what all groups have committed, and nothing else.
    """

    def __init__(self, directory: Path, retention_ns: int) -> None:
        self._directory = directory
        self._retention_ns = retention_ns
        self._lock = threading.Lock()
        self._groups: dict[str, _Kept] | None = None  # not read yet
        self._is_unwritten = False
        self._written_ns = 0
        #: Groups may be missing until this time, in ns since the kernel started.
        self._unknown_until_ns = 0
        #: The groups whose trimmed samples have been logged.
        self._overtaken: set[str] = set()

    def encoded(self, now: Clocks) -> bytes:
        """The groups as the file has them."""
        with self._lock:
            return json.dumps(_to_json(self._living(now), now)).encode()

    @property
    def is_unwritten(self) -> bool:
        """Whether a group has committed what the file does not have yet."""
        return self._is_unwritten

    def commit_offset(
        self,
        name: str,
        cursor: Cursor,
        now: Clocks,
        *,
        base: int,
        holds_log: bool,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """A group has consumed everything before ``cursor`` of a log that begins at ``base``.

        A group may go back, but not by a request that is older than the group's newer ones and had to wait for them
        here:
        once its turn has come, ``is_wanted`` tells whether its client still waits for the answer. Refusal if not.
        """
        with self._lock:
            if not is_wanted():
                raise Refusal(408, "the client of this request has left")
            groups = dict(self._living(now))
            if name not in groups and len(groups) >= GROUPS_MAX:
                raise Refusal(409, f"the log has {GROUPS_MAX} consumer groups already; delete some")
            old = groups.get(name)
            missed = 0 if old is None else old.group.missed_of(base)
            group = ConsumerGroup(name, cursor.position, cursor.row, now.wall_ns, missed)
            groups[name] = _Kept(group, now.uptime_ns)
            if old is None or holds_log:
                self._write(groups, now)
            else:
                self._groups, self._is_unwritten = groups, True
            if holds_log:
                self._let_go(now)

    def delete(self, name: str, now: Clocks, *, holds_log: bool) -> None:
        """Forget a group. Raises Refusal if there is no group of this name."""
        with self._lock:
            groups = dict(self._living(now))
            if groups.pop(name, None) is None:
                raise Refusal(404, "the log has no such consumer group")
            self._write(groups, now)
            if holds_log:
                self._let_go(now)

    def keep(self, now: Clocks, *, holds_log: bool) -> None:
        """Write what is not written yet, and remove expired groups. Raises Refusal."""
        with self._lock:
            groups = self._living(now)
            # also rewrite the ages from time to time: after a restart of the host each grows by at most a part of the
            # retention
            is_old = bool(groups) and now.uptime_ns - self._written_ns > self._retention_ns // _WRITTEN
            if self._is_unwritten or is_old:
                self._write(groups, now)
            self._tell_overtaken(groups)
            if holds_log:
                self._let_go(now)  # again: a restarted receiver does not know it

    # --- inside ------------------------------------------------------------------------------------

    def _living(self, now: Clocks) -> dict[str, _Kept]:
        """The groups, after removing (and logging) those that committed nothing for too long."""
        if self._groups is None:
            self._groups = self._read(now)
        old = [n for n, each in self._groups.items() if now.uptime_ns - each.since_ns > self._retention_ns]
        if old:
            self._groups = {name: each for name, each in self._groups.items() if name not in old}
            self._is_unwritten = True
            with suppress(Refusal):  # a full disk is no reason to refuse a request that writes nothing
                self._write(self._groups, now)
            for name in old:
                message = (
                    "group %s of the log in %s committed nothing for %.0f s (groups_retention): it is removed"
                )
                _log.warning(message, name, self._directory, self._retention_ns / 1e9)
        return self._groups

    def _read(self, now: Clocks) -> dict[str, _Kept]:
        path = self._directory / GROUPS
        try:
            with open(path, "rb") as file:
                raw = file.read(_BYTES_MAX + 1)
            if len(raw) > _BYTES_MAX:
                raise ValueError("it is too long")
            found, written = parse_groups(raw), _parse_clocks(raw)
            if len(found) > GROUPS_MAX or not all(is_name(each.name) for each in found):
                raise ValueError("it has invalid names or positions of groups")
        except FileNotFoundError:
            return {}
        except ValueError as error:
            with suppress(OSError):
                os.replace(path, self._directory / _DAMAGED)
            self._unknown_until_ns = now.uptime_ns + _KNOWN_AGAIN_NS
            message = (
                "%s is damaged (%s): renamed to %s; each consumer group is known again when it commits, and after "
                "%d s the log no longer waits for the others"
            )
            _log.error(message, path, error, _DAMAGED, _KNOWN_AGAIN_NS // NANOSECONDS)
            return {}
        since = now.since(written, at_most=self._retention_ns // _OFF)
        self._written_ns = now.uptime_ns - since
        self._is_unwritten = bool(found) and written.boot != now.boot  # the wall clock is asked once
        return {each.name: _Kept(each, self._written_ns - each.idle_ns) for each in found}

    def _write(self, groups: dict[str, _Kept], now: Clocks) -> None:
        written = {"wall_ns": now.wall_ns, "uptime_ns": now.uptime_ns, "boot": now.boot}
        try:
            text = json.dumps({**_to_json(groups, now), "written": written})
            replace_text(self._directory / GROUPS, text, durable=True)
        except OSError as error:
            why = f"the commit cannot be written now: {error.strerror}"
            raise Refusal(503, why, (("Retry-After", "1"),)) from error
        self._groups, self._is_unwritten, self._written_ns = groups, False, now.uptime_ns

    def _let_go(self, now: Clocks) -> None:
        """Let the receiver trim what all groups have consumed; it never takes that back."""
        if now.uptime_ns < self._unknown_until_ns:
            return
        counters = self._counters()
        if not self._groups or counters is None:
            return
        least = min(each.group.position for each in self._groups.values())
        with suppress(LogError):  # the receiver may be starting: the next call reaches it
            consumer = counters.counter("log.consumer")
            if least > consumer.get():
                consumer.set(least)

    def _tell_overtaken(self, groups: dict[str, _Kept]) -> None:
        """Log, once for each group, that the samples it wants next are trimmed; ``missed`` counts all."""
        counters = self._counters()
        base = 0 if counters is None else counters.snapshot().get("log.base", 0)
        overtaken = [name for name, each in groups.items() if each.group.position < base]
        for name in overtaken:
            if name not in self._overtaken:
                message = (
                    "group %s of the log in %s: %d bytes were trimmed before it committed them. A query that has not "
                    "read them fails, or continues behind them if failOnDataLoss=false: raise log.max_bytes or "
                    "retention.time, or set retention=committed"
                )
                _log.warning(message, name, self._directory, base - groups[name].group.position)
        self._overtaken = self._overtaken & groups.keys() | set(overtaken)

    def _counters(self) -> Counters | None:
        """The counters of the log's receiver; None: it has not started yet, or there are no groups."""
        if not self._groups:
            return None
        try:
            return Counters.open(self._directory / COUNTERS_FILE)
        except (LogError, OSError, UnicodeDecodeError):
            return None


def _to_json(groups: dict[str, _Kept], now: Clocks) -> dict[str, object]:
    kept = {
        name: {
            "position": each.group.position,
            "row": each.group.row,
            "at_ns": each.group.at_ns,
            "idle_ns": max(0, now.uptime_ns - each.since_ns),
            "missed": each.group.missed,
        }
        for name, each in groups.items()
    }
    return {"v": 1, "groups": kept}


def _parse_clocks(raw: bytes) -> Clocks:
    """When a file was written; long ago, if the file does not say. Raises ValueError."""
    written = parse_object(raw).get("written", {"wall_ns": 0, "uptime_ns": 0, "boot": ""})
    if not isinstance(written, dict):
        raise ValueError(f"{written!r:.40} is not a time")
    wall_ns, uptime_ns = (parse_number(written.get(key)) for key in ("wall_ns", "uptime_ns"))
    return Clocks(wall_ns, uptime_ns, parse_text(written.get("boot")))
