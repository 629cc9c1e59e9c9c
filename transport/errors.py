"""Every error this project raises, and every reason it drops bytes.

::

    RtpsError
    ├── UsageError                 the caller did something the API does not allow
    │   ├── OptionError            an option's key or value is wrong: names it, and the fix
    │   ├── PluginError            code of the user's that is named in settings cannot be used
    │   ├── CoherentSetError       a coherent set is larger than its writer can hold
    │   ├── UnloggedError          a sample is claimed of a writer without a publication log
    │   ├── TooManySamplesError    samples that would take too much memory together: decode fewer at once
    │   └── PySparkVersionError    PySpark is missing, or of a version that is not known here
    ├── TypeDefinitionError        IDL or schema that makes no DDS type (file, line, column)
    ├── UnknownTypeError           no peer announced the type of a topic, or they announced different ones
    ├── FilterError                a content filter is wrong: where, and what would be right
    ├── DecodeError                a peer's bytes are wrong; carries a DropReason, never escapes
    ├── MalformedSampleError       a sample does not decode, and the user wants to fail then
    ├── EncodeError                a value does not fit its DDS type (column, row)
    ├── TransportError             sockets: no interface, port taken, name not resolved
    │   └── OutOfTokensError       a flow controller does not let samples go in time
    ├── RangeServerError           what serves a log's ranges is not reached, or answers what cannot be (addresses)
    ├── NoReaderError              no reader to write to within the time given
    ├── NoWriterError              a topic's writers do not match, or the topic has another name
    ├── RecordingError             a recording cannot be read: damaged, unfinished, or of an unknown kind (path)
    ├── AcknowledgmentError        a reliable reader did not acknowledge in time (limit, readers, positions)
    └── LogError                   a stream log or a publication log cannot be used (path, process)
        ├── LogAccessError         it belongs to another user, or is closed to this one (owner)
        ├── LogFullError           its limit or its disk is used up (needed, limit, free)
        └── LogLostError           it cannot be resumed, or a position is no longer, or not yet, in it (position)
            ├── LogDamagedError    a part of it is not as it was written (position, stop, rows, writer, first_sn)
            └── LogFormatError     another version wrote it, in a format that is not known here (version)

Errors carry facts as attributes. They do not name the settings which would help: those have other names in each
interface of the project, which adds them as ``hint``. Each error can be made of its message alone, so that pickle
and the parent of a receiver process can make it again.
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

    #: What the user can do about it, in the words of the interface in use; empty until that interface has added it.
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
    """The places where code of the user's can be put in."""

    INTERCEPTOR = "batch interceptor"
    FLOW_CONTROL = "flow control strategy"
    CONGESTION_CONTROL = "congestion control"


class PluginError(UsageError):
    """Code of the user's, given as ``module:callable``, cannot be used.

    ``plugin`` is what it was to become (a value of :class:`Plugin`), ``name`` how it was given, ``reason`` what is
    wrong with it, and ``is_loaded`` whether there is such code at all.
    """

    def __init__(
        self, message: str, *, plugin: str = "", name: str = "", reason: str = "", is_loaded: bool = True
    ) -> None:
        super().__init__(message)
        self.plugin, self.name, self.reason, self.is_loaded = plugin, name, reason, is_loaded

    @classmethod
    def for_plugin(cls, plugin: Plugin, name: str, reason: str, *, is_loaded: bool = True) -> PluginError:
        """The error for code that was given as ``name``."""
        message = f"{plugin.value} {name!r}: {reason}"
        return cls(message, plugin=plugin.value, name=name, reason=reason, is_loaded=is_loaded)


class CoherentSetError(UsageError):
    """A coherent set is too large: readers acknowledge nothing of it before its end."""


class UnloggedError(UsageError):
    """A sample can be claimed only in a publication log, and this writer has none."""


class TooManySamplesError(UsageError):
    """Samples would take too much memory together; decode fewer of them at once."""


class PySparkVersionError(UsageError):
    """PySpark is not installed, or is of a version that this package does not know."""


class TypeDefinitionError(RtpsError):
    """A type definition is wrong or uses what is not supported."""


class TypeGap(enum.Enum):
    """Why the type of a topic is not known."""

    CONTRADICTORY = "endpoints announce types that no one type can stand for"
    UNEXPLAINED = "endpoints do not answer with their type"
    OTHER_NAME = "endpoints have types of other names"
    NO_ENDPOINT = "the topic has no endpoint"


class UnknownTypeError(RtpsError):
    """No endpoint announced a topic's type; ``gap`` is why it is not known."""

    def __init__(self, message: str, *, gap: TypeGap | None = None) -> None:
        super().__init__(message)
        self.gap = gap


class MalformedSampleError(RtpsError):
    """A sample does not decode, and is not to be passed over."""

    #: Which one: GUID of its writer, and its sequence number.
    sample: tuple[Guid, int] | None = None


class FilterError(RtpsError):
    """A content filter has no meaning for the topic's type."""


class NullPlace(enum.Enum):
    """Where a null stands that has no place in a DDS type, and what it is called."""

    MEMBER = "null, but the member is not @optional"
    KEY = "null, but a key is never optional"
    DISCRIMINATOR = "null, but a discriminator is never optional"
    ELEMENT = "null, but an element is never optional"
    MAP_KEY = "null, but the key of a map is never optional"
    MAP_VALUE = "null, but a value of a map is never optional"


class EncodeError(RtpsError):
    """A value does not fit the DDS type it is written as; ``null`` is where it stands if it is a null.

    ``rows``: those with such a value, if the error is one of values.
    """

    def __init__(self, message: str, *, null: NullPlace | None = None, rows: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.null = null
        self.rows = rows


class TransportError(RtpsError):
    """A socket cannot be had or used."""


class OutOfTokensError(TransportError):
    """A flow controller does not let samples go in time.

    ``admitted``: they wait in its queue; otherwise the queue takes no more of them.
    """

    def __init__(self, message: str, *, admitted: bool = False) -> None:
        super().__init__(message)
        self.admitted = admitted


class RangeServerError(RtpsError):
    """A server of ranges of stream logs is not reached, or what it answers cannot be right.

    ``addresses`` are those that were tried; ``is_reached`` says whether any answered.
    """

    def __init__(self, message: str, *, addresses: tuple[str, ...] = (), is_reached: bool = True) -> None:
        self.addresses = addresses
        self.is_reached = is_reached
        super().__init__(message)


class NoReaderError(RtpsError):
    """No reader matched within the time given."""


class NoWriterError(RtpsError):
    """No writer matched while a batch read listened, and the reason is known."""


class RecordingError(RtpsError):
    """A file of a recording cannot be read, or not to its end; ``path`` is the file.

    ``is_damage``: a part of it is not as it was written, and the others may be read.
    """

    def __init__(self, message: str, *, path: str = "", is_damage: bool = False) -> None:
        self.path = path
        self.is_damage = is_damage
        super().__init__(f"{path}: {message}" if path else message)

    def __reduce__(self) -> tuple[type[RecordingError], tuple[str]]:
        return RecordingError, (RtpsError.__str__(self),)


class WriterLimit(enum.StrEnum):
    """What stops a writer from taking more samples."""

    #: As much is on its way as the readers take, or as the writer keeps for repairs.
    SEND_WINDOW = "send window"
    #: The publication is as far ahead of its sender as it may be.
    PUBLICATION = "publication limit"
    #: RESOURCE_LIMITS: the history holds as many samples as it may.
    MAX_SAMPLES = "max_samples"
    #: The history holds as many batches as it may.
    MAX_BATCHES = "max_batches"
    #: Tokens are lacking.
    FLOW_CONTROLLER = "flow controller"
    #: Fewer readers are there than the flow control strategy wants.
    GROUP = "group of readers"


class AcknowledgmentError(RtpsError):
    """Matched reliable readers did not acknowledge in time.

    ``limit`` is what stopped the writer, None where it only waited for acknowledgments. ``readers`` are those that it
    waits for, each with the highest sequence number that it acknowledged of ``last_sn``; ``positions`` are the
    writer's, in bytes.
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

    ``path`` is its file or directory, ``process`` the id of the process that holds it, or held it; None: unknown.
    """

    def __init__(self, message: str, *, path: Path | None = None, process: int | None = None) -> None:
        self.path = path
        self.process = process
        super().__init__(message)


class LogAccessError(LogError):
    """A log belongs to another user, or this user may not read it; ``owner`` is the id of the user it belongs to."""

    def __init__(self, message: str, *, path: Path | None = None, owner: int | None = None) -> None:
        self.owner = owner
        super().__init__(message, path=path)


class LogFullError(LogError):
    """A log has reached its limit, or its disk is full.

    ``needed`` is how many bytes were asked for, or what ``limit`` would have to be; ``limit`` is how many bytes the
    log may have, ``free`` how many the disk has left. None: it was not the limit, or not the disk.
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
    """A stream log cannot be resumed, or ``position`` lies outside what it still holds."""

    def __init__(self, message: str, *, path: Path | None = None, position: int | None = None) -> None:
        self.position = position
        super().__init__(message, path=path)


class LogDamagedError(LogLostError):
    """Bytes [``position``, ``stop``) of a stream log are not as they were written, and what they held is lost.

    ``rows`` is how many samples they held, ``writer`` whose they are, ``first_sn`` the first sequence number. None: it
    cannot be told.
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
    """A stream log is of a ``version`` of its format that is not known here."""

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
    #: The sender's address is in none of the networks that the participant listens to.
    PEER_NOT_ADMITTED = "peer_not_admitted"
    #: It names a participant which has announced other addresses than the sender's.
    FOREIGN_ADDRESS = "foreign_address"


class DecodeError(RtpsError):
    """A peer's bytes break the specification; counted by reason and dropped."""

    def __init__(self, reason: DropReason, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)


def reason(error: OSError) -> str:
    """Why the system refused something, and the limit if it is one of this process."""
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"{error.strerror} (ulimit -n of this process is {limit})"
    return error.strerror or str(error)
