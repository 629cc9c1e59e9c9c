"""Queries receiver services on other hosts, instead of this host."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar

import typer

from ..transport.errors import LogAccessError, LogLostError, RangeServerError, RtpsError, reason
from ..transport.value_classes import value
from . import logs

if TYPE_CHECKING:
    from ..monitoring.reports import ErrorReport, LossesOfLog
    from ..monitoring.stream_counters import Stream
    from ..serving.client.receiver_reports import ReceiverReports
    from ..serving.client.remote_log import RemoteLog
    from ..serving.wire_format.receiver_service import SubscriptionInfo
    from ..serving.wire_format.served import Served

TOKEN: Final = "SPARK_RTPS_TOKEN"
#: How long to wait for a receiver's answer.
PATIENCE_SECONDS: Final = 5.0
#: Subscriptions that an error names.
_NAMED_MAX: Final = 8
_TOKEN_BYTES_MAX: Final = 4_096
_CA_BYTES_MAX: Final = 4 << 20

_ASKED: Final = "Ask the receiver service there, not this host"

Receivers = Annotated[
    list[str] | None, typer.Option("--receiver", "-r", metavar="HOST:PORT", help=f"{_ASKED}. Repeatable.")
]
Receiver = Annotated[str | None, typer.Option("--receiver", "-r", metavar="HOST:PORT", help=f"{_ASKED}.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", help=f"File with the receiver's token. Default: ${TOKEN}, the token itself."
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca", help="PEM file with the receiver's certificate, or with that of its CA. It needs TLS."
    ),
]
Certificate = Annotated[
    Path | None,
    typer.Option(
        "--certificate", help="PEM file with a certificate to show, instead of a token. It needs --key."
    ),
]
Key = Annotated[Path | None, typer.Option("--key", help="PEM file with the private key of --certificate.")]

_T = TypeVar("_T", "Stream", "ErrorReport", "LossesOfLog")


class ReceiverError(RtpsError):
    """A receiver service did not answer, or refused."""


@value
class Collected(Generic[_T]):
    """Results from directories of this host, or from several receivers.

    ``places`` are the directories or receivers. The path of a receiver's result begins with its address.
    """

    places: list[str]
    entries: list[_T]
    #: Whether receivers were asked; the receiver of each path; and why some did not answer.
    is_remote: bool = False
    receivers: dict[Path, str] = field(default_factory=dict)
    unreached: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise ReceiverError if no receiver has answered."""
        if self.places and len(self.unreached) == len(self.places):
            raise ReceiverError("; ".join(self.unreached.values()))

    def at(self, path: Path) -> str:
        """`` at HOST:PORT``, to be put behind a name, if several receivers were asked."""
        return f" at {self.receivers[path]}" if self.is_remote and len(self.places) > 1 else ""

    def nothing(self, what: str) -> str:
        """The sentence for an empty result."""
        where = ", ".join(self.places)
        if self.is_remote:
            return f"{what} at {where}"
        return f"{what} on this host; searched {where} (--log-dir adds directories)"

    def extended(self, found: dict[str, Any]) -> dict[str, Any]:
        """The JSON of the results, with the receivers that did not answer."""
        return {**found, "unreached": self.unreached} if self.is_remote else found

    def end(self) -> None:
        """Report on stderr which receivers did not answer: then the exit code is 1."""
        from .tables import visible

        for why in self.unreached.values():
            typer.echo(visible(why), err=True)
        if self.unreached:
            raise typer.Exit(1)


@value
class Access:
    """The options of a command for trusting receivers, and for being admitted by them."""

    token_file: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@value
class Where:
    """The options of a command that select directories or receivers."""

    log_dir: list[Path] | None
    receivers: list[str] | None
    access: Access

    def collect(
        self, here: Callable[[list[Path]], list[_T]], there: Callable[[ReceiverReports], list[_T]]
    ) -> Callable[[], Collected[_T]]:
        """A function that collects results each time: from directories of this host, or from receivers."""
        if not self.receivers:
            directories = logs.directories(self.log_dir)
            return lambda: Collected([str(path) for path in directories], here(directories))
        only_here(self.log_dir, "--log-dir")
        served = served_at(self.receivers, self.access)
        return lambda: ask_receivers(served, there)


def served_at(receivers: list[str], access: Access) -> list[Served]:
    """The addresses and credentials of the receivers. Raises a usage error for wrong options."""
    from ..serving.client.connections import host_and_port
    from ..serving.wire_format.served import Served

    pem = _pem(access.ca, "--ca", "CERTIFICATE")
    certificate = _pem(access.certificate, "--certificate", "CERTIFICATE")
    key = _pem(access.key, "--key", "PRIVATE KEY")
    if (certificate is None) != (key is None):
        raise typer.BadParameter("give both, or none of them", param_hint="--certificate, --key")
    if certificate is not None and pem is None:
        raise typer.BadParameter("is shown with TLS only: give --ca too", param_hint="--certificate")
    token = _token(access.token_file, is_needed=certificate is None)
    for address in receivers:
        try:
            host, _ = host_and_port(address)
        except RangeServerError as error:
            raise typer.BadParameter(str(error), param_hint="--receiver") from None
        if pem is None and not _is_loopback(host):
            fix = "without TLS the token could be read on the network: give the receiver's certificate with --ca"
            raise typer.BadParameter(f"{address} is another host, and {fix}", param_hint="--receiver")
    return [Served((address,), token, pem, certificate, key) for address in dict.fromkeys(receivers)]


def ask_receivers(served: list[Served], ask: Callable[[ReceiverReports], list[_T]]) -> Collected[_T]:
    """The results of all receivers that answer."""
    from ..serving.client.receiver_reports import ReceiverReports

    collected: Collected[_T] = Collected([each.addresses[0] for each in served], [], is_remote=True)
    for each in served:
        (address,) = each.addresses
        try:
            with asking(address):
                found = ask(ReceiverReports(each, patience=PATIENCE_SECONDS))
        except ReceiverError as error:
            collected.unreached[address] = str(error)
            continue
        for entry in found:
            path = Path(f"{address}:{entry.path}")
            collected.entries.append(replace(entry, path=path))
            collected.receivers[path] = address
    return collected


@contextmanager
def recorded(served: Served, name: str) -> Iterator[tuple[SubscriptionInfo, RemoteLog]]:
    """The subscription of a receiver that has this name, log or topic, and its log."""
    from ..serving.client.receiver_client import ReceiverClient
    from ..serving.client.remote_log import RemoteLog

    (address,) = served.addresses
    with asking(address):
        found = ReceiverClient(served, patience=PATIENCE_SECONDS).subscriptions()
        one = _named(found, name, address)
        log = RemoteLog(served, one.log, one.directory, patience=PATIENCE_SECONDS)
        with closing(log):
            yield one, log


@contextmanager
def asking(address: str) -> Iterator[None]:
    """Errors raised inside name the receiver at ``address`` and what to do."""
    try:
        yield
    except LogAccessError as error:
        what, fix = "token", f"give another one with --token-file or ${TOKEN}"
        if "refuses the certificate" in str(error):
            what, fix = "certificate", "give another one with --certificate and --key"
        error.hint = ""  # it is for queries
        raise ReceiverError(f"the receiver at {address} refuses the {what}: {fix} ({error})") from None
    except LogLostError as error:
        raise ReceiverError(f"the receiver at {address} does not have it: {error}") from error
    except RangeServerError as error:
        if error.is_reached:
            raise ReceiverError(f"the receiver at {address}: {error}") from error
        raise ReceiverError(f"the receiver at {address} is not reached: {_why(error)}") from error


def only_here(given: object, option: str) -> None:
    """Refuse an option that selects a directory or network of this host."""
    if given:
        raise typer.BadParameter(
            "a receiver uses its own: remove the option, or --receiver", param_hint=option
        )


def _named(found: list[SubscriptionInfo], name: str, address: str) -> SubscriptionInfo:
    fitting = [one for one in found if name in (one.name, one.log)]
    fitting = fitting or [one for one in found if one.topic == name]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(sorted(one.name for one in fitting or found)[:_NAMED_MAX])
    if fitting:
        raise ReceiverError(
            f"several subscriptions of the receiver at {address} have the topic {name}: {names}"
        )
    others = f"; it has {names}" if names else ""
    raise ReceiverError(f"the receiver at {address} has no subscription {name}{others}")


# --- inside -----------------------------------------------------------------------------------------


def _pem(path: Path | None, option: str, what: str) -> str | None:
    """The text of a PEM file that has to hold a certificate or a key."""
    if path is None:
        return None
    text = _text(path, option, _CA_BYTES_MAX)
    if f"{what}-----" not in text:
        raise typer.BadParameter(f"{path} holds no {what.lower()} in PEM", param_hint=option)
    return text


def _token(token_file: Path | None, *, is_needed: bool) -> str:
    if token_file is not None:
        token, hint = _text(token_file, "--token-file", _TOKEN_BYTES_MAX).strip(), "--token-file"
    else:
        token, hint = os.environ.get(TOKEN, "").strip(), f"${TOKEN}"
    if not token and not is_needed:
        return ""
    if not token:
        message = f"a receiver needs a token: give its file with --token-file, or the token in ${TOKEN}"
        raise typer.BadParameter(message, param_hint=hint)
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise typer.BadParameter("a token is one word of ASCII", param_hint=hint)
    return token


def _text(path: Path, option: str, most: int) -> str:
    """The text of a small file."""
    try:
        with path.open("rb") as file:
            raw = file.read(most + 1)
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {reason(error)}", param_hint=option) from None
    if len(raw) > most:
        raise typer.BadParameter(f"{path} has more than {most} bytes", param_hint=option)
    return raw.decode("ascii", "replace")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _why(error: RangeServerError) -> str:
    """The attempts, without the wording for a task that reads a log."""
    _, _, tried = str(error).partition(" is not reached (")
    return tried.removesuffix(")") or str(error)
