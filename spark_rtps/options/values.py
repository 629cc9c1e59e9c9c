"""Parses the text of each option by its kind, independently of other options."""

from __future__ import annotations

import difflib
import enum
import json
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, cast

from ..transport.errors import OptionError
from ..transport.limits import LOG_POSITION_MAX
from ..transport.structure import INFINITE
from .qos_profiles import NO_PROFILE, Profile
from .spec import AppliesTo, OptionKind, OptionSpec
from .table import BY_KEY, OPTIONS, SPARK_KEYS
from .texts import duration, names_of, size

#: One word for all receiver services, or for each of them by name a position or a word.
Offsets: TypeAlias = "str | tuple[tuple[str, int | str], ...]"

# --- by name ---------------------------------------------------------------------------------------


def given_options(options: Mapping[str, str], role: AppliesTo) -> dict[str, str]:
    """The texts that the user set, by the options' own names; OptionError for a key that is no option of this role."""
    given: dict[str, str] = {}
    for key, value in options.items():
        spec = BY_KEY.get(key.lower())
        if spec is None:
            if key.lower() not in SPARK_KEYS:
                raise _unknown(key, value)
            continue
        if not _suits(spec, role):
            raise OptionError(spec.name, value, f"applies only to {_DOING[spec.applies_to]}; remove it here")
        given[spec.name] = value
    path = next((v for k, v in options.items() if k.lower() == "path"), None)
    if path is not None and given.setdefault("topic", path) != path:
        raise OptionError("topic", given["topic"], f"the path names another topic, {path!r}; give one")
    return given


class Origin(enum.IntEnum):
    """The origin of a value; the greatest one takes precedence."""

    DEFAULT = 0
    PROFILE = 1
    GIVEN = 2


_DOING: Final = {AppliesTo.READ: "reading", AppliesTo.WRITE: "writing", AppliesTo.BOTH: "either"}


#: The value of an option without a default that is not set; for all other kinds None.
_NONE_GIVEN: Final[Mapping[OptionKind, object]] = {
    OptionKind.LIST: (),
    OptionKind.BOOLEAN: False,
    OptionKind.OCTETS: b"",
}


class Values:
    """Parsed values of all options by name: the user's, else the profile's, else the default."""

    def __init__(
        self, given: Mapping[str, str], role: AppliesTo = AppliesTo.BOTH, profile: Profile = NO_PROFILE
    ) -> None:
        self._given = given
        #: Name of the profile; empty: there is none.
        self.profile = profile.name
        self._profile: dict[str, str] = {}
        self._parsed: dict[str, object] = {}
        #: Warnings about values of the profile that this role cannot use.
        self.warnings: list[str] = []
        for name, text in profile.options.items():
            spec = BY_KEY[name.lower()]
            if _suits(spec, role):
                self._profile[name] = text
            else:
                self.warnings.append(
                    f"qos.profile {profile.name}: {name}={text} applies only to {_DOING[spec.applies_to]}; ignored"
                )
        for spec in OPTIONS:
            if spec.name in given:
                self._parsed[spec.name] = _of_user(spec, given[spec.name], role)
            elif spec.name in self._profile:
                self._parsed[spec.name] = _of_profile(spec, self._profile[spec.name], profile)
            elif spec.default is not None:
                self._parsed[spec.name] = parse_value(spec, spec.default)
            else:
                self._parsed[spec.name] = _NONE_GIVEN.get(spec.kind)

    def origin(self, name: str) -> Origin:
        if name in self._given:
            return Origin.GIVEN
        return Origin.PROFILE if name in self._profile else Origin.DEFAULT

    def has(self, name: str) -> bool:
        """Whether the user set it."""
        return name in self._given

    def given(self, name: str) -> str | None:
        """The text of an option from the user or the profile."""
        return self._given.get(name, self._profile.get(name))

    def shown(self, name: str) -> str:
        """The value as an error shows it: the text as given, else the default."""
        return self.given(name) or BY_KEY[name.lower()].default or ""

    def value(self, name: str) -> object:
        return self._parsed[name]

    def text(self, name: str) -> str | None:
        return cast("str | None", self._parsed[name])

    def word(self, name: str) -> str:
        return cast(str, self._parsed[name])

    def integer(self, name: str) -> int:
        return cast(int, self._parsed[name])

    def integer_or_none(self, name: str) -> int | None:
        return cast("int | None", self._parsed[name])

    def boolean(self, name: str) -> bool:
        return cast(bool, self._parsed[name])

    def names(self, name: str) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self._parsed[name])

    def offsets(self, name: str) -> Offsets | None:
        return cast("Offsets | None", self._parsed[name])

    def octets(self, name: str) -> bytes:
        return cast(bytes, self._parsed[name])


def _of_user(spec: OptionSpec, text: str, role: AppliesTo) -> object:
    try:
        return parse_value(spec, text)
    except OptionError as error:
        if role is not AppliesTo.BOTH or spec.applies_to is AppliesTo.BOTH:
            raise
        # it is not known yet whether this reads or writes
        fix = f"{error.fix}; it applies only to {_DOING[spec.applies_to]}"
        raise OptionError(spec.name, text, fix) from None


def _of_profile(spec: OptionSpec, text: str, profile: Profile) -> object:
    try:
        return parse_value(spec, text)
    except OptionError as error:
        raise OptionError(spec.name, text, f"{error.fix} (set by qos.profile {profile.name})") from None


def _suits(spec: OptionSpec, role: AppliesTo) -> bool:
    return AppliesTo.BOTH in (spec.applies_to, role) or spec.applies_to is role


def _unknown(key: str, value: str) -> OptionError:
    known = {name: spec.name for name, spec in BY_KEY.items()}
    near = [spec.name for name, spec in BY_KEY.items() if name.rsplit(".", 1)[-1] == key.lower()]
    near += [known[k] for k in difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.5)]
    hint = f"did you mean {near[0]!r}? " if near else ""
    return OptionError(
        key, value, f"is not an option of the rtps source; {hint}`spark-rtps options` lists all"
    )


# --- one value ------------------------------------------------------------------------------------

#: ``module:class`` and the like.
CALLABLE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_UNLIMITED_WORDS: Final = frozenset({"unlimited", "length_unlimited", "-1"})
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


#: DDS counts with 32 signed bits.
_LONG_MAX: Final = (1 << 31) - 1


def parse_value(spec: OptionSpec, text: str) -> object:
    """The value of an option's text. Raises OptionError for an invalid text."""
    text = text.strip()
    if not _is_unicode(text):  # a command line that is not UTF-8 contains lone surrogates
        raise OptionError(spec.name, ascii(text[:16]), "must be Unicode")
    if spec.takes_auto and text.lower() == "auto":
        return None
    match spec.kind:
        case OptionKind.TEXT:
            return _text(spec, text)
        case OptionKind.OCTETS:
            return _octets(spec, text)
        case OptionKind.LIST:
            return _list(spec, text)
        case OptionKind.BOOLEAN:
            if text.lower() in _TRUE | _FALSE:
                return text.lower() in _TRUE
            raise OptionError(spec.name, text, "must be true or false")
        case OptionKind.WORD:
            return _word(spec, text)
        case OptionKind.PLUGIN:
            return _plugin(spec, text)
        case OptionKind.OFFSETS:
            return _positions(spec, text) if text.startswith("{") else _word(spec, text)
        case _:
            return _bounded(spec, text, _number(spec, text))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(spec: OptionSpec, text: str) -> str:
    if not text:
        raise OptionError(spec.name, text, "must not be empty")
    if "\0" in text:  # strings on the wire end there
        raise OptionError(spec.name, text, "must not contain NUL")
    if spec.maximum is not None and len(text.encode()) > spec.maximum:
        raise OptionError(spec.name, f"{text[:16]}...", f"must be at most {spec.maximum} bytes of UTF-8")
    return text


def _list(spec: OptionSpec, text: str) -> tuple[str, ...]:
    parts = names_of(text, is_quoted=spec.is_quoted)
    if "" in parts and not spec.may_be_empty:
        raise OptionError(spec.name, text, "must not have an empty name")
    # the text of a JSON array may escape what it must not contain
    if any("\0" in part for part in parts):
        raise OptionError(spec.name, text, "must not contain NUL")
    if not all(map(_is_unicode, parts)):
        raise OptionError(spec.name, text, "must be Unicode: a name has half a surrogate pair")
    if spec.maximum is not None and len(parts) > spec.maximum:
        raise OptionError(spec.name, f"{text[:16]}...", f"must be at most {spec.maximum} names")
    return parts


def _number(spec: OptionSpec, text: str) -> int:
    word = text.lower()
    match spec.kind:
        case OptionKind.COUNT:
            fix = "must be an integer or unlimited"
            return INFINITE if word in _UNLIMITED_WORDS else _read(int, spec, text, fix)
        case OptionKind.DURATION:
            fix = "must be a duration such as 200ms, 3s, 5min or infinite"
            fix += " or auto" if spec.takes_auto else ""
            return _read(duration, spec, text, fix)
        case OptionKind.SIZE | OptionKind.SIZE_LIMIT:
            if spec.kind is OptionKind.SIZE_LIMIT and word in _UNLIMITED_WORDS:
                return INFINITE
            fix = "must be a size such as 4096, 64KiB or 1MB"
            fix += " or unlimited" if spec.kind is OptionKind.SIZE_LIMIT else ""
            fix += " or auto" if spec.takes_auto else ""
            return _read(size, spec, text, fix)
    return _read(int, spec, text, "must be an integer")


def _read(number: Callable[[str], int], spec: OptionSpec, text: str, fix: str) -> int:
    try:
        return number(text)
    except ValueError:
        raise OptionError(spec.name, text, fix) from None


def _bounded(spec: OptionSpec, text: str, value: int) -> int:
    low, high = spec.minimum, spec.maximum
    if high is None and spec.kind is OptionKind.COUNT:
        high = _LONG_MAX
    if value == INFINITE and spec.kind in (OptionKind.COUNT, OptionKind.SIZE_LIMIT):
        return value
    if (low is not None and value < low) or (high is not None and value > high):
        if high is None:
            allowed = f"at least {spec.show(low or 0)}"
        else:
            allowed = f"between {spec.show(low or 0)} and {spec.show(high)}"
        raise OptionError(spec.name, text, f"must be {allowed}")
    return value


def _octets(spec: OptionSpec, text: str) -> bytes:
    """The UTF-8 bytes of the text, or the bytes that ``0x...`` gives in hexadecimal digits."""
    octets = text.encode()
    if text[:2].lower() == "0x":
        try:
            octets = bytes.fromhex(text[2:])
        except ValueError:
            fix = "after 0x must be hexadecimal digits, two for each byte"
            raise OptionError(spec.name, text, fix) from None
    if spec.maximum is not None and len(octets) > spec.maximum:
        raise OptionError(spec.name, f"{text[:16]}...", f"must be at most {spec.maximum} bytes")
    return octets


def _word(spec: OptionSpec, text: str) -> str:
    """One of ``spec.choices``, in ROS 2's words or as DDS constant (``RELIABLE_RELIABILITY_QOS``)."""
    word = text.lower().replace("-", "_")
    if word not in spec.choices:
        # DDS runs some policies' names together: BY_SOURCE_TIMESTAMP_DESTINATIONORDER_QOS
        policy = spec.name.partition(".")[0].lower()
        word = word.removeprefix("dds_").removesuffix("_qos")
        word = word.removesuffix(f"_{policy}").removesuffix(f"_{policy.replace('_', '')}")
    if word not in spec.choices:
        raise OptionError(spec.name, text, f"must be one of {', '.join(spec.choices)}")
    return word


def _plugin(spec: OptionSpec, text: str) -> str:
    """One of ``spec.choices``, or ``module:class`` that the user provides."""
    if text.lower() in spec.choices:
        return text.lower()
    if not CALLABLE.fullmatch(text):
        known = ", ".join(spec.choices)
        raise OptionError(
            spec.name, text, f"must be one of {known}, or module:class, such as my.package:MyClass"
        )
    return text


def _positions(spec: OptionSpec, text: str) -> tuple[tuple[str, int | str], ...]:
    """For each receiver service by name, a position in its log or one of ``spec.choices``."""
    fix = f'must be JSON such as {{"cell-1": 12345, "cell-2": "{spec.choices[0]}"}}'
    try:
        pairs: list[tuple[str, object]] = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        raise OptionError(spec.name, text, fix) from None
    found: dict[str, int | str] = {}
    for name, value in pairs:
        if name in found:
            raise OptionError(spec.name, text, f"names {name!r} twice; {fix}")
        is_position = (
            isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LOG_POSITION_MAX
        )
        if not is_position and value not in spec.choices:
            raise OptionError(spec.name, text, f"has {value!r:.40} for {name!r}; {fix}")
        found[name] = cast("int | str", value)
    return tuple(sorted(found.items()))
