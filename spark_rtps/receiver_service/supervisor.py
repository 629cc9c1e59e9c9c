"""The supervisor: all subscriptions of a receiver service, their server, and their records on the disk.

The functions that start processes, and the time, are parameters, so that tests need neither.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Final

from ..transport.errors import OptionError, RtpsError
from ..transport.receiver.supervision import StartReceiver
from ..transport.value_classes import value
from .backlog import groups_behind, read_counters
from .cleaning import Cleaning
from .config import SUBSCRIPTIONS_MAX, ReceiverServiceConfig
from .config_file import ReceiverFileError
from .keeper import Keeper, Phase, describe
from .records import LogRecord, read_records, write_records
from .server_keeper import Request, ServerKeeper, StartServer
from .subscribing import Wanted, matches, name_for, network_of, wanted, wanted_by_client
from .topic_watch import JoinDomain, TopicWatch

_log = logging.getLogger("spark_rtps.receiver_service")

#: Topics of one pattern.
PATTERN_TOPICS_MAX: Final = 256
#: Subscriptions that clients may make.
DYNAMIC_MAX: Final = 256
#: Topics found by patterns that cannot be received: this many are logged one by one.
_REFUSED_LOGGED_MAX: Final = 256
_OF_SERVER: Final = (
    "address", "port", "certificate", "key", "client_ca", "client_role", "groups_retention", "tokens", "pem_digest",
    "network",
)  # fmt: skip


@value
class Processes:
    """How processes are started, and the threads for slow calls.

    Receivers that are slow to start or stop delay neither each other, nor the server and cleaning.
    """

    start_receiver: StartReceiver
    start_server: StartServer
    join_domain: JoinDomain
    starts: Executor
    stops: Executor
    #: Starts or stops the server.
    server: Executor
    cleaning: Executor


class Supervisor:
    """The loop body of ``spark-rtps receive``: :meth:`do_work` is called repeatedly, :meth:`drain` at the end."""

    def __init__(self, config: ReceiverServiceConfig, processes: Processes) -> None:
        """Resume the recorded subscriptions of the directory. Raises LogError if the records cannot be read."""
        self.config = config
        self._processes = processes
        self._server = ServerKeeper(config, start=processes.start_server, pool=processes.server)
        self._watch = TopicWatch(processes.join_domain)
        self._cleaning = Cleaning(processes.cleaning)
        self._keepers: dict[str, Keeper] = {}
        #: Subscriptions removed by the file or a client, until their receivers have ended.
        self._leaving: list[Keeper] = []
        self._records = read_records(config.directory)
        #: The records in the file; None: unknown, after a failed write.
        self._written: dict[str, LogRecord] | None = dict(self._records)
        self._is_unwritten = False
        #: The parts that failed at their last turn, and their errors: each failure is logged when it begins.
        self._failing: dict[str, str] = {}
        self._full: set[str] = set()
        #: Of each pattern the present topics that no option can hold, and how many were logged.
        self._refused: dict[str, set[str]] = {}
        self._refused_logged = 0
        for each in config.subscriptions:
            self._keep(each)
        self._take_up_records()
        self._write_records()

    @property
    def keepers(self) -> list[Keeper]:
        return list(self._keepers.values())

    @property
    def port(self) -> int | None:
        """Where the server listens; None while there is none."""
        return None if self._server.server is None else self._server.server.port

    def fileno(self) -> int | None:
        """Becomes readable when a client sends a request; None while there is no server."""
        return None if self._server.server is None else self._server.server.fileno()

    @property
    def is_ready(self) -> bool:
        """Whether the server listens and each subscription has been started once, successfully or not."""
        return self._server.server is not None and all(each.is_settled for each in self.keepers)

    @property
    def is_alive(self) -> bool:
        """Whether the service works, or is going to; single subscriptions that cannot run do not count."""
        return self._server.is_alive

    def do_work(self, now: int) -> None:
        """Do what is due. Raises RtpsError if the server could never start.

        Other errors concern only the part that raises them: the others continue.
        """
        try:
            self._server.do_work(now)
        except RtpsError:
            raise
        except Exception as error:  # noqa: BLE001
            self._server.failed(now, error)
        with self._alone("finding topics"):
            self._find_topics(now)
        self._write_records_or_say()  # before anything is received into a new log
        for each in (*self._keepers.values(), *self._leaving):
            _step(each, now)
        self._leaving = [each for each in self._leaving if each.phase is not Phase.ENDED]
        self._serve(now)
        with self._alone("removing old logs"):
            self._clean(now)

    def reload(self, config: ReceiverServiceConfig) -> list[str]:
        """Apply another configuration; unchanged subscriptions continue. Returns the changes, in words.

        Raises ReceiverFileError for a setting that cannot change while it runs; then nothing has changed.
        """
        if config.directory != self.config.directory:
            fix = f"cannot change while it runs (it is {self.config.directory}); restart the receiver"
            raise ReceiverFileError(config.file, "", "directory", fix)
        wanted_now = self._all_wanted_now(config)  # this may raise, before anything has changed
        old, self.config = self.config, config
        changes = []
        if any(getattr(old, name) != getattr(config, name) for name in _OF_SERVER):
            self._server.replace(config)
            changes.append("the server starts again")
        changes += self._reload_subscriptions(config, wanted_now)
        self._full.clear()
        self._refused.clear()
        self._refused_logged = 0
        return changes

    def drain(self, *, dispose: bool, patience: float, pause: Callable[[], None]) -> list[str]:
        """End everything in order; returns the backlog, a sentence for each group that is behind.

        ``dispose``: writers forget the readers at once; without, they wait for as long as the lease. ``pause`` is
        called
        between two checks, for ``patience`` seconds at most.
        """
        self._watch.close()
        for each in self.keepers:
            each.end_receiver(dispose=dispose)
        deadline = time.monotonic() + patience
        ending = [*self.keepers, *self._leaving]
        while any(each.phase is not Phase.ENDED for each in ending) and time.monotonic() < deadline:
            for each in ending:
                _step(each, time.monotonic_ns())
            pause()
        self._write_records_or_say()
        left = [
            f"{each.wanted.name}: its receiver has not ended"
            for each in ending
            if each.phase is not Phase.ENDED
        ]
        with self._alone("stopping the server"):
            self._server.stop()  # this writes the commits of groups
        return left + [sentence for each in self.keepers for sentence in what_is_left(each)]

    # --- subscriptions -----------------------------------------------------------------------------

    def _keep(self, subscription: Wanted) -> Keeper:
        """Keep a subscription running, on its earlier log if there is one."""
        name, record = subscription.name, self._records.get(subscription.name)
        log = str(uuid.uuid4()) if record is None else record.log
        if record is not None and self._needs_new_log(subscription, record):
            _log.error(
                "subscription %s has another topic or type than before: its old log %s stays as it is, and a NEW "
                "log begins, %s",
                name,
                record.log,
                log := str(uuid.uuid4()),
            )
            record = None
        keeper = Keeper(
            subscription,
            log,
            self.config.directory,
            is_new=record is None or record.is_new,
            start=self._processes.start_receiver,
            starts=self._processes.starts,
            stops=self._processes.stops,
        )
        self._keepers[name] = keeper
        return keeper

    def _needs_new_log(self, subscription: Wanted, record: LogRecord) -> bool:
        try:
            return subscription.needs_new_log(wanted(subscription.name, record.options))
        except Exception:  # noqa: BLE001  (options of another version)
            return False  # unknown; a receiver refuses a log of another topic when it starts

    def _take_up_records(self) -> None:
        """Resume clients' subscriptions, and topics that patterns found earlier."""
        patterns = {each.name: each for each in self.config.patterns}
        for name, record in self._records.items():
            if name in self._keepers or not (record.dynamic or record.pattern in patterns):
                continue
            try:
                if record.dynamic:
                    self._keep(wanted(name, record.options, dynamic=True))
                else:
                    self._take_up_topic(patterns[str(record.pattern)], name, record.options.get("topic", ""))
            except Exception as error:  # noqa: BLE001  (it may be of another version; the others continue)
                _log.error("subscription %s cannot be resumed: %s", name, error)

    def _take_up_topic(self, pattern: Wanted, name: str, topic: str) -> None:
        if matches(pattern.settings.topic, topic):
            options = {**pattern.options, "topic": topic}
            self._keep(wanted(name, options, pattern=pattern.name))

    def _all_wanted_now(self, config: ReceiverServiceConfig) -> dict[str, Wanted | None]:
        """Each kept subscription by this configuration; None: it ends. Raises RtpsError."""
        files = {each.name: each for each in config.subscriptions}
        patterns = {each.name: each for each in config.patterns}
        return {
            name: self._wanted_now(keeper.next_wanted, files, patterns)
            for name, keeper in self._keepers.items()
        }

    def _reload_subscriptions(
        self, config: ReceiverServiceConfig, wanted_now: dict[str, Wanted | None]
    ) -> list[str]:
        changes = []
        for name, next_one in wanted_now.items():
            keeper = self._keepers[name]
            if next_one is None:
                self._leave(name)
                changes.append(f"{name} ends; its log {keeper.directory} stays in case it is added again")
                continue
            if not next_one.is_like(keeper.next_wanted):
                changes.append(f"{name} has changed and starts again")
            keeper.replace(next_one)
        for each in config.subscriptions:
            if each.name not in self._keepers:
                self._keep(each)
                changes.append(f"{each.name} is new")
        return changes

    def _wanted_now(
        self, old: Wanted, files: dict[str, Wanted], patterns: dict[str, Wanted]
    ) -> Wanted | None:
        if old.name in files:
            return files[old.name]
        if old.dynamic:
            return old
        pattern = patterns.get(old.pattern or "")
        if pattern is None or not matches(pattern.settings.topic, old.settings.topic):
            return None
        return wanted(old.name, {**pattern.options, "topic": old.settings.topic}, pattern=pattern.name)

    def _leave(self, name: str) -> None:
        self._keepers[name].end_receiver(dispose=True)
        self._leaving.append(self._keepers.pop(name))

    # --- patterns ----------------------------------------------------------------------------------

    def _find_topics(self, now: int) -> None:
        networks = {each.name: network_of(each.settings) for each in self.config.patterns}
        topics = self._watch.topics_now(networks.values(), now)
        for pattern in self.config.patterns:
            found = topics.get(networks[pattern.name])
            if found is None:  # the next look is not due yet
                continue
            with self._alone(f"finding topics of the pattern {pattern.name}"):
                self._add_topics(pattern, {each for each in found if matches(pattern.settings.topic, each)})

    def _add_topics(self, pattern: Wanted, found: set[str]) -> None:
        mine = {each.wanted.settings.topic for each in self.keepers if each.wanted.pattern == pattern.name}
        # a peer may have thousands of them, and each look finds all of them again
        refused = self._refused[pattern.name] = self._refused.get(pattern.name, set()) & found
        for topic in sorted(found - mine - refused):
            if len(mine) >= PATTERN_TOPICS_MAX or len(self._keepers) >= SUBSCRIPTIONS_MAX:
                if pattern.name not in self._full:
                    self._full.add(pattern.name)
                    _log.error(
                        "pattern %s (%s) has %d topics; others, such as %r, are not received",
                        pattern.name,
                        pattern.settings.topic,
                        len(mine),
                        topic[:80],
                    )
                return
            (mine if self._add_topic(pattern, topic) else refused).add(topic)

    def _add_topic(self, pattern: Wanted, topic: str) -> bool:
        """Receive a topic that was found; False: no option can hold its name."""
        try:
            if topic != topic.strip() or "\0" in topic:
                fix = "begins or ends with a blank, which options leave out, or has a NUL"
                raise OptionError("topic", topic, fix)
            name = self._name_of_topic(pattern, topic)
            subscription = wanted(name, {**pattern.options, "topic": topic}, pattern=pattern.name)
        except Exception as error:  # noqa: BLE001  (the topics after it are received)
            if self._refused_logged < _REFUSED_LOGGED_MAX:
                self._refused_logged += 1
                _log.warning("pattern %s: topic %r is not received: %s", pattern.name, topic[:80], error)
            return False
        self._keep(subscription)
        _log.info("pattern %s: found %r, subscription %s", pattern.name, topic, name)
        return True

    def _name_of_topic(self, pattern: Wanted, topic: str) -> str:
        """The name of its earlier subscription, or a new one."""
        earlier = (
            n
            for n, r in self._records.items()
            if r.pattern == pattern.name and r.options.get("topic") == topic
        )
        return next(earlier, None) or name_for(topic, {**self._records, **self._keepers}, under=pattern.name)

    # --- clients -----------------------------------------------------------------------------------

    def _serve(self, now: int) -> None:
        """Send the server the subscriptions, and take the requests of clients."""
        try:
            self._tell()
            requests = self._server.requests()
        except Exception as error:  # noqa: BLE001
            self._server.failed(now, error)
            return
        for request in requests:
            with self._alone("answering a client"):
                self._take_request(request)

    def _take_request(self, request: Request) -> None:
        try:
            if request.op == "subscribe":
                name = self._subscribe(dict(request.options))
            else:
                name = self._unsubscribe(request.name)
        except RtpsError as error:
            self._server.send_answer(request, error=str(error))
            return
        except Exception as error:  # noqa: BLE001  (the client gets the error)
            _log.exception("the request of a client to %s failed", request.op)
            self._server.send_answer(request, error=f"unexpected error: {error!r}")
            return
        self._tell()
        self._server.send_answer(request, name=name)

    def _subscribe(self, options: dict[str, str]) -> str:
        asked = wanted_by_client("asked", options, self.config.defaults)
        for each in self.keepers:
            if each.next_wanted.receives_for(asked):
                return each.wanted.name
        if sum(each.wanted.dynamic for each in self.keepers) >= DYNAMIC_MAX:
            fix = f"{DYNAMIC_MAX} subscriptions of clients exist already; remove unused ones"
            raise OptionError("topic", asked.settings.topic, fix)
        if len(self._keepers) >= SUBSCRIPTIONS_MAX:
            fix = f"{SUBSCRIPTIONS_MAX} subscriptions exist already; remove some"
            raise OptionError("topic", asked.settings.topic, fix)
        taken = {**self._records, **self._keepers}
        name = name_for(asked.settings.topic, taken)
        self._keep(dataclasses.replace(asked, name=name))
        try:
            self._write_records()  # a restart must not forget a confirmed subscription
        except BaseException:
            del self._keepers[name]  # it has not started
            self._records.pop(name, None)
            self._written = None
            raise
        _log.info("subscription %s: a client asked for topic %r", name, asked.settings.topic)
        return name

    def _unsubscribe(self, name: str) -> str:
        keeper = self._keepers.get(name)
        if keeper is None:
            raise OptionError("receiver.subscription", name, "there is no such subscription")
        if not keeper.wanted.dynamic:
            fix = "is a subscription of the receiver's file; remove it there, and send SIGHUP"
            raise OptionError("receiver.subscription", name, fix)
        records = self._records
        self._records = {each: record for each, record in records.items() if each != name}
        try:
            self._write_records(without=name)
        except BaseException:
            self._records, self._written = records, None
            raise
        self._leave(name)
        _log.info("subscription %s: a client removed it; its log %s stays", name, keeper.directory)
        return name

    # --- logs without a subscription ----------------------------------------------------------------

    def _clean(self, now: int) -> None:
        keepers = {each.log for each in (*self._keepers.values(), *self._leaving)}
        # a client's subscription ends when a client removes it, not when this version cannot resume it
        of_clients = {each.log for each in self._records.values() if each.dynamic}
        gone = self._cleaning.do_work(self.config, in_use=keepers | of_clients, now=now)
        if gone:  # a subscription that is added again gets a new log
            self._records = {name: each for name, each in self._records.items() if each.log not in gone}

    # --- records, and the server's knowledge -------------------------------------------------------------

    def _write_records(self, *, without: str | None = None) -> None:
        for name, keeper in self._keepers.items():
            if name != without:
                w = keeper.wanted
                self._records[name] = LogRecord(keeper.log, w.options, w.dynamic, w.pattern, keeper.is_new)
        if self._records != self._written:
            write_records(self.config.directory, self._records)
            self._written = dict(self._records)

    def _write_records_or_say(self) -> None:
        try:
            self._write_records()
        except Exception as error:  # noqa: BLE001  (the running receivers continue)
            if not self._is_unwritten:
                _log.error("%s; a restart would not find new logs", error)
            self._is_unwritten = True
        else:
            self._is_unwritten = False

    def _tell(self) -> None:
        self._server.tell([describe(each) for each in self.keepers])

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        """A failure in this part does not affect the others; it is logged when it begins, and not at each turn."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            if self._failing.get(what) != repr(error):
                self._failing[what] = repr(error)
                _log.exception("%s failed; everything else continues", what)
        else:
            self._failing.pop(what, None)


def _step(keeper: Keeper, now: int) -> None:
    try:
        keeper.do_work(now)
    except Exception as error:  # noqa: BLE001  (it concerns this subscription alone)
        keeper.failed(now, error)


def what_is_left(keeper: Keeper) -> Iterator[str]:
    """Sentences about the groups that have not read all of a log."""
    position = read_counters(keeper.directory).get("log.position", 0)
    for behind in groups_behind(keeper.directory, position):
        group = f"group {behind.group} is {behind.nbytes:,} bytes behind"
        yield f"{keeper.wanted.name} (topic {keeper.wanted.settings.topic!r}): {group}"
