"""One topic in all files of a recording: its type, and its division into pieces for tasks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..columns.several_types import one_for_all
from ..columns.type_files import listed
from ..columns.type_sources import TopicType
from ..options import Settings
from ..transport.errors import OptionError
from ..transport.types.model import Struct
from .files import open_recording
from .recorded import Channel, Piece, RecordingFile, Section, Times

#: Topics that an error names.
_NAMED_MAX = 20


@dataclass(frozen=True, slots=True)
class TopicFile:
    """A file that has the topic, and the topic's channels in it."""

    file: RecordingFile
    path: str
    channels: tuple[Channel, ...]
    domain: int


def topic_files(paths: Iterable[str], settings: Settings, *, typed: bool) -> list[TopicFile]:
    """The files that have the topic. Raises OptionError, with what there is instead, if none of them has.

    ``typed``: with the types that the files say. A file that cannot be read raises RecordingError.
    """
    found, others = list[TopicFile](), dict[str, str]()
    for path in paths:
        file = open_recording(path, is_lenient=not settings.fail_on_data_loss, domain=settings.domain)
        channels = file.channels(settings.topic, typed=typed)
        if channels:
            found.append(TopicFile(file, path, channels, settings.domain))
        else:
            others |= file.topics()
    if not found:
        raise OptionError("topic", settings.topic, _missing(settings.topic, others))
    return found


def _missing(topic: str, others: dict[str, str]) -> str:
    if not others:
        return "the recording has no topic whose samples are CDR"
    bare = {name.removeprefix("rt/").lstrip("/"): name for name in others}
    near = bare.get(topic.removeprefix("rt/").lstrip("/"))
    if near is None:
        near = next(iter(difflib.get_close_matches(topic, others, n=1, cutoff=0.5)), None)
    names = sorted(others)
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    hint = "" if near is None else f"; did you mean {near!r}?"
    return f"the recording has no such topic; it has {listed(names[:_NAMED_MAX])}{more}{hint}"


def recorded_type(files: Sequence[TopicFile], settings: Settings) -> TopicType:
    """The type that the files have for the topic: the one as which all others can be read, if there are several.

    Raises OptionError if there is no such type.
    """
    told: dict[Struct, list[str]] = {}
    for each in files:
        for channel in each.channels:
            if channel.struct is None:
                why = f"{each.path} does not hold the type of the topic ({channel.why}); give it"
                raise OptionError("type", None, why)
            told.setdefault(channel.struct, []).append(each.path)
    struct, clash = one_for_all(told, settings.qos.type_consistency)
    if clash is not None:
        reader, writer, reasons = clash
        why = (
            f"the recording has {len(told)} types of the topic that no one type can stand for: that of "
            f"{told[reader][0]} does not read that of {told[writer][0]} ({'; '.join(reasons)}); read them apart, or "
            "give the columns with .schema(...)"
        )
        raise OptionError("type", None, why)
    return TopicType(struct.name, struct.is_keyed, struct, told=True)


def pieces(files: Iterable[TopicFile], times: Times, *, nbytes: int) -> Iterator[Piece]:
    """What there is of the topic within these times, in pieces of about so many bytes, in the order of the files."""
    for each in files:
        held: list[Section] = []
        size = 0
        for section in each.file.sections(each.channels, times):
            held.append(section)
            size += section.nbytes
            if size >= nbytes:
                yield Piece(each.path, each.file.form, each.channels, tuple(held), each.domain)
                held, size = [], 0
        if held:
            yield Piece(each.path, each.file.form, each.channels, tuple(held), each.domain)


def bytes_of(files: Iterable[TopicFile], times: Times) -> int:
    """What there is of the topic within these times, in bytes of the sections that have it."""
    return sum(section.nbytes for each in files for section in each.file.sections(each.channels, times))
