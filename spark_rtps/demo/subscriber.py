"""A foreign DDS subscriber: Cyclone DDS prints what arrives on the topic "Alerts", until SIGTERM.

Run by itself: ``python -m spark_rtps.demo.subscriber --domain 0``. Its type is the one that spark-rtps
derives from the DataFrame's schema; ``spark-rtps idl`` prints it.
"""

import argparse
import signal
import threading
from dataclasses import dataclass

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import float64, int64
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from . import DOMAIN


@dataclass
class Alert(IdlStruct, typename="Alert"):
    color: str
    squares: int64
    avg_x: float64
    avg_y: float64


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--domain", type=int, default=DOMAIN)
    options = arguments.parse_args()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGINT, lambda *_: stopped.set())

    participant = DomainParticipant(options.domain)
    qos = Qos(Policy.Reliability.Reliable(duration(seconds=10)), Policy.History.KeepAll)
    reader = DataReader(participant, Topic(participant, "Alerts", Alert), qos=qos)
    received = 0
    while not stopped.wait(0.05):
        for alert in reader.take_iter(timeout=duration(milliseconds=1)):
            received += 1
            middle = f"({alert.avg_x:.0f}, {alert.avg_y:.0f})"
            print(f"{alert.color:<7}{alert.squares:5d} squares, on average at {middle}", flush=True)
    print(f"{received:6,} alerts received in all", flush=True)


if __name__ == "__main__":
    main()
