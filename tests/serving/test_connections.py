"""Connections that are kept from request to request."""

from __future__ import annotations

import socket

from spark_rtps.serving.client import connections
from spark_rtps.serving.wire_format.served import Served


def test_a_connection_is_kept_to_each_of_many_receivers() -> None:
    kept = []
    for number in range(70):
        served = Served((f"10.0.0.{number}:7420",), "token")
        connection = connections.take(served, served.addresses[0])
        connection.sock = socket.socket()
        connections.keep(served, connection)
        kept.append((served, connection))
    for served, connection in kept[-64:]:
        assert connections.take(served, served.addresses[0]) is connection
        connection.close()
    for served, connection in kept[:6]:
        assert connections.take(served, served.addresses[0]) is not connection
        assert connection.sock is None
