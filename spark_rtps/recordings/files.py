"""The files that the option ``recording`` names, their readers, and the names of ROS 2's topics in them."""

from __future__ import annotations

import glob
import logging
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from ..options.ros import TOPIC_PREFIX, ros_name
from ..transport.errors import OptionError, RecordingError
from .bag_file import BagFile
from .capture_file import CaptureFile
from .mcap_file import McapFile
from .recorded import Channel, FileSection, Piece, RecordedSamples, RecordingFile, Times
from .recorded_types import DISTRIBUTION

_log = logging.getLogger("spark_rtps.recordings")

_Form: TypeAlias = type[McapFile] | type[BagFile] | type[CaptureFile]
_FORMS: Final[dict[str, _Form]] = {
    ".mcap": McapFile,
    ".db3": BagFile,
    ".pcap": CaptureFile,
    ".pcapng": CaptureFile,
}
_BY_NAME: Final = {form.form: form for form in _FORMS.values()}
_READ: Final = ", ".join(_FORMS)


def recording_files(names: Iterable[str], *, must_exist: bool = True) -> list[str]:
    """The files of paths, patterns and folders: each once, those of one name in the order of their numbers.

    A file that is also named through a symbolic link, such as that of the latest drive, is listed by its own name.

    Raises OptionError if a name has no file, and ``must_exist``.
    """
    found: dict[str, None] = {}
    for name in names:
        path = os.path.expanduser(name.removeprefix("file://"))
        these = (
            glob.glob(path, recursive=True) if glob.has_magic(path) and not os.path.exists(path) else [path]
        )
        files = [file for each in these for file in _files_of(each)]
        if not files and must_exist:
            fix = f"names no file that can be read here; files end in {_READ}, and a bag may be named by its folder"
            raise OptionError("recording", name, fix)
        found |= dict.fromkeys(sorted((os.path.abspath(file) for file in files), key=_in_numbers))
    real = {path: os.path.realpath(path) for path in found}
    kept: dict[str, str] = {}
    for path, its in real.items():
        if its not in kept or path == its:
            kept[its] = path
    return [path for path, its in real.items() if kept[its] == path]


def files_with_content(paths: Iterable[str], *, is_lenient: bool) -> Iterator[str]:
    """All files, or the non-empty ones: a recorder that was stopped before it wrote anything leaves an empty file."""
    for path in paths:
        if is_lenient and os.path.isfile(path) and not os.path.getsize(path):
            _log.warning("%s: it is empty; left out because failOnDataLoss=false", path)
        else:
            yield path


def open_recording(
    path: str,
    *,
    is_lenient: bool = False,
    domain: int = 0,
    ros: bool = False,
    distribution: str = DISTRIBUTION,
) -> RecordingFile:
    """A file of a recording; in a capture, the messages of ``domain``. ``ros``: topics have their names on the wire.

    ``distribution`` of ROS 2 has the types that a file does not define itself.

    Raises RecordingError if it cannot be read, or is not what its name says.
    """
    form = _FORMS.get(Path(path).suffix.lower())
    if form is None:
        raise RecordingError(f"files of this kind are not read; read are {_READ}", path=path)
    file = _opened(form, path, is_lenient, domain, distribution)
    return WireNames(file) if ros else file


def open_piece(piece: Piece, *, is_lenient: bool = False) -> RecordingFile:
    """The file of a piece, for the task that reads it."""
    return _opened(_BY_NAME[piece.form], piece.path, is_lenient, piece.domain)


def _opened(
    form: _Form, path: str, is_lenient: bool, domain: int, distribution: str = DISTRIBUTION
) -> RecordingFile:
    if form is CaptureFile:
        return CaptureFile(path, is_lenient=is_lenient, domain=domain)
    if form is BagFile:
        return BagFile(path, is_lenient=is_lenient, distribution=distribution)
    return McapFile(path, is_lenient=is_lenient, distribution=distribution)


def _files_of(path: str) -> list[str]:
    """The file itself, or the recordings in a folder, such as a bag."""
    if not os.path.isdir(path):
        if path.endswith(".db3.zstd"):
            raise RecordingError(f"it is compressed as a whole: `zstd -d {path}` unpacks it", path=path)
        return [path] if os.path.exists(path) else []
    inside = [os.path.join(path, name) for name in os.listdir(path)]
    packed = [file for file in inside if file.endswith(".db3.zstd")]
    if packed:
        raise RecordingError(f"it is compressed as a whole: `zstd -d {packed[0]}` unpacks it", path=path)
    return [file for file in inside if Path(file).suffix.lower() in _FORMS and os.path.isfile(file)]


def _in_numbers(path: str) -> list[tuple[int, int | str]]:
    """The sort key: bag_2.db3 before bag_10.db3."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", path)]


class WireNames:
    """Names on the wire: ``/imu`` of bags, and of MCAP files of ROS 2, is ``rt/imu`` here, as in captures and options.

    Pieces are read by the ids of channels, and captures keep their names: a task needs none of this.
    """

    def __init__(self, file: RecordingFile) -> None:
        self._file = file
        self.form = file.form

    def topics(self) -> dict[str, str]:
        return {_wire_name(name): type_name for name, type_name in self._file.topics().items()}

    def channels(self, topic: str, *, typed: bool, hashed: bool = False) -> tuple[Channel, ...]:
        names = filter(None, (topic, ros_name(topic)))
        found = [each for name in names for each in self._file.channels(name, typed=typed, hashed=hashed)]
        return tuple(replace(each, topic=topic) for each in found)

    def sections(self, channels: Iterable[Channel], times: Times) -> list[FileSection]:
        return self._file.sections(channels, times)

    def read_piece(self, piece: Piece, times: Times) -> Iterator[RecordedSamples]:
        return self._file.read_piece(piece, times)


def _wire_name(name: str) -> str:
    return f"{TOPIC_PREFIX}{name[1:]}" if name.startswith("/") else name
