"""Which scenarios are held against each other: the sections of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from spark_rtps.transport.protocol.policies import BATCH_POLICY, READER_POLICY, WRITER_POLICY, BatchPolicy
from tests.simulation.network import MS, US, Link
from tests.simulation.scenarios import Scenario

LOSSES: Final = (0.0, 0.01, 0.05, 0.10, 0.20, 0.30)
READERS: Final = (1, 4, 16, 64)
#: About as many deliveries for every number of readers.
_SEEDS: Final = {1: 12, 4: 6, 8: 4, 16: 3, 64: 2}

#: Nobody keeps a request or a repair back.
UNSUPPRESSED_WRITER: Final = replace(WRITER_POLICY, nack_suppression_duration=0, max_nack_response_delay=0)
UNSUPPRESSED_READER: Final = replace(READER_POLICY, round_trip_time=0)
#: RTI's own defaults (0 to 0.5 s) are meant for thousands of readers.
SPREAD_READER: Final = replace(READER_POLICY, max_heartbeat_response_delay=50 * MS)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: what is special about it, and the scenario."""

    label: dict[str, str]
    scenario: Scenario

    @property
    def seeds(self) -> range:
        readers = self.scenario.readers + self.scenario.late_readers
        return range(1, 1 + next(count for most, count in _SEEDS.items() if readers <= most or most == 64))


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    title: str
    columns: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)


TRAFFIC: Final = ("repairs", "heartbeats", "ACKNACKs", "NACKs", "duplicates")
LATENCY: Final = ("p50", "p99", "max")
LATE: Final = ("copies", "ACKNACKs", "NACKs", "duplicates", "late p50", "late max", *LATENCY)
BATCHES: Final = (
    "wire bytes",
    "datagrams",
    "repairs",
    "heartbeats",
    "ACKNACKs",
    "NACKs",
    "ack bytes",
    "batches",
    "heartbeat batches",
    "acknack batches",
)


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _loss() -> Iterator[Row]:
    for readers in READERS:
        for loss in LOSSES:
            label = {"readers": str(readers), "loss": _percent(loss)}
            yield Row(label, Scenario(Link(loss=loss), readers))


def _delay() -> Iterator[Row]:
    for loss in (0.0, 0.05):
        for delay, round_trip_time in (
            (100 * US, 20),
            (MS, 20),
            (10 * MS, 20),
            (50 * MS, 20),
            (50 * MS, 200),
        ):
            for jitter in (0, delay):
                label = {
                    "loss": _percent(loss),
                    "delay": f"{delay / MS:g} ms",
                    "jitter": f"{jitter / MS:g} ms",
                    "round_trip_time": f"{round_trip_time} ms",
                }
                reader = replace(READER_POLICY, round_trip_time=round_trip_time * MS)
                yield Row(label, Scenario(Link(loss=loss, delay=delay, jitter=jitter), 8, reader=reader))


def _suppression() -> Iterator[Row]:
    policies = (
        ("nobody", UNSUPPRESSED_WRITER, UNSUPPRESSED_READER),
        ("reader", UNSUPPRESSED_WRITER, READER_POLICY),
        ("writer", WRITER_POLICY, UNSUPPRESSED_READER),
        ("both", WRITER_POLICY, READER_POLICY),
    )
    for readers in (1, 16, 64):
        for name, writer, reader in policies:
            link = Link(delay=5 * MS, jitter=MS, loss=0.10)
            scenario = Scenario(link, readers, samples=1_000, writer=writer, reader=reader)
            yield Row({"readers": str(readers), "suppresses": name}, scenario)


def _response() -> Iterator[Row]:
    for loss in (0.0, 0.10):
        for name, reader in (("0", READER_POLICY), ("0 to 50 ms", SPREAD_READER)):
            label = {"loss": _percent(loss), "response delay": name}
            yield Row(label, Scenario(Link(loss=loss), 64, reader=reader))


def _late() -> Iterator[Row]:
    policies = (
        ("5 ms", WRITER_POLICY),
        ("200 ms", replace(WRITER_POLICY, nack_suppression_duration=200 * MS)),
    )
    for late in (1, 16, 64):
        for loss in (0.0, 0.10):
            for name, writer in policies:
                label = {"late joiners": str(late), "loss": _percent(loss), "suppression": name}
                yield Row(label, Scenario(Link(loss=loss), 1, late_readers=late, writer=writer))


def _positive_acks() -> Iterator[Row]:
    writer, reader = (
        replace(policy, disable_positive_acks=True) for policy in (WRITER_POLICY, READER_POLICY)
    )
    patient = replace(writer, disable_positive_acks_min_sample_keep_duration=100 * MS)
    policies = (
        ("yes", WRITER_POLICY, READER_POLICY),
        ("disabled, kept 1 ms", writer, reader),
        ("disabled, kept 100 ms", patient, reader),
    )
    for loss in (0.0, 0.05):
        for name, writer, reader in policies:
            label = {"loss": _percent(loss), "positive ACKNACKs": name}
            yield Row(label, Scenario(Link(loss=loss), 16, writer=writer, reader=reader))


def _batches() -> Iterator[Row]:
    batch = BatchPolicy(enable=True, max_data_bytes=1_200, max_flush_delay=MS)
    forms = (
        ("one a datagram", 1, BATCH_POLICY, 0),
        ("coalesced DATA", 100, BATCH_POLICY, 0),
        ("DATA_BATCH", 1, batch, 0),
        ("DATA_BATCH and DATA", 1, batch, 2),
        ("turbo_mode", 1, BatchPolicy(turbo_mode=True), 0),
    )
    for loss in (0.0, 0.05, 0.20):
        for name, burst, policy, plain in forms:
            label = {"loss": _percent(loss), "sent as": name}
            period = burst * 10 * US
            link = Link(loss=loss)
            yield Row(label, Scenario(link, 4, plain_readers=plain, burst=burst, period=period, batch=policy))


def sections() -> list[Section]:
    """All sections, in the order of the document."""
    return [
        Section("loss", "Loss and readers", ("least", *TRAFFIC, *LATENCY), list(_loss())),
        Section("delay", "Delay and reorder", ("least", *TRAFFIC, *LATENCY), list(_delay())),
        Section("suppression", "Repair storms", (*TRAFFIC, "peak repairs", *LATENCY), list(_suppression())),
        Section("response", "ACKNACK storms", (*TRAFFIC, "peak ACKNACKs", *LATENCY), list(_response())),
        Section("late", "Late joiners", LATE, list(_late())),
        Section("acks", "Positive acknowledgements", (*TRAFFIC, "lost", *LATENCY), list(_positive_acks())),
        Section("batch", "Batches", (*BATCHES, *LATENCY), list(_batches())),
    ]
