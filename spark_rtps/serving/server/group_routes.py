"""Requests on the consumer groups of a receiver service's logs, and the removal of expired groups."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...transport.log.host_clocks import Clocks
from ...transport.log.segment import read_metadata
from ..wire_format.receiver_service import is_name
from .consumer_group_file import ConsumerGroupFile
from .http_messages import HttpResponse, Refusal, Request, json_body
from .log_queries import committed
from .router import Router
from .tail_watch import has_left

_log = logging.getLogger("spark_rtps.serving")


class GroupRoutes:
    """The groups of all logs below ``root``; a group that commits nothing for ``retention`` ns is removed."""

    def __init__(
        self,
        root: Path,
        retention: int,
        *,
        lock: threading.Lock,
        known: Callable[[], Iterable[Mapping[str, Any]]],
        with_log: Callable[[str], Mapping[str, Any]],
    ) -> None:
        """``known`` are the subscriptions, which change under ``lock``; ``with_log`` finds that of a log, or raises
        Refusal."""
        self._root = root
        self._retention = retention
        self._lock = lock
        self._known = known
        self._with_log = with_log
        self._groups: dict[str, ConsumerGroupFile] = {}
        #: The logs whose groups the last turn failed for, and why.
        self._failing: dict[str, str] = {}

    def add_to(self, router: Router) -> None:
        """Add the paths of groups."""
        router.add("/v1/logs/{log}/groups", GET=self._show_groups)
        router.add("/v1/logs/{log}/groups/{name*}", PUT=self._commit_group, DELETE=self._delete_group)

    def keep(self, now: Clocks) -> None:
        """Keep the consumer groups of all logs; to be called about once a second."""
        with self._lock:
            subscriptions = {each["log"]: each for each in self._known()}
            left = {log: file for log, file in self._groups.items() if log not in subscriptions}
        for log, each in subscriptions.items():
            with self._alone(log):
                self._groups_of(log).keep(now, holds_log=_holds_log(each))
        for log, file in left.items():  # the subscription has ended, maybe a moment after a commit
            with self._alone(log):
                has_log = (self._root / log).is_dir()
                if file.is_unwritten and has_log:
                    file.keep(now, holds_log=False)
                with self._lock:
                    if log not in {each["log"] for each in self._known()} and not (
                        file.is_unwritten and has_log
                    ):
                        self._groups.pop(log, None)

    @contextmanager
    def _alone(self, log: str) -> Iterator[None]:
        """A failure with the groups of one log concerns this log alone, until its next turn."""
        try:
            yield
        except (Refusal, OSError):
            pass  # such as a disk that is full
        except Exception as error:  # noqa: BLE001
            if self._failing.get(log) != repr(error):  # logged when it begins, and not each second
                self._failing[log] = repr(error)
                _log.exception("the consumer groups of the log %s could not be kept; trying again", log)
        else:
            self._failing.pop(log, None)

    def _show_groups(self, _: Request, log: str) -> HttpResponse:
        self._with_log(log)
        read_metadata(self._root / log)  # groups are kept in a log's folder only
        return HttpResponse(200, self._groups_of(log).encoded(Clocks.read_now()))

    def _commit_group(self, request: Request, log: str, name: str) -> HttpResponse:
        groups, holds_log = self._group(log, name)
        cursor, base = committed(self._root / log, json_body(request.body))
        is_wanted = lambda: not has_left(request.peer)  # noqa: E731
        groups.commit_offset(
            name, cursor, Clocks.read_now(), base=base, holds_log=holds_log, is_wanted=is_wanted
        )
        return HttpResponse(204)

    def _delete_group(self, _: Request, log: str, name: str) -> HttpResponse:
        groups, holds_log = self._group(log, name)
        groups.delete(name, Clocks.read_now(), holds_log=holds_log)
        return HttpResponse(204)

    def _group(self, log: str, name: str) -> tuple[ConsumerGroupFile, bool]:
        """The groups of the log, and whether it waits for them."""
        subscription = self._with_log(log)
        read_metadata(self._root / log)  # groups are kept in a log's folder only
        if not is_name(name):
            raise Refusal(400, "this is not a valid name of a consumer group")
        return self._groups_of(log), _holds_log(subscription)

    def _groups_of(self, log: str) -> ConsumerGroupFile:
        with self._lock:
            return self._groups.setdefault(log, ConsumerGroupFile(self._root / log, self._retention))


def _holds_log(subscription: Mapping[str, Any]) -> bool:
    return subscription.get("retention") == "committed"
