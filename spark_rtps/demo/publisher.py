"""A foreign DDS publisher: Cyclone DDS writes moving squares to the topic "Square", until SIGTERM.

Run by itself: ``python -m spark_rtps.demo.publisher --domain 0``. It knows nothing of spark-rtps but this
package's constants.
"""

import argparse
import itertools
import signal
import threading
import time
from dataclasses import dataclass
from typing import Annotated

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import key
from cyclonedds.idl.types import bounded_str, int32
from cyclonedds.pub import DataWriter
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from . import COLORS, DOMAIN

WIDTH, HEIGHT = 240, 270


@dataclass
class ShapeType(IdlStruct, typename="ShapeType"):
    color: Annotated[str, bounded_str(128)]
    key("color")
    x: int32
    y: int32
    shapesize: int32


def bounce(step: int, extent: int) -> int:
    """Where a square is that moves to and fro between 0 and extent."""
    at = step % (2 * extent)
    return at if at < extent else 2 * extent - at


def steps_between_lines(rate: float) -> int:
    """A line comes every two seconds, or with each step if steps are slower."""
    return max(1, round(2 * rate / len(COLORS)))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--domain", type=int, default=DOMAIN)
    arguments.add_argument("--rate", type=float, default=200.0, help="squares a second")
    options = arguments.parse_args()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGINT, lambda *_: stopped.set())

    participant = DomainParticipant(options.domain)
    qos = Qos(Policy.Reliability.Reliable(duration(seconds=10)), Policy.History.KeepAll)
    writer = DataWriter(participant, Topic(participant, "Square", ShapeType), qos=qos)
    print(f"waiting for a reader of the topic Square in domain {options.domain}", flush=True)
    while not writer.get_matched_subscriptions():
        if stopped.wait(0.05):
            return
    # Matched is not ready: the reader's side may not have matched yet, and Square keeps no history for it.
    stopped.wait(1.0)

    sent, started = 0, time.monotonic()
    for step in itertools.count():
        for i, color in enumerate(COLORS):
            x, y = bounce((i + 1) * step, WIDTH), bounce(step + 60 * i, HEIGHT)
            writer.write(ShapeType(color, x, y, 30))
            sent += 1
        if step % steps_between_lines(options.rate) == 0:
            print(f"{sent:6,} squares written, {COLORS[0]} is at ({bounce(step, WIDTH)}, {y})", flush=True)
        if stopped.wait(max(0.0, started + sent / options.rate - time.monotonic())):
            break
    print(f"{sent:6,} squares written in all", flush=True)
    # let the reader acknowledge the last ones before the writer goes
    time.sleep(0.5)


if __name__ == "__main__":
    main()
