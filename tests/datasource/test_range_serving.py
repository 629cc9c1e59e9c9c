"""When a query's log server runs, what it serves, and what tasks are told of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.datasource.range_serving import RangeServing
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.serving.server.process import LogServerConfig
from spark_rtps.transport.errors import OptionError, TransportError
from spark_rtps.transport.net.interfaces import Interface

LOGS = ["0b5ac1b4-8d0c-4a0c-9a3e-2f8ad77ef5b1", "7d5e4c5f-93a5-4d86-8c5c-0a8f8b0d6a11"]


class FakeServer:
    def __init__(self, config: LogServerConfig, *, crossed: Callable[[str], None]) -> None:
        self.config = config
        self.crossed = crossed
        self.port = config.port or 40_001
        self.logs: list[str] = []
        self.started = self.stopped = False

    def serve(self, log: str) -> None:
        self.logs.append(log)

    def start(self) -> None:
        self.started = True

    def stop(self) -> None:
        self.stopped = True


class Scene:
    def __init__(self, fails: str = "", **options: str) -> None:
        given = {key.replace("_", "."): value for key, value in options.items()}
        self.fails = fails
        self.servers: list[FakeServer] = []
        self.serving = RangeServing(
            parse_options({"topic": "T", **given}, AppliesTo.READ), listen=self._listen
        )

    def _listen(self, config: LogServerConfig, *, crossed: Callable[[str], None]) -> FakeServer:
        server = FakeServer(config, crossed=crossed)
        if self.fails:

            def start() -> None:
                raise TransportError(self.fails)

            server.start = start  # type: ignore[method-assign]
        self.servers.append(server)
        return server


LO, ETH, WLAN = Interface("lo", "127.0.0.1"), Interface("eth0", "10.1.0.5"), Interface("wlan0", "10.2.0.5")


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the interfaces of this host."""

    def there(*up: Interface) -> None:
        monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
        for module in ("spark_rtps.datasource.range_serving", "spark_rtps.serving.server.listening"):
            monkeypatch.setattr(f"{module}.interfaces", lambda: list(up))
        monkeypatch.setattr("spark_rtps.transport.net.interfaces.interfaces", lambda: list(up))
        monkeypatch.setattr("spark_rtps.serving.server.listening._routed", lambda: None)

    return there


def test_serve_address_none_starts_no_server() -> None:
    s = Scene(serve_address="none")
    assert s.serving.served(LOGS[0]) is None
    assert not s.servers


@pytest.mark.parametrize(
    ("up", "options", "bound", "reported"),
    [
        ((LO, ETH, WLAN), {}, "0.0.0.0", ("10.1.0.5", "10.2.0.5")),
        ((LO, ETH), {"interface": "eth0"}, "0.0.0.0", ("10.1.0.5",)),
        ((LO, ETH), {"interface": "lo"}, "127.0.0.1", ("127.0.0.1",)),
        ((LO, ETH), {"interface": "127.0.0.1"}, "127.0.0.1", ("127.0.0.1",)),
        ((LO, ETH), {"interface": "127.7.0.1"}, "127.0.0.1", ("127.0.0.1",)),
        ((LO,), {}, "127.0.0.1", ("127.0.0.1",)),
        ((), {}, "127.0.0.1", ("127.0.0.1",)),
        ((LO, ETH), {"serve_address": "auto"}, "0.0.0.0", ("10.1.0.5",)),
        ((LO, ETH), {"serve_address": "0.0.0.0", "interface": "lo"}, "0.0.0.0", ("10.1.0.5",)),
        ((LO, ETH), {"serve_address": "10.9.9.9"}, "10.9.9.9", ("10.9.9.9",)),
        ((LO,), {"serve_address": "0.0.0.0"}, "0.0.0.0", ("127.0.0.1",)),
    ],
)
def test_tasks_get_the_address_the_server_listens_at(
    there: Callable[..., None], up: Any, options: dict[str, str], bound: str, reported: tuple[str, ...]
) -> None:
    there(*up)
    s = Scene(serve_port="7420", **options)
    served = s.serving.served(LOGS[0])
    (server,) = s.servers
    assert (server.config.address, server.config.port) == (bound, 7420)
    assert served is not None and served.addresses == tuple(f"{host}:7420" for host in reported)
    assert (served.network is not None) == (reported == ("127.0.0.1",))


def test_a_query_on_loopback_is_reached_at_loopback_alone() -> None:
    serving = RangeServing(parse_options({"topic": "T", "interface": "lo"}, AppliesTo.READ))
    try:
        served = serving.served(LOGS[0])
        assert served is not None
        (address,) = served.addresses
        port = int(address.removeprefix("127.0.0.1:"))
        listening = [line.split()[1] for line in Path("/proc/self/net/tcp").read_text().splitlines()]
        assert [each for each in listening if each.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]
    finally:
        serving.stop()


def test_spark_s_own_address_comes_first(there: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    there(LO, ETH, WLAN)
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.2.0.5")
    served = Scene().serving.served(LOGS[0])
    assert served is not None and served.addresses == ("10.2.0.5:40001", "10.1.0.5:40001")


def test_addresses_are_looked_at_again_after_a_while(
    there: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("spark_rtps.datasource.range_serving.time.monotonic", lambda: now)
    serving = Scene().serving
    for at, up, reported in (
        (100.0, ETH, "10.1.0.5:40001"),
        (104.9, WLAN, "10.1.0.5:40001"),
        (105.0, WLAN, "10.2.0.5:40001"),
    ):
        there(LO, up)
        now = at
        served = serving.served(LOGS[0])
        assert served is not None and served.addresses == (reported,)


def test_one_server_serves_the_logs_of_a_query(there: Callable[..., None]) -> None:
    there(LO)
    s = Scene()
    first, again, other = (s.serving.served(log) for log in (LOGS[0], LOGS[0], LOGS[1]))
    (server,) = s.servers
    assert first == again == other
    assert first is not None and first.addresses == ("127.0.0.1:40001",) and first.ca is None
    assert len(bytes.fromhex(first.token)) == 32 and first.token == server.config.token
    assert list(dict.fromkeys(server.logs)) == LOGS


def test_a_server_ends_with_its_query_and_has_a_token_of_its_own(there: Callable[..., None]) -> None:
    there(LO)
    one, two = Scene(), Scene()
    tokens = {served.token for s in (one, two) if (served := s.serving.served(LOGS[0])) is not None}
    assert len(tokens) == 2
    one.serving.stop()
    one.serving.stop()
    assert one.servers[0].stopped


def test_a_server_starts_at_once_only_with_options_that_may_be_wrong(
    there: Callable[..., None], pem: str
) -> None:
    there(LO, ETH)
    for options, at_once in (
        ({}, False),
        ({"serve_port": "7420"}, False),
        ({"serve_address": "10.1.0.5"}, True),
        ({"serve_certificate": pem, "serve_key": pem}, True),
    ):
        s = Scene(**options)
        s.serving.served(LOGS[0])
        assert s.servers[0].started is at_once


def test_a_server_that_cannot_start_is_stopped_and_retried(there: Callable[..., None]) -> None:
    there(LO, ETH)
    s = Scene(fails="no room", serve_address="10.1.0.5")
    for number in range(2):
        with pytest.raises(TransportError, match="no room"):
            s.serving.served(LOGS[0])
        assert s.servers[number].stopped


@pytest.fixture
def pem(tmp_path: Path) -> str:
    """A file with two certificates, and a key between them."""
    block = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n"
    one, other = block.format("CERTIFICATE"), block.format("CERTIFICATE").replace("AAAA", "BBBB")
    file = tmp_path / "serve.pem"
    file.write_text(one + block.format("PRIVATE KEY") + other)
    return str(file)


def test_only_certificates_of_a_file_with_the_key_are_sent(pem: str) -> None:
    served = Scene(serve_certificate=pem, serve_key=pem).serving.served(LOGS[0])
    assert served is not None and served.ca is not None
    assert served.ca.count("BEGIN CERTIFICATE") == 2 and "PRIVATE" not in served.ca


def test_a_server_warns_only_of_unencrypted_fetches_by_other_hosts(
    there: Callable[..., None], pem: str, caplog: pytest.LogCaptureFixture
) -> None:
    there(LO, ETH)
    with caplog.at_level(logging.WARNING):
        for options in ({"serve_certificate": pem, "serve_key": pem}, {}):
            s = Scene(**options)
            s.serving.served(LOGS[0])
            assert not caplog.records
            s.servers[0].crossed("10.1.0.11")
    (record,) = caplog.records
    assert "10.1.0.11" in record.getMessage() and "serve.certificate" in record.getMessage()


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    s = Scene(
        serve_address="127.0.0.1", serve_certificate=str(tmp_path / "no.pem"), serve_key=str(tmp_path / "k")
    )
    with pytest.raises(OptionError, match=r"serve\.certificate"):
        s.serving.served(LOGS[0])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"serve.port": "7420", "serve.address": "none"}, "serve.port"),
        ({"serve.certificate": "c", "serve.key": "k", "serve.address": "none"}, "serve.certificate"),
        ({"serve.address": "edge1"}, "serve.address"),
        ({"serve.address": "127.0.0.1", "serve.key": "k.pem"}, "serve.key"),
        ({"serve.address": "127.0.0.1", "serve.certificate": "c.pem"}, "serve.certificate"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        parse_options({"topic": "T", **options}, AppliesTo.READ)
