"""TLS of log servers and their clients: certificates, which servers a client trusts, and why it does not trust one."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from ..transport.errors import TransportError
from .wire_format.served import Served

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
#: OpenSSL's errors for an answer that is not TLS.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
#: RFC 8446 §6.2, as OpenSSL names them.
_CERTIFICATE_ALERTS: Final = frozenset(
    {
        "BAD_CERTIFICATE", "UNSUPPORTED_CERTIFICATE", "CERTIFICATE_REVOKED", "CERTIFICATE_EXPIRED",
        "CERTIFICATE_UNKNOWN", "CERTIFICATE_REQUIRED", "UNKNOWN_CA",
    }
)  # fmt: skip
#: Servers to which a connection is kept: a query may read many receiver services, each in every micro-batch.
SERVERS_MAX: Final = 64


class OwnCertificateError(ValueError):
    """The client's own certificate, or its key, cannot be used."""


def server_context(certificate: str | None, key: str | None, client_ca: str | None) -> ssl.SSLContext | None:
    """TLS of a server with these PEM files; None without a certificate: in the clear. Raises TransportError.

    With ``client_ca``, clients may show a certificate of this authority.
    """
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise TransportError(
            f"{certificate} and {key} are no certificate and key for TLS: {reason}"
        ) from error
    if client_ca is not None:
        context.verify_mode = ssl.CERT_OPTIONAL  # a token is enough
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as for servers' certificates
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ValueError) as error:
            raise TransportError(f"{client_ca} has no certificate of an authority: {error}") from error
    return context


def distrust(address: str, error: Exception) -> str:
    """Why a connected server is not trusted, from the error of TLS."""
    if isinstance(error, OwnCertificateError):
        return f"the certificate to show to {address} cannot be used: {error}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{address} cannot be trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return f"{address} does not speak TLS, or is another server: give no certificate of it, or configure one there"
    return f"{address} cannot be trusted: {error}"


def refused_certificate(error: Exception) -> str | None:
    """Why the server refuses the client's certificate, if the error says that."""
    reason = error.reason or "" if isinstance(error, ssl.SSLError) else ""
    _, _, alert = reason.partition("_ALERT_")
    return alert.replace("_", " ").lower() if alert in _CERTIFICATE_ALERTS else None


class Trust:
    """Certificates in PEM: a server is trusted if it has one of them, or one that they signed for the host in its
    address.

    The server's own certificate is enough, at whichever address of its host.
    """

    def __init__(self, served: Served) -> None:
        pem = served.ca or ""
        parts = (part.partition(_END)[0] for part in pem.split(_BEGIN)[1:])
        self._own = {ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{part}{_END}") for part in parts}
        self._by_name, self._any_name = _context(pem), _context(pem)
        if served.certificate is not None:
            for context in (self._by_name, self._any_name):
                _show(context, served.certificate, served.key or "")
        self._any_name.check_hostname = False

    @classmethod
    @lru_cache(maxsize=SERVERS_MAX)
    def of(cls, served: Served) -> Trust:
        return cls(served)

    def secured(self, connect: Callable[[], socket.socket], host: str) -> ssl.SSLSocket:
        """A new connection to a trusted server. Raises ssl.SSLError."""
        sock = _wrapped(self._any_name, connect(), host)
        if sock.getpeercert(binary_form=True) in self._own:
            return sock
        sock.close()
        return _wrapped(self._by_name, connect(), host)


def _context(pem: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=pem)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # RFC 5280 demands more than self-made certificates usually have
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _show(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Show servers this certificate; its key is written to no disk. Raises OwnCertificateError."""
    descriptor = os.memfd_create("spark-rtps", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(f"{certificate}\n{key}\n".encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_no_password)
    except ssl.SSLError as error:
        raise OwnCertificateError(f"it is not a certificate with its key ({error.reason})") from error
    finally:
        os.close(descriptor)


def _no_password() -> str:
    """Fail instead of asking at a terminal."""
    raise OwnCertificateError("its key has a passphrase")


def _wrapped(context: ssl.SSLContext, plain: socket.socket, host: str) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
