"""One or several topics in all files of a recording: types, and the division into pieces for tasks."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ..columns.topic_plan import TopicPlan
from ..columns.type_files import listed
from ..columns.type_sources import TopicType, given_type, one_for_all
from ..options import Settings
from ..transport.errors import OptionError, TypeDefinitionError, UsageError
from ..transport.log_once import LogOnce
from ..transport.protocol.discovery.topic_selection import TopicSelection
from ..transport.types.model import Struct
from ..transport.types.ros_names import ros_type_name
from ..transport.value_classes import value
from .files import files_with_content, open_recording, recording_files
from .recorded import Channel, FileSection, Piece, RecordingFile, Times

_log = logging.getLogger("spark_rtps.recordings")

#: Topics that an error names.
_NAMED_MAX: Final = 20
#: Topics that this process has logged as not read.
_LOGGED: Final = LogOnce(64)


@value
class TopicFile:
    """A file that has the topic, and the topic's channels in it; or those of several topics."""

    file: RecordingFile
    path: str
    channels: tuple[Channel, ...]
    domain: int


def topic_files(
    paths: Iterable[str], settings: Settings, *, typed: bool, type_name: str | None = None
) -> list[TopicFile]:
    """The files that have the topic. Raises OptionError, naming the topics there are, if none has it.

    ``typed``: with the types in the files. ``type_name``: of several topics only those of this type. A file that
    cannot be read raises RecordingError.
    """
    found, others = list[TopicFile](), dict[str, str]()
    lenient, ros = not settings.fail_on_data_loss, settings.ros is not None
    for path in files_with_content(paths, is_lenient=lenient):
        distribution = settings.ros_distribution
        file = open_recording(
            path, is_lenient=lenient, domain=settings.domain, ros=ros, distribution=distribution
        )
        channels = topic_channels(file, path, settings, typed=typed, type_name=type_name)
        if channels:
            found.append(TopicFile(file, path, channels, settings.domain))
        if not channels or settings.topics is not None:
            others |= file.topics()
    _check_names(found, others, settings, type_name)
    return found


def topic_channels(
    file: RecordingFile, path: str, settings: Settings, *, typed: bool, type_name: str | None = None
) -> tuple[Channel, ...]:
    """The channels of a file for the topic, or for the selected ones (with this type name, if given)."""
    selection = settings.topics
    if selection is None:
        return file.channels(settings.topic, typed=typed)
    found: list[Channel] = []
    for topic in selection.names or selection.among(file.topics()):
        channels = file.channels(topic, typed=False, hashed=True)
        fitting = [each for each in channels if type_name is None or _is_named(each, type_name)]
        if len(fitting) < len(channels):
            others = [each for each in channels if each not in fitting]
            _say_left_out(path, topic, others, selection, type_name)
        if typed and fitting:
            ids = {each.id for each in fitting}
            fitting = [each for each in file.channels(topic, typed=True, hashed=True) if each.id in ids]
        found += fitting
    return tuple(found)


def planned_type(plan: TopicPlan) -> str | None:
    """The type name that topics read together need; None: any."""
    return plan.type_name if plan.many and plan.named else None


def _is_named(channel: Channel, type_name: str) -> bool:
    return _same_name(channel.type_name) == _same_name(type_name)


def _same_name(type_name: str) -> str:
    """A normal form of a type's name: recorders spell those of ROS 2 differently."""
    try:
        return ros_type_name(type_name)
    except TypeDefinitionError:
        return type_name


def _say_left_out(
    path: str, topic: str, channels: Iterable[Channel], selection: TopicSelection, type_name: str | None
) -> None:
    if not _LOGGED.is_new((path, topic)):
        return
    types = listed({each.type_name for each in channels})
    _log.warning(
        "%s: topic %r is selected by %r, but not read: its type is %s, and that of the columns is %r",
        path,
        topic,
        str(selection),
        types,
        type_name,
    )


def _check_names(
    found: Iterable[TopicFile], others: dict[str, str], settings: Settings, type_name: str | None
) -> None:
    """Raise OptionError for a topic that no file has, and for a selection without any topic."""
    there, selection = {channel.topic for each in found for channel in each.channels}, settings.topics
    if selection is None:
        if not there:
            raise OptionError("topic", settings.topic, _missing(settings.topic, others))
        return
    for name in selection.names:
        if name not in others:
            raise OptionError("subscribe", settings.topic, _missing(name, others, f"{name!r}"))
    if not there:
        option = "subscribePattern" if selection.pattern is not None else "subscribe"
        of_type = f" of the type {type_name!r}" if selection.among(others) else ""
        raise OptionError(option, settings.topic, f"the recording has no such topic{of_type}; {_has(others)}")


def _missing(topic: str, others: dict[str, str], what: str = "such topic") -> str:
    if not others:
        return "the recording has no topic whose samples are CDR"
    bare = {name.removeprefix("rt/").lstrip("/"): name for name in others}
    near = bare.get(topic.removeprefix("rt/").lstrip("/"))
    if near is None:
        near = next(iter(difflib.get_close_matches(topic, others, n=1, cutoff=0.5)), None)
    hint = "" if near is None else f"; did you mean {near!r}?"
    return f"the recording has no {what}; {_has(others)}{hint}"


def _has(others: dict[str, str]) -> str:
    names = sorted(others)
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"it has {listed(names[:_NAMED_MAX])}{more}"


# --- types -----------------------------------------------------------------------------------------


def recorded_type(files: Sequence[TopicFile], settings: Settings) -> TopicType:
    """The type that the files have for the topic: the one as which all others can be read, if there are several.

    Raises OptionError if there is no such type.
    """
    announced: dict[Struct, list[str]] = {}
    for each in files:
        for channel in each.channels:
            if channel.struct is None:
                why = f"{each.path} does not hold the type of the topic ({channel.why}); give it"
                raise OptionError("type", None, why)
            announced.setdefault(channel.struct, []).append(each.path)
    struct, clash = one_for_all(announced, settings.qos.type_consistency)
    if clash is not None:
        reader, writer, reasons = clash
        why = (
            f"the recording has {len(announced)} types of the topic that no one type can stand for: that of "
            f"{announced[reader][0]} does not read that of {announced[writer][0]} ({'; '.join(reasons)}); read them "
            "apart, or give the columns with .schema(...)"
        )
        raise OptionError("type", None, why)
    return TopicType(struct.name, struct.is_keyed, struct, inferred=True)


def common_recorded_type(paths: Sequence[str], settings: Settings) -> TopicType | None:
    """The type as which all selected topics can be read; None: they have types of several names, or no such one.

    Raises OptionError if the files have none of the topics, or not their type.
    """
    given = settings.type_name or settings.type
    files = topic_files(paths, settings, typed=False, type_name=given)
    names = {channel.type_name: None for each in files for channel in each.channels}
    if len(set(map(_same_name, names))) > 1:
        return None
    announced: dict[Struct, None] = {}
    for each in files:
        for channel in topic_channels(each.file, each.path, settings, typed=True, type_name=given):
            if channel.struct is None:
                why = f"{each.path} does not hold the type of {channel.topic!r} ({channel.why}); give it, or read "
                raise OptionError("type", None, f"{why}payload=binary")
            announced[channel.struct] = None
    try:
        struct, clash = one_for_all(announced, settings.qos.type_consistency)
    except UsageError:
        return None
    if clash is not None:
        return None
    return TopicType(next(iter(names)), struct.is_keyed, struct, inferred=True)


def type_of_topics(settings: Settings) -> TopicType | None:
    """The type of the recording, unless options give it; None: topics that are read together have several."""
    if (given := given_type(settings)) is not None:
        return given
    paths = recording_files(settings.recording)
    if settings.topics is not None:
        return common_recorded_type(paths, settings)
    return recorded_type(topic_files(paths, settings, typed=True), settings)


# --- pieces ----------------------------------------------------------------------------------------


def pieces(files: Iterable[TopicFile], times: Times, *, nbytes: int) -> Iterator[Piece]:
    """The sections of the topic within these times, in pieces of about ``nbytes``, in the order of the files."""
    for each in files:
        held: list[FileSection] = []
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
    """The bytes of the sections that have the topic within these times."""
    return sum(section.nbytes for each in files for section in each.file.sections(each.channels, times))
