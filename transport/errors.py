"""Every error this project raises, and every reason it drops bytes.

::

    RtpsError
    ├── UsageError                 our caller did something the API does not allow
    │   ├── OptionError            an option's key or value is wrong: names it, and the fix
    │   └── TooManySamplesError    samples that would take too much memory together: decode fewer at once
    ├── TypeDefinitionError        IDL or schema that makes no DDS type (file, line, column)
    ├── UnknownTypeError           no peer told the type of a topic, or they told different ones; says what was seen
    ├── FilterError                a content filter is wrong: where, and what would be right
    ├── DecodeError                a peer's bytes are wrong; carries a DropReason, never escapes
    ├── MalformedSampleError       a sample does not decode, and mode=failfast (topic, writer, sequence number, reason)
    ├── EncodeError                a value does not fit its DDS type (column, row)
    ├── TransportError             sockets: no interface, port taken, name not resolved
    ├── NoReaderError              nobody to write to within connect_timeout
    ├── AcknowledgmentError        a reliable reader did not acknowledge in time; says who
    └── LogError                   stream log on disk
        ├── LogFullError           log.max_bytes or the disk is used up
        └── LogLostError           a position that is no longer, or not yet, in the log
"""

from __future__ import annotations

import enum


class RtpsError(Exception):
    """Base of all errors raised by spark-rtps."""


class UsageError(RtpsError):
    """The caller used the API in a way it does not allow."""


class OptionError(UsageError):
    """An option cannot be used; the message names the option, its value and the fix."""

    def __init__(self, option: str, value: object, fix: str) -> None:
        self.option = option
        self.value = value
        self.fix = fix
        shown = "" if value is None else f" = {value!r}"
        super().__init__(f"option {option!r}{shown}: {fix}")

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, object, str]]:
        return OptionError, (self.option, self.value, self.fix)


class TooManySamplesError(UsageError):
    """Samples would take too much memory together; decode fewer of them at once."""


class TypeDefinitionError(RtpsError):
    """A type definition is wrong or uses what is not supported."""


class UnknownTypeError(RtpsError):
    """Nobody told a topic's type."""


class MalformedSampleError(RtpsError):
    """A sample does not decode, and is not to be passed over."""


class FilterError(RtpsError):
    """A content filter has no meaning for the topic's type."""


class EncodeError(RtpsError):
    """A value does not fit the DDS type it is written as."""


class TransportError(RtpsError):
    """A socket cannot be had or used."""


class NoReaderError(RtpsError):
    """No reader matched within ``connect_timeout``."""


class AcknowledgmentError(RtpsError):
    """Matched reliable readers did not acknowledge in time."""


class LogError(RtpsError):
    """A stream log cannot be used."""


class LogFullError(LogError):
    """The stream log reached ``log.max_bytes`` or its disk is full."""


class LogLostError(LogError):
    """A position lies outside what the stream log still holds."""


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


class DecodeError(RtpsError):
    """A peer's bytes break the specification; counted by reason and dropped."""

    def __init__(self, reason: DropReason, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
