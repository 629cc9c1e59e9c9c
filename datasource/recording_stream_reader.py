"""A recording as a stream: files that appear in a folder, each read once, by name and position.

An offset has the position reached in each file: bytes of an MCAP file or a capture, rows of a bag. An MCAP file is read
once it is complete; bags and captures, which have no end mark, are read as far as they are written.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from ..columns.decoding import needs_writer_types
from ..columns.topic_plan import TopicPlan
from ..options import Settings
from ..options.explanations import explained
from ..recordings.bag_file import BagFile
from ..recordings.files import open_recording, recording_files
from ..recordings.mcap_file import McapFile
from ..recordings.recorded import ALL_TIMES, Channel, FileSection, Piece
from ..recordings.recorded_topic import planned_type, topic_channels
from ..transport.errors import RecordingError, UsageError
from ..transport.log_once import LogOnce
from ..transport.value_classes import value
from .offsets import VERSION, Json
from .range_calculator import PARTITION_BYTES
from .read_limits import default_read_limit
from .recording_reader import RecordingPartition, read_piece, times_of

_log = logging.getLogger("spark_rtps.datasource")

#: Behind all positions of a recording.
_BEHIND_ALL: Final = (1 << 63) - 1
_NAMES: Final = "a file is read once, by its name: give new ones names of their own"
#: Offsets name all files that were read: more of them make each micro-batch slow.
_FILES_LOGGED: Final = 10_000


@value
class RecordingOffset:
    """How far each file is read, by its path."""

    files: Mapping[str, int]

    def to_json(self) -> dict[str, Json]:
        """Spark compares the text, so the order of keys is fixed."""
        return {"v": VERSION, "files": dict(sorted(self.files.items()))}

    @classmethod
    def from_json(cls, raw: object) -> RecordingOffset:
        """Raises UsageError for an offset that another source, or a newer version of this one, has written."""
        match raw:
            case {"v": 1, "files": dict(files)} if all(
                isinstance(path, str) and isinstance(at, int) and at >= 0 for path, at in files.items()
            ):
                return cls(files)
        raise UsageError(
            f"the checkpoint holds no offset of a recording: {raw!r:.200}; start with a new checkpoint"
        )


@value
class _File:
    """The contents of a file for the topic."""

    form: str
    channels: tuple[Channel, ...]
    sections: tuple[FileSection, ...]

    def has(self, path: str, position: int) -> bool:
        """Whether a file that was read, or planned, up to ``position`` still has it: if not, it was replaced or
        shortened."""
        if self.form == BagFile.form:
            return position <= max((section.stop for section in self.sections), default=0)
        if self.form == McapFile.form and any(s.start < position < s.stop for s in self.sections):
            return False
        try:
            return position <= os.path.getsize(path)
        except OSError:  # it was removed meanwhile, which its reader reports
            return True


class RecordingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark calls all methods but ``read`` in one process on the driver; a copy goes to the tasks."""

    def __init__(self, settings: Settings, plan: TopicPlan) -> None:
        self._settings = settings
        self._plan = plan
        #: By path, size and time of change: each version of a file is opened once.
        self._known: dict[tuple[str, int, int], _File | None] = {}
        self._available_now = False
        self._target: dict[str, int] | None = None
        self._logged = LogOnce(256)

    def __getstate__(self) -> tuple[Settings, TopicPlan]:
        return self._settings, self._plan

    def __setstate__(self, state: tuple[Settings, TopicPlan]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def initialOffset(self) -> dict[str, Json]:  # noqa: N802
        return RecordingOffset({}).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return default_read_limit(self._settings)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available_now = True

    @explained()
    def latestOffset(self, start: dict[str, Json], limit: ReadLimit) -> dict[str, Json]:  # noqa: N802
        """The end of the next micro-batch: at least one section, if there is any."""
        at = dict(RecordingOffset.from_json(start).files)
        left = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        taken = 0
        for path, file in self._files():
            if not file.has(path, at.get(path, 0)):
                self._say(
                    f"{path}: it was replaced or shortened since it was read, and is not read again; {_NAMES}"
                )
                continue
            most = _BEHIND_ALL if self._target is None else self._target.get(path, 0)
            for section in _between(file.sections, at.get(path, 0), most):
                if left is not None and taken and taken + section.nbytes > left:
                    return RecordingOffset(at).to_json()
                at[path] = section.stop
                taken += section.nbytes
        if len(at) > _FILES_LOGGED:
            self._say(
                f"{len(at)} files are in each offset; move files away and start with a new checkpoint, to shorten it"
            )
        return RecordingOffset(at).to_json()

    @explained()
    def partitions(self, start: dict[str, Json], end: dict[str, Json]) -> Sequence[InputPartition]:
        begin, stop = (RecordingOffset.from_json(each).files for each in (start, end))
        found, times = list[RecordingPartition](), times_of(self._settings)
        for path, until in stop.items():
            since = begin.get(path, 0)
            if since == until:
                continue
            file = self._read(path)
            if file is None or self._is_gone(path, file, since, until):
                continue
            for group in _groups(_between(file.sections, since, until), PARTITION_BYTES):
                piece = Piece(path, file.form, file.channels, group, self._settings.domain)
                found.append(RecordingPartition(piece, times))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RecordingPartition):
            return iter(())
        return read_piece(partition, self._settings, self._plan)

    def commit(self, end: dict[str, Json]) -> None:
        """Nothing has to be freed: the files are the user's."""

    def stop(self) -> None:
        """Nothing is held."""

    # --- inside ------------------------------------------------------------------------------------

    def _files(self) -> list[tuple[str, _File]]:
        """The present files that have the topic."""
        paths = recording_files(self._settings.recording, must_exist=False)
        found = [(path, file) for path in paths if (file := self._look(path)) is not None]
        if self._available_now and self._target is None:
            self._target = {path: file.sections[-1].stop for path, file in found if file.sections}
        return found

    def _look(self, path: str) -> _File | None:
        """The file's contents for the topic; None if it has none yet, or is not complete yet."""
        try:
            state = os.stat(path)
        except FileNotFoundError:
            return None
        key = path, state.st_size, state.st_mtime_ns
        if key not in self._known:
            self._known = {k: v for k, v in self._known.items() if k[0] != path}
            try:
                self._known[key] = self._read(path)
            except RecordingError as error:
                self._say(f"{error}; it is read again when it has changed")
                self._known[key] = None
        return self._known[key]

    def _read(self, path: str) -> _File | None:
        if not os.path.exists(path):
            what = "it was removed before it was read"
            if self._settings.fail_on_data_loss:
                raise RecordingError(f"{what}; failOnDataLoss=false continues without it", path=path)
            self._say(f"{path}: {what}; continuing without it because failOnDataLoss=false")
            return None
        settings = self._settings
        ros, distribution = settings.ros is not None, settings.ros_distribution
        file = open_recording(path, domain=settings.domain, ros=ros, distribution=distribution)
        typed, type_name = needs_writer_types(self._plan), planned_type(self._plan)
        channels = topic_channels(file, path, self._settings, typed=typed, type_name=type_name)
        if not channels:
            return None
        return _File(file.form, channels, tuple(file.sections(channels, ALL_TIMES)))

    def _is_gone(self, path: str, file: _File, since: int, until: int) -> bool:
        """Whether planned sections are no longer in the file. Raises RecordingError then, with failOnDataLoss."""
        if file.has(path, since) and file.has(path, until):
            return False
        what = "it was replaced or shortened before it was read"
        if self._settings.fail_on_data_loss:
            fix = f"failOnDataLoss=false continues without it. {_NAMES.capitalize()}"
            raise RecordingError(f"{what}; {fix}", path=path)
        self._say(f"{path}: {what}; continuing without it because failOnDataLoss=false")
        return True

    def _say(self, sentence: str) -> None:
        if self._logged.is_new(sentence):
            _log.warning("%s", sentence)


def _between(sections: Iterable[FileSection], since: int, until: int) -> Iterator[FileSection]:
    """The sections of positions [since, until); those of a bag that has grown may begin before, or end behind."""
    for section in sections:
        start, stop = max(since, section.start), min(until, section.stop)
        if start < stop:
            yield replace(section, start=start, stop=stop)


def _groups(sections: Iterable[FileSection], nbytes: int) -> Iterator[tuple[FileSection, ...]]:
    """Groups of sections, of about ``nbytes`` each."""
    held: list[FileSection] = []
    size = 0
    for section in sections:
        held.append(section)
        size += section.nbytes
        if size >= nbytes:
            yield tuple(held)
            held, size = [], 0
    if held:
        yield tuple(held)
