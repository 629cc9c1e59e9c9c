"""Every error this project raises, and every reason it drops bytes.

::

    RtpsError
    ├── UsageError                 the caller did something the API does not allow
    │   ├── OptionError            an option's key or value is wrong: names it, and the fix
    │   ├── PluginError            user code that is named in the settings cannot be used
    │   ├── CoherentSetError       a coherent set is larger than its writer can hold
    │   ├── UnloggedError          a sample was claimed from a writer without a publication log
    │   ├── TooManySamplesError    decoding these samples together needs too much memory: decode fewer at once
    │   └── PySparkVersionError    PySpark is missing, or its version is not supported
    ├── TypeDefinitionError        an IDL file or a schema that defines no DDS type (file, line, column)
    ├── UnknownTypeError           no peer announced the type of a topic, or they announced different ones
    ├── FilterError                a content filter is wrong: names the position, and the fix
    ├── DecodeError                a peer's bytes are wrong; carries a DropReason, never escapes
    ├── MalformedSampleError       a sample does not decode, and the user asked to fail in this case
    ├── EncodeError                a value does not fit its DDS type (column, row)
    ├── TransportError             sockets: no interface, port taken, name not resolved
    │   └── OutOfTokensError       a flow controller does not release samples in time
    ├── RangeServerError           a log server is unreachable, or its answer is invalid (addresses)
    ├── NoReaderError              no reader matched within the time given
    ├── NoWriterError              the topic's writers do not match, or the topic has another name
    ├── RecordingError             a recording cannot be read: damaged, unfinished, or of an unknown format (path)
    ├── AcknowledgmentError        a reliable reader did not acknowledge in time (limit, readers, positions)
    └── LogError                   a stream log or a publication log cannot be used (path, process)
        ├── LogAccessError         the log belongs to another user, or this user may not read it (owner)
        ├── LogFullError           the log has reached its limit, or the disk is full (needed, limit, free)
        └── LogLostError           the log cannot be resumed, or does not hold a position (position)
            ├── LogDamagedError    a part of the log is corrupted (position, stop, rows, writer, first_sn)
            └── LogFormatError     another version wrote the log, in a format that this one cannot read (version)

Errors carry facts as attributes. They do not name the settings that would help: each interface of the project has its
own names for those, and adds them as ``hint``. Each error can be constructed from its message alone, so that pickle
and the parent of a receiver process can recreate it.
"""

from __future__ import annotations

import enum
import errno
import re
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .structure import Guid

#: Names of options whose values no message may show; Spark hides them as well.
_SECRET: Final = re.compile("(?i)secret|password|token$")


class RtpsError(Exception):
    """Base of all errors raised by spark-rtps."""

    #: What the user can do, in the terms of the interface in use; empty until that interface has added it.
    hint: str = ""

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}; {self.hint}" if self.hint else message


class UsageError(RtpsError):
    """The caller used the API in a way it does not allow."""


class OptionError(UsageError):
    """An option cannot be used; the message names the option, its value (unless it is secret) and the fix."""

    def __init__(self, option: str, value: object, fix: str) -> None:
        self.option = option
        self.value = "***" if value is not None and _SECRET.search(option) else value
        self.fix = fix
        shown = "" if self.value is None else f" = {self.value!r}"
        super().__init__(f"option {option!r}{shown}: {fix}")

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, object, str]]:
        return OptionError, (self.option, self.value, self.fix)


class Plugin(enum.Enum):
    """The extension points at which user code can be plugged in."""

    INTERCEPTOR = "batch interceptor"
    FLOW_CONTROL = "flow control strategy"
    CONGESTION_CONTROL = "congestion control"


class PluginError(UsageError):
    """User code, given as ``module:callable``, cannot be used.

    ``plugin`` is its extension point (a value of :class:`Plugin`), ``name`` the ``module:callable`` that was given,
    ``reason`` why it cannot be used, and ``is_loaded`` whether it could be imported.
    """

    def __init__(
        self, message: str, *, plugin: str = "", name: str = "", reason: str = "", is_loaded: bool = True
    ) -> None:
        super().__init__(message)
        self.plugin, self.name, self.reason, self.is_loaded = plugin, name, reason, is_loaded

    @classmethod
    def for_plugin(cls, plugin: Plugin, name: str, reason: str, *, is_loaded: bool = True) -> PluginError:
        """The error for the user code ``name``."""
        message = f"{plugin.value} {name!r}: {reason}"
        return cls(message, plugin=plugin.value, name=name, reason=reason, is_loaded=is_loaded)


class CoherentSetError(UsageError):
    """A coherent set is larger than its writer can hold; readers acknowledge none of its samples before its end."""


class UnloggedError(UsageError):
    """A sample was claimed from a writer without a publication log."""


class TooManySamplesError(UsageError):
    """Decoding these samples together needs too much memory; decode fewer of them at once."""


class PySparkVersionError(UsageError):
    """PySpark is not installed, or this package does not support its version."""


class TypeDefinitionError(RtpsError):
    """A type definition is wrong, or uses an unsupported feature."""


class TypeGap(enum.Enum):
    """Why the type of a topic is not known."""

    CONTRADICTORY = "endpoints announce types that no one type can stand for"
    UNEXPLAINED = "endpoints do not answer with their type"
    OTHER_NAME = "endpoints have types of other names"
    NO_ENDPOINT = "the topic has no endpoint"


class UnknownTypeError(RtpsError):
    """The type of a topic is not known; ``gap`` is the reason."""

    def __init__(self, message: str, *, gap: TypeGap | None = None) -> None:
        super().__init__(message)
        self.gap = gap


class MalformedSampleError(RtpsError):
    """A sample does not decode, and the user asked not to skip such samples."""

    #: The GUID of the sample's writer, and its sequence number.
    sample: tuple[Guid, int] | None = None


class FilterError(RtpsError):
    """A content filter has no meaning for the topic's type."""


class NullPlace(enum.Enum):
    """Where a value is null that the DDS type requires, and the text of the error."""

    MEMBER = "null, but the member is not @optional"
    KEY = "null, but a key is never optional"
    DISCRIMINATOR = "null, but a discriminator is never optional"
    ELEMENT = "null, but an element is never optional"
    MAP_KEY = "null, but the key of a map is never optional"
    MAP_VALUE = "null, but a value of a map is never optional"


class EncodeError(RtpsError):
    """A value does not fit its DDS type; for a null, ``null`` is its place in the type.

    ``rows``: the indices of the rows with such a value; empty if the error is not about values.
    """

    def __init__(self, message: str, *, null: NullPlace | None = None, rows: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.null = null
        self.rows = rows


class TransportError(RtpsError):
    """A socket cannot be opened or used."""


class OutOfTokensError(TransportError):
    """A flow controller does not release samples in time.

    ``admitted``: the samples wait in its queue; otherwise the queue was full and they were refused.
    """

    def __init__(self, message: str, *, admitted: bool = False) -> None:
        super().__init__(message)
        self.admitted = admitted


class RangeServerError(RtpsError):
    """A log server is unreachable, or its answer is invalid.

    ``addresses`` are the addresses that were tried; ``is_reached`` says whether any of them answered.
    """

    def __init__(self, message: str, *, addresses: tuple[str, ...] = (), is_reached: bool = True) -> None:
        self.addresses = addresses
        self.is_reached = is_reached
        super().__init__(message)


class NoReaderError(RtpsError):
    """No reader matched within the time given."""


class NoWriterError(RtpsError):
    """No writer matched during a batch read, and the reason is known."""


class RecordingError(RtpsError):
    """A file of a recording cannot be read, or not to its end; ``path`` is the file.

    ``is_damage``: a part of the file is corrupted, and the other parts may be readable.
    """

    def __init__(self, message: str, *, path: str = "", is_damage: bool = False) -> None:
        self.path = path
        self.is_damage = is_damage
        super().__init__(f"{path}: {message}" if path else message)

    def __reduce__(self) -> tuple[type[RecordingError], tuple[str]]:
        return RecordingError, (RtpsError.__str__(self),)


class WriterLimit(enum.StrEnum):
    """What stops a writer from taking more samples."""

    #: The unacknowledged samples fill the windows of the readers, or what the writer keeps for repairs.
    SEND_WINDOW = "send window"
    #: The publication is ahead of its sender by its limit.
    PUBLICATION = "publication limit"
    #: The history holds RESOURCE_LIMITS max_samples samples.
    MAX_SAMPLES = "max_samples"
    #: The history holds its maximum of batches.
    MAX_BATCHES = "max_batches"
    #: The flow controller has no tokens left.
    FLOW_CONTROLLER = "flow controller"
    #: Fewer readers are matched than the flow control strategy requires.
    GROUP = "group of readers"


class AcknowledgmentError(RtpsError):
    """Matched reliable readers did not acknowledge in time.

    ``limit`` is what stopped the writer, None if it only waited for acknowledgments. ``readers`` are the readers that
    it waits for, each with the highest sequence number that it acknowledged, at most ``last_sn``; ``positions`` are the
    writer's positions, in bytes.
    """

    def __init__(
        self,
        message: str,
        *,
        limit: WriterLimit | None = None,
        readers: Mapping[Guid, int] | None = None,
        last_sn: int = 0,
        positions: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.limit = limit
        self.readers = dict(readers or {})
        self.last_sn = last_sn
        self.positions = dict(positions or {})


class LogError(RtpsError):
    """A stream log or a publication log cannot be used.

    ``path`` is its file or directory, ``process`` the id of the process that uses or used it; None: unknown.
    """

    def __init__(self, message: str, *, path: Path | None = None, process: int | None = None) -> None:
        self.path = path
        self.process = process
        super().__init__(message)


class LogAccessError(LogError):
    """A log belongs to another user, or this user may not read it; ``owner`` is the id of the log's user."""

    def __init__(self, message: str, *, path: Path | None = None, owner: int | None = None) -> None:
        self.owner = owner
        super().__init__(message, path=path)


class LogFullError(LogError):
    """A log has reached its limit, or its disk is full.

    ``needed`` is the number of bytes requested, or the least ``limit`` that would do; ``limit`` is the log's maximum in
    bytes, None if the limit was not the reason; ``free`` is the disk space left, None if the disk was not the reason.
    """

    def __init__(
        self,
        message: str,
        *,
        path: Path | None = None,
        needed: int | None = None,
        limit: int | None = None,
        free: int | None = None,
    ) -> None:
        self.needed = needed
        self.limit = limit
        self.free = free
        super().__init__(message, path=path)


class LogLostError(LogError):
    """A stream log cannot be resumed, or ``position`` lies outside the range that it holds."""

    def __init__(self, message: str, *, path: Path | None = None, position: int | None = None) -> None:
        self.position = position
        super().__init__(message, path=path)


class LogDamagedError(LogLostError):
    """Bytes [``position``, ``stop``) of a stream log are corrupted, and their samples are lost.

    ``rows`` is the number of samples lost, ``writer`` the GUID of their writer, ``first_sn`` the first sequence number.
    None: unknown.
    """

    def __init__(
        self,
        message: str,
        *,
        path: Path | None = None,
        position: int | None = None,
        stop: int | None = None,
        rows: int | None = None,
        writer: Guid | None = None,
        first_sn: int | None = None,
    ) -> None:
        self.stop = stop
        self.rows = rows
        self.writer = writer
        self.first_sn = first_sn
        super().__init__(message, path=path, position=position)


class LogFormatError(LogLostError):
    """A stream log has a format ``version`` that this package cannot read."""

    def __init__(self, message: str, *, path: Path | None = None, version: object = None) -> None:
        self.version = version
        super().__init__(message, path=path)


class DropReason(enum.Enum):
    """Why bytes of a peer were dropped; the names are counter labels."""

    NOT_RTPS = "not_rtps"
    SHORT_MESSAGE = "short_message"
    UNSUPPORTED_VERSION = "unsupported_version"
    TRUNCATED_SUBMESSAGE = "truncated_submessage"
    BAD_SEQUENCE_NUMBER = "bad_sequence_number"
    BAD_NUMBER_SET = "bad_number_set"
    BAD_FRAGMENT = "bad_fragment"
    BAD_PARAMETER_LIST = "bad_parameter_list"
    BAD_PARAMETER = "bad_parameter"
    BAD_ENCAPSULATION = "bad_encapsulation"
    BAD_LOCATOR = "bad_locator"
    OVER_LIMIT = "over_limit"
    MESSAGE_TOO_LARGE = "message_too_large"
    UNKNOWN_WRITER = "unknown_writer"
    #: The sender's address is in none of the networks of the peers that the participant accepts.
    PEER_NOT_ADMITTED = "peer_not_admitted"
    #: The message names a participant that has not announced the sender's address.
    FOREIGN_ADDRESS = "foreign_address"


class DecodeError(RtpsError):
    """A peer's bytes break the specification; counted by reason and dropped."""

    def __init__(self, reason: DropReason, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)


def reason(error: OSError) -> str:
    """The operating system's reason, with the limit if the process has reached one."""
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"{error.strerror} (ulimit -n of this process is {limit})"
    return error.strerror or str(error)
