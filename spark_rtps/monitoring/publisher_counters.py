"""Counters files of sinks: the counters of the writers in this Python worker, which ``spark-rtps stat`` reads.

A writer has two files in ``<default log dir>/publishers/``::

    <pid>-<start>-<n>.counters    labels writer.<counter>, status.<status>.<field>, matched.<i>.<field>, drop.<reason>
    <pid>-<start>-<n>.json        topic, type, domain and GUID prefix; written once the counters are there, and held

``start`` is when the process began, because process ids are used again. ``matched.<i>`` is the i-th matched
reader; its GUID is two int64, big-endian, and zeros where there is no i-th reader (any more).

Spark ends workers without notice, so a process cannot remove its own files: the next one that starts to write removes
the files of processes that have ended.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from ..options.log_dir import default_log_dir, make_log_dir
from ..transport.errors import RtpsError
from ..transport.limits import READERS_SHOWN_MAX
from ..transport.log.counters import Counters
from ..transport.log.owner_lock import OwnerLock
from ..transport.log.permissions import make_folder
from ..transport.log.small_file import replace_text
from ..transport.net.blocking_writer import BlockingWriter, Driver
from ..transport.protocol.participant.events import Event
from ..transport.protocol.participant.statuses import WriterStatuses
from ..transport.protocol.writing.readers import ReaderProxy
from ..transport.protocol.writing.writer import StatefulWriter
from ..transport.structure import INFINITE, Guid
from .processes import goes_on, process_start
from .publisher_files import COUNTERS_SUFFIX, FOLDER, METADATA_SUFFIX

_log = logging.getLogger("spark_rtps.datasource")

#: The counters of writers are copied this often at most, and at the end of each task.
_PERIOD_NS: Final = 100_000_000
_NAME: Final = re.compile(r"(\d+)-(\d+)-\d+\.", re.ASCII)


class PublisherCounters:
    """The files of all writers of this process. Nothing here fails a task: a file that cannot be written is logged.

    The counters of a writer are read under the lock of its node.
    """

    def __init__(self, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._files: dict[Driver, list[_WriterFile]] = {}
        self._numbers = itertools.count()
        self._given_up = False

    def add_writer(self, writer: BlockingWriter, *, type_name: str, domain: int) -> None:
        """Make the files of a new writer."""
        if self._given_up:
            return
        try:
            directory = _make_directory()
            remove_stale(directory)
            name = f"{os.getpid()}-{process_start(os.getpid())}-{next(self._numbers)}"
            about = {"topic": writer.topic, "type": type_name, "domain": domain}
            about["guid_prefix"] = writer.guid.prefix.hex()
            file = _WriterFile(directory / name, writer.writer)
            replace_text(directory / (name + METADATA_SUFFIX), json.dumps(about))
        except (RtpsError, OSError) as error:
            self._given_up = True
            _log.warning("%s; `spark-rtps stat` will not show what this process writes", error)
            return
        with writer.node.lock:
            self._files.setdefault(writer.node, []).append(file)
        self.update(writer.node)

    def remove_writer(self, writer: BlockingWriter) -> None:
        """Remove the files of a writer that is deleted."""
        with writer.node.lock:
            files = self._files.get(writer.node, [])
            for file in [file for file in files if file.writer is writer.writer]:
                files.remove(file)
                file.remove_file()

    def update(self, node: Driver) -> None:
        """Copy the counters of the writers of ``node`` now."""
        with node.lock:
            now, files, events = self._clock(), self._files.get(node, ()), node.events()
            for number, file in enumerate(files):
                # The counters of a participant are in one file only: tools add up what they find.
                file.update(now, events, {} if number else node.counters.by_label())

    def update_if_due(self, node: Driver) -> None:
        """Copy the counters of the writers of ``node`` if the last copy is old; cheap enough for every duty cycle."""
        with node.lock:
            files = self._files.get(node, ())
            # events have to be fetched, even if no file counts them
            if not files or any(self._clock() >= file.due for file in files):
                self.update(node)


class _WriterFile:
    """The counters of one writer; ``path`` is that of both its files without their suffixes."""

    def __init__(self, path: Path, writer: StatefulWriter) -> None:
        self.due = 0
        self.writer = writer
        self._path = path
        counters = path.with_name(path.name + COUNTERS_SUFFIX)
        self._counters = Counters.create(counters)
        self._lock = OwnerLock.hold(counters)
        self._statuses = WriterStatuses(writer.guid)
        self._shown = 0
        self._refused: set[str] = set()

    def update(self, now: int, events: list[Event], of_node: Mapping[str, int]) -> None:
        self.due = now + _PERIOD_NS
        for event in events:
            self._statuses.on_event(event)
        counts = self.writer.counters.snapshot()
        for label, value in (*_counts(self.writer, counts), *of_node.items()):
            self._set(label, value)
        history = self.writer.history
        statuses = self._statuses.snapshot(
            counts, sample_count=history.samples, sample_count_peak=history.samples_peak
        )
        for label, value in statuses.items():
            self._set(label, value)
        readers = list(itertools.islice(self.writer.readers.values(), READERS_SHOWN_MAX))
        for i, reader in enumerate(readers):
            self._show(i, reader.guid, reader)
        for i in range(len(readers), self._shown):
            self._show(i, Guid(bytes(12), bytes(4)), None)
        self._shown = len(readers)
        self._set("writer.updated_ns", now)

    def remove_file(self) -> None:
        if self._lock is not None:
            self._lock.release()
        for suffix in (COUNTERS_SUFFIX, METADATA_SUFFIX):
            with contextlib.suppress(OSError):  # the next process that writes removes them
                self._path.with_name(self._path.name + suffix).unlink()

    def _show(self, i: int, guid: Guid, reader: ReaderProxy | None) -> None:
        raw = guid.to_bytes()
        self._set(f"matched.{i}.guid_high", int.from_bytes(raw[:8], "big", signed=True))
        self._set(f"matched.{i}.guid_low", int.from_bytes(raw[8:], "big", signed=True))
        self._set(f"matched.{i}.reliable", reader is not None and reader.reliable)
        self._set(f"matched.{i}.active", reader is not None and reader.active)
        self._set(f"matched.{i}.acked_sn", 0 if reader is None else reader.acked)

    def _set(self, label: str, value: int) -> None:
        if label in self._refused:
            return
        try:
            self._counters.counter(label).set(min(int(value), INFINITE))
        except RtpsError as error:  # too long, or no space
            self._refused.add(label)
            _log.warning("%s; `spark-rtps stat` will not show it", error)


def _counts(writer: StatefulWriter, counts: dict[str, int]) -> Iterator[tuple[str, int]]:
    waited_for = [reader.acked for reader in writer.readers.values() if reader.reliable and reader.active]
    yield "writer.matched_readers", len(writer.readers)
    yield "writer.last_sn", writer.last_sn
    yield "writer.behind_samples", writer.last_sn - min(waited_for, default=writer.last_sn)
    yield "writer.unacknowledged_bytes", writer.unacknowledged_bytes
    positions = writer.positions
    for name in ("pub_pos", "pub_lmt", "snd_pos", "snd_lmt", "snd_bpe"):
        yield f"writer.{name}", getattr(positions, name)
    yield "writer.is_connected", positions.is_connected
    yield "writer.fc_receivers", writer.counters.active_readers
    for name, value in counts.items():
        yield f"writer.{name}", value


def _make_directory() -> Path:
    root = default_log_dir()
    make_log_dir(root)
    directory = root / FOLDER
    make_folder(directory)
    return directory


def remove_stale(directory: Path) -> None:
    """Remove the files of processes that have ended."""
    try:
        names = os.listdir(directory)
    except OSError:
        return  # no process has written yet
    for name in names:
        match = _NAME.match(name)
        if match and not goes_on(directory / (match[0] + COUNTERS_SUFFIX[1:]), int(match[1]), int(match[2])):
            try:
                (directory / name).unlink()
            except OSError:
                pass  # another process was quicker, or the file belongs to another user
