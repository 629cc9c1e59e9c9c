"""Admission of requests by the token of a role, or by a client's certificate."""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection, Mapping
from typing import Final

from ..wire_format.receiver_service import ROLES
from .http_messages import Refusal

#: A task's report of its counts is allowed to readers.
REPORT: Final = re.compile(r"/v1/logs/[^/?]+/report")


class TokenAccess:
    """Admits requests: ``tokens`` by role, ``client_role`` for clients with a certificate, paths ``open_to_all``."""

    def __init__(
        self,
        tokens: Mapping[str, str],
        *,
        client_role: str | None = None,
        open_to_all: Collection[str] = ("/healthz",),
    ) -> None:
        self._tokens = [(role, tokens[role].encode()) for role in ROLES if role in tokens]
        self._client_role = client_role
        self._open_to_all = open_to_all

    def admit(
        self, method: str, target: str, headers: Mapping[bytes, bytes], *, certified: bool = False
    ) -> bool:
        """Whether the request needs no token; Refusal if it does and its sender does not have the role.

        ``certified``: the sender has shown a certificate of the authority that the server trusts.
        """
        if method == "GET" and target in self._open_to_all:
            return True
        role = self._role(headers.get(b"authorization", b""), certified=certified)
        if role is None:
            raise Refusal(401, "this server needs its token", (("WWW-Authenticate", "Bearer"),))
        needed = _needed_role(method, target)
        if ROLES.index(role) < ROLES.index(needed):
            raise Refusal(403, f"this needs the role {needed}, and the token has the role {role}")
        return False

    def _role(self, authorization: bytes, *, certified: bool) -> str | None:
        """The strongest role of the sender. All tokens are compared, each in constant time."""
        scheme, _, given = authorization.partition(b" ")
        matching = [hmac.compare_digest(given.strip(), token) for _, token in self._tokens]
        found = {role for (role, _), matches in zip(self._tokens, matching, strict=True) if matches}
        if scheme.lower() != b"bearer":
            found.clear()
        if certified and self._client_role is not None:
            found.add(self._client_role)
        return max(found, key=ROLES.index, default=None)


def _needed_role(method: str, target: str) -> str:
    if method == "PUT":
        return "commit"
    is_read = method in ("GET", "HEAD", "OPTIONS") or (method == "POST" and REPORT.fullmatch(target))
    return "read" if is_read else "admin"
