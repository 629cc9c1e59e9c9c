"""Receivers that share one topic's writers by slices, with Cyclone DDS: everything, once, and no writer blocks."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from spark_rtps.receiver_service.backlog import read_counters
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.protocol.participant.slices import slice_of
from spark_rtps.transport.structure import Guid
from tests.receiver_service.receive_scene import CYCLONE, DOMAIN
from tests.support.numbered_samples import numbers_of
from tests.support.receive_command import Receive
from tests.support.waiting import wait_until

WRITERS, NUMBERS = 6, 300
TOKEN = "of-all-receivers-of-a-query-0123456789"


def subscription(name: str, part: str, more: str = "") -> str:
    return (
        f'[subscriptions.{name}]\ntopic = "Sliced"\nslice = "{part}"\nreliability = "reliable"\n'
        f'history = "keep_all"\n{more}'
    )


@contextlib.contextmanager
def written(readers: int) -> Iterator[None]:
    """Each writer has written all its numbers, to so many readers."""
    script = Path(__file__).with_name("sliced_writers.py")
    arguments = ("Sliced", DOMAIN, WRITERS, NUMBERS, readers)
    with subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        env={**os.environ, "CYCLONEDDS_URI": CYCLONE},
    ) as child:
        try:
            assert child.stdout is not None
            assert len(child.stdout.readline().split()) == WRITERS  # nothing, if a write has failed
            yield
        finally:
            child.kill()


def found(receive: Receive, name: str) -> dict[Guid, list[tuple[int, int]]]:
    """What a subscription has got of each writer."""
    got: dict[Guid, list[tuple[int, int]]] = defaultdict(list)
    if position := receive.position(name):
        for frame in LogView(receive.log(name)).frames(Cursor(0), Cursor(position)):
            got[frame.run.writer] += numbers_of(frame.run.samples())
    return got


def is_whole(got: dict[Guid, list[tuple[int, int]]]) -> bool:
    """Whether there are all numbers of all writers, each once and in order."""
    expected = [[(source, number) for number in range(NUMBERS)] for source in range(WRITERS)]
    return sorted(got.values()) == expected


def drops_some(log: Path) -> bool:
    """Whether anything of other slices was dropped."""
    return read_counters(log)["reader.of_other_slices"] > 0


#: So little room in the socket that datagrams are lost.
TIGHT = 'receive_buffer = "4KiB"\n'


@pytest.mark.parametrize(("count", "more"), [(1, ""), (2, ""), (4, ""), (2, TIGHT)])
def test_slices_together_get_everything_once(receive: Receive, count: int, more: str) -> None:
    names = [f"part-{index}" for index in range(count)]
    receive.start("".join(subscription(name, f"{index}/{count}", more) for index, name in enumerate(names)))
    with written(count):
        total = WRITERS * NUMBERS

        def arrived() -> int:
            return sum(len(some) for name in names for some in found(receive, name).values())

        wait_until(lambda: arrived() >= total, receive.printed, every=0.2)
        parts = [found(receive, name) for name in names]
        assert is_whole({writer: some for part in parts for writer, some in part.items()}), receive.printed()
        for index, (part, name) in enumerate(zip(parts, names, strict=True)):
            assert {slice_of(writer, count) for writer in part} <= {index}
            counters = read_counters(receive.log(name))
            assert counters["reader.lost_samples"] == 0
            # not how many: what is lost on the way to those who only acknowledge it is not sent to them again
            if sum(map(len, part.values())) < total:
                wait_until(partial(drops_some, receive.log(name)), receive.printed)
            else:
                assert counters["reader.of_other_slices"] == 0
            assert counters["status.subscription_matched.current_count"] == len(part)
    # what is dropped is nothing that was lost, and no error of anybody
    assert "error" not in receive.printed().lower()


def test_a_slice_that_is_killed_goes_on_where_it_was(receive: Receive) -> None:
    receive.start(subscription("a", "0/2") + subscription("b", "1/2"))
    with written(2):
        wait_until(lambda: is_whole(found(receive, "a") | found(receive, "b")), receive.printed, every=0.2)
        assert receive.kill(signal.SIGKILL) != 0
        receive.start_again()
        assert is_whole(found(receive, "a") | found(receive, "b"))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def test_a_query_of_two_sliced_receivers(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from spark_rtps.columns.topic_plan import BINARY_SCHEMA, plan_reading
    from spark_rtps.datasource.receiver_service_stream_reader import ReceiverServiceStreamReader
    from spark_rtps.options import AppliesTo, parse_options

    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    with contextlib.ExitStack() as opened:
        receivers = {}
        for index, name in enumerate("ab"):
            (tmp_path / name).mkdir()
            each = receivers[name] = Receive(tmp_path / name, DOMAIN, free_port())
            opened.callback(each.close)
            each.start(f'[tokens]\ncommit = "{token}"\n' + subscription("sliced", f"{index}/2"))
        opened.enter_context(written(2))
        given = {
            "topic": "Sliced",
            "payload": "binary",
            "receivers": ",".join(f"{name}=127.0.0.1:{each.port}" for name, each in receivers.items()),
            "receiver.token": TOKEN,
            "startingOffsets": "earliest",
        }
        settings = parse_options(given, AppliesTo.READ)
        reader = ReceiverServiceStreamReader(settings, plan_reading(settings, BINARY_SCHEMA, None))
        offset, got = reader.initialOffset(), defaultdict(list)

        def read_on() -> bool:
            nonlocal offset
            end = reader.latestOffset(offset, ReadAllAvailable())
            for part in reader.partitions(offset, end):
                for batch in reader.read(part):
                    for row in batch.to_pylist():
                        value = row["value"]
                        numbers = int.from_bytes(value[4:8], "little"), int.from_bytes(value[8:12], "little")
                        got[row["writer"]].append(numbers)
            offset = end
            return sum(map(len, got.values())) >= WRITERS * NUMBERS

        wait_until(read_on, lambda: str(len(got)), every=0.2)
        assert is_whole(got)
        reader.stop()
