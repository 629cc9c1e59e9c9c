"""When a query's range server runs, what it serves, and what tasks are told of it."""

from __future__ import annotations

import logging

import pytest

from spark_rtps.datasource.range_serving import RangeServing
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.serving.process import RangeServerConfig
from spark_rtps.transport.errors import OptionError, RtpsError
from spark_rtps.transport.net.interfaces import Interface

LOGS = ["0b5ac1b4-8d0c-4a0c-9a3e-2f8ad77ef5b1", "7d5e4c5f-93a5-4d86-8c5c-0a8f8b0d6a11"]


class FakeServer:
    def __init__(self, config: RangeServerConfig) -> None:
        self.config = config
        self.port = config.port or 40_001
        self.logs: list[str] = []
        self.dead = self.stopped = False

    def serve(self, log: str) -> None:
        self.logs.append(log)

    def check(self) -> None:
        if self.dead:
            raise RtpsError("the range server ended: killed")

    def stop(self) -> None:
        self.stopped = True


class Scene:
    def __init__(self, **options: str) -> None:
        given = {key.replace("_", "."): value for key, value in options.items()}
        self.started: list[FakeServer] = []
        self.serving = RangeServing(parse_options({"topic": "T", **given}, AppliesTo.READ), start=self._start)

    def _start(self, config: RangeServerConfig) -> FakeServer:
        self.started.append(FakeServer(config))
        return self.started[-1]


def test_without_an_address_nothing_is_served() -> None:
    s = Scene()
    assert s.serving.served(LOGS[0]) is None
    assert not s.started


def test_one_server_serves_the_logs_of_a_query_and_each_is_told_once() -> None:
    s = Scene(serve_address="127.0.0.1")
    first, again, other = (s.serving.served(log) for log in (LOGS[0], LOGS[0], LOGS[1]))
    (server,) = s.started
    assert first == again == other
    assert first is not None and first.addresses == ("127.0.0.1:40001",) and first.ca is None
    assert len(bytes.fromhex(first.token)) == 32 and first.token == server.config.token
    assert server.logs == LOGS


def test_one_that_died_is_started_again_at_its_port_with_its_token() -> None:
    s = Scene(serve_address="127.0.0.1")
    before = s.serving.served(LOGS[0])
    s.started[0].dead = True
    assert s.serving.served(LOGS[1]) == before
    old, new = s.started
    assert old.stopped
    assert (new.config.port, new.config.token) == (40_001, old.config.token)
    assert new.logs == LOGS


def test_it_ends_with_the_query_and_two_queries_have_two_tokens() -> None:
    one, two = Scene(serve_address="127.0.0.1"), Scene(serve_address="127.0.0.1")
    tokens = {served.token for s in (one, two) if (served := s.serving.served(LOGS[0])) is not None}
    assert len(tokens) == 2
    one.serving.stop()
    one.serving.stop()
    assert one.started[0].stopped


LO, ETH, WLAN = Interface("lo", "127.0.0.1"), Interface("eth0", "10.1.0.5"), Interface("wlan0", "10.2.0.5")


@pytest.mark.parametrize(
    ("there", "told"), [([LO, ETH, WLAN], ("10.1.0.5:7420", "10.2.0.5:7420")), ([LO], ("127.0.0.1:7420",))]
)
def test_all_addresses_that_others_reach_are_told(there, told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_rtps.datasource.range_serving.interfaces", lambda: there)
    served = Scene(serve_address="0.0.0.0", serve_port="7420").serving.served(LOGS[0])
    assert served is not None and served.addresses == told


def test_of_a_file_with_the_key_only_the_certificates_travel(tmp_path) -> None:
    block = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n"
    one, other = block.format("CERTIFICATE"), block.format("CERTIFICATE").replace("AAAA", "BBBB")
    file = tmp_path / "serve.pem"
    file.write_text(one + block.format("PRIVATE KEY") + other)
    served = Scene(
        serve_address="127.0.0.1", serve_certificate=str(file), serve_key=str(file)
    ).serving.served(LOGS[0])
    assert served is not None and served.ca == one + other.rstrip()


def test_in_the_clear_across_hosts_it_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    s = Scene(serve_address="0.0.0.0")
    with caplog.at_level(logging.WARNING):
        for log in LOGS:
            s.serving.served(log)
    (record,) = caplog.records
    assert "serve.certificate" in record.getMessage()
    caplog.clear()
    Scene(serve_address="127.0.0.1").serving.served(LOGS[0])
    assert not caplog.records


def test_a_certificate_that_cannot_be_read_is_named(tmp_path) -> None:
    s = Scene(
        serve_address="127.0.0.1", serve_certificate=str(tmp_path / "no.pem"), serve_key=str(tmp_path / "k")
    )
    with pytest.raises(OptionError, match=r"serve\.certificate"):
        s.serving.served(LOGS[0])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"serve.port": "7420"}, "serve.port"),
        ({"serve.address": "edge1"}, "serve.address"),
        ({"serve.address": "127.0.0.1", "serve.key": "k.pem"}, "serve.key"),
        ({"serve.address": "127.0.0.1", "serve.certificate": "c.pem"}, "serve.certificate"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        parse_options({"topic": "T", **options}, AppliesTo.READ)
