"""Everything that a query of receiver services needs is killed, at random moments, while writers number their samples.

``python -m tests.cluster.kills [--samples N] [--rate R] [--seed S]`` is the long form: by default three writers of a
million samples each. It prints each kill, and what was lost and doubled at the end.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.cluster.copied import CopyingQuery, Counted
from tests.cluster.driver import Driver
from tests.cluster.edges import Hosts, Plant, connect, hosts
from tests.cluster.standalone import WORKERS
from tests.support.waiting import wait_until

WRITERS: Final = 3
_EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend\0"
#: An executor that dies costs its tasks one try of four.
_SETTINGS: Final = {"spark.task.maxFailures": "4"}


class Kills:
    """Kills what is there, in turns: each kind once in random order, then all again."""

    def __init__(self, plant: Plant, query: CopyingQuery, seed: int) -> None:
        self.chance = random.Random(seed)
        self.done: Counter[str] = Counter()
        self._waiting: list[str] = []
        self._cluster = plant.cluster
        self._query = query
        self._batches = 0
        self._victims: dict[str, Callable[[], bool]] = {"driver": lambda: self._kill_of_spark(query.kill)}
        if plant.cluster.is_cluster:
            self._victims["executor"] = lambda: self._kill_of_spark(self._kill_executor)
        for edge in plant.edges:
            self._victims[f"receiver {edge.name}"] = edge.kill_receiver
            self._victims[f"server {edge.name}"] = edge.kill_server
            self._victims[f"supervisor {edge.name}"] = edge.kill_supervisor

    @property
    def missing(self) -> set[str]:
        """Kinds of which none has been killed yet."""
        return {name.partition(" ")[0] for name in self._victims} - set(self.done)

    def kill_one(self) -> str:
        """Kill the next one; returns which, with a note if there was nothing to kill just now."""
        if not self._waiting:
            self._waiting = list(self._victims)
            self.chance.shuffle(self._waiting)
        name = self._waiting.pop()
        if not self._victims[name]():
            return f"({name} is not at work just now)"
        self.done[name.partition(" ")[0]] += 1
        return name

    def _kill_of_spark(self, kill: Callable[[], bool]) -> bool:
        """Not before a batch was done since the last one: a task that is lost four times ends the query."""
        if self._query.done <= self._batches or not kill():
            return False
        self._batches = self._query.done
        return True

    def _kill_executor(self) -> bool:
        found = [pid for worker in WORKERS for pid in self._cluster.with_words(_EXECUTOR, worker)]
        return bool(found) and self._cluster.kill(self.chance.choice(found))


def run(
    plant: Plant,
    folder: Path,
    *,
    samples: int,
    rate: float,
    seed: int,
    gap: tuple[float, float],
    patience: float,
    say: Callable[[str], None],
) -> tuple[Counted, Kills]:
    """Copy what the writers send while things are killed, ``gap`` seconds apart, as long as the writers write."""
    driver = Driver(plant.cluster, folder, _SETTINGS)
    driver.start()
    query = CopyingQuery(plant, driver, folder)
    query.wait_until_it_runs()
    first, rest = folder / "go-1", folder / "go-2"
    writers = plant.write(WRITERS, rate, {first: 100, rest: samples - 100})
    first.touch()
    wait_until(lambda: query.check() and query.rows(), query.output, 120, every=0.05)
    rest.touch()
    begun = time.monotonic()
    kills = Kills(plant, query, seed)

    def have_written() -> int:
        for each in writers:
            assert each.poll() is None, plant.cluster.output_of(each)
        return sum("written" in plant.cluster.output_of(each) for each in writers)

    def tell(what: str) -> None:
        say(f"{time.monotonic() - begun:6.1f} s  {query.rows():>9} rows  {query.done:>4} batches  {what}")

    while have_written() < WRITERS or kills.missing:
        time.sleep(kills.chance.uniform(*gap))
        tell(kills.kill_one())
    tell("all is written")
    wanted, until = WRITERS * samples, time.monotonic() + patience
    while query.rows() < wanted and time.monotonic() < until:
        query.check()
        time.sleep(0.2)
    tell("all is there" if query.rows() >= wanted else "NOT all is there")
    settled = query.done
    while query.done < settled + 1 and query.planned > query.done and time.monotonic() < until:
        time.sleep(0.1)  # what comes twice comes late
    query.stop()
    driver.stop()
    return query.counted(WRITERS, samples), kills


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.kills", description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000_000, help="of each of the three writers")
    parser.add_argument("--rate", type=float, default=6_000, help="samples a second of each writer")
    parser.add_argument("--seed", type=int, default=None, help="of what is killed when")
    given = parser.parse_args(arguments)
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}, {WRITERS} writers of {given.samples} samples each", flush=True)
    with tempfile.TemporaryDirectory(prefix="rtps-kills-") as name, hosts(Path(name)) as made:
        return _long(made, Path(name), given, seed)


def _long(made: Hosts, folder: Path, given: argparse.Namespace, seed: int) -> int:
    work = folder / "kills"
    work.mkdir()
    connect(made)
    found, kills = run(
        Plant(made, work),
        work,
        samples=given.samples,
        rate=given.rate,
        seed=seed,
        gap=(2.0, 6.0),
        patience=600,
        say=lambda line: print(line, flush=True),
    )
    print(f"killed: {dict(kills.done)}\n{found}", flush=True)
    return int(found != Counted(WRITERS * given.samples, 0, 0, 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
