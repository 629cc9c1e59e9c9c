"""The file of ``spark-rtps receive``: TOML to a configuration in which every option is checked."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from ..options.spec import YEAR
from ..options.table import BY_KEY, PARTICIPANT_OPTIONS
from ..options.texts import duration, list_text, names_of, size
from ..serving.wire_format.receiver_service import ROLES, is_name, too_open
from ..transport.errors import OptionError, RtpsError
from ..transport.net.node_config import NodeConfig
from ..transport.structure import INFINITE
from ..transport.value_classes import value
from .config_file import ConfigFile, ReceiverFileError
from .subscribing import TOPICS, Wanted, is_pattern, network_of, wanted

#: Subscriptions at the same time, from the file and from clients.
SUBSCRIPTIONS_MAX: Final = 1024
_KEYS: Final = (
    "directory", "listen", "certificate", "key", "client_ca", "client_role", "groups_retention", "ended_logs_retention",
    "ended_logs_bytes", "tokens", "defaults", "subscriptions",
)  # fmt: skip
_LISTEN: Final = "127.0.0.1:7420"
#: No option takes larger numbers; Python refuses to print integers of more than 4300 digits.
_INT_BITS_MAX: Final = 128
#: RFC 6750 §2.1, and too long to guess.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,4096}=*")
_TOKEN_BYTES_MAX: Final = 8192
#: Options which name files; their paths are relative to the configuration's file.
_PATHS: Final = frozenset({"type.file", "qos.file", "type.include_path"})


@value
class ReceiverServiceConfig:
    """The contents of the file. Durations in nanoseconds; certificates and keys are PEM files."""

    file: Path
    #: The directory of the logs; made when the receiver starts.
    directory: Path
    address: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    #: A client with a certificate of this authority has the role ``client_role``.
    client_ca: Path | None = None
    client_role: str = "commit"
    groups_retention: int = 7 * 86_400 * 10**9
    #: Of logs in ``directory`` without a subscription: how long they are kept, and how many bytes. None: all.
    ended_logs_retention: int = 7 * 86_400 * 10**9
    ended_logs_bytes: int | None = None
    #: Role -> token. None: the file has none; on a loopback address one is made.
    tokens: Mapping[str, str] | None = field(default=None, repr=False)
    #: Digest of the PEM files' contents, which may change under the same names.
    pem_digest: str = field(default="", repr=False)
    #: Defaults for the options of clients' subscriptions.
    defaults: Mapping[str, str] = field(default_factory=dict)
    subscriptions: tuple[Wanted, ...] = ()
    #: The participant that lists topics on request: on the network of subscriptions without options of their own.
    network: NodeConfig = field(default_factory=NodeConfig)
    #: Subscriptions whose topic is a pattern; each topic found becomes a subscription.
    patterns: tuple[Wanted, ...] = ()
    #: Accepted settings that should be corrected, in sentences.
    warnings: tuple[str, ...] = ()


def read_config(file: Path) -> ReceiverServiceConfig:
    """The configuration in ``file``, with the files it names. Raises ReceiverFileError."""
    file = file.absolute()
    try:
        return _Reader(ConfigFile(file)).config()
    except RecursionError:  # of the TOML, or of the definition of a type
        raise ReceiverFileError(file, "", "", "is nested too deeply, or a file that it names is") from None


class _Reader:
    """Parses the tables of one file."""

    def __init__(self, file: ConfigFile) -> None:
        self._file = file
        self._raw = file.raw
        self._warnings: list[str] = []

    def config(self) -> ReceiverServiceConfig:
        self._file.check_keys("", self._raw, _KEYS)
        address, port = self._listen()
        certificate, key = self._pem("certificate"), self._pem("key")
        client_ca = self._pem("client_ca")
        for name, given, needed in (
            ("certificate", certificate, "key"),
            ("key", key, "certificate"),
            ("client_ca", client_ca, "certificate"),
        ):
            if given is not None and needed not in self._raw:
                raise self._file.error("", name, f"has no effect without {needed}; set {needed} too")
        if "client_role" in self._raw and client_ca is None:
            raise self._file.error("", "client_role", "has no effect without client_ca; set client_ca too")
        tokens = self._tokens()
        self._check_access(address, certificate, client_ca, tokens)
        defaults = self._options("defaults", self._file.table("defaults"))
        found = self._subscriptions(defaults)
        return ReceiverServiceConfig(
            file=self._file.file,
            directory=self._file.path("", "directory", self._file.text("", self._raw, "directory")),
            address=address,
            port=port,
            certificate=certificate,
            key=key,
            client_ca=client_ca,
            client_role=self._role(),
            groups_retention=self._retention("groups_retention", least=10**9),
            ended_logs_retention=self._retention("ended_logs_retention", least=0),
            ended_logs_bytes=self._ended_logs_bytes(),
            tokens=tokens,
            pem_digest=self._digest({"certificate": certificate, "key": key, "client_ca": client_ca}),
            defaults=defaults,
            network=self._network(defaults),
            subscriptions=tuple(each for each in found if not each.is_pattern),
            patterns=tuple(each for each in found if each.is_pattern),
            warnings=tuple(self._warnings),
        )

    # --- access ----------------------------------------------------------------------------------

    def _listen(self) -> tuple[str, int]:
        text = self._file.text("", self._raw, "listen", _LISTEN)
        host, _, port = text.rpartition(":")
        host = "127.0.0.1" if host == "localhost" else host
        try:
            ipaddress.IPv4Address(host)
            if not 0 <= int(port) <= 65_535:
                raise ValueError(port)
        except ValueError:
            fix = f"{text!r} must be an IPv4 address and a port, such as {_LISTEN} or 0.0.0.0:7420"
            raise self._file.error("", "listen", fix) from None
        return host, int(port)

    def _tokens(self) -> dict[str, str] | None:
        if "tokens" not in self._raw:
            return None
        table = self._file.table("tokens")
        self._file.check_keys("tokens", table, ROLES)
        if not table:
            raise self._file.error(
                "tokens", "", f"is empty; name the file of a token for {' or '.join(ROLES)}"
            )
        tokens = {role: self._token(role, self._file.text("tokens", table, role)) for role in table}
        for role, token in tokens.items():
            same = next((other for other in tokens if other != role and tokens[other] == token), None)
            if same is not None:
                raise self._file.error("tokens", role, f"is the token of {same} too; each role needs its own")
        return tokens

    def _token(self, role: str, source: str) -> str:
        if source.startswith("env:"):
            token = os.environ.get(source[4:], "").strip()
            if not token:
                raise self._file.error(
                    "tokens", role, f"the environment has no {source[4:]}; set it, or name a file"
                )
        else:
            path = self._file.path("tokens", role, source)
            try:
                with path.open("rb") as file:
                    token = file.read(_TOKEN_BYTES_MAX).decode("ascii", "replace").strip()
                    self._check_mode("tokens", role, path, file.fileno())
            except OSError as error:
                # the value may be the token itself
                fix = f"names a file that cannot be read ({error.strerror}); write a path, or env:NAME"
                raise self._file.error("tokens", role, fix) from None
        if not _TOKEN.fullmatch(token):
            fix = "must hold 16 or more letters, digits and ._~+/-; `openssl rand -hex 32` makes one"
            raise self._file.error("tokens", role, fix)
        return token

    def _check_mode(self, table: str, key: str, path: Path, descriptor: int) -> None:
        """Warn of a secret that every user of the host may read or change."""
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o006:
            fix = f"{path} is open to all users of this host (mode {mode:04o}): chmod o-rwx it"
            self._warnings.append(str(self._file.error(table, key, fix)))

    def _check_access(
        self, address: str, certificate: Path | None, client_ca: Path | None, tokens: Mapping[str, str] | None
    ) -> None:
        # on a loopback address, a missing token is made
        has_access = tokens is not None or client_ca is not None or ipaddress.IPv4Address(address).is_loopback
        why = too_open(address, has_tls=certificate is not None, has_access=has_access)
        if why is not None:
            raise self._file.error("", "listen", why)

    def _role(self) -> str:
        role = self._file.text("", self._raw, "client_role", "commit")
        if role not in ROLES:
            raise self._file.error("", "client_role", f"{role!r} must be one of {', '.join(ROLES)}")
        return role

    def _retention(self, key: str, *, least: int) -> int:
        text = self._file.text("", self._raw, key, "7d")
        try:
            found = duration(text)
        except ValueError:
            found = -1
        if not least <= found <= 100 * YEAR and found != INFINITE:
            fix = f"{text!r} must be a duration of at least {least // 10**9}s, such as 7d, or infinite"
            raise self._file.error("", key, fix)
        return found

    def _ended_logs_bytes(self) -> int | None:
        text = self._file.text("", self._raw, "ended_logs_bytes", "unlimited")
        try:
            return None if text == "unlimited" else size(text)
        except ValueError:
            fix = f"{text!r} must be a size such as 512MiB or 10GiB, or unlimited"
            raise self._file.error("", "ended_logs_bytes", fix) from None

    def _pem(self, key: str) -> Path | None:
        if key not in self._raw:
            return None
        path = self._file.path("", key, self._file.text("", self._raw, key))
        try:
            with path.open("rb") as file:
                if key == "key":
                    self._check_mode("", key, path, file.fileno())
                return path
        except OSError as error:
            raise self._file.error("", key, f"{path} cannot be read: {error.strerror}") from None

    def _digest(self, files: Mapping[str, Path | None]) -> str:
        found = hashlib.sha256()
        for key, path in files.items():
            try:
                found.update(b"" if path is None else hashlib.sha256(path.read_bytes()).digest())
            except OSError as error:
                raise self._file.error("", key, f"{path} cannot be read: {error.strerror}") from None
        return found.hexdigest()

    # --- subscriptions ----------------------------------------------------------------------------

    def _subscriptions(self, defaults: Mapping[str, str]) -> list[Wanted]:
        table = self._file.table("subscriptions")
        if len(table) > SUBSCRIPTIONS_MAX:
            raise self._file.error("subscriptions", "", f"has more than {SUBSCRIPTIONS_MAX} subscriptions")
        return [self._subscription(name, raw, defaults) for name, raw in table.items()]

    def _network(self, defaults: Mapping[str, str]) -> NodeConfig:
        given = {name: defaults[name] for name in PARTICIPANT_OPTIONS if name in defaults}
        try:
            return network_of(wanted("defaults", {**given, "topic": "defaults"}).settings)
        except OptionError as error:
            raise self._file.error("defaults", error.option, f"{error.value!r} {error.fix}") from None

    def _subscription(self, name: str, raw: object, defaults: Mapping[str, str]) -> Wanted:
        table = f"subscriptions.{name}"
        if not is_name(name):
            fix = "a name has letters, digits, and ._/- inside, at most 128 in all, and no `..`"
            raise self._file.error(table, "", fix)
        if not isinstance(raw, dict):
            raise self._file.error("subscriptions", name, f"must be a table: [{table}] with topic = …")
        given = self._options(table, raw)
        if not given.keys() & set(TOPICS):
            fix = 'is missing; name the topic: topic = "rt/imu"; or several: subscribe, subscribePattern'
            raise self._file.error(table, "topic", fix)
        own = {**defaults, **given}
        if is_pattern(own.get("topic", "")) and "filter" in own:
            raise self._file.error(table, "filter", "needs one type, and the topics of a pattern have many")
        try:
            subscription = wanted(name, own)
        except OptionError as error:
            inherited = error.option in defaults and error.option not in given
            place = "defaults" if inherited else table
            shown = "" if error.value is None else f"{error.value!r} "
            raise self._file.error(place, error.option, f"{shown}{error.fix}") from None
        except RtpsError as error:  # the file of a type
            raise self._file.error(table, "", str(error)) from None
        if subscription.is_pattern and subscription.settings.spy:
            raise self._file.error(table, "spy", "finds no topics by a pattern; name the topic")
        return subscription

    def _options(self, table: str, raw: Mapping[str, Any]) -> dict[str, str]:
        options: dict[str, str] = {}
        for key, setting in self._flat(table, raw, ""):
            spec = BY_KEY.get(key.lower())
            if spec is None:
                raise self._file.unknown(table, key, [each.name for each in BY_KEY.values()])
            if spec.name in options:
                raise self._file.error(table, key, "is set twice")
            text = self._option_text(table, key, setting)
            options[spec.name] = self._resolved(table, key, text) if spec.name in _PATHS else text
        return options

    def _flat(self, table: str, raw: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
        for key, setting in raw.items():
            if isinstance(setting, dict):
                yield from self._flat(table, setting, f"{prefix}{key}.")
            else:
                yield prefix + key, setting

    def _option_text(self, table: str, key: str, value: object) -> str:
        match value:
            case bool():
                return "true" if value else "false"
            case str() | float():
                return str(value)
            case int() if value.bit_length() <= _INT_BITS_MAX:
                return str(value)
            case list() if all(isinstance(each, str | int) and "," not in str(each) for each in value):
                return list_text(self._option_text(table, key, each) for each in value)
            case datetime.time() | datetime.date():
                fix = f"{value} must be in quotes"
            case _:
                fix = "must be a text, a number, true or false, or a list of texts without commas"
        raise self._file.error(table, key, fix)

    def _resolved(self, table: str, key: str, text: str) -> str:
        return list_text(str(self._file.path(table, key, part)) for part in names_of(text.strip()))
