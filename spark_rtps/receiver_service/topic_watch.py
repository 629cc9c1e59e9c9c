"""The topics of a domain, for subscriptions whose topic is a pattern."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from ..transport.errors import RtpsError
from ..transport.net.node_config import NodeConfig
from ..transport.receiver.addresses import with_reserved_ports
from ..transport.receiver.supervision import RestartPolicy
from ..transport.structure import NANOSECONDS

if TYPE_CHECKING:
    from ..transport.net.directory import Directory

_log = logging.getLogger("spark_rtps.receiver_service")

_LOOK_NS: Final = NANOSECONDS // 2


class Domain(Protocol):
    """The part of Node that is used here."""

    @property
    def is_closed(self) -> bool: ...
    @property
    def directory(self) -> Directory: ...
    def close(self) -> None: ...


JoinDomain: TypeAlias = Callable[[NodeConfig], Domain]


def join_domain(directory: Path, config: NodeConfig) -> Domain:
    """A participant that only discovers, and does not take the ports of receivers whose logs are in ``directory``.

    It joins before the receivers do. Raises TransportError.
    """
    from ..transport.net.node import Node

    return Node.open(with_reserved_ports(config, directory)).start()


class TopicWatch:
    """One participant for each network in which patterns look for topics."""

    def __init__(self, join: JoinDomain) -> None:
        self._join = join
        self._domains: dict[NodeConfig, Domain] = {}
        self._due: dict[NodeConfig, int] = {}
        self._restarts: dict[NodeConfig, RestartPolicy] = {}
        self._look_at = 0

    def topics_now(self, wanted: Iterable[NodeConfig], now: int) -> dict[NodeConfig, set[str]]:
        """The topics that are written in these networks, as far as known; None between two looks.

        Networks without a pattern are left.
        """
        if now < self._look_at:
            return {}
        self._look_at = now + _LOOK_NS
        wanted = set(wanted)
        for config in [each for each in self._domains if each not in wanted]:
            self._leave(config)
        found = {}
        for config in wanted:
            try:
                domain = self._domain(config, now)
                if domain is not None:
                    found[config] = domain.directory.written_topics()
            except Exception as error:  # noqa: BLE001  (the other networks are still searched)
                self._failed(config, repr(error), now)
        return found

    def close(self) -> None:
        """Leave all networks."""
        for config in list(self._domains):
            self._leave(config)

    def _leave(self, config: NodeConfig) -> None:
        try:
            self._domains.pop(config).close()
        except Exception as error:  # noqa: BLE001  (the other networks are still left)
            _log.warning("leaving domain %d failed: %r", config.domain, error)

    def _domain(self, config: NodeConfig, now: int) -> Domain | None:
        domain = self._domains.get(config)
        if domain is not None and domain.is_closed:
            self._failed(config, "the participant has ended", now)
            return None
        if domain is not None or now < self._due.get(config, 0):
            return domain
        try:
            self._domains[config] = joined = self._join(config)
        except (RtpsError, OSError) as error:
            self._failed(config, str(error), now)
            return None
        return joined

    def _failed(self, config: NodeConfig, why: str, now: int) -> None:
        if config in self._domains:
            self._leave(config)
        self._due[config] = self._restarts.setdefault(config, RestartPolicy()).died(now)
        _log.warning("cannot search domain %d for topics: %s; trying again", config.domain, why)
